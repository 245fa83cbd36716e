"""Look-ups of event-condition-action rules: which statements documents contain, and the URIs of IDs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping

from sqlalchemy import Connection

from mdv.db.delta import EncodedStatement
from mdv.db.load_sql import load_sql
from mdv.db.pipeline import Pipeline
from mdv.db.postgres_copy import array_literal
from mdv.model import Statement, Term

Hash = Callable[[Statement], int]


def find_held(
    connection: Connection,
    others: Collection[Statement],
    subjects: Collection[str],
    touched: Collection[Statement],
    names: Mapping[str, int],
    hash_of: Hash,
) -> tuple[set[Statement], set[str]]:
    """Return those of `others` that a document contains, and those of `subjects` that statements other than `touched`
    describe. `names`: the IDs of properties and datatypes."""
    if not others and not subjects:
        return set(), set()
    listed = list(others)
    sql = load_sql("eca")
    with Pipeline(connection) as pipeline:
        rows = [{"n": number, **_encoded(one, names, hash_of)} for number, one in enumerate(listed)]
        held = pipeline.queue_named(sql["find_held"], statements=_json(rows)) if rows else None
        known = [_encoded(one, names, hash_of) for one in touched if one.subject in subjects]
        described = (
            pipeline.queue_named(
                sql["find_described_otherwise"], statements=_json(known), subjects=_json(list(subjects))
            )
            if subjects
            else None
        )
    return (
        {listed[int(number or 0)] for (number,) in held.rows()} if held is not None else set(),
        {uri or "" for (uri,) in described.rows()} if described is not None else set(),
    )


def _encoded(statement: Statement, names: Mapping[str, int], hash_of: Hash) -> dict[str, object]:
    subject, name, (kind, value, lang, datatype) = statement
    target, text = (value, None) if kind == "uri" else (None, value)
    return {
        "subject": subject, "property_id": names[name], "hash": hash_of(statement), "target": target, "value": text,
        "lang": lang, "datatype_id": names[datatype] if datatype else None,
    }  # fmt: skip


def decode_statements(connection: Connection, encoded: Iterable[EncodedStatement]) -> list[Statement]:
    """Return statements with URIs instead of IDs."""
    keys = list(encoded)
    if not keys:
        return []
    sql = load_sql("eca")
    resources = {number for key in keys for number in (key.resource, key.target) if number is not None}
    vocabulary = {number for key in keys for number in (key.property, key.datatype) if number is not None}
    with Pipeline(connection) as pipeline:
        found = pipeline.queue_named(sql["find_uris"], ids=array_literal(resources))
        names_found = pipeline.queue_named(sql["find_names"], ids=array_literal(vocabulary))
    uris = {int(number or 0): uri or "" for number, uri in found.rows()}
    names = {int(number or 0): uri or "" for number, uri in names_found.rows()}
    return [
        Statement(
            uris[key.resource],
            names[key.property],
            Term.uri(uris[key.target])
            if key.target is not None
            else Term.literal(key.value or "", key.lang, names[key.datatype] if key.datatype is not None else None),
        )
        for key in keys
    ]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
