"""Send several statements in one network message.

psycopg's pipeline sends each statement separately, which costs more than the work for a single rule. Here, statements
that psycopg has already prepared on the connection are sent together, with libpq's pipeline mode. Other cases (a
statement that is not prepared yet, an open pipeline) use psycopg's pipeline, with the same results.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Self

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready, Wait
from sqlalchemy import Connection

from mdv.db.engine import driver, pipelined
from mdv.db.load_sql import number_parameters

TextRow = tuple[str | None, ...]
"""A row with all values as text."""


class PendingResult:
    """The result of a queued statement, available after the pipeline was sent."""

    def __init__(self, sql: str, values: Sequence[str | None], prepare: bool) -> None:
        self.sql, self.values, self.prepare = sql, values, prepare
        self.result: PGresult | None = None
        self.cursor: psycopg.RawCursor[Any] | None = None

    @property
    def changed_rows(self) -> int:
        """The number of rows that the statement wrote."""
        result = self.result if self.cursor is None else self.cursor.pgresult
        return int((result.command_tuples if result is not None else 0) or 0)

    def rows(self) -> list[TextRow]:
        """Return the rows, with all values as text."""
        if self.result is None and self.cursor is not None:
            self.cursor.fetchall()  # an enclosing pipeline may still be open
            self.result = self.cursor.pgresult
        result = self.result
        assert result is not None
        texts = [
            tuple([result.get_value(row, column) for column in range(result.nfields)]) for row in range(result.ntuples)
        ]
        return [tuple([None if value is None else value.decode() for value in row]) for row in texts]


class Pipeline:
    """Collects statements and sends them together. Parameters are numbered ($1, $2, …), and all are text."""

    def __init__(self, connection: Connection) -> None:
        self._session: psycopg.Connection[Any] = driver(connection)
        self._queued: list[PendingResult] = []
        self.failed: PendingResult | None = None
        """The statement whose error was raised."""

    def queue(self, sql: str, values: Sequence[str | None] = (), prepare: bool = True) -> PendingResult:
        answer = PendingResult(sql, values, prepare)
        self._queued.append(answer)
        return answer

    def queue_named(self, sql: str, **values: object) -> PendingResult:
        """Queue a statement with named parameters."""
        text, names = number_parameters(sql)
        return self.queue(text, [None if (value := values[name]) is None else str(value) for name in names])

    def send(self) -> None:
        """Send the queued statements and wait for all results. Raise the first error."""
        queued, self._queued = self._queued, []
        if not queued:
            return
        names = self._names(queued)
        if names is None:
            self._send_with_psycopg(queued)
        else:
            self._send_with_libpq(queued, names)

    def send_unless_waiting(self, wait: bool) -> None:
        """Send now, unless the caller waits for more statements."""
        if not wait:
            self.send()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Send the queued statements, unless an exception was raised."""
        if kind is None:
            self.send()

    def _names(self, queued: Sequence[PendingResult]) -> list[bytes] | None:
        """Return the names of psycopg's prepared statements; None if one is not prepared, or if a pipeline is open."""
        session = self._session
        if session.pgconn.pipeline_status != pq.PipelineStatus.OFF or session.autocommit:
            return None
        # Only read: psycopg stays in charge of which statements are prepared.
        known = getattr(getattr(session, "_prepared", None), "_names", {})
        names = [known.get((one.sql.encode(), (0,) * len(one.values))) for one in queued]
        return [name for name in names if name is not None] if None not in names else None

    def _send_with_psycopg(self, queued: Sequence[PendingResult]) -> None:
        try:
            with pipelined(self._session):
                for one in queued:
                    one.cursor = psycopg.RawCursor(self._session)
                    one.cursor.execute(one.sql, one.values, prepare=one.prepare or None)
        except psycopg.Error:
            # Results arrive in order: the first statement without one is the one that failed.
            self.failed = next((one for one in queued if one.cursor is None or one.cursor.pgresult is None), None)
            raise

    def _send_with_libpq(self, queued: Sequence[PendingResult], names: Sequence[bytes]) -> None:
        session = self._session
        connection = session.pgconn
        begins = connection.transaction_status == pq.TransactionStatus.IDLE
        try:
            connection.enter_pipeline_mode()
            if begins:
                connection.send_query_params(_begin(session), None)
            for one, name in zip(queued, names, strict=True):
                values = [None if value is None else value.encode() for value in one.values]
                connection.send_query_prepared(name, values)
            connection.pipeline_sync()
            results = session.wait(_results(connection))
            connection.exit_pipeline_mode()
        except BaseException:
            # After an interruption, the state of the connection is unknown.
            session.close()
            raise
        for number, result in enumerate(results):
            if result.status == pq.ExecStatus.FATAL_ERROR:
                self.failed = queued[number - begins] if number >= begins else None
                raise psycopg.errors.error_from_result(result)
        for one, result in zip(queued, results[begins:], strict=True):
            one.result = result


def _begin(session: psycopg.Connection[Any]) -> bytes:
    level = session.isolation_level
    return b"BEGIN" if level is None else b"BEGIN ISOLATION LEVEL " + level.name.replace("_", " ").encode()


def _results(connection: Any) -> Generator[Wait, Ready | int, list[PGresult]]:
    """Generate waits until all results up to the sync have arrived, and return them."""
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
