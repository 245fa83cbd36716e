"""Pack: prepared documents as bytes, on their way from an executor over the staging table to promotion.

Three streams of Arrow's own format, one row a document, a statement, a candidate of the filter: whoever may write to
the staging table can give us wrong data that way, but no code.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from mdv.batch.match import Pair
from mdv.mdp.register import Prepared, names_of, uris_of
from mdv.model import Document, Statement, Term

_DOCUMENTS = pa.schema(
    [
        ("uri", pa.string()),
        ("source", pa.string()),
        ("digest", pa.binary()),
        ("content", pa.binary()),
        ("prefixes", pa.string()),
        ("schema_version", pa.int64()),
        ("statements", pa.int32()),
    ]
)
_STATEMENTS = pa.schema(
    [
        ("subject", pa.string()),
        ("property", pa.string()),
        ("uri", pa.bool_()),
        ("value", pa.string()),
        ("lang", pa.string()),
        ("datatype", pa.string()),
        ("hash", pa.int64()),
        ("number", pa.string()),
        ("instant", pa.string()),
        ("truth", pa.bool_()),
    ]
)
_CANDIDATES = pa.schema([("predicate", pa.int32()), ("uri", pa.string())])
_SMALL = pa.ipc.IpcWriteOptions(compression="zstd")


class Packed(NamedTuple):
    """A prepared document with where it came from, and the digest of its text."""

    source: str
    digest: bytes
    item: Prepared


def pack(documents: Sequence[Packed], candidates: Collection[Pair] = ()) -> bytes:
    """The documents as bytes, with what rules can match of them."""
    rows = [_row(packed) for packed in documents]
    said = [row for packed in documents for row in _statements(packed.item)]
    sink = pa.BufferOutputStream()
    for schema, table in ((_DOCUMENTS, rows), (_STATEMENTS, said), (_CANDIDATES, sorted(candidates))):
        columns = list(zip(*table, strict=True)) or [()] * len(schema)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        with pa.ipc.new_stream(sink, schema, options=_SMALL) as writer:
            writer.write_batch(pa.record_batch(arrays, schema=schema))
    return bytes(sink.getvalue())


def _row(packed: Packed) -> tuple[Any, ...]:
    item = packed.item
    assert item.document is not None  # a batch deletes nothing
    prefixes = json.dumps(dict(item.document.prefixes), ensure_ascii=False)
    length = len(item.document.statements)
    return item.uri, packed.source, packed.digest, item.content, prefixes, item.schema_version, length


def _statements(item: Prepared) -> Iterator[tuple[Any, ...]]:
    assert item.document is not None
    for (subject, name, (kind, value, lang, datatype)), digest, (number, instant, truth) in zip(
        item.document.statements, item.hashes, item.typed, strict=True
    ):
        yield (subject, name, kind == "uri", value, lang, datatype, digest, _text(number), _text(instant), truth)


def _text(number: Decimal | None) -> str | None:
    return None if number is None else str(number)


def unpack(body: bytes) -> tuple[list[Packed], list[Pair]]:
    """What was packed.

    >>> unpack(pack([], {(7, "http://a.org/x")}))
    ([], [(7, 'http://a.org/x')])
    """
    reader = pa.BufferReader(body)
    documents, said, candidates = _next_columns(reader), _next_columns(reader), _next_columns(reader)
    # Column by column: there are as many of these as there are statements, and this is half of what they cost here.
    subjects, properties, are_uris, values, langs, datatypes, hashes, numbers, instants, truths = said
    kinds = ["uri" if is_uri else "literal" for is_uri in are_uris]
    terms = map(Term._make, zip(kinds, values, langs, datatypes, strict=True))
    statements = list(map(Statement._make, zip(subjects, properties, terms, strict=True)))
    typed = list(zip(map(_number, numbers), map(_number, instants), truths, strict=True))
    found, first = [], 0
    for uri, source, digest, content, prefixes, schema_version, length in zip(*documents, strict=True):
        part = slice(first, first := first + length)
        mine = tuple(statements[part])
        document = Document(uri, mine, json.loads(prefixes))
        item = Prepared(uri, document, schema_version, content=content, hashes=tuple(hashes[part]),
                        typed=tuple(typed[part]), uris=uris_of(mine), names=names_of(mine))  # fmt: skip
        found.append(Packed(source, digest, item))
    return found, list(zip(*candidates, strict=True))


def _next_columns(reader: pa.NativeFile) -> list[list[Any]]:
    with pa.ipc.open_stream(reader) as stream:
        return [column.to_pylist() for column in stream.read_all().columns]


def _number(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)
