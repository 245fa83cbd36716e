"""Several statements as one message: the same answers and errors as one by one."""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy import Connection, Engine

from mdv.db.engine import driver, in_one_message
from mdv.db.exchange import Answer, Exchange

SUM = "select $1::int + 1, $2::text"


def ask_twice(connection: Connection) -> tuple[Answer, Answer]:
    exchange = Exchange(connection)
    answers = exchange.ask(SUM, ["1", "ä"]), exchange.ask("select generate_series(1, 2)")
    exchange.send()
    exchange.send()  # nothing is sent twice
    return answers


def test_answers_are_the_same_whether_statements_are_prepared_or_not(engine: Engine) -> None:
    for _ in range(3):
        with engine.begin() as connection:
            one, other = ask_twice(connection)
            assert (one.rows(), other.rows()) == ([("2", "ä")], [("1",), ("2",)])
            assert driver(connection).info.transaction_status == psycopg.pq.TransactionStatus.INTRANS


def test_what_is_written_is_committed_or_rolled_back_with_the_transaction(engine: Engine) -> None:
    for number in range(4):
        with engine.connect() as connection:
            exchange = Exchange(connection)
            exchange.ask("insert into vocabulary (uri) values ($1)", [f"urn:{number}"])
            exchange.send()
            connection.commit() if number % 2 else connection.rollback()
    with engine.begin() as connection:
        rows = driver(connection).execute("select uri from vocabulary where uri like 'urn:_' order by uri").fetchall()
    assert rows == [("urn:1",), ("urn:3",)]


@pytest.mark.parametrize("known", [False, True])
def test_an_error_is_raised_and_the_connection_goes_on(engine: Engine, known: bool) -> None:
    with engine.connect() as connection:
        if known:
            ask_twice(connection)
            connection.commit()
        exchange = Exchange(connection)
        exchange.ask("select generate_series(1, 2)")
        exchange.ask(SUM, ["one", None])
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            exchange.send()
        connection.rollback()
        assert ask_twice(connection)[0].rows() == [("2", "ä")]


def test_within_another_message_it_is_a_part_of_that(engine: Engine) -> None:
    for _ in range(2):
        with engine.begin() as connection, in_one_message(connection, True):
            one, _ = ask_twice(connection)
        assert one.rows() == [("2", "ä")]
