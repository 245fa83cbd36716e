"""The schema's versions as stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from sqlalchemy import Connection, Text, cast, insert, literal_column, select, update

from mdv.db.engine import driver
from mdv.db.tables import documents, filter_data, mdp_state, resources, schema_versions, transactions, vocabulary
from mdv.model import Statement, Term

StoredSchema = tuple[list[Statement], dict[str, str]]


def read_schema_version(connection: Connection, version: int) -> StoredSchema:
    """The statements and prefixes of a version; version 0 is the empty schema that every MDP begins with."""
    query = select(schema_versions.c.statements, schema_versions.c.prefixes).where(schema_versions.c.version == version)
    row = connection.execute(query).one_or_none()
    if row is None:
        return [], {}
    return [Statement(s, p, Term(**o)) for s, p, o in row.statements], dict(row.prefixes)


def keep_schema_version(
    connection: Connection, version: int, position: int, statements: Sequence[Statement], prefixes: Mapping[str, str]
) -> None:
    """Make a version the present one, as the transaction at `position`."""
    encoded = [[s, p, o.as_dict()] for s, p, o in statements]
    values = {"version": version, "position": position, "statements": encoded, "prefixes": dict(prefixes)}
    connection.execute(insert(schema_versions).values(values))
    connection.execute(insert(transactions).values(position=position, cause="schema"))
    connection.execute(update(mdp_state).values(position=position, schema_version=version))


class StoredValue(NamedTuple):
    """A stored statement with the row that holds it and the typed values that it has."""

    document: str
    row: str
    statement: Statement
    typed: tuple[Decimal | None, Decimal | None, bool | None]


def stored_values(connection: Connection, properties: Collection[str] | None) -> Iterator[StoredValue]:
    """Every statement with one of `properties` (None: any), document by document. Reads the whole table once."""
    f = filter_data.c
    subject, target = resources.alias("subject"), resources.alias("target")
    name, datatype = vocabulary.alias("name"), vocabulary.alias("datatype")
    query = (
        select(documents.c.uri, cast(literal_column("filter_data.ctid"), Text), subject.c.uri, name.c.uri, target.c.uri,
               f.value, f.lang, datatype.c.uri, f.number, f.instant, f.truth)
        .join_from(filter_data, documents, documents.c.id == f.document_id)
        .join(subject, subject.c.id == f.resource_id)
        .join(name, name.c.id == f.property_id)
        .outerjoin(target, target.c.id == f.target_id)
        .outerjoin(datatype, datatype.c.id == f.datatype_id)
        .order_by(f.document_id)
    )  # fmt: skip
    if properties is not None:
        query = query.where(name.c.uri.in_(properties))
    rows = connection.execute(query.execution_options(yield_per=5000))
    for document, row, s, p, o, value, lang, kind, number, instant, truth in rows:
        term = Term("uri", o) if o is not None else Term("literal", value, lang, kind)
        yield StoredValue(document, row, Statement(s, p, term), (number, instant, truth))


def retype_values(connection: Connection, rows: Iterable[tuple[str, object, object, object]]) -> None:
    """Give rows, each named by its place, new typed values."""
    session = driver(connection)
    session.execute(
        "create temporary table if not exists retyped (row tid, number numeric, instant numeric, truth boolean)"
        " on commit drop"
    )
    changed = list(rows)
    with session.cursor() as cursor, cursor.copy("copy retyped from stdin") as copy:
        for row in changed:
            copy.write_row(row)
    session.execute(
        "update filter_data f set number = r.number, instant = r.instant, truth = r.truth"
        " from retyped r where f.ctid = r.row"
    )
    session.execute("truncate retyped")
