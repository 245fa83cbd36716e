"""Named SQL statements. In a `.sql` file, a line `-- name: x` starts the statement `x`."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def load_sql(file: str, package: str = "mdv.db.sql") -> dict[str, str]:
    """Return the statements of `file`.sql in `package` by name, in the order of the file.

    >>> list(load_sql("store"))[-1]
    'keep_replicated_documents'
    """
    text = resources.files(package).joinpath(f"{file}.sql").read_text("utf-8")
    parts = _NAME.split(text)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


_PARAMETER = re.compile(r"%(?:\((\w+)\)s|%)")


@cache
def number_parameters(sql: str) -> tuple[str, tuple[str, ...]]:
    """Replace named parameters by `$1`, `$2`, … Return the statement and the names in that order.

    >>> number_parameters("select %(a)s %% %(b)s + %(a)s")
    ('select $1 % $2 + $1', ('a', 'b'))
    """
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${names.setdefault(found[1], len(names) + 1)}" if found[1] else "%"

    return _PARAMETER.sub(number, sql), tuple(names)
