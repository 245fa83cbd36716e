"""A state machine of the filter against a naive oracle: every rule, evaluated over all statements after every step.

Random registrations, deletions and changes of rules over a tiny dataset, by two processes that share a database. After
each step three results agree for every rule: the sum of the filter's changes so far, a full evaluation by the
MDP, and the oracle. `tests/model/test_filter_mutants.py` proves that the machine detects errors.

MDV_MODEL_EXAMPLES sets the number of runs, for longer searches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from mdv.errors import InvalidRule, MdvError
from mdv.inspect.propose import propose
from mdv.inspect.sql.documents import StoredStatements, read_document
from mdv.model import Statement
from mdv.rdf.syntax import SYNTAXES
from mdv.rules.ast import ParsedRule
from mdv.rules.parse import parse
from tests.support.edit_rounds import edit_in_rounds, rounds_to
from tests.support.formats import assert_resource_is_read, assert_stored_document_is_read
from tests.support.generated_rules import (
    DOCUMENTS,
    SCHEMA,
    RuleText,
    Said,
    contents,
    in_order,
    lawful,
    populations,
    rule_texts,
    schema_in_force,
    turtle,
    values_of,
    variants,
)
from tests.support.machines import Rotation
from tests.support.mdp import Mdp
from tests.support.rule_oracle import World
from tests.support.two_processes import System

MOST_RULES = 10

Batch: TypeAlias = Mapping[str, Said | None]
T = TypeVar("T")

NAMES = ["first", "second", "third", "Place"]
"""A rule may search rules with earlier names. `Place` is never searched: the class takes precedence."""


@dataclass
class Known:
    """A registered rule."""

    name: str | None
    written: RuleText
    parsed: ParsedRule
    ends: tuple[int, ...] = ()


class Follower:
    """The knowledge of a client that registers documents and rules, and sees only the filter's changes."""

    def __init__(self, processes: list[Mdp]) -> None:
        self.processes = processes
        self.acting = 0
        self.store: dict[str, Said] = {}
        self.rules: dict[int, Known] = {}
        self.matched: set[tuple[int, str]] = set()  # end rule and resource
        self.read, self.syntaxes = Rotation(), Rotation()
        self.mdp.put_schema(SCHEMA)
        self.schema = schema_in_force(SCHEMA).schema

    @property
    def mdp(self) -> Mdp:
        return self.processes[self.acting]

    # -- acting

    def put(self, batch: Batch) -> None:
        """Register, or (None) delete, in one transaction."""
        texts = {uri: turtle(said) if said is not None else None for uri, said in batch.items()}
        answers = self.transact(lambda: self.mdp.put(texts))
        assert not [answer for answer in answers if isinstance(answer, MdvError)]
        self.record(batch)

    def edit(self, batch: Batch, noise: Said, flush: bool) -> None:
        """Make the same changes as `put` by rounds of edits."""
        rounds = rounds_to(self.store, batch, noise)
        self.transact(lambda: edit_in_rounds(self.mdp, rounds, flush))
        self.record(batch)

    def record(self, batch: Batch) -> None:
        self.store |= {uri: said for uri, said in batch.items() if said is not None}
        for uri in (uri for uri, said in batch.items() if said is None):
            del self.store[uri]

    def add(self, drafts: Sequence[tuple[str | None, RuleText]]) -> None:
        texts = [(name, written.text) if name else written.text for name, written in drafts]
        added = self.transact(lambda: self.mdp.add_rules(texts))
        for (name, written), answer in zip(drafts, added, strict=True):
            assert answer.id not in self.rules
            self.rules[answer.id] = Known(name, written, parse(written.text))
        self.learn_ends()
        assert [self.rules[answer.id].ends for answer in added] == [tuple(sorted(answer.ends)) for answer in added]

    def change(self, rule_id: int, written: RuleText) -> None:
        answer = self.transact(lambda: self.mdp.change_rule(rule_id, written.text))
        assert answer.id == rule_id
        self.rules[rule_id] = Known(self.rules[rule_id].name, written, parse(written.text))
        self.learn_ends()
        assert self.rules[rule_id].ends == tuple(sorted(answer.ends))

    def remove(self, ids: Sequence[int]) -> None:
        self.transact(lambda: self.mdp.remove_rules(ids))
        for rule_id in ids:
            del self.rules[rule_id]
        self.learn_ends()

    def transact(self, act: Callable[[], T]) -> T:
        before = self.position()
        answer = act()
        if self.position() != before:
            self.follow(self.mdp.changes())
        return answer

    def position(self) -> int:
        position = self.mdp.one("select position from mdp_state")
        assert isinstance(position, int)
        return position

    # -- following

    def follow(self, changes: Iterable[tuple[int, str, bool]]) -> None:
        reported: set[tuple[int, str]] = set()
        for end, uri, matched in changes:
            assert (end, uri) not in reported, f"reported twice: {end} {uri}"
            reported.add((end, uri))
            known = (end, uri) in self.matched
            assert matched is not known, f"{'gain of a known match' if matched else 'loss of no match'}: {end} {uri}"
            (self.matched.add if matched else self.matched.remove)((end, uri))

    def learn_ends(self) -> None:
        """A change of one rule may change the end rules of those that search it. Unused end rules are dropped."""
        for rule_id, known in self.rules.items():
            known.ends = tuple(sorted(self.mdp.ends_of(rule_id)))
        ends = {end for known in self.rules.values() for end in known.ends}
        self.matched = {(end, uri) for end, uri in self.matched if end in ends}

    # -- comparing

    def check(self, whole: bool = False) -> None:
        """Compare the matches of all rules. Read one resource and one document, or with `whole` all of them."""
        ends = {end for known in self.rules.values() for end in known.ends}
        assert {end for end, _ in self.matched} <= ends, "changes of end rules that no rule has"
        followed, evaluated = self.followed(), self.evaluated()
        for rule_id, wanted in self.wanted().items():
            text = self.rules[rule_id].written.text
            assert evaluated[rule_id] == wanted, f"evaluation differs from the oracle: {text}"
            assert followed[rule_id] == wanted, f"filter differs from the oracle: {text}"
        every = frozenset().union(*self.store.values())
        resources, documents = sorted({statement.subject for statement in every}), sorted(self.store)
        if whole:
            self.check_reading(every, resources, documents)
        else:
            self.check_reading(every, self.read.next_of(resources), self.read.next_of(documents))

    def check_reading(self, every: Said, resources: Iterable[str], documents: Iterable[str]) -> None:
        """Compare resources (the union of all documents) and documents in every format."""
        reading = self.mdp.engine.connect
        for uri in resources:
            said = (s for s in every if s.subject == uri)
            assert_resource_is_read(uri, StoredStatements(uri), reading, said, self.syntaxes.next_of(list(SYNTAXES)))
        for uri in documents:
            with reading() as connection:
                info = read_document(connection, uri)
            assert info is not None
            stored, syntaxes = StoredStatements(info), self.syntaxes.next_of(list(SYNTAXES))
            assert_stored_document_is_read(uri, stored, reading, self.store[uri], syntaxes)

    def followed(self) -> dict[int, set[str]]:
        return {
            rule_id: {uri for end, uri in self.matched if end in known.ends} for rule_id, known in self.rules.items()
        }

    def evaluated(self) -> dict[int, set[str]]:
        """Use the process that did not act last."""
        other = self.processes[1 - self.acting]
        return {rule_id: set(other.results_of(rule_id)) for rule_id in self.rules}

    def wanted(self) -> dict[int, set[str]]:
        named = {known.name: known.parsed for known in self.rules.values() if known.name}
        world = World(self.schema, frozenset().union(*self.store.values()), named)
        return {rule_id: world.registered(known.parsed) for rule_id, known in self.rules.items()}

    # -- which rules may search which

    def searchable(self, name: str | None, beside: Sequence[str | None] = ()) -> list[str]:
        taken = {known.name for known in self.rules.values()} | set(beside)
        earlier = NAMES[:3] if name is None else NAMES[: NAMES.index(name)]
        return [other for other in earlier if other in taken]

    def searched(self, ids: Sequence[int]) -> bool:
        """Return True if a rule that is not among them searches one of them."""
        names = {self.rules[rule_id].name for rule_id in ids}
        return any(names & known.written.searches for rule_id, known in self.rules.items() if rule_id not in ids)

    def draw_rule(self, data: st.DataObject, name: str | None, beside: Sequence[str | None] = ()) -> RuleText:
        return data.draw(rule_texts(self.searchable(name, beside), small=name is not None))


