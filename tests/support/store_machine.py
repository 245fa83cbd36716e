"""A state machine that compares the statement store with an oracle: registrations, deletions and schema changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import sqlalchemy
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from mdv.cause import REGISTERED, Cause
from mdv.errors import BreakingSchema, InvalidDocument, MdvError, NotFound
from mdv.inspect.sql.documents import StoredStatements, list_versions, read_document, read_document_statements
from mdv.inspect.sql.resources import list_resources
from mdv.mdp.provider import Provider
from mdv.mdp.put_schema import put_schema
from mdv.mdp.register import Prepared, RegistrationOutcome, prepared, register
from mdv.mdp.schemas import build_schema
from mdv.model import RDF_TYPE, RDFS_RESOURCE, XSD, Document, Statement, Term
from mdv.rdf.classes import resolve_classes
from mdv.rdf.syntax import SYNTAXES, Syntax
from tests.support.formats import assert_resource_is_read, assert_stored_document_is_read
from tests.support.machines import Rotation
from tests.support.mdp import Mdp
from web.pages.changes import diff_statements

Said = frozenset[Statement]
Store = dict[str, Said]

V = "http://v/"
DOCUMENTS = ["http://d/1", "http://d/2", "http://d/3"]
RESOURCES = [f"http://r/{n}" for n in range(4)]
P, Q, R = V + "p", V + "q", V + "r"
NUMBERS = [Term.literal("1"), Term.literal("2"), Term.literal("1", datatype=XSD + "integer")]
TEXTS = [Term.literal("x"), Term.literal("1", lang="en"), Term.literal("x", lang="en")]
CLASSES = [V + "A", V + "B", V + "Undeclared"]


def a_statement() -> st.SearchStrategy[Statement]:
    subject = st.sampled_from(RESOURCES)
    of = [
        st.builds(Statement, subject, st.just(RDF_TYPE), st.sampled_from(CLASSES[:2] * 3 + CLASSES[2:]).map(Term.uri)),
        st.builds(Statement, subject, st.just(P), st.sampled_from(NUMBERS * 3 + TEXTS)),
        st.builds(Statement, subject, st.just(Q), st.sampled_from(NUMBERS * 2 + TEXTS)),
        st.builds(Statement, subject, st.just(R), st.sampled_from(RESOURCES).map(Term.uri)),
    ]
    return st.one_of(of)


CONTENT = st.frozensets(a_statement(), min_size=1, max_size=5)


@dataclass(frozen=True)
class Rules:
    """A schema of the tiny dataset. Class A, the reference r (range A, set-valued) and p are always declared."""

    open: bool = False
    b_below_a: bool = False  # else B is a separate class
    p_is_integer: bool = True
    p_set_valued: bool = True
    q_declared: bool = True  # q is set-valued and has no own range
    q_below_p: bool = False  # implies declared

    def statements(self) -> Iterator[Statement]:
        rdfs, mdv_ = "http://www.w3.org/2000/01/rdf-schema#", "urn:mdv:schema#"

        def say(s: str, p: str, o: str) -> Statement:
            return Statement(s, p, Term.uri(o))

        yield say("urn:mdv:schema", mdv_ + "world", mdv_ + ("open" if self.open else "closed"))
        yield say(V + "A", RDF_TYPE, rdfs + "Class")
        yield say(V + "B", RDF_TYPE, rdfs + "Class")
        if self.b_below_a:
            yield say(V + "B", rdfs + "subClassOf", V + "A")
        yield say(R, rdfs + "range", V + "A")
        yield Statement(R, mdv_ + "setValued", Term.literal("true"))
        yield Statement(P, mdv_ + "setValued", Term.literal(str(self.p_set_valued).lower()))
        if self.p_is_integer:
            yield say(P, rdfs + "range", XSD + "integer")
        if self.q_declared or self.q_below_p:
            yield Statement(Q, mdv_ + "setValued", Term.literal("true"))
        if self.q_below_p:
            yield say(Q, rdfs + "subPropertyOf", P)

    def numeric(self, name: str) -> bool:
        return self.p_is_integer and (name == P or (name == Q and self.q_below_p))

    def accepts(self, said: Said) -> bool:
        """Return the violations of section 3 that this dataset can have, by a naive check."""
        values = Counter()
        for subject, name, term in said:
            if not self.open and name == Q and not (self.q_declared or self.q_below_p):
                return False
            if not self.open and name == RDF_TYPE and term.value not in CLASSES[:2]:
                return False
            if self.numeric(name) and term.value not in ("1", "2"):
                return False
            if name == P or (name == Q and self.q_below_p):
                values[subject, term] = 1
        many = Counter(subject for subject, _ in values)
        return self.p_set_valued or not any(n > 1 for n in many.values())

    def classes(self, name: str) -> set[str]:
        return {V + "A", V + "B"} if name == V + "A" and self.b_below_a else {name}


RULES = st.builds(Rules, *[st.booleans()] * 6)
NO_RULES = Rules(open=False, q_declared=False)


@dataclass
class Oracle:
    """The registered documents and their whole history."""

    rules: Rules = NO_RULES
    store: Store = field(default_factory=dict)
    position: int = 0
    schema_version: int = 0
    versions: dict[tuple[str, int], tuple[int, Said]] = field(default_factory=dict)  # empty: deleted
    causes: dict[tuple[str, int], Cause] = field(default_factory=dict)
    seen: dict[int, Said] = field(default_factory=lambda: {0: frozenset()})  # visible statements by position

    def latest(self, uri: str) -> int:
        return max((version for name, version in self.versions if name == uri), default=0)

    def record(
        self, changed: Collection[str], after: Store, edited: Collection[str] = (), cause: Cause = REGISTERED
    ) -> None:
        """Record a transaction that changed these documents, if any. `cause`: why those that were edited changed."""
        for uri in changed:
            version = self.latest(uri) + 1
            self.versions[uri, version] = self.position + 1, after.get(uri, frozenset())
            self.causes[uri, version] = cause if uri in edited else REGISTERED
        if changed:
            self.position += 1
            self.store = after
            self.seen[self.position] = visible(after)


def visible(store: Store) -> Said:
    return frozenset(chain.from_iterable(store.values()))


def ordered(said: Iterable[Statement]) -> list[Statement]:
    """Return a list, so that a duplicate is noticed."""
    return sorted(said, key=repr)


def subjects(said: Said) -> set[str]:
    return {statement.subject for statement in said}


def about(said: Said, resource: str) -> Said:
    return frozenset(statement for statement in said if statement.subject == resource)


@dataclass(frozen=True)
class Expected:
    """Return the resources by the effect of a batch, over all its documents."""

    inserted: set[str]
    updated: set[str]
    deleted: set[str]


def compare(before: Store, after: Store) -> Expected:
    old, new = visible(before), visible(after)
    changed = subjects(old ^ new)
    return Expected(
        {r for r in changed if r not in subjects(old)},
        {r for r in changed if r in subjects(old) and r in subjects(new)},
        {r for r in changed if r not in subjects(new)},
    )


class StoreMachine(RuleBasedStateMachine):
    steps = 0

    def __init__(self, mdp: Mdp) -> None:
        super().__init__()
        self.mdp = mdp
        _empty(mdp)
        self.oracle = Oracle()
        self.turn, self.syntaxes = Rotation(), Rotation()
        self.read: dict[str, Said] = {}
        """What a resource or document said when it was last read in every format."""
        self.change_schema(Rules())

    # -- steps

    @rule(uri=st.sampled_from(DOCUMENTS), said=CONTENT)
    def register_one(self, uri: str, said: Said) -> None:
        self.batch({uri: said})

    @rule(batch=st.dictionaries(st.sampled_from(DOCUMENTS), CONTENT | st.just(frozenset()), min_size=1))
    def register_some_and_delete_some(self, batch: Store) -> None:
        self.batch(batch)

    @precondition(lambda self: self.oracle.store)
    @rule(data=st.data(), said=CONTENT)
    def register_a_small_change(self, data: st.DataObject, said: Said) -> None:
        uri = data.draw(st.sampled_from(sorted(self.oracle.store)))
        gone = data.draw(st.sampled_from(ordered(self.oracle.store[uri])))
        self.batch({uri: (self.oracle.store[uri] | set(list(said)[:1])) - {gone}})

    @precondition(lambda self: self.oracle.store)
    @rule(data=st.data(), extra=CONTENT | st.just(frozenset()))
    def move_statements_to_another_document(self, data: st.DataObject, extra: Said) -> None:
        source = data.draw(st.sampled_from(sorted(self.oracle.store)))
        target = data.draw(st.sampled_from([uri for uri in DOCUMENTS if uri != source]))
        said = ordered(self.oracle.store[source])
        moved = frozenset(data.draw(st.lists(st.sampled_from(said), min_size=1, unique=True)))
        self.batch({
            source: self.oracle.store[source] - moved,
            target: self.oracle.store.get(target, frozenset()) | moved | extra,
        })  # fmt: skip

    @precondition(lambda self: self.oracle.store)
    @rule(data=st.data(), extra=CONTENT)
    def rename_a_document(self, data: st.DataObject, extra: Said) -> None:
        source = data.draw(st.sampled_from(sorted(self.oracle.store)))
        target = data.draw(st.sampled_from([uri for uri in DOCUMENTS if uri != source]))
        more = {statement._replace(subject=min(subjects(self.oracle.store[source]))) for statement in extra}
        self.batch({source: frozenset(), target: self.oracle.store[source] | more})

    @precondition(lambda self: self.oracle.store)
    @rule(data=st.data())
    def register_the_same_again(self, data: st.DataObject) -> None:
        uri = data.draw(st.sampled_from(sorted(self.oracle.store)))
        self.batch({uri: self.oracle.store[uri]})

    @precondition(lambda self: self.oracle.versions)
    @rule(data=st.data())
    def register_an_older_version(self, data: st.DataObject) -> None:
        uri, version = data.draw(st.sampled_from(sorted(self.oracle.versions)))
        self.batch({uri: self.oracle.versions[uri, version][1]})

    @precondition(lambda self: self.oracle.store)
    @rule(data=st.data())
    def copy_a_document(self, data: st.DataObject) -> None:
        source = data.draw(st.sampled_from(sorted(self.oracle.store)))
        self.batch({data.draw(st.sampled_from(DOCUMENTS)): self.oracle.store[source]})

    @rule(uri=st.sampled_from(DOCUMENTS))
    def delete(self, uri: str) -> None:
        self.batch({uri: frozenset()})

    @rule(batch=st.dictionaries(st.sampled_from(DOCUMENTS), CONTENT | st.just(frozenset()), min_size=1))
    def dry_run(self, batch: Store) -> None:
        with self.mdp.engine.begin() as connection:
            savepoint = connection.begin_nested()
            answers = register(connection, self.prepared(batch), self.mdp.provider)
            savepoint.rollback()
        self.check_answers(batch, answers, self.after(batch))
        self.check_everything()

    @rule(rules=RULES)
    def change_schema(self, rules: Rules) -> None:
        broken = {uri for uri, said in self.oracle.store.items() if not rules.accepts(said)}
        document = Document("urn:mdv:schema", tuple(rules.statements()))
        same = self.oracle.schema_version > 0 and tuple(self.oracle.rules.statements()) == document.statements
        try:
            with self.mdp.engine.begin() as connection:
                outcome = put_schema(connection, document, self.mdp.provider)
        except BreakingSchema as error:
            assert {flaw.message.split(": ")[0] for flaw in error.flaws} == broken != set()
        else:
            assert not broken
            assert outcome.changed is not same
            if not same:
                self.oracle.position += 1
                self.oracle.schema_version += 1
                self.oracle.seen[self.oracle.position] = visible(self.oracle.store)
                self.oracle.rules = rules
            assert (outcome.version, outcome.position) == (self.oracle.schema_version, self.oracle.position)
        self.check_everything()

    # -- carrying out

    def prepared(self, batch: Store) -> list[Prepared]:
        """Without a schema version, so that each is validated in its turn."""
        anything = build_schema(0, [], {})
        return [
            replace(prepared(Document(uri, tuple(ordered(said)), {"v": V}), anything), schema_version=-1)
            if said
            else Prepared(uri, None, -1)
            for uri, said in batch.items()
        ]

    def refused(self, uri: str, said: Said) -> type[MdvError] | None:
        if not said:
            return None if uri in self.oracle.store else NotFound
        return None if self.oracle.rules.accepts(said) else InvalidDocument

    def after(self, batch: Store) -> Store:
        new = dict(self.oracle.store)
        for uri, said in batch.items():
            if self.refused(uri, said) is None:
                new[uri] = said
        return {uri: said for uri, said in new.items() if said}

    def batch(self, batch: Store) -> None:
        answers = self.mdp.register_batch(self.prepared(batch))
        after = self.after(batch)
        self.check_answers(batch, answers, after)
        changed = [uri for uri in batch if self.oracle.store.get(uri) != after.get(uri)]
        self.oracle.record(changed, after)
        self.check_everything()

    # -- comparing

    def check_answers(self, batch: Store, answers: list[RegistrationOutcome | MdvError], after: Store) -> None:
        before = self.oracle.store
        changed = {uri: before.get(uri, frozenset()) ^ after.get(uri, frozenset()) for uri in batch}
        moves = any(changed.values())
        outcomes: dict[str, RegistrationOutcome] = {}
        for (uri, said), answer in zip(batch.items(), answers, strict=True):
            wanted = self.refused(uri, said)
            if wanted is not None:
                assert isinstance(answer, wanted)
                continue
            assert isinstance(answer, RegistrationOutcome), answer
            outcomes[uri] = answer
            assert answer.document == uri
            assert answer.version == self.oracle.latest(uri) + bool(changed[uri])
            assert answer.position == self.oracle.position + bool(changed[uri] and moves)
            assert answer.created is (uri not in before and uri in after)
            self.check_one_count(uri, answer, changed, compare(before, after), said)
        self.check_totals(outcomes, compare(before, after))

    def check_one_count(
        self, uri: str, answer: RegistrationOutcome, changed: dict[str, Said], whole: Expected, said: Said
    ) -> None:
        """Exact if this document is the only one in the batch that changes the resources it touches."""
        shown = visible(self.oracle.store) ^ visible(self.after_of(changed))
        mine = subjects(shown & changed[uri])
        others = subjects(frozenset(chain.from_iterable(c for name, c in changed.items() if name != uri)))
        if (subjects(changed[uri]) | subjects(said)) & others:
            return
        counts = (answer.inserted, answer.updated, answer.deleted, answer.unchanged)
        expected = [len(mine & part) for part in (whole.inserted, whole.updated, whole.deleted)]
        assert counts == (*expected, len(subjects(said) - mine))

    def after_of(self, changed: dict[str, Said]) -> Store:
        return self.oracle.store | {
            uri: self.oracle.store.get(uri, frozenset()) ^ change for uri, change in changed.items()
        }

    def check_totals(self, outcomes: dict[str, RegistrationOutcome], whole: Expected) -> None:
        """Every resource is counted at least once, under the one correct heading, by a document that changed it."""
        for name in ("inserted", "updated", "deleted"):
            total = sum(getattr(outcome, name) for outcome in outcomes.values())
            resources = len(getattr(whole, name))
            assert resources <= total <= resources * len(outcomes), name

    def check_everything(self) -> None:
        type(self).steps += 1
        self.forget_next_read()
        with self.mdp.engine.connect() as connection:
            now = visible(self.oracle.store)
            for resource in RESOURCES:
                said = about(now, resource)
                found = StoredStatements(resource).few(connection, 1000) or []
                assert ordered(found) == ordered(said)
                if found and self.is_unread(resource, said):
                    assert_resource_is_read(
                        resource, StoredStatements(resource), self.mdp.engine.connect, said, self.next_syntax()
                    )
            for uri in DOCUMENTS:
                self.check_document(connection, uri, self.oracle.latest(uri), None)
                self.check_causes(connection, uri)
            self.check_classes(connection, now)
            self.check_positions(connection)
            self.check_typed(connection)
            self.check_log(connection)

    def forget_next_read(self) -> None:
        """Let one resource or document after the other be read in every format though it has not changed."""
        for uri in self.turn.next_of([*RESOURCES, *DOCUMENTS]):
            self.read.pop(uri, None)

    def next_syntax(self) -> list[Syntax]:
        """Return the syntax in which statements are streamed next."""
        return self.syntaxes.next_of(list(SYNTAXES))

    def is_unread(self, uri: str, said: Said) -> bool:
        """True if it was not read in every format since it changed. Reading it so takes most of the time of a step."""
        was_read, self.read[uri] = self.read.get(uri) == said, said
        return not was_read

    def check_document(self, connection: Any, uri: str, version: int, asked: int | None) -> None:
        document = read_document(connection, uri, asked)
        if version == 0:
            assert document is None
            return
        position, said = self.oracle.versions[uri, version]
        assert document is not None
        assert (document.version, document.position, document.present) == (version, position, bool(said))
        found = read_document_statements(connection, document)
        assert ordered(found) == ordered(said)
        if said and (asked is not None or self.is_unread(uri, said)):
            assert_stored_document_is_read(
                uri, StoredStatements(document), self.mdp.engine.connect, said, self.next_syntax()
            )
        self.check_difference(uri, version, found)

    def check_causes(self, connection: Any, uri: str) -> None:
        found = {v.version: (v.cause, v.agent, v.by) for v in list_versions(connection, uri, 2**31 - 1, 10_000)}
        wanted = {
            version: (cause.kind.name, cause.agent, cause.by)
            for (name, version), cause in self.oracle.causes.items()
            if name == uri
        }
        assert found == wanted, "the causes of versions differ"

    def check_difference(self, uri: str, version: int, found: Sequence[Statement]) -> None:
        """Compare the difference from the previous version, as the page of a document shows it."""
        _, before = self.oracle.versions.get((uri, version - 1), (0, frozenset()))
        shown = diff_statements(before, found)
        assert (shown.added, shown.removed) == (len(set(found) - before), len(before - set(found)))
        assert {(line.sign, line.statement) for line in shown.lines} == {
            *(("+", statement) for statement in set(found) - before),
            *(("-", statement) for statement in before - set(found)),
        }

    def check_classes(self, connection: Any, now: Said) -> None:
        schema = build_schema(1, self.oracle.rules.statements(), {}).schema
        types = {r: {s.object.value for s in about(now, r) if s.property == RDF_TYPE} for r in subjects(now)}
        name = CLASSES[self.steps % len(CLASSES)]
        listed = list_resources(connection, resolve_classes(name, schema), 0, 100)
        wanted = {r for r, classes in types.items() if classes & self.oracle.rules.classes(name)}
        assert sorted(uri for _, uri, _ in listed) == sorted(wanted)
        assert all(set(classes) == types[uri] for _, uri, classes in listed)
        everything = list_resources(connection, None, 0, 100)
        assert {uri: set(classes) for _, uri, classes in everything} == {
            r: classes or {RDFS_RESOURCE} for r, classes in types.items()
        }

    def check_positions(self, connection: Any) -> None:
        positions = list(connection.scalars(sqlalchemy.text("select position from transactions order by position")))
        assert positions == list(range(1, self.oracle.position + 1))
        state = connection.execute(sqlalchemy.text("select position, schema_version from mdp_state")).one()
        assert tuple(state) == (self.oracle.position, self.oracle.schema_version)

    def check_typed(self, connection: Any) -> None:
        query = "select p.uri, f.value, f.number from filter_data f join vocabulary p on p.id = f.property_id"
        for name, value, number in connection.execute(sqlalchemy.text(query)):
            assert number == (int(value) if self.oracle.rules.numeric(name) else None), (name, value)

    def check_log(self, connection: Any) -> None:
        """Replayed from the beginning, the log gives the visible statements of every position."""
        replayed = replay(connection)
        now: Said = frozenset()
        for position in range(self.oracle.position + 1):
            now = replayed.get(position, now)
            assert now == self.oracle.seen[position], position

    def teardown(self) -> None:
        with self.mdp.engine.connect() as connection:
            for uri, version in self.oracle.versions:
                self.check_document(connection, uri, version, version)


def replay(connection: Any) -> dict[int, Said]:
    """Return the visible statements by position, from the log; every entry must change something."""
    query = """select position, operation, resource, property, target, value, lang, datatype
               from statement_log order by position"""
    seen: dict[int, Said] = {}
    now: set[Statement] = set()
    touched: set[tuple[int, Statement]] = set()
    rows = connection.execute(sqlalchemy.text(query))
    for position, operation, resource, name, target, value, lang, datatype in rows:
        term = Term.uri(target) if target is not None else Term.literal(value, lang, datatype)
        statement = Statement(resource, name, term)
        assert (position, statement) not in touched
        touched.add((position, statement))
        assert (statement in now) is (operation == "delete")
        (now.add if operation == "insert" else now.remove)(statement)
        seen[position] = frozenset(now)
    return seen


def _empty(mdp: Mdp) -> None:
    tables = ("document_versions", "documents", "filter_data", "filter_data_history", "resources", "transactions",
              "schema_versions")  # fmt: skip
    with mdp.engine.begin() as connection:
        for table in tables:
            connection.execute(sqlalchemy.text(f"delete from {table}"))
        connection.execute(sqlalchemy.text("update mdp_state set position = 0, schema_version = 0"))
    mdp.provider = Provider(mdp.engine)
