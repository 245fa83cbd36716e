"""COPY in text form: rows made into one block of bytes, several times faster than row by row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def field(value: object) -> str:
    r"""One field of a line of COPY.

    >>> field(None), field(True), field("a\tb")
    ('\\N', 't', 'a\\tb')
    """
    if value is None:
        return "\\N"
    if value is True:
        return "t"
    if value is False:
        return "f"
    if isinstance(value, str):
        return value.translate(_ESCAPES) if "\\" in value or not value.isprintable() else value
    if isinstance(value, bytes):
        return "\\\\x" + value.hex()
    return str(value)


def copy_rows(session: Any, target: str, rows: Iterable[tuple[object, ...]]) -> None:
    """COPY `rows` into `target`, a table with its columns; nothing at all where there is none."""
    block = "".join(["\t".join(map(field, row)) + "\n" for row in rows])
    if block:
        with session.cursor() as cursor, cursor.copy(f"copy {target} from stdin") as copy:
            copy.write(block.encode())
