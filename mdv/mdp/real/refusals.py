"""Why a change of a program is refused: permissions, locks, and the schema."""

from __future__ import annotations

from collections.abc import Sequence

from mdv.db.real.processes import WriteLock
from mdv.errors import InvalidDocument
from mdv.mdp.write_limits import WriteLimits, is_below_prefix
from mdv.model import Document, ParsedDocument, Statement, is_blank
from mdv.rdf.schema import Schema
from mdv.rdf.term_json import read_term
from mdv.rdf.validate import refuse_reserved, validate
from mdv.real.store import FactReader, ReadPattern, ScopedRead, StatementChange, WriteRefusal
from mdv.real.vocabulary import RDF_FIRST, RDF_REST


def schema_refusal(change: StatementChange, facts: FactReader, schema: Schema) -> WriteRefusal | None:
    """Return why the schema, or a reserved name, does not allow a change. `facts`: those of its document."""
    document, statement, is_added = change
    if is_blank(statement.subject) and statement.property not in (RDF_FIRST, RDF_REST):
        return WriteRefusal(f"{statement.subject} is a blank node, which only a registration of its document changes")
    if not is_added:
        return None
    own = [name for name in (statement.subject, statement.object.value) if is_blank(name)]
    singles = _singles(statement, schema)
    present = [one for name in singles for one in facts(ReadPattern(statement.subject, name))]
    try:
        if not own:
            refuse_reserved(ParsedDocument(document, (statement,)))
        validate(Document(document, (statement,)), schema)
        if present:
            validate(Document(document, tuple(dict.fromkeys((*present, statement)))), schema)
    except InvalidDocument as error:
        # A second value can be added when the first one is gone.
        awaited = tuple(ScopedRead(ReadPattern(one.subject, one.property), (document,)) for one in present)
        return WriteRefusal(error.flaws[0].message if error.flaws else error.detail, awaited)
    return None


def permission_refusal(document: str, statement: Statement, limits: WriteLimits) -> str | None:
    """Return why a caller with these limits may not change a statement.

    >>> from mdv.model import Term
    >>> statement = Statement("http://b/x", "http://v/p", Term.literal("1"))
    >>> permission_refusal("http://a/d", statement, WriteLimits(resources=("http://a/",)))
    'may not describe http://b/x'
    """
    documents, resources = limits
    if documents is not None and not is_below_prefix(document, documents):
        return f"may not write {document}"
    if resources is None or is_blank(statement.subject) or is_below_prefix(statement.subject, resources):
        return None
    return f"may not describe {statement.subject}"


def lock_refusal(change: StatementChange, locks: Sequence[WriteLock]) -> str | None:
    """Return which lock does not allow a change.

    >>> from mdv.model import Term
    >>> change = StatementChange("http://a/d", Statement("http://a/x", "http://v/p", Term.literal("1")), True)
    >>> lock_refusal(change, [WriteLock(7, "http://a/", None, "http://v/p", None)])
    'the lock 7 does not allow programs to change this statement'
    """
    document, (subject, name, value), _ = change
    for lock in locks:
        if (
            (lock.document_prefix is None or document.startswith(lock.document_prefix))
            and lock.subject in (None, subject)
            and lock.property in (None, name)
            and (lock.object is None or read_term(lock.object) == value)
        ):
            return f"the lock {lock.id} does not allow programs to change this statement"
    return None


def _singles(statement: Statement, schema: Schema) -> list[str]:
    """Return the properties of which the subject may have one value in a document together with this one."""
    declared = schema.property_of(statement.property)
    found: dict[str, None] = {}
    for above in declared.superproperties if declared is not None else ():
        known = schema.property_of(above)
        if known is not None and not known.set_valued:
            found |= dict.fromkeys(known.subproperties)
    return list(found)
