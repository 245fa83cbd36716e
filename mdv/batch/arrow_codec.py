"""Encode prepared documents as bytes for the staging table, and decode them for promotion.

There are three streams in Arrow's own format: documents, statements, and candidates of the filter. An attacker with
write access to the staging table could insert wrong data, but not code.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from mdv.batch.prefilter import CandidatePair
from mdv.mdp.register import Prepared, properties_and_datatypes_of, uris_of
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
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


class StagedDocument(NamedTuple):
    """A prepared document with its source and the digest of its text."""

    source: str
    digest: bytes
    item: Prepared


def encode_documents(documents: Sequence[StagedDocument], candidates: Collection[CandidatePair] = ()) -> bytes:
    """Encode documents, with the candidates among their resources."""
    rows = [_row(packed) for packed in documents]
    statement_rows = [row for packed in documents for row in _statements(packed.item)]
    sink = pa.BufferOutputStream()
    for schema, table in ((_DOCUMENTS, rows), (_STATEMENTS, statement_rows), (_CANDIDATES, sorted(candidates))):
        columns = list(zip(*table, strict=True)) or [()] * len(schema)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        with pa.ipc.new_stream(sink, schema, options=_WRITE_OPTIONS) as writer:
            writer.write_batch(pa.record_batch(arrays, schema=schema))
    return bytes(sink.getvalue())


def _row(packed: StagedDocument) -> tuple[Any, ...]:
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
        yield (subject, name, kind == "uri", value, lang, datatype, digest, _to_text(number), _to_text(instant), truth)


def _to_text(number: Decimal | None) -> str | None:
    return None if number is None else str(number)


def decode_documents(body: bytes) -> tuple[list[StagedDocument], list[CandidatePair]]:
    """Decode the documents and candidates that `encode_documents` has encoded.

    >>> decode_documents(encode_documents([], {(7, "http://a.org/x")}))
    ([], [(7, 'http://a.org/x')])
    """
    reader = pa.BufferReader(body)
    documents, statement_rows, candidates = _next_columns(reader), _next_columns(reader), _next_columns(reader)
    # Work by column: these loops run once per statement, and this form takes half of the time.
    subjects, properties, are_uris, values, langs, datatypes, hashes, numbers, instants, truths = statement_rows
    kinds = ["uri" if is_uri else "literal" for is_uri in are_uris]
    terms = map(Term._make, zip(kinds, values, langs, datatypes, strict=True))
    statements = list(map(Statement._make, zip(subjects, properties, terms, strict=True)))
    typed = list(zip(map(_to_decimal, numbers), map(_to_decimal, instants), truths, strict=True))
    found, first = [], 0
    for uri, source, digest, content, prefixes, schema_version, length in zip(*documents, strict=True):
        part = slice(first, first := first + length)
        own_statements = tuple(statements[part])
        document = Document(uri, own_statements, json.loads(prefixes))
        item = Prepared(uri, document, schema_version, content=content, hashes=tuple(hashes[part]),
                        typed=tuple(typed[part]), uris=uris_of(own_statements),
                        names=properties_and_datatypes_of(own_statements))  # fmt: skip
        found.append(StagedDocument(source, digest, item))
    return found, list(zip(*candidates, strict=True))


def _next_columns(reader: pa.NativeFile) -> list[list[Any]]:
    with pa.ipc.open_stream(reader) as stream:
        return [column.to_pylist() for column in stream.read_all().columns]


def _to_decimal(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)
