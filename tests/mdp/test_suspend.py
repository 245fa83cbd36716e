"""Rules that take too long are suspended: their matches stay, and they can be resumed, changed and removed."""

from __future__ import annotations

import json
from math import log2

import pytest

import mdv.mdp.precompute
import mdv.mdp.rules.chunked_publish
import mdv.mdp.rules.operations
from mdv.db.jobs import add_job, read_job
from mdv.db.lmrs import Lmr
from mdv.db.suspensions import Suspensions
from mdv.errors import TooCostly
from mdv.feed import Event, EventKind
from mdv.mdp.rules.suspend import over_budget_reason
from mdv.mdp.transaction import Transaction
from mdv.mdp.worker import Worker
from tests.support.costly_rule import EXPLOSIVE, SCHEMA
from tests.support.mdp import Mdp

CHEAP = "search N a register a where a.num? = {}"


def content(number: int, other: int = -1) -> str:
    return f"<#n> a :N ; :txt 'same' ; :num {number} ; :other {other} ."


def uri(number: int) -> str:
    return f"http://d/{number}#n"


def fill(mdp: Mdp, first: int, last: int) -> None:
    mdp.put({f"http://d/{n}": content(n) for n in range(first, last)})


def events(mdp: Mdp, lmr: Lmr, after: str | None) -> tuple[list[Event], str]:
    page = mdp.feed(lmr, after)
    assert page.up_to_date
    return list(page.events), page.cursor


def selected(mdp: Mdp, lmr: Lmr) -> set[str]:
    rows = mdp.rows(
        "select r.uri from lmr_resources c join resources r on r.id = c.resource_id"
        " where c.lmr_id = :lmr and c.reasons > 0",
        lmr=lmr.id,
    )
    return {uri for (uri,) in rows}


@pytest.fixture
def lmr(mdp: Mdp) -> Lmr:
    mdp.put_schema(SCHEMA)
    return mdp.create_lmr("north")


def test_a_rule_over_its_time_limit_is_suspended_and_the_registration_continues(mdp: Mdp, lmr: Lmr) -> None:
    mdp.put_one("http://d/0", content(0, other=1))
    (explosive, cheap) = mdp.subscribe(lmr, EXPLOSIVE, CHEAP.format(77))
    before, cursor = events(mdp, lmr, None)
    assert {event.resource for event in before if event.kind is EventKind.MATCH} == {uri(0)}
    mdp.rules.seconds = 0.2
    fill(mdp, 50, 150)
    told, cursor = events(mdp, lmr, cursor)
    notice = next(event for event in told if event.kind is EventKind.SUSPENDED)
    assert (notice.rule, notice.reason) == (explosive.id, over_budget_reason(0.2))
    assert {event.resource for event in told if event.kind is EventKind.MATCH} == {uri(77)}
    assert selected(mdp, lmr) == {uri(0), uri(77)}
    assert mdp.one("select count(*) from documents") == 101
    with mdp.engine.connect() as connection:
        (suspension,) = Suspensions(connection).read([explosive.id, cheap.id]).values()
    assert suspension.rule_id == explosive.id and suspension.seconds == 0.2
    # The next registration does not evaluate it.
    mdp.put_one("http://d/200", content(200))
    assert mdp.one("select count(*) from rule_groups where whole") == 1


def test_the_matches_of_a_suspended_rule_stay_and_resuming_sends_the_difference(mdp: Mdp, lmr: Lmr) -> None:
    mdp.put({"http://d/1": content(5), "http://d/2": content(6)})
    (rule,) = mdp.subscribe(lmr, CHEAP.format(5))
    mdp.suspend([rule.id])
    _, cursor = events(mdp, lmr, None)
    mdp.put({"http://d/1": content(6), "http://d/2": content(5)})
    told, cursor = events(mdp, lmr, cursor)
    assert [(event.kind, event.resource) for event in told] == [(EventKind.PUT, uri(1))]
    assert selected(mdp, lmr) == {uri(1)}
    resumed = mdp.resume(lmr, rule.id)
    told, cursor = events(mdp, lmr, cursor)
    assert [(event.kind, event.resource) for event in told] == [
        (EventKind.PUT, uri(2)), (EventKind.UNMATCH, uri(1)), (EventKind.MATCH, uri(2)), (EventKind.RESUMED, ""),
    ]  # fmt: skip
    assert told[-1].rule == rule.id and resumed.suspended is None
    mdp.put_one("http://d/2", content(7))
    assert selected(mdp, lmr) == set()
    assert mdp.rows("select 1 from suspended_ends") == mdp.rows("select 1 from suspended_rules") == []


