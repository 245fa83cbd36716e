"""The store under edits, compared with an oracle: several rounds of edits in one transaction, and programs, beside
registrations."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import sqlalchemy
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from sqlalchemy import Connection

from mdv.cause import PROGRAM, RULE, Cause
from mdv.db.delta import DocumentDifference, EffectiveEdits, EncodedStatement, TypedValue
from mdv.db.load_sql import load_sql
from mdv.db.statement_store import StatementStore
from mdv.errors import InvalidDocument
from mdv.mdp.edit import Edit
from mdv.mdp.register import _sort_out
from mdv.mdp.transaction import Transaction, TransactionOutcome
from mdv.model import Statement, Term
from tests.support.machines import assert_mutant_is_detected, run_machine
from tests.support.mdp import Mdp
from tests.support.real_processes import Programs
from tests.support.store_machine import (
    CONTENT,
    DOCUMENTS,
    NUMBERS,
    P,
    Rules,
    Store,
    StoreMachine,
    a_statement,
    compare,
    ordered,
    visible,
)

pytestmark = pytest.mark.full


CAUSE = Cause(RULE, "rule 1", "user anna")


class Round(NamedTuple):
    """One call of `Transaction.edit`. `flush`: the changes are written before the next one."""

    additions: list[Edit]
    deletions: list[Edit]
    document: str
    flush: bool


def _edits() -> st.SearchStrategy[list[Edit]]:
    document = st.none() | st.sampled_from(DOCUMENTS)
    return st.lists(st.builds(Edit, a_statement(), document), max_size=3)


ROUNDS = st.lists(
    st.builds(Round, _edits(), _edits(), st.sampled_from(DOCUMENTS), st.booleans()), min_size=1, max_size=4
)


def apply(store: Store, one: Round) -> Store:
    """Return the documents after one round, by the laws of an edit."""
    after = dict(store)
    for statement, document in one.deletions:
        for uri in [document] if document is not None else list(after):
            after[uri] = after.get(uri, frozenset()) - {statement}
    for statement, document in one.additions:
        if document is not None or statement not in visible(after):
            uri = document or one.document
            after[uri] = after.get(uri, frozenset()) | {statement}
    return {uri: said for uri, said in after.items() if said}


class EditMachine(StoreMachine):
    @rule(rounds=ROUNDS)
    def edit_in_rounds(self, rounds: list[Round]) -> None:
        self.edit(rounds, {})

    def edit(self, rounds: list[Round], batch: Store) -> None:
        before, registered = self.oracle.store, self.after(batch)
        after = registered
        for one in rounds:
            after = apply(after, one)
        changed = sorted(
            uri
            for uri in {*before, *registered, *after}
            if before.get(uri) != after.get(uri) or before.get(uri) != registered.get(uri)
        )
        valid = all(self.oracle.rules.accepts(after.get(uri, frozenset())) for uri in changed)
        try:
            outcome = self.carry_out(rounds, batch)
        except InvalidDocument:
            assert not valid
        else:
            assert valid
            self.check_outcome(outcome, changed, after)
            replaced = {uri for uri in batch if before.get(uri) != registered.get(uri)}
            self.oracle.record(changed, after, {*changed} - replaced, CAUSE)
        self.check_everything()

    @rule(data=st.data(), extra=_edits())
    def edit_stored_statements(self, data: st.DataObject, extra: list[Edit]) -> None:
        """Remove, add again and move statements that are stored."""
        stored = [Edit(statement, uri) for uri, said in self.oracle.store.items() for statement in ordered(said)]
        if not stored:
            return
        some = st.lists(st.sampled_from(stored), max_size=3)
        somewhere = st.none() | st.sampled_from(DOCUMENTS)
        rounds = [
            Round(
                [Edit(one.statement, data.draw(somewhere)) for one in data.draw(some)] + extra[:1],
                data.draw(some),
                data.draw(st.sampled_from(DOCUMENTS)),
                data.draw(st.booleans()),
            )
            for _ in range(data.draw(st.integers(1, 3)))
        ]
        self.edit(rounds, {})

    @precondition(lambda self: self.oracle.store)
    @rule(data=st.data(), value=st.sampled_from(NUMBERS))
    def change_a_value(self, data: st.DataObject, value: Term) -> None:
        """Replace a value in place. The property may have one value at most."""
        uri = data.draw(st.sampled_from(sorted(self.oracle.store)))
        old = data.draw(st.sampled_from(ordered(self.oracle.store[uri])))
        new = old._replace(property=P, object=value)
        self.edit([Round([Edit(new, uri)], [Edit(old, uri)], uri, flush=False)], {})

    @rule(batch=st.dictionaries(st.sampled_from(DOCUMENTS), CONTENT | st.just(frozenset()), min_size=1), rounds=ROUNDS)
    def register_and_edit(self, batch: Store, rounds: list[Round]) -> None:
        """Rules will react to registrations in this way."""
        self.edit(rounds, batch)

    def carry_out(self, rounds: list[Round], batch: Store) -> TransactionOutcome:
        now = self.after(batch)
        with self.mdp.engine.begin() as connection:
            tx = Transaction(self.mdp.provider, connection)
            if batch:
                items = self.prepared(batch)
                stored = tx.lock_documents([item.uri for item in items], {uri for item in items for uri in item.uris})
                _, replacements, names = _sort_out(tx, items, stored)
                tx.replace_documents(replacements, names)
            for one in rounds:
                tx.edit(CAUSE, one.additions, one.deletions, one.document)
                now = apply(now, one)
                if one.flush:
                    tx.flush()
                    before = BEFORE.format(tx.position, COLUMNS)
                    found, wanted = by_document(read_rows(connection, "filter_data")), said_by_documents(now)
                    assert found == wanted, f"{found}\n\nWANTED {wanted}"
                    assert by_document(read_rows(connection, before)) == said_by_documents(self.oracle.store)
            return tx.finish()

    def check_outcome(self, outcome: TransactionOutcome, changed: list[str], after: Store) -> None:
        assert sorted(outcome.documents) == changed
        assert outcome.position == self.oracle.position + bool(changed)
        whole = compare(self.oracle.store, after)
        for name in ("inserted", "updated", "deleted"):
            total = sum(getattr(one.counts, name) for one in outcome.documents.values())
            resources = len(getattr(whole, name))
            assert resources <= total <= resources * len(changed), name
        for uri in changed:
            assert outcome.documents[uri].counts.version == self.oracle.latest(uri) + 1


class SingleValueMachine(EditMachine):
    """The schema stays as it is: a property has one value in a document at most."""

    def __init__(self, mdp: Mdp) -> None:
        super().__init__(mdp)
        super().change_schema(Rules(p_set_valued=False))

    def change_schema(self, rules: Rules) -> None:
        if not self.oracle.schema_version:
            super().change_schema(rules)


Rows = list[tuple[int, Statement]]

DECODED = """
    select f.document_id, r.uri, p.uri, t.uri, f.value, f.lang, d.uri
    from (select document_id, resource_id, property_id, target_id, value, lang, datatype_id from {}) f
    join resources r on r.id = f.resource_id join vocabulary p on p.id = f.property_id
    left join resources t on t.id = f.target_id left join vocabulary d on d.id = f.datatype_id"""
BEFORE = "filter_data where position < {0} union all select {1} from filter_data_history where until_position = {0}"
COLUMNS = "document_id, resource_id, property_id, target_id, value, lang, datatype_id"


def read_rows(connection: Connection, source: str) -> Rows:
    """Return the statements of all documents, as queries on the connection see them."""
    rows = connection.execute(sqlalchemy.text(DECODED.format(source)))
    return sorted(
        (document, Statement(subject, name, Term.uri(target) if target else Term.literal(value, lang, datatype)))
        for document, subject, name, target, value, lang, datatype in rows
    )


def said_by_documents(store: Store) -> list[list[Statement]]:
    """Return the statements of each document, without its name: new documents have no row before the end."""
    return sorted(ordered(said) for said in store.values())


def by_document(rows: Rows) -> list[list[Statement]]:
    found: dict[int, list[Statement]] = {}
    for document, statement in rows:
        found.setdefault(document, []).append(statement)
    return sorted(ordered(said) for said in found.values())


@pytest.mark.parametrize("small", [200, 0], ids=["in one message", "by COPY"])
def test_edits_agree_with_the_oracle(mdp: Mdp, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.db.statement_store.MAX_PIPELINED_STATEMENTS", small)
    run_machine(lambda: EditMachine(mdp))


# Mutants: each is an error that the machine must detect.


def _count_returned_statement_as_new(patch: pytest.MonkeyPatch) -> None:
    def add(self: StatementStore, difference: DocumentDifference, key: EncodedStatement, typed: TypedValue) -> bool:
        difference.described.add(key.resource)
        difference.added.setdefault(key, typed)
        self._added_in[key][difference.uri] = None
        return True

    patch.setattr(StatementStore, "_add", add)


def _forget_earlier_rounds(patch: pytest.MonkeyPatch) -> None:
    edit = StatementStore.edit

    def forget(self: StatementStore, *arguments: Any) -> EffectiveEdits:
        self._differences, self._by_uri = [], {}
        return edit(self, *arguments)

    patch.setattr(StatementStore, "edit", forget)


def _mutate_sql(name: str, old: str, new: str) -> Callable[[pytest.MonkeyPatch], None]:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        sql = load_sql("store")
        assert old in sql[name]
        patch.setitem(sql, name, sql[name].replace(old, new))

    return mutate


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a statement that returns counts as new": _count_returned_statement_as_new,
    "a second round forgets the first": _forget_earlier_rounds,
    "edits without effect take a position": lambda patch: patch.setattr(
        StatementStore, "is_changed", property(lambda self: bool(self._batch or self._rounds))
    ),
    "statements of this transaction count as those of others": _mutate_sql(
        "find_others_before", "and f.position + 0 < %(position)s::bigint", "and %(position)s::bigint > 0"
    ),
    "visibility is not corrected": _mutate_sql("set_shows", "where", "where false and"),
    "the next registration does not compare statements": lambda patch: patch.setattr(
        StatementStore, "_find_same", lambda self, batch: set()
    ),
    "removed values are validated": lambda patch: patch.setattr(
        StatementStore, "values_after", lambda self, document, values: [statement for _, statement in values]
    ),
    "versions have no cause": _mutate_sql(
        "keep_documents", "cause, agent, changed_by\n    from item", "'registration', agent, changed_by\n    from item"
    ),
    "a document without statements stays": _mutate_sql(
        "find_present", "where f.document_id = k.document_id limit 1", "limit 1"
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_machine_detects_a_mutant(mutant: str, mdp: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    machine = SingleValueMachine if mutant == "removed values are validated" else EditMachine
    assert_mutant_is_detected(lambda: machine(mdp), seed=1)


STEPS = st.lists(st.tuples(st.booleans(), a_statement()), min_size=1, max_size=6)


def written(statement: Statement) -> str:
    """Return a statement as a triple of a program, with exact terms."""
    term = statement.object
    if term.is_uri:
        value = f"<{term.value}>"
    else:
        mark = f"@{term.lang}" if term.lang else f"^^<{term.datatype}>" if term.datatype else ""
        value = json.dumps(term.value) + mark
    return f"<{statement.property}>(<{statement.subject}>, {value})"


class ProgramMachine(EditMachine):
    @rule(steps=STEPS, into=st.sampled_from(DOCUMENTS), is_atomic=st.booleans())
    def run_a_program(self, steps: list[tuple[bool, Statement]], into: str, is_atomic: bool) -> None:
        """Add statements where they are accepted, and take away others. In `[ ]` the result is the same."""
        after = dict(self.oracle.store)
        for is_added, statement in steps:
            after = self.applied(after, is_added, statement, into)
        parts = [f"(FIRST {'+' if is_added else '-'}{written(one)} OR TRUE)" for is_added, one in steps]
        code = " AND ".join(parts)
        programs = Programs(self.mdp)
        iri = programs.start(f"[{code}]" if is_atomic else code, into=into)
        programs.run()
        news = programs.news(iri)
        assert (news.state, news.solutions) == ("done", 1), news.problem
        before = self.oracle.store
        changed = sorted(uri for uri in {*before, *after} if before.get(uri) != after.get(uri))
        gained = sum(len(said - before.get(uri, frozenset())) for uri, said in after.items())
        lost = sum(len(said - after.get(uri, frozenset())) for uri, said in before.items())
        assert (news.added, news.removed) == (gained, lost)
        self.oracle.record(changed, after, changed, Cause(PROGRAM, iri, "token test"))
        assert news.position == self.oracle.position
        self.check_everything()

    def applied(self, store: Store, is_added: bool, statement: Statement, into: str) -> Store:
        if not is_added:
            found = {uri: said - {statement} for uri, said in store.items()}
            return {uri: said for uri, said in found.items() if said}
        said = store.get(into, frozenset()) | {statement}
        if statement in visible(store) or not self.oracle.rules.accepts(said):
            return store
        return store | {into: said}


def test_programs_beside_registrations(mdp: Mdp) -> None:
    run_machine(lambda: ProgramMachine(mdp))
