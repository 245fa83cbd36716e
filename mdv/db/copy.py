"""COPY in text form: rows made into one block of bytes, several times faster than row by row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

NULL = "\\N"

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def any_field(value: object) -> str:
    r"""One field of a line of COPY.

    >>> any_field(None), any_field(True), any_field("a\tb")
    ('\\N', 't', 'a\\tb')
    """
    if value is None:
        return NULL
    if value is True:
        return "t"
    if value is False:
        return "f"
    if isinstance(value, str):
        return text_field(value)
    if isinstance(value, bytes):
        return "\\\\x" + value.hex()
    return str(value)


def text_field(value: str) -> str:
    """A text as a field; most hold nothing that has to be escaped."""
    return value.translate(_ESCAPES) if "\\" in value or not value.isprintable() else value


def copy_rows(session: Any, target: str, rows: Iterable[tuple[object, ...]]) -> None:
    """COPY `rows` into `target`, a table with its columns; nothing at all where there is none."""
    copy_lines(session, target, ("\t".join(map(any_field, row)) + "\n" for row in rows))


BLOCK = 64 * 1024


def copy_lines(session: Any, target: str, lines: Iterable[str]) -> None:
    """COPY `lines`, each whole with its end, into `target`; nothing at all where there is none.

    They go block by block, so that the database takes the first while the next are made.
    """
    blocks = _blocks(lines)
    first = next(blocks, None)
    if first is None:
        return
    with session.cursor() as cursor, cursor.copy(f"copy {target} from stdin") as copy:
        copy.write(first)
        for block in blocks:
            copy.write(block)


def _blocks(lines: Iterable[str], size: int = BLOCK) -> Iterator[bytes]:
    """
    >>> list(_blocks(["a\\n", "bc\\n", "d\\n"], 3)), list(_blocks([]))
    ([b'a\\nbc\\n', b'd\\n'], [])
    """
    block: list[str] = []
    room = size
    for line in lines:
        block.append(line)
        room -= len(line)
        if room <= 0:
            yield "".join(block).encode()
            block, room = [], size
    if block:
        yield "".join(block).encode()


def insert_lines(session: Any, target: str, lines: Iterable[str]) -> None:
    """What `copy_lines` does, as a statement like any other, that can be sent with others: for a few lines."""
    rows = [line.rstrip("\n").split("\t") for line in lines]
    if rows:
        values = ", ".join(f"({', '.join(['%s'] * len(row))})" for row in rows)
        fields = [None if field == NULL else _unescape(field) for row in rows for field in row]
        session.execute(f"insert into {target} values {values}", fields, prepare=True)  # noqa: S608


def _unescape(field: str) -> str:
    r"""A field as it was before `text_field`.

    >>> _unescape(text_field("a\tb\\n"))
    'a\tb\\n'
    """
    if "\\" not in field:
        return field
    return _ESCAPED.sub(lambda found: _MEANT[found.group()], field)


_MEANT = {"\\\\": "\\", "\\t": "\t", "\\n": "\n", "\\r": "\r"}
_ESCAPED = re.compile(r"\\[\\tnr]")