def test_resuming_an_active_rule_changes_nothing(mdp: Mdp, lmr: Lmr) -> None:
    (rule,) = mdp.subscribe(lmr, CHEAP.format(5))
    before = mdp.one("select position from mdp_state")
    assert mdp.resume(lmr, rule.id) == rule
    assert mdp.one("select position from mdp_state") == before


@pytest.mark.parametrize("operator", [">", "<=", "!="])
def test_rules_of_one_range_are_suspended_together_and_removed_one_by_one(mdp: Mdp, lmr: Lmr, operator: str) -> None:
    mdp.put({f"http://d/{n}": content(n) for n in range(6)})
    text = f"search N a register a where a.num? {operator} {{}}"
    (low, high, other) = mdp.subscribe(lmr, text.format(1), text.format(3), text.format(2))
    mdp.suspend([low.id, high.id])
    everything = selected(mdp, lmr)
    mdp.put({f"http://d/{n}": None for n in range(6)} | {f"http://e/{n}": content(n) for n in range(6)})
    mdp.unsubscribe(lmr, other.id)
    assert selected(mdp, lmr) == everything  # still selected, although it is deleted
    mdp.unsubscribe(lmr, low.id)
    meaning = {">": lambda n: n > 3, "<=": lambda n: n <= 3, "!=": lambda n: n != 3}[operator]
    assert selected(mdp, lmr) == {uri(n) for n in range(6) if meaning(n)}
    mdp.resume(lmr, high.id)
    assert selected(mdp, lmr) == {f"http://e/{n}#n" for n in range(6) if meaning(n)}
    mdp.unsubscribe(lmr, high.id)
    assert selected(mdp, lmr) == set()


def test_a_deleted_and_restored_resource_is_still_matched_by_a_suspended_rule(mdp: Mdp, lmr: Lmr) -> None:
    mdp.put_one("http://d/1", content(5))
    (rule,) = mdp.subscribe(lmr, CHEAP.format(5))
    mdp.suspend([rule.id])
    _, cursor = events(mdp, lmr, None)
    mdp.put_one("http://d/1", None)
    told, cursor = events(mdp, lmr, cursor)
    assert [event.kind for event in told] == [EventKind.DELETE]
    mdp.put_one("http://d/1", content(6))
    told, cursor = events(mdp, lmr, cursor)
    assert [event.kind for event in told] == [EventKind.PUT, EventKind.MATCH]


def test_a_snapshot_lists_the_suspended_rules(mdp: Mdp, lmr: Lmr) -> None:
    (rule, _) = mdp.subscribe(lmr, CHEAP.format(5), CHEAP.format(6))
    mdp.suspend([rule.id], "It took 9 s.")
    told, _ = events(mdp, lmr, None)
    assert [(e.rule, e.reason) for e in told if e.kind is EventKind.SUSPENDED] == [(rule.id, "It took 9 s.")]
    mdp.resume(lmr, rule.id)
    told, _ = events(mdp, lmr, None)
    assert [e.kind for e in told] == [EventKind.SCHEMA]


def test_a_suspended_rule_is_deleted_with_its_lmr(mdp: Mdp, lmr: Lmr) -> None:
    from mdv.mdp.subscribe import delete_lmr

    mdp.put_one("http://d/1", content(5))
    (rule,) = mdp.subscribe(lmr, CHEAP.format(5))
    mdp.suspend([rule.id])
    with mdp.engine.begin() as connection:
        delete_lmr(connection, lmr, mdp.provider)
    assert mdp.rows("select 1 from suspended_ends") == mdp.rows("select 1 from suspended_rules") == []


