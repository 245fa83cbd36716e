"""Several SQL statements in one message give the same answers and errors as one by one."""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy import Connection, Engine

from mdv.db.engine import driver, pipelined_if
from mdv.db.pipeline import PendingResult, Pipeline

SUM = "select $1::int + 1, $2::text"


def ask_twice(connection: Connection) -> tuple[PendingResult, PendingResult]:
    pipeline = Pipeline(connection)
    answers = pipeline.queue(SUM, ["1", "ä"]), pipeline.queue("select generate_series(1, 2)")
    pipeline.send()
    pipeline.send()  # nothing is sent twice
    return answers


def test_results_are_the_same_with_and_without_prepared_statements(engine: Engine) -> None:
    for _ in range(3):
        with engine.begin() as connection:
            one, other = ask_twice(connection)
            assert (one.rows(), other.rows()) == ([("2", "ä")], [("1",), ("2",)])
            assert driver(connection).info.transaction_status == psycopg.pq.TransactionStatus.INTRANS


def test_writes_are_committed_or_rolled_back_with_the_transaction(engine: Engine) -> None:
    for number in range(4):
        with engine.connect() as connection:
            pipeline = Pipeline(connection)
            pipeline.queue("insert into vocabulary (uri) values ($1)", [f"urn:{number}"])
            pipeline.send()
            connection.commit() if number % 2 else connection.rollback()
    with engine.begin() as connection:
        rows = driver(connection).execute("select uri from vocabulary where uri like 'urn:_' order by uri").fetchall()
    assert rows == [("urn:1",), ("urn:3",)]


@pytest.mark.parametrize("known", [False, True])
def test_an_error_is_raised_and_the_connection_stays_usable(engine: Engine, known: bool) -> None:
    with engine.connect() as connection:
        if known:
            ask_twice(connection)
            connection.commit()
        pipeline = Pipeline(connection)
        pipeline.queue("select generate_series(1, 2)")
        pipeline.queue(SUM, ["one", None])
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            pipeline.send()
        connection.rollback()
        assert ask_twice(connection)[0].rows() == [("2", "ä")]


def test_a_pipeline_can_be_nested_in_another(engine: Engine) -> None:
    for _ in range(2):
        with engine.begin() as connection, pipelined_if(connection, True):
            one, _ = ask_twice(connection)
        assert one.rows() == [("2", "ä")]
