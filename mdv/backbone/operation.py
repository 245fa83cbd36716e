"""Operations: what members send each other. An operation is one transaction of one life.

Its body is a line of JSON, compressed with gzip. `chain` is a hash over all bodies of a life up to this one, so that
two databases that continue the same life differently are found.

    {"life","seq","deps","at","kind":"documents","schema":[term,n],"documents":[
      {"uri","version","base","content","prefixes","ins":[[s,p,o]…],"del":[[s,p,o]…]}]}

A statement has a fourth item if the number of a C-Set is not 1. Other kinds have `data` instead of `documents`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from json.encoder import encode_basestring as _quoted
from typing import Any, NamedTuple

from mdv.backbone.vector import Dot, Life, Vector
from mdv.errors import BadRequest
from mdv.model import Statement, Term

MAX_OPERATION_BYTES = 256 * 2**20
"""The size of an uncompressed body. A larger one is refused: it is not decompressed further."""

FIRST_CHAIN = bytes(32)
"""The chain before the first operation of a life."""

DOCUMENTS, LIFE, MEMBERS, SCHEMA, RULES, LMR = "documents", "life", "members", "schema", "rules", "lmr"
"""The kinds of operations: a change of documents, the begin of a life, changes of the members, the schema, the rules
and LMRs."""

KNOWN_KINDS = frozenset({DOCUMENTS, LIFE, MEMBERS, SCHEMA, RULES, LMR})
"""The kinds that this version of MDV knows. Operations of others wait until it is upgraded."""

NumberedStatement = tuple[Statement, int]
"""A statement that is inserted or deleted, with the number that its set kind sends."""

COMPRESSION_LEVEL = 3
"""Higher levels take much longer, and save a tenth."""

_GZIP = 16 + zlib.MAX_WBITS


class ReplicatedChange(NamedTuple):
    """What an operation changes in one document.

    `version`: the version that it made. `base` and `content`: the digests before and after. `prefixes`: None if they do
    not change.
    """

    uri: str
    version: int
    base: int
    content: int
    prefixes: Mapping[str, str] | None
    inserted: tuple[NumberedStatement, ...]
    deleted: tuple[NumberedStatement, ...]

    @property
    def is_deletion(self) -> bool:
        """True if the document had no statement left where the change was made."""
        return self.content == 0 and not self.inserted


class Operation(NamedTuple):
    """One operation. `deps`: the vector of its life just before. `at`: its hybrid time in microseconds."""

    life: Life
    seq: int
    deps: Vector
    at: int
    kind: str
    schema: tuple[int, int] = (0, 0)
    documents: tuple[ReplicatedChange, ...] = ()
    data: Mapping[str, Any] | None = None

    @property
    def dot(self) -> Dot:
        return self.life, self.seq


class LogRow(NamedTuple):
    """An operation as it is stored and sent. Members relay the rows of others unchanged. `signature`: of its origin."""

    life: Life
    seq: int
    chain: bytes
    body: bytes
    signature: bytes = b""


def next_chain(chain: bytes, body: bytes) -> bytes:
    """Return the chain after an operation."""
    return blake2b(chain + body, digest_size=32).digest()


def encode_operation(operation: Operation) -> bytes:
    """Return the body of an operation. The same operation gives the same bytes."""
    fields: dict[str, Any] = {
        "life": operation.life,
        "seq": operation.seq,
        "deps": dict(operation.deps),
        "at": operation.at,
        "kind": operation.kind,
        "schema": list(operation.schema),
    }
    if operation.kind != DOCUMENTS:
        fields["data"] = operation.data
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    if operation.kind == DOCUMENTS:
        changes = ",".join([_change_text(change) for change in operation.documents])
        text = f'{text[:-1]},"documents":[{changes}]}}'
    return zlib.compress(text.encode(), COMPRESSION_LEVEL, _GZIP)


def decode_operation(body: bytes) -> Operation:
    r"""Return the operation of a body. Raise `BadRequest` if it is malformed.

    >>> operation = Operation("m1", 1, {}, 17, LIFE, data={"member": "a"})
    >>> decode_operation(encode_operation(operation)) == operation
    True
    >>> decode_operation(b"x")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    mdv.errors.BadRequest: The body of an operation is malformed...
    """
    try:
        fields = read_body(body)
        term, number = fields["schema"]
        return Operation(
            fields["life"],
            fields["seq"],
            fields["deps"],
            fields["at"],
            fields["kind"],
            (term, number),
            tuple([_read_change(change) for change in fields.get("documents", ())]),
            fields.get("data"),
        )
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f"The body of an operation is malformed: {error}.") from None


def read_body(body: bytes) -> dict[str, Any]:
    """Return the JSON of a body. Raise `ValueError` or `zlib.error` if it is malformed."""
    reader = zlib.decompressobj(_GZIP)
    text = reader.decompress(body, MAX_OPERATION_BYTES)
    if not reader.eof:
        raise ValueError("it is incomplete or too large")
    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise ValueError("it is not an object")
    return fields


def _change_text(change: ReplicatedChange) -> str:
    """Return a change as JSON. Formatted by hand, since this runs for every registered document."""
    prefixes = "null" if change.prefixes is None else _prefixes_text(tuple(change.prefixes.items()))
    inserted = ",".join([_numbered_text(one) for one in change.inserted])
    deleted = ",".join([_numbered_text(one) for one in change.deleted])
    return (
        f'{{"uri":{_quoted(change.uri)},"version":{change.version},"base":"{digest_text(change.base)}"'
        f',"content":"{digest_text(change.content)}","prefixes":{prefixes},"ins":[{inserted}],"del":[{deleted}]}}'
    )


@lru_cache(maxsize=1000)
def _quoted_name(name: str) -> str:
    return _quoted(name)


@lru_cache(maxsize=100)
def _prefixes_text(prefixes: tuple[tuple[str, str], ...]) -> str:
    return json.dumps(dict(prefixes), ensure_ascii=False, separators=(",", ":"))


def _numbered_text(item: NumberedStatement) -> str:
    """Return a statement as JSON, with its number unless that is 1.

    >>> _numbered_text((Statement("urn:a", "urn:p", Term.literal("x", "en")), 2))
    '["urn:a","urn:p",{"type":"literal","value":"x","lang":"en"},2]'
    """
    (subject, name, (kind, value, lang, datatype)), number = item
    if lang is None and datatype is None and number == 1:
        return f'[{_quoted(subject)},{_quoted_name(name)},{{"type":"{kind}","value":{_quoted(value)}}}]'
    more = f',"lang":{_quoted(lang)}' if lang is not None else ""
    if datatype is not None:
        more += f',"datatype":{_quoted(datatype)}'
    last = "" if number == 1 else f",{number}"
    return f'[{_quoted(subject)},{_quoted(name)},{{"type":"{kind}","value":{_quoted(value)}{more}}}{last}]'


def _read_change(fields: Mapping[str, Any]) -> ReplicatedChange:
    return ReplicatedChange(
        fields["uri"],
        fields["version"],
        int(fields["base"], 16),
        int(fields["content"], 16),
        fields["prefixes"],
        tuple([_read_numbered(*item) for item in fields["ins"]]),
        tuple([_read_numbered(*item) for item in fields["del"]]),
    )


def _read_numbered(subject: str, name: str, term: Mapping[str, str], number: int = 1) -> NumberedStatement:
    value = Term(term["type"], term["value"], term.get("lang"), term.get("datatype"))
    return Statement(subject, name, value), number


def digest_text(digest: int) -> str:
    """Return a digest as 16 hexadecimal digits.

    >>> digest_text(255)
    '00000000000000ff'
    """
    return f"{digest:016x}"
