"""What is sent to the database, counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from mdv.db.exchange import Exchange


@contextmanager
def executed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The statements that are sent, by psycopg or in an exchange."""
    sent: list[str] = []
    ask, execute, copy = Exchange.ask, psycopg.Cursor.execute, psycopg.Cursor.copy

    def count_ask(self: Any, query: str, *rest: Any, **options: Any) -> Any:
        sent.append(query)
        return ask(self, query, *rest, **options)

    def count_execute(self: Any, query: Any, *rest: Any, **options: Any) -> Any:
        if not isinstance(self, psycopg.RawCursor):  # an exchange that is not prepared yet
            sent.append(str(query))
        return execute(self, query, *rest, **options)

    def count_copy(self: Any, query: Any, *rest: Any, **options: Any) -> Any:
        sent.append(str(query))
        return copy(self, query, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Exchange, "ask", count_ask)
        patch.setattr(psycopg.Cursor, "execute", count_execute)
        patch.setattr(psycopg.Cursor, "copy", count_copy)
        yield sent
