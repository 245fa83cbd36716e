"""Named SQL statements: `-- name: x` in a file of db/sql starts the statement x."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def statements(file: str) -> dict[str, str]:
    """The statements of db/sql/`file`.sql by name, in their order.

    >>> list(statements("register"))[-1]
    'keep_documents'
    """
    text = (Path(__file__).parent / "sql" / f"{file}.sql").read_text("utf-8")
    parts = _NAME.split(text)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


_PARAMETER = re.compile(r"%(?:\((\w+)\)s|%)")


@cache
def numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """A statement with numbers for its parameters, as the database knows them, and their names in that order.

    >>> numbered("select %(a)s %% %(b)s + %(a)s")
    ('select $1 % $2 + $1', ('a', 'b'))
    """
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${names.setdefault(found[1], len(names) + 1)}" if found[1] else "%"

    return _PARAMETER.sub(number, sql), tuple(names)
