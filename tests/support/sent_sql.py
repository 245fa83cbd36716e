"""Count the SQL statements sent to the database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from mdv.db.pipeline import Pipeline


@contextmanager
def executed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The SQL statements that are sent, by psycopg or in a pipeline.

    Those of threads that ran before are left out: servers of other tests may run in this process.
    """
    sent: list[str] = []
    others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}

    def count(query: str) -> None:
        if threading.get_ident() not in others:
            sent.append(query)

    queue, execute, copy = Pipeline.queue, psycopg.Cursor.execute, psycopg.Cursor.copy

    def count_queue(self: Any, query: str, *rest: Any, **options: Any) -> Any:
        count(query)
        return queue(self, query, *rest, **options)

    def count_execute(self: Any, query: Any, *rest: Any, **options: Any) -> Any:
        if not isinstance(self, psycopg.RawCursor):  # a pipeline that is not prepared yet
            count(str(query))
        return execute(self, query, *rest, **options)

    def count_copy(self: Any, query: Any, *rest: Any, **options: Any) -> Any:
        count(str(query))
        return copy(self, query, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "queue", count_queue)
        patch.setattr(psycopg.Cursor, "execute", count_execute)
        patch.setattr(psycopg.Cursor, "copy", count_copy)
        yield sent
