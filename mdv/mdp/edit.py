"""Edits: statements that are added to documents or removed from them, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mdv.db.delta import StatementEdit
from mdv.errors import InvalidDocument
from mdv.mdp.schemas import SchemaInForce
from mdv.model import BLANK_MARK, ParsedDocument, Statement, is_blank
from mdv.rdf.digest import statement_hash
from mdv.rdf.parse import RESERVED_URI_PREFIX
from mdv.rdf.schema import Schema
from mdv.rdf.validate import refuse_reserved


class Edit(NamedTuple):
    """A statement to be added or removed.

    `document`: the URI of its document. Without one, an addition goes to the document of the cause, unless some
    document contains the statement already; a deletion is from every document that contains it.
    """

    statement: Statement
    document: str | None = None


def encode_edits(edits: Iterable[Edit], schema: SchemaInForce) -> list[StatementEdit]:
    """Return edits with hashes and typed values."""
    typing = schema.typing
    return [
        StatementEdit(document, statement, statement_hash(statement), typing.typed_values(*statement[1:]))
        for statement, document in edits
    ]


def names_of_edits(edits: Iterable[Edit]) -> set[str]:
    """Return the properties and datatypes of edits."""
    terms = [(statement.property, statement.object.datatype) for statement, _ in edits]
    return {name for pair in terms for name in pair if name is not None}


def refuse_reserved_names(additions: Sequence[Edit], deletions: Sequence[Edit], default_document: str | None) -> None:
    """Raise `InvalidDocument` if an addition contains a name that documents must not contain, or if an edit concerns a
    blank node. The name of a blank node depends on its statements, so only a registration can change them."""
    for statement, document in (*additions, *deletions):
        for name in (statement.subject, statement.object.value if statement.object.is_uri else ""):
            if is_blank(name):
                raise InvalidDocument(
                    f"{name} is a blank node. Its name depends on its statements, so it cannot be edited. Register"
                    f" the document {_document_of(name, document or default_document)} again instead."
                )
    by_document: dict[str, list[Statement]] = {}
    for statement, document in additions:
        by_document.setdefault(document or default_document or "", []).append(statement)
    for uri, statements in by_document.items():
        refuse_reserved(ParsedDocument(uri, tuple(statements)))


def _document_of(blank: str, edited: str | None) -> str:
    """Return the document to register for a change of a blank node. MDV writes its own documents itself."""
    return edited if edited and not edited.startswith(RESERVED_URI_PREFIX) else blank.partition(BLANK_MARK)[0]


def single_values(additions: Iterable[Edit], default_document: str | None, schema: Schema) -> set[tuple[str, str, str]]:
    """Return the documents, subjects and properties whose stored values must be known to validate additions: those of
    properties that are not set-valued, and of their subproperties."""
    wanted = set()
    for statement, document in additions:
        declared = schema.property_of(statement.property)
        for above in declared.superproperties if declared is not None else ():
            known = schema.property_of(above)
            if known is not None and not known.set_valued:
                wanted |= {
                    (document or default_document or "", statement.subject, name) for name in known.subproperties
                }
    return wanted
