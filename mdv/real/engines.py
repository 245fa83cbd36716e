"""The inference engine `engine:schema`: the schema, and what follows from its subclasses and subproperties."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mdv.model import RDF_TYPE, RDFS, RDFS_RESOURCE, Statement, Term
from mdv.rdf.schema import Schema
from mdv.rdf.values import ValueKind
from mdv.real.store import FactReader, ReadPattern, pattern_matches

_SUBCLASS, _SUBPROPERTY = RDFS + "subClassOf", RDFS + "subPropertyOf"


def infer_by_schema(
    schema: Schema, statements: Iterable[Statement], pattern: ReadPattern, facts: FactReader
) -> Iterator[Statement]:
    """Yield the distinct statements that match a pattern and follow from facts and the schema. `statements`: those of
    the schema.

    The subclasses of the schema are transitive, not reflexive, and rdfs:Resource is no superclass.
    """
    seen: set[Statement] = set()
    declared = [one for one in statements if one.property not in (_SUBCLASS, _SUBPROPERTY)]

    def known(wanted: ReadPattern) -> Iterator[Statement]:
        yield from facts(wanted)
        yield from (one for one in declared if pattern_matches(wanted, one, ValueKind.TEXT))

    for statement in _entailed(schema, pattern, known):
        if statement not in seen and _fits(pattern, statement):
            seen.add(statement)
            yield statement


def _fits(pattern: ReadPattern, statement: Statement) -> bool:
    subject, name, value, is_typed = pattern
    return (
        (subject is None or statement.subject == subject)
        and (name is None or statement.property == name)
        and (value is None or is_typed or statement.object == value)
    )


def _entailed(schema: Schema, pattern: ReadPattern, facts: FactReader) -> Iterator[Statement]:
    subject, name, value, is_typed = pattern
    for kind, terms in (
        (_SUBCLASS, {iri: one.superclasses for iri, one in schema.classes.items()}),
        (_SUBPROPERTY, {iri: one.superproperties for iri, one in schema.properties.items()}),
    ):
        if name is None or name == kind:
            for iri, above in terms.items():
                yield from (Statement(iri, kind, Term.uri(up)) for up in above if up not in (iri, RDFS_RESOURCE))
    declared = None if name is None else schema.property_of(name)
    names = (None,) if name is None else declared.subproperties if declared is not None else (name,)
    for one in names:
        values: tuple[Term | None, ...] = (value,)
        if value is not None and (one is None or one == RDF_TYPE) and value.value in schema.classes:
            values = tuple(Term.uri(below) for below in schema.classes[value.value].subclasses)
        for wanted in values:
            for fact in facts(ReadPattern(subject, one, wanted, is_typed)):
                yield from _consequences(schema, fact)


def _consequences(schema: Schema, fact: Statement) -> Iterator[Statement]:
    declared = schema.property_of(fact.property)
    for name in declared.superproperties if declared is not None else (fact.property,):
        yield Statement(fact.subject, name, fact.object)
        if name == RDF_TYPE and fact.object.value in schema.classes:
            for above in schema.classes[fact.object.value].superclasses:
                if above != RDFS_RESOURCE:
                    yield Statement(fact.subject, name, Term.uri(above))