SMALL = DOCUMENTS[1:]
"""The first document, the largest, is changed rather than replaced: otherwise few rules would match later."""
BATCHES = st.dictionaries(st.sampled_from(SMALL), contents() | st.none(), min_size=1, max_size=3)
PROCESS = st.sampled_from([0, 1])


class FilterMachine(RuleBasedStateMachine):
    def __init__(self, system: System) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.model = Follower(self.stack.enter_context(system()))

    def teardown(self) -> None:
        with self.stack:
            self.model.check(whole=True)

    @initialize(population=populations(), data=st.data())
    def begin(self, population: Said, data: st.DataObject) -> None:
        self.model.put({DOCUMENTS[0]: population})
        self.model.add([(name, self.model.draw_rule(data, name)) for name in (NAMES[0], None, None)])
        self.model.check()

    # -- documents

    def there(self, batch: Batch) -> dict[str, Said | None]:
        """Deletions of unregistered documents are excluded."""
        return {uri: said for uri, said in batch.items() if said is not None or uri in self.model.store}

    @rule(process=PROCESS, uri=st.sampled_from(SMALL), said=contents())
    def register_one(self, process: int, uri: str, said: Said) -> None:
        self.step(process, lambda: self.model.put({uri: said}))

    @rule(process=PROCESS, batch=BATCHES)
    def register_some_and_delete_some_at_once(self, process: int, batch: Batch) -> None:
        if there := self.there(batch):
            self.step(process, lambda: self.model.put(there))

    @rule(process=PROCESS, batch=BATCHES, noise=contents(most=1) | st.just(frozenset()), flush=st.booleans())
    def edit_documents_in_rounds(self, process: int, batch: Batch, noise: Said, flush: bool) -> None:
        if there := self.there(batch):
            self.step(process, lambda: self.model.edit(there, noise, flush))

    @rule(process=PROCESS, batch=BATCHES)
    def register_some_and_delete_some_one_by_one(self, process: int, batch: Batch) -> None:
        for uri, said in self.there(batch).items():
            self.step(process, lambda uri=uri, said=said: self.model.put({uri: said}))  # type: ignore[misc]

    @precondition(lambda self: self.model.store)
    @rule(process=PROCESS, data=st.data())
    def change_values(self, process: int, data: st.DataObject) -> None:
        """Properties that occur in rules, and types."""
        texts = "".join(known.written.text for known in self.model.rules.values()) + "type"
        spoken = [(uri, s) for uri, s in self.said() if s.property.rpartition("/")[2].rpartition("#")[2] in texts]
        drawn = data.draw(st.lists(st.sampled_from(spoken or self.said()), min_size=1, max_size=4, unique=True))
        new = [s._replace(object=data.draw(st.sampled_from(values_of(s.property)))) for _, s in drawn]
        changed = {uri: [(o, n) for (u, o), n in zip(drawn, new, strict=True) if u == uri] for uri, _ in drawn}
        batch = {uri: self.with_changes(uri, {o for o, _ in c}, [n for _, n in c]) for uri, c in changed.items()}
        self.step(process, lambda: self.model.put(batch))

    @precondition(lambda self: self.model.store)
    @rule(process=PROCESS, data=st.data(), more=contents(most=1))
    def say_more_and_less(self, process: int, data: st.DataObject, more: Said) -> None:
        uri = data.draw(st.sampled_from(sorted(self.model.store)))
        less = data.draw(st.sets(st.sampled_from(in_order(self.model.store[uri])), max_size=3))
        self.step(process, lambda: self.model.put({uri: self.with_changes(uri, less, in_order(more))}))

    @precondition(lambda self: self.model.store)
    @rule(process=PROCESS, data=st.data())
    def describe_a_resource_no_more(self, process: int, data: st.DataObject) -> None:
        """Register again without it, or delete, every document that describes it."""
        subject = data.draw(st.sampled_from(sorted({statement.subject for _, statement in self.said()})))
        left = {u: frozenset(s for s in said if s.subject != subject) for u, said in self.model.store.items()}
        batch = {uri: said or None for uri, said in left.items() if said != self.model.store[uri]}
        self.step(process, lambda: self.model.put(batch))

    @precondition(lambda self: self.model.store)
    @rule(process=PROCESS, data=st.data())
    def move_statements_to_another_document(self, process: int, data: st.DataObject) -> None:
        source = data.draw(st.sampled_from(sorted(self.model.store)))
        target = data.draw(st.sampled_from([uri for uri in DOCUMENTS if uri != source]))
        said = in_order(self.model.store[source])
        moved = data.draw(st.lists(st.sampled_from(said), min_size=1, max_size=6, unique=True))
        rest = self.model.store[source] - set(moved)
        batch = {source: rest or None, target: self.with_changes(target, set(), moved)}
        self.step(process, lambda: self.model.put(batch))

    @precondition(lambda self: self.model.store)
    @rule(process=PROCESS, data=st.data())
    def register_the_same_again(self, process: int, data: st.DataObject) -> None:
        uri = data.draw(st.sampled_from(sorted(self.model.store)))
        before = self.model.position()
        self.step(process, lambda: self.model.put({uri: self.model.store[uri]}))
        assert self.model.position() == before

    @precondition(lambda self: self.model.store)
    @rule(process=PROCESS, data=st.data())
    def propose_rules_for_a_resource(self, process: int, data: st.DataObject) -> None:
        self.model.acting = process
        subject = data.draw(st.sampled_from(sorted({statement.subject for _, statement in self.said()})))
        world = World(self.model.schema, frozenset().union(*self.model.store.values()), {})
        with self.model.mdp.engine.connect() as connection:
            for proposal in propose(connection, self.model.mdp.schemas, subject):
                assert subject in world.registered(parse(proposal.rule)), proposal.rule

    @precondition(lambda self: self.model.store)
    @rule(process=PROCESS, data=st.data())
    def delete(self, process: int, data: st.DataObject) -> None:
        uri = data.draw(st.sampled_from(sorted(self.model.store)))
        self.step(process, lambda: self.model.put({uri: None}))

    def said(self) -> list[tuple[str, Statement]]:
        return [(uri, statement) for uri in sorted(self.model.store) for statement in in_order(self.model.store[uri])]

    def with_changes(self, uri: str, less: set[Statement], more: Iterable[Statement]) -> Said:
        """New statements come first, so that they win where only one value is allowed."""
        return lawful([*more, *in_order(self.model.store.get(uri, frozenset()) - less)])

    # -- rules

    @precondition(lambda self: len(self.model.rules) < MOST_RULES)
    @rule(process=PROCESS, data=st.data(), number=st.sampled_from([1, 1, 2, 3]))
    def add_rules(self, process: int, data: st.DataObject, number: int) -> None:
        taken = {known.name for known in self.model.rules.values()}
        free = [name for name in NAMES if name not in taken]
        names: list[str | None] = data.draw(st.permutations([*free[:2], None, None, None]))[:number]
        drafts = [(name, self.model.draw_rule(data, name, names)) for name in names]
        self.step(process, lambda: self.model.add(drafts))

    @precondition(lambda self: 0 < len(self.model.rules) < MOST_RULES)
    @rule(process=PROCESS, data=st.data())
    def add_the_same_text_again(self, process: int, data: st.DataObject) -> None:
        known = data.draw(st.sampled_from(list(self.model.rules.values())))
        self.step(process, lambda: self.model.add([(None, known.written)]))

    @precondition(lambda self: 0 < len(self.model.rules) < MOST_RULES)
    @rule(process=PROCESS, data=st.data(), number=st.sampled_from([1, 2, 4]))
    def add_rules_that_differ_in_their_constants(self, process: int, data: st.DataObject, number: int) -> None:
        known = data.draw(st.sampled_from(list(self.model.rules.values())))
        drafts = [(None, data.draw(variants(known.written))) for _ in range(number)]
        self.step(process, lambda: self.model.add(drafts))

    @precondition(lambda self: len(self.model.rules) > 1)
    @rule(process=PROCESS, data=st.data())
    def remove_rules(self, process: int, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.model.rules)), min_size=1, max_size=3, unique=True))
        if self.model.searched(ids):
            self.refused(process, lambda mdp: mdp.remove_rules(ids))
        else:
            self.step(process, lambda: self.model.remove(ids))

    @precondition(lambda self: self.model.rules)
    @rule(process=PROCESS, data=st.data())
    def change_a_rule(self, process: int, data: st.DataObject) -> None:
        """Change to another rule, or the same with other constants; rules that search it follow."""
        rule_id = data.draw(st.sampled_from(sorted(self.model.rules)))
        known = self.model.rules[rule_id]
        same = data.draw(st.booleans())
        written = data.draw(variants(known.written)) if same else self.model.draw_rule(data, known.name)
        self.step(process, lambda: self.model.change(rule_id, written))

    @rule(process=PROCESS, data=st.data())
    def add_a_rule_beside_a_bad_one(self, process: int, data: st.DataObject) -> None:
        texts = [self.model.draw_rule(data, None).text, "search Nothing n register n"]
        self.refused(process, lambda mdp: mdp.add_rules(texts), InvalidRule)

    # -- carrying out

    def step(self, process: int, act: Callable[[], object]) -> None:
        self.model.acting = process
        act()
        self.model.check()

    def refused(self, process: int, act: Callable[[Mdp], object], error: type[MdvError] = MdvError) -> None:
        """Check that nothing changes, neither stored nor cached."""
        self.model.acting = process
        before = self.model.position()
        with pytest.raises(error):
            act(self.model.mdp)
        assert self.model.position() == before
        self.model.check()
