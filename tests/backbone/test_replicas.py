"""Several MDPs that replicate: real databases, messages delivered by the test."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mdv.backbone.conflicts import BackboneConflict
from mdv.backbone.etag import document_etag
from mdv.backbone.orset import AddWinsSet
from mdv.cause import UPDATE, Cause
from mdv.db.replica.local_operations import LocalOperations
from mdv.db.statement_store import StatementStore
from mdv.errors import PreconditionFailed
from mdv.inspect.sql.documents import read_document
from mdv.mdp.eca.change_rules import EcaDraft, add_rules
from mdv.mdp.edit import Edit
from mdv.mdp.replica_store import PostgresReplicaStore
from mdv.mdp.transaction import Transaction
from mdv.model import Statement, Term
from tests.support.replicas import DOCUMENT as D
from tests.support.replicas import SCHEMA, NewDatabase, ReplicaMdp, Replicas, assert_equal, tags

COPY_TAG = "ON INSERT (_, tag, _) IF $delta.target = 'x' DO INSERT ($delta, tag, 'copied')"
X = f"<{D}#x>"


def found(new_database: NewDatabase, mode: str, names: str = "abc") -> Replicas:
    replicas = Replicas.found(new_database, names, mode)
    for member in replicas.members.values():
        member.put_schema(SCHEMA)
    return replicas


@pytest.fixture(params=["orset", "cset"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def three(new_database: NewDatabase, mode: str) -> Replicas:
    return found(new_database, mode)


def counts(member: ReplicaMdp, every: bool = False) -> dict[str, int]:
    with member.engine.connect() as connection:
        return {one.object.value: count for one, count in member.replica.marks(connection, D, every)}


def conflicts(member: ReplicaMdp) -> list[BackboneConflict]:
    with member.engine.connect() as connection:
        return member.replica.conflicts(connection)


def edit(member: ReplicaMdp, add: list[Statement], remove: list[Statement]) -> None:
    with member.engine.begin() as connection:
        tx = Transaction(member.provider, connection)
        tx.edit(Cause(UPDATE), [Edit(one, D) for one in add], [Edit(one, D) for one in remove], D)
        tx.finish()


def tag(value: str) -> Statement:
    return Statement(f"{D}#x", "http://v/tag", Term.literal(value))


def test_a_document_reaches_every_member(three: Replicas) -> None:
    three["a"].put_one(D, f"{X} :title 'one' ; :tag 'a', 'b' .")
    three.rest()
    for member in three.members.values():
        assert member.rows("select uri, version, present, statements from documents") == [(D, 1, True, 3)]
    assert_equal(three)


def test_changes_of_every_kind_reach_every_member(three: Replicas) -> None:
    a, b, c = three.members.values()
    a.put(
        {
            f"http://d/{n}": f"<http://d/{n}#x> :title '{n}' ; :tag <http://d/{n + 1}#x>, [ :tag 'y' ] ."
            for n in range(40)
        }
    )
    three.rest()
    b.put_one("http://d/1", "<http://d/1#x> :title 'changed'@en ; :tag 'new' .")
    edit(c, [Statement("http://d/2#x", "http://v/tag", Term.literal("edited"))], [])
    three.rest()
    c.put_one("http://d/3", None)
    three.rest()
    assert_equal(three)
    assert a.one("select version from documents where uri = 'http://d/1'") == 3
    assert a.one("select present from documents where uri = 'http://d/3'") is False


def test_an_identical_document_makes_no_operation(three: Replicas) -> None:
    three["a"].put_one(D, f"{X} :tag 'a' .")
    three.rest()
    before = three["b"].facts.vector
    three["b"].put_one(D, f"{X} :tag 'a' .")
    assert three["b"].facts.vector == before
    assert three["b"].one("select version from documents") == 1


def test_concurrent_changes_merge_and_every_operation_counts(three: Replicas) -> None:
    a, b, c = three.members.values()
    a.put_one(D, f"{X} :tag 'old', 'kept' .")
    three.rest()
    a.put_one(D, f"{X} :tag 'kept', 'a' .")
    b.put_one(D, f"{X} :tag 'old', 'kept', 'b' .")
    c.put_one(D, f"{X} :tag 'old', 'kept', 'b' .")
    three.rest()
    assert_equal(three)
    assert tags(a) == {"kept", "a", "b"}
    assert [member.one("select version from documents") for member in (a, b, c)] == [4, 4, 4]
    assert counts(a) == counts(b) == counts(c) == {"b": 2}
    assert [conflict.kind for conflict in conflicts(b)] == ["merged"]


def test_an_operation_that_changes_nothing_visible_gets_a_version_and_no_event(new_database: NewDatabase) -> None:
    replicas = found(new_database, "orset", "ab")
    a, b = replicas.members.values()
    lmr = b.create_lmr("reader")
    b.subscribe(lmr, "search rdfs:Resource r register r where r.tag? = 'x'")
    a.put_one(D, f"{X} :tag 'x' .")
    b.put_one(D, f"{X} :tag 'x' .")
    offset = b.one("select last_offset from mdp_state")
    replicas.rest()
    assert [m.one("select version from documents") for m in (a, b)] == [2, 2]
    assert b.one("select last_offset from mdp_state") == offset
    history = b.rows(
        "select version, cause, agent, inserted + updated + deleted from document_versions order by version"
    )
    assert history == [(1, "registration", None, 1), (2, "replica", "a", 0)]
    assert_equal(replicas)


def test_a_deletion_deletes_what_it_saw(three: Replicas) -> None:
    a, b, _ = three.members.values()
    a.put_one(D, f"{X} :tag 'old' .")
    three.rest()
    a.put_one(D, None)
    b.put_one(D, f"{X} :tag 'old', 'new' .")
    three.rest()
    assert_equal(three)
    assert tags(a) == {"new"}
    assert [conflict.kind for conflict in conflicts(a)] == ["remnant"]
    a.put_one(D, f"{X} :tag 'decided' .")
    three.rest()
    assert_equal(three)
    assert "remnant" not in [conflict.kind for conflict in conflicts(a)]


CARDS = ["[ :title 'a' ]", "[ :title 'a' ; :tag 'x' ]", "[ :title 'b' ; :tag [ :title 'c' ; :tag 'y' ] ]",
         "[ :title 'b' ; :tag [ :title 'c' ] ]", "[ :tag [ :tag [ :title 'd' ] , 'z' ] ]"]  # fmt: skip


def blank_nodes(member: ReplicaMdp) -> dict[str, frozenset[tuple[str, str]]]:
    """What the document says about each of its blank nodes."""
    found: dict[str, set[tuple[str, str]]] = {}
    for subject, name, value in member.rows(
        "select s.uri, v.uri, coalesce(f.value, t.uri) from filter_data f join resources s on s.id = f.resource_id"
        " join vocabulary v on v.id = f.property_id left join resources t on t.id = f.target_id"
        " where s.uri like '%#\\_:%' escape '\\'"
    ):
        found.setdefault(subject, set()).add((name, value))
    return {subject: frozenset(about) for subject, about in found.items()}


def test_concurrent_changes_leave_every_blank_node_whole(three: Replicas) -> None:
    """A name stands for a whole component, so all of its statements come and go together."""
    chosen = random.Random(7)
    registered: dict[str, set[frozenset[tuple[str, str]]]] = {}
    for _ in range(5):
        for member in three.members.values():
            cards = chosen.choices(CARDS, k=chosen.randrange(1, 4))  # some are twins
            member.put_one(D, f"{X} :title 'same' ; :tag {', '.join(cards)} .")
            for node, about in blank_nodes(member).items():
                registered.setdefault(node, set()).add(about)
        three.rest()
        for member in three.members.values():
            for node, about in blank_nodes(member).items():
                assert registered[node] == {about}
                assert all(value in registered for _, value in about if "#_:" in value)
    assert len(registered) > len(CARDS)
    assert_equal(three)


def test_two_titles_are_a_conflict_until_one_is_left(three: Replicas) -> None:
    a, b, c = three.members.values()
    a.put_one(D, f"{X} :title 'one' .")
    b.put_one(D, f"{X} :title 'two' .")
    three.rest()
    (conflict,) = conflicts(c)
    assert (conflict.kind, {one.value for one in conflict.values}) == ("values", {"one", "two"})
    c.put_one(D, f"{X} :title 'one' .")
    three.rest()
    assert_equal(three)
    assert "values" not in [one.kind for one in conflicts(a)]


def test_figures_of_the_c_set(new_database: NewDatabase) -> None:
    check_negative_counter(found(new_database, "cset"))


def check_negative_counter(replicas: Replicas) -> None:
    """Figure 4: two members delete a statement, which leaves −1; the next insertion compensates it."""
    a, b, c = replicas.members.values()
    a.put_one(D, f"{X} :tag 'kept', 'e' .")
    replicas.rest()
    edit(a, [], [tag("e")])
    edit(b, [], [tag("e")])
    replicas.rest()
    assert_equal(replicas)
    assert [counts(m) for m in (a, b, c)] == [{"e": -1}] * 3
    edit(c, [tag("e")], [])
    replicas.rest()
    assert [counts(m, every=True) for m in (a, b, c)] == [{"e": 1, "kept": 1}] * 3
    assert_equal(replicas)


@pytest.mark.parametrize(("mode", "tags_left"), [("orset", frozenset({"e", "kept"})), ("cset", frozenset({"kept"}))])
def test_the_insertion_that_the_c_set_loses(new_database: NewDatabase, mode: str, tags_left: frozenset[str]) -> None:
    """A deletes and inserts a statement while B deletes it."""
    check_insertion(found(new_database, mode, "ab"), tags_left)


def check_insertion(replicas: Replicas, tags_left: frozenset[str] = frozenset({"e", "kept"})) -> None:
    a, b, *_ = replicas.members.values()
    a.put_one(D, f"{X} :tag 'kept', 'e' .")
    replicas.rest()
    edit(a, [], [tag("e")])
    edit(a, [tag("e")], [])
    edit(b, [], [tag("e")])
    replicas.rest()
    assert_equal(replicas)
    assert tags(a) == tags_left


def test_marks_of_the_add_wins_set_go_once_stable(new_database: NewDatabase) -> None:
    replicas = found(new_database, "orset")
    a, b, _ = replicas.members.values()
    a.put_one(D, f"{X} :tag 'x', 'y' .")
    b.put_one(D, f"{X} :tag 'x', 'z' .")
    replicas.rest()
    assert counts(a) == {"x": 2}
    assert a.one("select marks from mdp_state") >= 1
    for _ in range(2):
        replicas.rest()
        replicas.settle()
    for member in replicas.members.values():
        assert member.rows("select marks from mdp_state") == [(0,)]
        assert member.rows("select * from statement_marks") == []
        assert member.rows("select * from replica_log") == []
    assert_equal(replicas)
    edit(b, [], [tag("x")])
    replicas.rest()
    assert tags(a) == {"y", "z"}
    assert_equal(replicas)


def test_a_member_joins_a_filled_backbone(new_database: NewDatabase, mode: str) -> None:
    replicas = found(new_database, mode, "ab")
    a, b = replicas.members.values()
    a.put({f"http://d/{n}": f"<http://d/{n}#x> :title '{n}' ." for n in range(30)})
    a.put_one(D, f"{X} :tag 'x' .")
    replicas.rest()
    b.put_one("http://d/2", None)
    late = ReplicaMdp(new_database(), "late")
    late.put_schema(SCHEMA)
    replicas.join(late, mode)
    replicas.rest()
    assert_equal(replicas)
    late.put_one(D, f"{X} :tag 'late' .")
    replicas.rest()
    assert tags(a) == {"late"}
    assert_equal(replicas)


def test_a_member_with_documents_joins(new_database: NewDatabase, mode: str) -> None:
    replicas = found(new_database, mode, "ab")
    replicas["a"].put_one(D, f"{X} :tag 'backbone' .")
    replicas.rest()
    late = ReplicaMdp(new_database(), "late")
    late.put_schema(SCHEMA)
    late.put_one(D, f"{X} :tag 'early' .")
    late.put_one(D, f"{X} :tag 'late' .")
    late.put_one("http://d/own", "<http://d/own#x> :tag 'own' .")
    replicas.join(late, mode)
    replicas.rest()
    assert_equal(replicas)
    assert tags(replicas["a"]) == {"backbone", "late"}
    assert tags(replicas["b"], "http://d/own") == {"own"}


def test_documents_from_before_the_backbone_reach_the_others(new_database: NewDatabase) -> None:
    first = ReplicaMdp(new_database(), "a")
    first.put_schema(SCHEMA)
    first.put_one(D, f"{X} :tag 'x' .")
    first.put_one(D, f"{X} :tag 'x', 'y' .")
    replicas = Replicas([first])
    replicas.start(first, "orset")
    other = ReplicaMdp(new_database(), "b")
    other.put_schema(SCHEMA)
    replicas.join(other, "orset")
    replicas.rest()
    assert_equal(replicas)
    assert tags(other) == {"x", "y"}
    assert other.one("select version from documents") == 2
    edit(other, [], [tag("x")])
    replicas.rest()
    assert tags(first) == {"y"}
    assert_equal(replicas)


def test_etags_and_tokens(three: Replicas) -> None:
    a, b, _ = three.members.values()
    first = a.put_one(D, f"{X} :tag 'x' .")
    life = a.facts.life
    digest = a.one("select digest from documents") % 2**64
    assert (first.etag, first.token) == (f"1-{digest:016x}"[:10], f"{life[:12]}-{a.facts.seq}")
    three.rest()
    assert b.put_one(D, f"{X} :tag 'x' .").etag == first.etag
    with pytest.raises(PreconditionFailed):
        b.put_one(D, f"{X} :tag 'y' .", if_match=("1",))
    second = b.put_one(D, f"{X} :tag 'y' .", if_match=(first.etag or "",))
    three.rest()
    history = a.rows("select version, cause, agent, origin_life, origin_seq from document_versions order by version")
    assert history == [
        (1, "registration", None, life, a.facts.seq),
        (2, "replica", "b", b.facts.life, b.facts.seq),
    ]
    with a.engine.connect() as connection:
        assert document_etag(2, a.one("select digest from documents")) == second.etag
        assert read_document(connection, D).etag == second.etag  # type: ignore[union-attr]


def test_reactions_fire_only_where_the_change_was_made(new_database: NewDatabase) -> None:
    replicas = found(new_database, "orset", "ab")
    a, b = replicas.members.values()
    for member in (a, b):
        with member.engine.begin() as connection:
            add_rules(connection, EcaDraft(COPY_TAG), member.provider)
    a.put_one(D, f"{X} :tag 'x' .")
    replicas.rest()
    assert_equal(replicas)
    assert [m.one("select count(*) from eca_runs") for m in (a, b)] == [1, 0]
    assert b.rows("select value from filter_data order by value") == [("copied",), ("x",)]


def test_nothing_is_written_without_a_backbone(new_database: NewDatabase) -> None:
    alone = ReplicaMdp(new_database(), "alone")
    alone.put_schema(SCHEMA)
    outcome = alone.put_one(D, f"{X} :tag 'x' .")
    assert outcome.etag is None and outcome.token is None and "etag" not in outcome.as_dict()
    assert alone.rows("select digest, statements, replica from documents") == [(None, None, None)]
    assert alone.rows("select origin_life, origin_seq, digest from document_versions") == [(None, None, None)]
    assert alone.rows("select replica, marks from mdp_state") == [(None, 0)]
    for table in ("replica_log", "replica_drafts", "statement_marks", "replicated_rules", "backbone"):
        assert alone.rows(f"select * from {table}") == []


def deletions_drop_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AddWinsSet, "remote_delete", lambda self, state, number, deps: frozenset())


def marks_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PostgresReplicaStore, "_mark_changes", lambda *_: [])


def marks_are_not_looked_up_by_local_changes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LocalOperations, "_marks", lambda *_: {})


def operations_without_effect_are_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StatementStore, "keep", lambda *_: None)


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "scenario", "mode"),
    [
        (deletions_drop_everything, check_insertion, "orset"),
        (marks_are_not_stored, test_concurrent_changes_merge_and_every_operation_counts, "orset"),
        (marks_are_not_stored, test_concurrent_changes_merge_and_every_operation_counts, "cset"),
        (marks_are_not_looked_up_by_local_changes, check_negative_counter, "cset"),
        (operations_without_effect_are_dropped, test_concurrent_changes_merge_and_every_operation_counts, "orset"),
    ],
)
def test_planted_faults_are_detected(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch, fault: Any, scenario: Any, mode: str
) -> None:
    replicas = found(new_database, mode)
    fault(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        scenario(replicas)
