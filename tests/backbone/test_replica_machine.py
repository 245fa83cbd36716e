"""Three members on real databases against naive oracles: sets of operations, rules by enumeration, and closures.

Members register, edit and delete, pull from each other in any order, forget what is stable, and are restarted. After
each step, the member concerned shows exactly what its operations say: statements, versions, counters, the matches of
rules, and the cache of its LMR. In the end all are connected, and equal.

MDV_MODEL_EXAMPLES sets the number of runs, for longer searches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from mdv.backbone.orset import AddWinsSet
from mdv.backbone.vector import Vector
from mdv.cause import UPDATE, Cause
from mdv.db.replica.documents import read_rows
from mdv.lmr.cache import Cache
from mdv.lmr.sync import Sync
from mdv.mdp.edit import Edit
from mdv.mdp.transaction import Transaction
from mdv.model import Statement
from mdv.rules.parse import parse
from tests.support.cache_content import content_of
from tests.support.closure_oracle import closure_of
from tests.support.generated_rules import (
    DOCUMENTS,
    RESOURCES,
    SCHEMA,
    VALUES,
    Said,
    V,
    contents,
    rule_texts,
    schema_in_force,
    turtle,
)
from tests.support.in_process_source import Near
from tests.support.machines import assert_mutant_is_detected, model_examples, run_machine
from tests.support.replica_oracle import Contents, ReplicaOracle
from tests.support.replicas import Databases, ReplicaMdp, Replicas

pytestmark = pytest.mark.full

NAMES = ["a", "b", "c"]
EDITED = [(name, term) for name in ("tag", "about", "mentions") for term in VALUES[name]]
"""Values of properties that are set-valued: an edit of them is always valid."""

members = st.sampled_from(NAMES)
edited = st.lists(
    st.builds(lambda subject, pair: Statement(subject, V + pair[0], pair[1]), st.sampled_from(RESOURCES[:2]),
              st.sampled_from(EDITED)),
    max_size=3,
)  # fmt: skip


class Reader:
    """The LMR of a member with its rules."""

    def __init__(self, mdp: ReplicaMdp, texts: list[str], path: Path) -> None:
        self.mdp, self.rules = mdp, [parse(text) for text in texts]
        self.lmr = mdp.create_lmr(f"reader of {mdp.name}")
        mdp.subscribe(self.lmr, *texts)
        self.cache = Cache.open(f"sqlite:///{path}")
        self.sync = Sync(self.cache, Near(mdp, self.lmr))

    def check(self, said: Contents) -> None:
        while not self.sync.step().up_to_date:
            """The feed has more."""
        schema = schema_in_force(SCHEMA).schema
        wanted = closure_of(schema, frozenset().union(*said.values()), self.rules, {})
        found = content_of(self.cache)
        assert found.selected == wanted.selected
        assert found.content == {uri: {(s.property, s.object) for s in about} for uri, about in wanted.said.items()}


class ReplicaMachine(RuleBasedStateMachine):
    def __init__(self, databases: Databases, mode: str, folder: Path) -> None:
        super().__init__()
        self.databases, self.mode, self.folder = databases, mode, folder
        self.oracle = ReplicaOracle(mode)

    @initialize(texts=st.lists(rule_texts(), min_size=3, max_size=3), said=contents())
    def begin(self, texts: list[Any], said: Said) -> None:
        self.replicas = Replicas.found(self.databases.new, NAMES, self.mode)
        self.readers = {}
        for member in self.replicas.members.values():
            member.put_schema(SCHEMA)
            path = self.folder / f"{self.databases.count}-{member.name}.sqlite"
            self.readers[member.name] = Reader(member, [one.text for one in texts], path)
        self.register("a", DOCUMENTS[0], said)
        for name in ("b", "c"):
            self.pull(name, "a")

    def teardown(self) -> None:
        if not hasattr(self, "readers"):
            return
        try:
            self.replicas.rest()
            for name in NAMES:
                self.check(name)
            for _ in range(2):
                self.replicas.rest()
                self.replicas.settle()
            for name in NAMES:
                self.check(name)
                member = self.replicas[name]
                assert member.rows("select * from replica_log") == []
                assert member.rows("select * from statement_marks") == [] or self.mode == "cset"
            first, *others = [self.replicas[name] for name in NAMES]
            for other in others:
                with first.engine.connect() as one, other.engine.connect() as two:
                    assert other.replica.sums(two) == first.replica.sums(one)
                    assert other.replica.conflicts(two) == first.replica.conflicts(one)
        finally:
            for reader in self.readers.values():
                reader.cache.close()
            self.databases.close()

    # Changes

    @rule(name=members, uri=st.sampled_from(DOCUMENTS), said=contents(2))
    def register(self, name: str, uri: str, said: Said) -> None:
        before, known = self.state(name)
        self.replicas[name].put_one(uri, turtle(said))
        self.record(name, known, before, {**before, uri: said})

    @rule(name=members, data=st.data(), uri=st.sampled_from(DOCUMENTS))
    def delete(self, name: str, data: st.DataObject, uri: str) -> None:
        before, known = self.state(name)
        if uri not in before:
            return
        self.replicas[name].put_one(uri, None)
        self.record(name, known, before, {**before, uri: frozenset()})

    @rule(name=members, uri=st.sampled_from(DOCUMENTS[:2]), add=edited, remove=edited, data=st.data())
    def edit(self, name: str, uri: str, add: list[Statement], remove: list[Statement], data: st.DataObject) -> None:
        before, known = self.state(name)
        said = before.get(uri, frozenset())
        present = sorted(said, key=repr)
        some = data.draw(st.lists(st.sampled_from(present), max_size=3)) if present else []
        remove = [one for one in [*remove, *some] if one not in add]
        member = self.replicas[name]
        with member.engine.begin() as connection:
            tx = Transaction(member.provider, connection)
            tx.edit(Cause(UPDATE), [Edit(one, uri) for one in add], [Edit(one, uri) for one in remove], uri)
            tx.finish()
        self.record(name, known, before, {**before, uri: said - {*remove} | {*add}})

    # Replication

    @rule(name=members, peer=members)
    def pull(self, name: str, peer: str) -> None:
        if name != peer:
            self.replicas.pull(name, peer)
            self.check(name)

    @rule(name=members)
    def settle(self, name: str) -> None:
        self.replicas[name].replica.settle()
        self.check(name)

    @rule(name=members)
    def restart(self, name: str) -> None:
        self.replicas[name].restart()

    # Checks

    def state(self, name: str) -> tuple[Contents, Vector]:
        vector = self.replicas[name].facts.vector
        return self.oracle.contents(self.oracle.known(vector)), vector

    def record(self, name: str, vector: Vector, before: Contents, after: Contents) -> None:
        facts = self.replicas[name].facts
        if any(after.get(uri, frozenset()) != before.get(uri, frozenset()) for uri in after):
            assert facts.seq == vector.get(facts.life, 0) + 1
            self.oracle.record((facts.life, facts.seq), self.oracle.known(vector), before, after)
        else:
            assert facts.vector == vector
        self.check(name)

    def check(self, name: str) -> None:
        member = self.replicas[name]
        known = self.oracle.known(member.facts.vector)
        said, counts = self.oracle.contents(known), self.oracle.counts(known)
        assert statements_of(member) == said, "the statements differ"
        stored = member.rows("select uri, version, present, statements from documents where version > 0")
        wanted = self.oracle.versions(known)
        assert {uri: version for uri, version, _, _ in stored} == wanted, "the versions differ"
        for uri, _, present, statements in stored:
            assert (present, statements) == (uri in said, len(said.get(uri, ())))
        assert member.one("select marks from mdp_state") == member.one("select count(*) from statement_marks")
        self.check_marks(member, {key: count for key, count in counts.items() if count not in (0, 1)}, known)
        self.readers[name].check(said)

    def check_marks(self, member: ReplicaMdp, wanted: dict[Any, int], known: frozenset[Any]) -> None:
        """Stable dots of a statement are as good as one, so there may be fewer than the oracle knows."""
        with member.engine.connect() as connection:
            found = {
                (uri, one): count
                for uri in self.oracle.versions(known)
                for one, count in member.replica.marks(connection, uri)
            }
        if self.mode == "cset":
            assert found == wanted, "the counters differ"
        else:
            assert found.items() <= wanted.items(), "the numbers of dots differ"


def statements_of(member: ReplicaMdp) -> Contents:
    with member.engine.connect() as connection:
        documents = {row[0]: row[1] for row in member.rows("select id, uri from documents")}
        found = read_rows(connection, documents)
    return {documents[number]: frozenset(rows) for number, rows in found.items() if rows}


@pytest.mark.parametrize("mode", ["orset", "cset"])
def test_members_show_what_their_operations_say(postgres: Any, template: str, tmp_path: Path, mode: str) -> None:
    databases = Databases(postgres, template, f"machine_{mode}")
    run_machine(lambda: ReplicaMachine(databases, mode, tmp_path), model_examples(2))


def deletions_drop_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AddWinsSet, "remote_delete", lambda self, state, number, deps: frozenset())


def test_the_machine_detects_deletions_that_drop_everything(
    postgres: Any, template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deletions_drop_everything(monkeypatch)
    databases = Databases(postgres, template, "mutant")
    assert_mutant_is_detected(lambda: ReplicaMachine(databases, "orset", tmp_path), seed=1)