def test_a_schema_change_that_affects_a_suspended_rule_withdraws_its_matches(mdp: Mdp, lmr: Lmr) -> None:
    mdp.put_one("http://d/1", content(5))
    (rule,) = mdp.subscribe(lmr, CHEAP.format(5))
    mdp.suspend([rule.id])
    mdp.put_schema(SCHEMA + ":Other a rdfs:Class .")
    assert selected(mdp, lmr) == {uri(1)}
    mdp.put_schema(SCHEMA + ":Other rdfs:subClassOf :N .")
    assert selected(mdp, lmr) == set()
    mdp.resume(lmr, rule.id)
    assert selected(mdp, lmr) == {uri(1)}


def test_a_rule_over_the_time_limit_when_added_is_refused_without_holding_the_lock(
    mdp: Mdp, lmr: Lmr, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(mdp, 0, 120)
    monkeypatch.setattr("mdv.mdp.rules.operations.MAX_EVALUATION_SECONDS", 1)
    held: list[int] = []
    evaluate = mdv.mdp.precompute.precompute

    def write_meanwhile(*arguments: object) -> object:
        held.append(mdp.put_one("http://d/500", content(500)).position)  # would wait for ever if the lock were held
        return evaluate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("mdv.mdp.rules.operations.precompute", write_meanwhile)
    with pytest.raises(TooCostly, match="explain"):
        mdp.subscribe(lmr, EXPLOSIVE)
    assert len(held) == 1
    assert mdp.one("select count(*) from rules") == mdp.one("select count(*) from atomic_rules") == 0


def test_the_time_limit_of_a_group_grows_with_its_number_of_rules(mdp: Mdp, lmr: Lmr) -> None:
    mdp.put_one("http://d/0", content(0))
    rules = mdp.subscribe(lmr, *(f"{EXPLOSIVE} and a.num? = {n}" for n in range(8)))
    mdp.rules.seconds = 0.05
    fill(mdp, 0, 150)
    with mdp.engine.connect() as connection:
        suspended = Suspensions(connection).read([rule.id for rule in rules])
    assert [s.seconds for s in suspended.values()] == [0.05 * (1 + log2(8))] * 8


def test_removing_a_suspended_rule_ends_its_suspension_in_the_feed(mdp: Mdp, lmr: Lmr) -> None:
    mdp.put_one("http://d/1", content(5))
    (rule, other) = mdp.subscribe(lmr, CHEAP.format(5), CHEAP.format(6))
    mdp.suspend([rule.id])
    _, cursor = events(mdp, lmr, None)
    mdp.unsubscribe(lmr, rule.id, other.id)
    told, _ = events(mdp, lmr, cursor)
    assert [event.kind for event in told] == [EventKind.UNMATCH, EventKind.RESUMED]
    assert (told[-1].rule, told[-1].reason) == (rule.id, "The rule was removed.")


def test_a_suspended_rule_that_cannot_be_evaluated_stays_suspended(
    mdp: Mdp, lmr: Lmr, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rule,) = mdp.subscribe(lmr, EXPLOSIVE)
    mdp.suspend([rule.id])
    fill(mdp, 0, 120)
    monkeypatch.setattr("mdv.mdp.rules.operations.MAX_EVALUATION_SECONDS", 1)
    with mdp.engine.begin() as connection:
        body = json.dumps({"id": rule.id}).encode()
        job = add_job(connection, "resume", f"urn:mdv:lmr:{lmr.id}", "me", body, "application/json", {"lmr": lmr.id})
    assert Worker(mdp.engine, 1_000_000).work_rules() == 1
    with mdp.engine.connect() as connection:
        status = read_job(connection, job)
        assert status is not None and status.problem is not None
        assert (status.problem["type"], status.problem["status"]) == ("urn:mdv:problem:too-costly", 422)
        assert Suspensions(connection).read([rule.id]).keys() == {rule.id}


@pytest.fixture
def gradual(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than three matches are published in batches of two."""
    for module in ("add", "remove", "operations"):
        monkeypatch.setattr(f"mdv.mdp.rules.{module}.MAX_RESULTS_PER_TRANSACTION", 3)
    monkeypatch.setattr("mdv.mdp.rules.chunked_publish.FIRST_CHUNK_RESOURCES", 2)
    monkeypatch.setattr("mdv.mdp.rules.chunked_publish.MIN_CHUNK_RESOURCES", 1)
    monkeypatch.setattr("mdv.mdp.rules.chunked_publish.TARGET_CHUNK_SECONDS", 0.0)


EVERYTHING = "search N a register a"


def matches_by_transaction(told: list[Event], kind: EventKind = EventKind.MATCH) -> list[int]:
    by_tx: dict[int, int] = {}
    for event in told:
        if event.kind is kind:
            by_tx[event.tx] = by_tx.get(event.tx, 0) + 1
    return list(by_tx.values())


@pytest.mark.usefixtures("gradual")
@pytest.mark.parametrize(
    "text",
    [
        EVERYTHING,
        "search N a register a where a.num? > -5",
        "search N a register a where a.num? > -5 or a.other < 5 or a.num? > 4 or a.other < 3",
    ],
)
def test_very_many_matches_are_published_in_several_transactions(mdp: Mdp, lmr: Lmr, text: str) -> None:
    fill(mdp, 0, 9)
    _, cursor = events(mdp, lmr, None)
    (rule,) = mdp.subscribe(lmr, text)
    told, cursor = events(mdp, lmr, cursor)
    assert max(matches_by_transaction(told)) <= 2 and sum(matches_by_transaction(told)) == 9
    assert selected(mdp, lmr) == {uri(n) for n in range(9)}
    mdp.put({"http://d/3": None, "http://d/9": content(9)})
    assert selected(mdp, lmr) == {uri(n) for n in range(10) if n != 3}
    _, cursor = events(mdp, lmr, cursor)
    mdp.unsubscribe(lmr, rule.id)
    told, cursor = events(mdp, lmr, cursor)
    assert max(matches_by_transaction(told, EventKind.UNMATCH)) <= 2
    assert selected(mdp, lmr) == set()
    assert mdp.rows("select 1 from lmr_resources") == mdp.rows("select 1 from suspended_rules") == []


@pytest.mark.usefixtures("gradual")
def test_writes_during_a_chunked_publication_are_included(mdp: Mdp, lmr: Lmr, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(mdp, 0, 9)
    written = iter([("http://d/0", None), ("http://d/4", content(4)), ("http://d/8", None), ("http://d/9", content(9))])

    class WriteBefore(Transaction):
        def lock(self) -> None:
            for document, said in written:
                mdp.put_one(document, said)
                break
            super().lock()

    monkeypatch.setattr(mdv.mdp.rules.chunked_publish, "Transaction", WriteBefore)
    mdp.subscribe(lmr, EVERYTHING)
    assert selected(mdp, lmr) == {uri(n) for n in (1, 2, 3, 4, 5, 6, 7, 9)}


@pytest.mark.usefixtures("gradual")
def test_an_interrupted_addition_is_removed_before_the_next(
    mdp: Mdp, lmr: Lmr, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(mdp, 0, 9)
    count, calls = mdv.mdp.rules.chunked_publish._publish_chunk, []

    def die_at_the_third(*arguments: object) -> None:
        calls.append(1)
        if len(calls) == 3:
            monkeypatch.setattr(mdv.mdp.rules.operations, "_discard_pending", lambda *_: None)
            raise SystemExit("killed")
        count(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(mdv.mdp.rules.chunked_publish, "_publish_chunk", die_at_the_third)
        discard = mdv.mdp.rules.operations._discard_pending
        with pytest.raises(SystemExit):
            mdp.subscribe(lmr, EVERYTHING)
    monkeypatch.setattr(mdv.mdp.rules.operations, "_discard_pending", discard)
    assert len(selected(mdp, lmr)) == 3 and mdp.one("select count(*) from suspended_rules where pending") == 1
    (rule,) = mdp.subscribe(lmr, EVERYTHING)
    assert mdp.rows("select id from rules") == [(rule.id,)]
    assert {reasons for (reasons,) in mdp.rows("select reasons from lmr_resources")} == {1}
    assert selected(mdp, lmr) == {uri(n) for n in range(9)}
