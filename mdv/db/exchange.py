"""Several statements as one message.

psycopg's pipeline hands each statement to the network by itself, and that costs more than the work for a single rule.
Here statements that psycopg has prepared on the connection already go out all at once, by libpq's own pipeline. What is
unusual (a statement that is not prepared yet, a pipeline that is open) goes psycopg's way, with the same answers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Self

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready, Wait
from sqlalchemy import Connection

from mdv.db.engine import driver, together
from mdv.db.statements import numbered

Row = tuple[str | None, ...]
"""Values as texts."""


class Answer:
    """What a statement answers, once it has been sent."""

    def __init__(self, sql: str, values: Sequence[str | None], prepare: bool) -> None:
        self.sql, self.values, self.prepare = sql, values, prepare
        self.result: PGresult | None = None
        self.cursor: psycopg.RawCursor[Any] | None = None

    def rows(self) -> list[Row]:
        """As texts."""
        if self.result is None and self.cursor is not None:
            self.cursor.fetchall()  # the message that it is a part of may still be open
            self.result = self.cursor.pgresult
        result = self.result
        assert result is not None
        texts = [
            tuple([result.get_value(row, column) for column in range(result.nfields)]) for row in range(result.ntuples)
        ]
        return [tuple([None if value is None else value.decode() for value in row]) for row in texts]


class Exchange:
    """Statements that are gathered, and sent together; parameters are numbered, and are all texts."""

    def __init__(self, connection: Connection) -> None:
        self._session: psycopg.Connection[Any] = driver(connection)
        self._asked: list[Answer] = []

    def ask(self, sql: str, values: Sequence[str | None] = (), prepare: bool = True) -> Answer:
        answer = Answer(sql, values, prepare)
        self._asked.append(answer)
        return answer

    def ask_named(self, sql: str, **values: object) -> Answer:
        """The same for a statement whose parameters have names."""
        text, names = numbered(sql)
        return self.ask(text, [None if (value := values[name]) is None else str(value) for name in names])

    def send(self) -> None:
        """Send what has been asked, and wait for all answers; an error of any is raised."""
        asked, self._asked = self._asked, []
        if not asked:
            return
        names = self._names(asked)
        if names is None:
            self._send_one_by_one(asked)
        else:
            self._send_at_once(asked, names)

    def send_unless(self, wait: bool) -> None:
        """Send now, unless more is to go along."""
        if not wait:
            self.send()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """What has been asked is sent in the end, if nothing went wrong."""
        if kind is None:
            self.send()

    def _names(self, asked: Sequence[Answer]) -> list[bytes] | None:
        """The names under which psycopg has prepared these statements; None where it has not, or where a pipeline is
        open."""
        session = self._session
        if session.pgconn.pipeline_status != pq.PipelineStatus.OFF or session.autocommit:
            return None
        # Only looked at: what psycopg forgets is forgotten here, too.
        known = getattr(getattr(session, "_prepared", None), "_names", {})
        names = [known.get((one.sql.encode(), (0,) * len(one.values))) for one in asked]
        return [name for name in names if name is not None] if None not in names else None

    def _send_one_by_one(self, asked: Sequence[Answer]) -> None:
        with together(self._session):
            for one in asked:
                one.cursor = psycopg.RawCursor(self._session)
                one.cursor.execute(one.sql, one.values, prepare=one.prepare or None)

    def _send_at_once(self, asked: Sequence[Answer], names: Sequence[bytes]) -> None:
        session = self._session
        connection = session.pgconn
        begins = connection.transaction_status == pq.TransactionStatus.IDLE
        try:
            connection.enter_pipeline_mode()
            if begins:
                connection.send_query_params(_begin(session), None)
            for one, name in zip(asked, names, strict=True):
                values = [None if value is None else value.encode() for value in one.values]
                connection.send_query_prepared(name, values)
            connection.pipeline_sync()
            results = session.wait(_results(connection))
            connection.exit_pipeline_mode()
        except BaseException:
            # Who was interrupted cannot know what is still to come on this connection.
            session.close()
            raise
        for result in results:
            if result.status == pq.ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result)
        for one, result in zip(asked, results[begins:], strict=True):
            one.result = result


def _begin(session: psycopg.Connection[Any]) -> bytes:
    level = session.isolation_level
    return b"BEGIN" if level is None else b"BEGIN ISOLATION LEVEL " + level.name.replace("_", " ").encode()


def _results(connection: Any) -> Generator[Wait, Ready | int, list[PGresult]]:
    """The results up to the end of the message; to be waited for."""
    while connection.flush():
        if (yield Wait.RW) & Ready.R:
            connection.consume_input()
    results: list[PGresult] = []
    while True:
        while connection.is_busy():
            yield Wait.R
            connection.consume_input()
        result = connection.get_result()
        if result is None:
            continue
        if result.status == pq.ExecStatus.PIPELINE_SYNC:
            return results
        results.append(result)
