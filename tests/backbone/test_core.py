"""The parts of the backbone's core: operations, documents, stability, membership, forks, conflicts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdv.backbone import operation
from mdv.backbone.conflicts import ConflictRules, find_conflicts
from mdv.backbone.document_state import NO_DOCUMENT, digest_of
from mdv.backbone.member import MAX_AHEAD, BackboneMember, LocalChange
from mdv.backbone.memory_store import MemoryReplicaStore
from mdv.backbone.messages import LogPage, StateAnswer
from mdv.backbone.operation import (
    DOCUMENTS,
    FIRST_CHAIN,
    Operation,
    ReplicatedChange,
    decode_operation,
    encode_operation,
    next_chain,
)
from mdv.backbone.orset import AddWinsSet
from mdv.backbone.replica_store import MemberFacts, MemberStatus
from mdv.errors import BadRequest, Refused
from mdv.model import Statement, Term
from mdv.rdf.digest import statement_hash

URI = "http://d"
A, B, C = (Statement("http://d#s", "urn:p", Term.literal(value)) for value in "abc")
NOW = 10**15
SECOND = 1_000_000
RULES = ConflictRules(lambda name: ["urn:p"] if name == "urn:p" else [], lambda statement: statement == C)


class Backbone:
    """Members in memory with direct links."""

    def __init__(self, *names: str) -> None:
        self.members: dict[str, BackboneMember] = {}
        self.now = NOW
        for name in names:
            self.add(name)
            if len(self.members) == 1:
                self.members[name].found(self.now)
            else:
                self.members[names[0]].invite(name, self.now + 60 * SECOND)
                self.members[name].join(name, self.now)
                self.exchange()

    def add(self, name: str, store: MemoryReplicaStore | None = None) -> BackboneMember:
        lives = itertools.count(len(name) if store is None else 100)
        kind = AddWinsSet()
        store = store or MemoryReplicaStore(kind, MemberFacts(name, f"{name}-first"))
        self.members[name] = BackboneMember(store, kind, lambda: f"{name}-{next(lives)}")
        return self.members[name]

    def exchange(self, *names: str, rounds: int = 6) -> None:
        """Let members poll each other until nothing is left; all of them if none is named."""
        some = names or tuple(self.members)
        for _ in range(rounds):
            self.now += 6 * SECOND
            for name, peer in itertools.permutations(some, 2):
                flying = self.members[name].poll(peer, self.now)
                while flying:
                    to, message = flying.pop(0)
                    if to in some:
                        flying += self.members[to].receive(message, self.now)
            for name in some:
                self.members[name].settle()

    def write(self, name: str, *statements: Statement) -> Operation | None:
        self.now += 1
        return self.members[name].register(URI, statements, {"n": name}, self.now)

    def statements(self) -> list[set[Statement]]:
        return [set(member.store.statements(URI)) for member in self.members.values()]

    def conflicts(self) -> list[list[str]]:
        return [
            sorted(one.kind for one in find_conflicts(URI, store.document(URI), store.statements(URI), RULES, self.now))
            for store in (member.store for member in self.members.values())
        ]


terms = st.one_of(st.builds(Term.uri, st.text()), st.builds(Term.literal, st.text(), st.none() | st.text()))
numbered = st.lists(st.tuples(st.builds(Statement, st.text(), st.text(), terms), st.integers(-3, 3)), max_size=3)
changes = st.builds(
    ReplicatedChange, st.text(), st.integers(1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1),
    st.none() | st.dictionaries(st.text(), st.text()), numbered.map(tuple), numbered.map(tuple),
)  # fmt: skip


@given(st.lists(changes, max_size=2), st.dictionaries(st.text(), st.integers(0)))
def test_an_operation_survives_its_encoding(documents: list[ReplicatedChange], deps: dict[str, int]) -> None:
    operation = Operation("life", 3, deps, 17, DOCUMENTS, (1, 2), tuple(documents))
    body = encode_operation(operation)
    assert decode_operation(body) == operation
    assert encode_operation(operation) == body


@pytest.mark.parametrize("body", [b"", b"{}", encode_operation(Operation("a", 1, {}, 1, DOCUMENTS))[:-9]])
def test_a_malformed_operation_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="malformed"):
        decode_operation(body)


def test_the_chain_depends_on_every_body_before() -> None:
    one, other = next_chain(next_chain(FIRST_CHAIN, b"a"), b"b"), next_chain(next_chain(FIRST_CHAIN, b"b"), b"b")
    assert one != other
    assert len(one) == 32


def test_the_digest_of_a_document_is_a_sum() -> None:
    assert digest_of([A, B]) == digest_of([B, A]) == (statement_hash(A) + statement_hash(B)) % 2**64


def test_an_identical_document_makes_no_operation() -> None:
    backbone = Backbone("a")
    assert backbone.write("a", A) is not None
    assert backbone.write("a", A) is None
    assert backbone.members["a"].store.document(URI).version == 1


def test_concurrent_changes_merge_to_one_version_with_one_etag() -> None:
    backbone = Backbone("a", "b", "c")
    backbone.write("a", A)
    backbone.write("b", B)
    backbone.exchange()
    documents = {member.store.document(URI).etag for member in backbone.members.values()}
    assert len(documents) == 1
    assert {member.store.document(URI).version for member in backbone.members.values()} == {2}
    assert backbone.statements() == [{A, B}] * 3
    assert backbone.conflicts() == [["values"]] * 3


def test_a_conflict_of_values_closes_when_one_is_left() -> None:
    backbone = Backbone("a", "b")
    backbone.write("a", A)
    backbone.write("b", B)
    backbone.exchange()
    backbone.write("b", B)
    backbone.exchange()
    assert backbone.statements() == [{B}] * 2
    assert backbone.conflicts() == [["merged"]] * 2
    backbone.now += 8 * 24 * 3600 * SECOND
    assert backbone.conflicts() == [[]] * 2


def test_a_deletion_leaves_what_others_added_meanwhile_until_somebody_who_saw_both_decides() -> None:
    backbone = Backbone("a", "b")
    backbone.write("a", A)
    backbone.exchange()
    backbone.write("a")
    backbone.write("b", A, B)
    backbone.exchange()
    assert backbone.statements() == [{B}] * 2
    assert backbone.conflicts() == [["remnant"]] * 2
    backbone.write("b", B, C)
    backbone.exchange()
    assert "remnant" not in backbone.conflicts()[0]
    assert backbone.conflicts() == [["schema", "values"]] * 2


def test_versions_continue_after_a_deletion() -> None:
    backbone = Backbone("a", "b")
    for statements in ((A,), (), (B,)):
        backbone.write("a", *statements)
        backbone.exchange()
    assert [member.store.document(URI).version for member in backbone.members.values()] == [3, 3]


def test_prefixes_are_those_of_the_last_writer_and_a_fast_clock_is_followed_for_a_minute_only() -> None:
    backbone = Backbone("a", "b")
    backbone.members["b"].register(URI, [A], {"n": "fast"}, backbone.now + 3600 * SECOND)
    backbone.write("a", B)
    backbone.exchange()
    assert [member.store.document(URI).prefixes for member in backbone.members.values()] == [{"n": "fast"}] * 2
    assert backbone.members["a"].store.facts.clock <= backbone.now + MAX_AHEAD


def test_marks_go_and_the_log_is_empty_once_all_is_stable() -> None:
    backbone = Backbone("a", "b")
    backbone.write("a", A)
    backbone.write("b", A)
    backbone.exchange(rounds=1)
    stores = [member.store for member in backbone.members.values()]
    backbone.exchange()
    for store in stores:
        assert isinstance(store, MemoryReplicaStore)
        assert store.marks == {}
        assert store.log_size == 0
        assert store.facts.stable == store.facts.vector


def test_nothing_is_stable_while_a_member_is_away() -> None:
    backbone = Backbone("a", "b", "c")
    before = dict(backbone.members["a"].store.facts.stable)
    backbone.write("a", A)
    backbone.exchange("a", "b")
    assert backbone.members["a"].store.facts.stable == before


def test_a_paused_peer_is_not_polled_and_its_answer_is_discarded() -> None:
    backbone = Backbone("a", "b")
    one, other = backbone.members.values()
    poll = one.poll("b", backbone.now)[0][1]
    backbone.write("b", A)
    page = other.receive(poll, backbone.now)[0][1]
    one.store.facts.paused.add("b")
    assert one.poll("b", backbone.now) == []
    assert one.receive(page, backbone.now) == []
    assert set(one.store.statements(URI)) == set()
    one.store.facts.paused.clear()
    one.receive(page, backbone.now)
    assert set(one.store.statements(URI)) == {A}


def test_an_invitation_is_valid_once_and_for_a_time() -> None:
    backbone = Backbone("a")
    backbone.members["a"].invite("code", backbone.now + SECOND)
    for name in ("b", "c"):
        backbone.add(name).join("code", backbone.now)
        flying = backbone.members[name].poll("a", backbone.now)
        for _, message in flying:
            backbone.members["a"].receive(message, backbone.now)
    assert backbone.members["a"].store.facts.table.active() == ["a", "b"]
    backbone.members["a"].invite("late", backbone.now + SECOND)
    backbone.now += 2 * SECOND
    backbone.add("d").join("late", backbone.now)
    backbone.exchange()
    assert "d" not in backbone.members["a"].store.facts.table.members


def test_a_member_joins_with_its_documents() -> None:
    backbone = Backbone("a")
    backbone.write("a", A)
    joining = backbone.add("b")
    joining.store.write(URI, NO_DOCUMENT._replace(version=1, statements=1, digest=digest_of([B])),
                        {B: frozenset([("", 0)])})  # fmt: skip
    backbone.members["a"].invite("b", backbone.now + SECOND * 3600)
    joining.join("b", backbone.now)
    backbone.exchange()
    assert backbone.statements() == [{A, B}] * 2


def test_a_minority_cannot_close_the_others() -> None:
    backbone = Backbone("a", "b", "c")
    with pytest.raises(Refused, match="not a majority"):
        backbone.members["a"].close(["b", "c"])
    with pytest.raises(Refused, match="Ask a"):
        backbone.members["b"].close(["c"])


def test_a_closed_member_returns_in_a_new_life_and_repeats_its_changes() -> None:
    backbone = Backbone("a", "b", "c")
    backbone.write("a", A)
    backbone.exchange()
    backbone.write("c", A, B)
    messages = backbone.members["a"].close(["c"])
    for name, message in messages:
        for _, answer in backbone.members[name].receive(message, backbone.now):
            backbone.members["a"].receive(answer, backbone.now)
    backbone.exchange("a", "b")
    assert backbone.members["a"].store.facts.table.active() == ["a", "b"]
    assert backbone.members["a"].store.facts.stable == backbone.members["a"].store.facts.vector
    old_life = backbone.members["c"].store.facts.life
    backbone.exchange()
    assert backbone.members["c"].store.facts.life != old_life
    assert backbone.statements() == [{A, B}] * 3


def test_a_removed_member_is_not_listened_to() -> None:
    backbone = Backbone("a", "b")
    backbone.members["a"].close(["b"], is_removal=True)
    backbone.members["a"]._finish_closing()
    backbone.write("b", B)
    backbone.exchange()
    assert backbone.statements()[0] == set()
    assert backbone.members["b"].store.facts.status is MemberStatus.RETURNING


def test_the_schema_of_the_highest_term_and_number_is_in_force() -> None:
    backbone = Backbone("a", "b", "c")
    backbone.members["a"].put_schema("one", backbone.now)
    with pytest.raises(Refused, match="Ask a"):
        backbone.members["b"].put_schema("two", backbone.now)
    backbone.members["b"].set_lead("b", backbone.now)
    backbone.members["b"].put_schema("two", backbone.now)
    backbone.exchange()
    for member in backbone.members.values():
        assert member.store.facts.table.lead[2] == "b"
        assert member.store.facts.table.schema[0] == 2


@pytest.fixture
def forked() -> Iterator[Backbone]:
    """Member `a` was restored without notice, and nobody stopped it: its life goes on twice."""
    backbone = Backbone("a", "b", "c")
    store = backbone.members["a"].store
    assert isinstance(store, MemoryReplicaStore)
    backup = store.copy()
    backbone.write("a", A)
    backbone.exchange("a", "b")
    backbone.add("a", backup)
    backbone.write("a", B)
    yield backbone


def test_a_fork_is_found_by_the_chain_and_its_life_stops(forked: Backbone) -> None:
    poll = forked.members["c"].poll("a", forked.now)[0][1]
    page = forked.members["a"].receive(poll, forked.now)[0][1]
    forked.members["c"].receive(page, forked.now)
    assert set(forked.members["c"].store.statements(URI)) == {B}
    forked.members["a"].register(URI, [B, C], {}, forked.now)
    poll = forked.members["b"].poll("a", forked.now)[0][1]
    pages = [one for _, one in forked.members["a"].receive(poll, forked.now) if isinstance(one, LogPage)]
    forked.members["b"].receive(pages[0], forked.now)
    assert forked.members["b"].store.facts.forked == {"a-first"}
    assert set(forked.members["b"].store.statements(URI)) == {A}


def test_a_restored_member_that_asks_first_begins_a_new_life_and_keeps_its_changes(forked: Backbone) -> None:
    store = forked.members["a"].store
    assert isinstance(store, MemoryReplicaStore)
    member = forked.add("a", store.copy())
    member.store.facts.status = MemberStatus.CHECKING
    member.store.facts.started_at = member.store.facts.seq - 1
    forked.exchange()
    assert member.store.facts.life != "a-first"
    assert forked.statements() == [{A, B}] * 3
    assert all(not one.store.facts.forked for one in forked.members.values())


def test_after_a_start_own_operations_are_sent_only_when_all_have_answered() -> None:
    backbone = Backbone("a", "b", "c")
    backbone.members["a"].start()
    backbone.write("a", A)
    backbone.exchange("a", "b")
    assert backbone.statements()[1] == set()
    backbone.members["a"].stop_checking()
    backbone.exchange("a", "b")
    assert backbone.statements()[1] == {A}


def test_an_edit_that_changes_nothing_is_dropped() -> None:
    backbone = Backbone("a")
    backbone.write("a", A)
    assert backbone.members["a"].change([LocalChange(URI, [A], [B])], backbone.now) is None


def test_a_state_is_sent_only_for_the_buckets_that_differ() -> None:
    backbone = Backbone("a", "b")
    for number in range(20):
        backbone.members["a"].register(f"http://d/{number}", [A], {}, backbone.now)
    backbone.exchange()
    one, other = backbone.members.values()
    other.register("http://d/3", [B], {}, backbone.now)
    backbone.exchange()
    other.store.remove("http://d/3")
    messages = [message for _, message in one.receive(other._state_request(), backbone.now)]
    (answer,) = [message for message in messages if isinstance(message, StateAnswer)]
    assert [document.uri for document in answer.documents] == ["http://d/3"]
    other.receive(answer, backbone.now)
    assert set(other.store.statements("http://d/3")) == {B}


def test_operations_of_an_unknown_kind_wait_for_an_upgrade() -> None:
    backbone = Backbone("a", "b")
    a, b = backbone.members.values()
    b.kinds = b.kinds - {operation.RULES}
    a.change_rules({"rule": 7}, backbone.now)
    a.register(URI, [A], {}, backbone.now)
    b.register("http://e", [B], {}, backbone.now)
    backbone.exchange()
    assert b.waiting == 2 and set(b.store.statements(URI)) == set()
    assert set(a.store.statements("http://e")) == {B}
    b.kinds = b.kinds | {operation.RULES}
    backbone.exchange()
    assert b.waiting == 0 and set(b.store.statements(URI)) == {A}
    assert b.store.registers() == a.store.registers() != {}
    assert b.vector == a.vector


def test_definitions_of_lmrs_reach_all_members_and_the_later_adoption_wins() -> None:
    backbone = Backbone("a", "b", "c")
    backbone.members["a"].change_lmrs({"x": (7, "at a"), "x/1": (None, "rule")}, backbone.now)
    backbone.exchange()
    for member, order in (("b", 9), ("c", 8)):
        backbone.members[member].change_lmrs({"x": (order, f"at {member}")}, backbone.now)
    backbone.exchange()
    for one in backbone.members.values():
        assert {key: register.value for key, register in one.store.lmrs().items()} == {"x": "at b", "x/1": "rule"}
