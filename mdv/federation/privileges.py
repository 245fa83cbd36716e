"""The privileges of other superpeers on the data of a peer group. The own group is not limited."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from typing import NamedTuple

from mdv.model import RDF_TYPE, Statement
from mdv.rdf.schema import Schema


class Privilege(Enum):
    """What others may do with data, from the least to the most."""

    PRIVATE = "private"
    READ_ONLY = "read-only"
    READ_WRITE = "read-write"

    @property
    def reads(self) -> bool:
        return self is not Privilege.PRIVATE

    @property
    def writes(self) -> bool:
        return self is Privilege.READ_WRITE


class GrantKind(Enum):
    """What a grant is about, from the least to the most specific."""

    CLASS = "class"
    PROPERTY = "property"
    PREFIX = "prefix"
    RESOURCE = "resource"


class Grant(NamedTuple):
    """A privilege on the instances of a class, the arcs of a property, a resource, or the resources with a prefix."""

    kind: GrantKind
    name: str
    privilege: Privilege


_ORDER = [*Privilege]
_RANKS = {kind: rank for rank, kind in enumerate(GrantKind)}


def privilege_on(statement: Statement, classes: Collection[str], grants: Iterable[Grant], schema: Schema) -> Privilege:
    """Return the privilege on a statement. `classes`: those of its subject.

    A grant for the resource itself precedes one for a URI prefix, which precedes one for the property, which precedes
    one for a class. A longer prefix, a subproperty and a subclass precede. Of equal grants, the least privilege holds.
    Without a grant, the statement is private.

    >>> from mdv.model import Term
    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> grants = [Grant(GrantKind.PREFIX, "http://a/", Privilege.READ_WRITE),
    ...           Grant(GrantKind.RESOURCE, "http://a/b", Privilege.PRIVATE)]
    >>> [privilege_on(Statement(uri, "http://v/p", Term.literal("x")), (), grants, EMPTY_SCHEMA).value
    ...  for uri in ("http://a/b", "http://a/c", "http://c")]
    ['private', 'read-write', 'private']
    """
    applying = [(_specificity(grant, statement, classes, schema), grant) for grant in grants]
    found = [(how, grant.privilege) for how, grant in applying if how is not None]
    if not found:
        return Privilege.PRIVATE
    most = max(how for how, _ in found)
    return min((privilege for how, privilege in found if how == most), key=_ORDER.index)


def _specificity(
    grant: Grant, statement: Statement, classes: Collection[str], schema: Schema
) -> tuple[int, int] | None:
    """Return how specific a grant is for a statement; None if it does not apply."""
    rank = _RANKS[grant.kind]
    match grant.kind:
        case GrantKind.RESOURCE:
            return (rank, 0) if grant.name == statement.subject else None
        case GrantKind.PREFIX:
            return (rank, len(grant.name)) if statement.subject.startswith(grant.name) else None
        case GrantKind.PROPERTY:
            property_ = schema.property_of(statement.property)
            above = property_.superproperties if property_ else (statement.property,)
            return (rank, -above.index(grant.name)) if grant.name in above else None
        case GrantKind.CLASS:
            stated = [statement.object.value] if statement.property == RDF_TYPE else []
            every = [_superclasses(iri, schema) for iri in (*classes, *stated)]
            distances = [above.index(grant.name) for above in every if grant.name in above]
            return (rank, -min(distances)) if distances else None


def _superclasses(iri: str, schema: Schema) -> tuple[str, ...]:
    declared = schema.classes.get(iri)
    return declared.superclasses if declared else (iri,)
