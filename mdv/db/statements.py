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
