"""Read the labels of resources, for one page in one query."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection

from mdv.db.load_sql import load_sql
from mdv.rdf.labels import MAX_LABEL_CHARACTERS, LabelValue, choose_labels

MAX_VALUES_PER_PROPERTY = 200
"""Values of one label property of one resource that are read: more than the languages of any usual catalogue."""


def read_labels(
    connection: Connection, uris: Collection[str], properties: Sequence[str], languages: Sequence[str]
) -> dict[str, str]:
    """Return the labels of those of these resources that have one, by URI, with one query."""
    if not uris or not properties:
        return {}
    values = {
        "uris": list(uris),
        "properties": list(properties),
        "characters": MAX_LABEL_CHARACTERS,
        "each": MAX_VALUES_PER_PROPERTY,
    }
    rows = connection.exec_driver_sql(load_sql("browse", __package__)["labels"], values)
    return choose_labels(((uri, LabelValue(*value)) for uri, *value in rows), properties, languages)
