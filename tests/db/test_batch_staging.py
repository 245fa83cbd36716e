"""Staging: the latest attempt at a partition counts, a chunk counts once, and dead runs are removed."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import Connection, text

from mdv.db.batch import (
    PartitionAttempt,
    PartitionCounts,
    PromotionCounts,
    begin_attempt,
    begin_run,
    claim_chunks,
    end_run,
    find_registered,
    finish_chunks,
    read_run,
    record_heartbeat,
    stage,
    staged_bytes,
)
from tests.support.mdp import Mdp


@pytest.fixture
def run(connection: Connection) -> UUID:
    return begin_run(connection, "a test", dry_run=False)


def bodies(connection: Connection, run: UUID, most: int = 10, most_bytes: int = 1000) -> list[bytes]:
    return [chunk.body for chunk in claim_chunks(connection, run, most, most_bytes)]


def test_a_chunk_staged_twice_counts_once(connection: Connection, run: UUID) -> None:
    attempt = PartitionAttempt(run, 0, 7)
    assert begin_attempt(connection, attempt)
    for _ in range(2):  # the answer to the first was lost
        assert stage(
            connection, attempt, 0, 10, b"a", PartitionCounts(prepared=3, refused=1, examples=[{"reason": "x"}])
        )
    assert stage(connection, attempt, 1, 20, b"b", PartitionCounts(prepared=2))
    assert stage(connection, attempt, 2, 0, None, PartitionCounts(unchanged=4))
    found = read_run(connection, run)
    assert (found.prepared, found.rejected, found.skipped) == (5, 1, 4)
    assert bodies(connection, run) == [b"a", b"b"] and staged_bytes(connection, run) == 30


def test_a_later_attempt_replaces_an_earlier_one(connection: Connection, run: UUID) -> None:
    first, second = PartitionAttempt(run, 3, 11), PartitionAttempt(run, 3, 12)
    assert begin_attempt(connection, first) and stage(connection, first, 0, 10, b"old", PartitionCounts(prepared=9))
    assert begin_attempt(connection, second)
    assert bodies(connection, run) == [] and read_run(connection, run).prepared == 0
    assert not stage(connection, first, 1, 10, b"ghost", PartitionCounts(prepared=9)), "it is no longer counted"
    assert not begin_attempt(connection, first)
    assert stage(connection, second, 0, 10, b"new", PartitionCounts(prepared=2))
    assert bodies(connection, run) == [b"new"] and read_run(connection, run).prepared == 2


def test_chunks_are_taken_in_order_up_to_a_size_and_at_least_one(connection: Connection, run: UUID) -> None:
    for partition in (1, 0):
        attempt = PartitionAttempt(run, partition, 1)
        begin_attempt(connection, attempt)
        for chunk in range(3):
            stage(connection, attempt, chunk, 100, f"{partition}.{chunk}".encode(), PartitionCounts())
    assert bodies(connection, run, most_bytes=250) == [b"0.0", b"0.1", b"0.2"]
    assert bodies(connection, run, most_bytes=1) == [b"0.0"]
    assert bodies(connection, run, most=2) == [b"0.0", b"0.1"]
    taken = claim_chunks(connection, run, 4, 1000)
    assert finish_chunks(connection, run, taken, [], PromotionCounts(registered=4))
    assert bodies(connection, run) == [b"1.1", b"1.2"]
    assert read_run(connection, run).promoted == 4


def test_a_text_is_known_while_its_document_is_unchanged(mdp: Mdp) -> None:
    mdp.put_schema("<urn:s> mdv:world mdv:open .")
    mdp.put_one("http://a/d", "<http://a/x> <http://a/p> 1 .")
    with mdp.engine.begin() as connection:
        run = begin_run(connection, "a test", dry_run=False)
        content = find_registered(connection, ["http://a/d"])["http://a/d"].content
        finish_chunks(connection, run, [], [("http://a/d", b"digest", content)], PromotionCounts())
        assert find_registered(connection, ["http://a/d", "http://a/e"]) == {"http://a/d": (content, b"digest", run)}
    mdp.put_one("http://a/d", "<http://a/x> <http://a/p> 2 .")
    with mdp.engine.begin() as connection:
        assert find_registered(connection, ["http://a/d"])["http://a/d"].digest is None
    mdp.put_one("http://a/d", None)
    with mdp.engine.begin() as connection:
        assert find_registered(connection, ["http://a/d"]) == {}


def test_a_run_without_heartbeat_is_dropped_with_its_staging(connection: Connection, run: UUID) -> None:
    attempt = PartitionAttempt(run, 0, 1)
    begin_attempt(connection, attempt)
    stage(connection, attempt, 0, 10, b"a", PartitionCounts())
    assert record_heartbeat(connection, run)
    connection.execute(text("update batch_runs set heard_at = now() - interval '1 day'"))
    begin_run(connection, "another", dry_run=False)
    assert not record_heartbeat(connection, run) and staged_bytes(connection, run) == 0
    assert not finish_chunks(connection, run, [], [], PromotionCounts()), "it must not continue promoting"


def test_ending_a_run_removes_its_staged_chunks(connection: Connection, run: UUID) -> None:
    attempt = PartitionAttempt(run, 0, 1)
    begin_attempt(connection, attempt)
    stage(connection, attempt, 0, 10, b"a", PartitionCounts(prepared=1))
    end_run(connection, run, "failed")
    assert staged_bytes(connection, run) == 0 and read_run(connection, run).prepared == 1
