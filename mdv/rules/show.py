"""Format the normal form of a rule as text, as in the paper (section 3.3).

Law: if the text of one conjunction is parsed and normalised, the result is the same conjunction.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from mdv.rdf.schema import Schema, UnknownName
from mdv.rules.normal import (
    Access,
    Comparison,
    Conjunction,
    Constant,
    Link,
    NormalPredicate,
    NormalRule,
    Sort,
    Variable,
)
from mdv.rules.operators import Operator
from mdv.rules.parse import KEYWORDS


def format_rule(normal: Conjunction | NormalRule, schema: Schema) -> str:
    """Return the text of a normal form, with one clause per line and `or` between conjunctions.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> from mdv.rules.normalise import normalise
    >>> from mdv.rules.parse import parse
    >>> rule = parse("search Resource r register r where r.type? = s or not r.label contains 'x'".replace("= s", "= r"))
    >>> print(format_rule(normalise(rule, EMPTY_SCHEMA), EMPTY_SCHEMA))
    search    rdfs:Resource r
    register  r
    where     r.rdf:type? = r
    or
    search    rdfs:Resource r
    register  r
    where     not r.rdfs:label contains 'x'
    """
    parts = normal.conjunctions if isinstance(normal, NormalRule) else (normal,)
    return "\nor\n".join(_conjunction(part, schema) for part in parts)


def path_text(access: Access, class_iri: str, schema: Schema) -> str:
    """Return `variable.property` as it is written in a rule, for a variable of this class.

    >>> from mdv.model import RDF_TYPE, RDFS_RESOURCE
    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> path_text(Access("r", RDF_TYPE), RDFS_RESOURCE, EMPTY_SCHEMA)
    'r.rdf:type?'
    """
    alone = Comparison(access, Operator.EQ, Sort.TEXT, Constant("", "''"))
    shown = format_rule(Conjunction((Variable(access.variable, class_iri),), access.variable, (alone,)), schema)
    return shown.rpartition("\nwhere     ")[2].removesuffix(" = ''")


def _conjunction(part: Conjunction, schema: Schema) -> str:
    search = ", ".join(f"{_class_name(v.class_iri, schema)} {v.name}" for v in part.variables)
    lines = [f"search    {search}", f"register  {part.register}"]
    if part.predicates:
        classes = {variable.name: variable.class_iri for variable in part.variables}
        where = "\n          and ".join(_predicate(one, classes, schema) for one in part.predicates)
        lines.append(f"where     {where}")
    return "\n".join(lines)


def _predicate(predicate: NormalPredicate, classes: dict[str, str], schema: Schema) -> str:
    if isinstance(predicate, Link):
        left, right = (_access(side, classes, schema) for side in (predicate.left, predicate.right))
        return predicate.operator.text(left, right)
    return predicate.operator.text(_access(predicate.access, classes, schema), predicate.constant.shown)


def _access(access: Access, classes: dict[str, str], schema: Schema) -> str:
    if access.property is None:
        return access.variable
    resolve = partial(schema.resolve_property, class_iri=classes.get(access.variable))
    declared = schema.property_of(access.property)
    any_ = "?" if declared and declared.set_valued else ""
    return f"{access.variable}.{_name(access.property, resolve, schema)}{any_}"


def _class_name(iri: str, schema: Schema) -> str:
    return _name(iri, schema.resolve_class, schema, KEYWORDS)


_WRITABLE = re.compile(r"(?:[^\W\d][\w-]*|(?:[^\W\d][\w-]*)?:\w[\w-]*)")


def _name(iri: str, resolve: Callable[[str], str], schema: Schema, reserved: frozenset[str] = frozenset()) -> str:
    """Return the shortest name that resolves to `iri`. A name without prefix can be ambiguous or a keyword."""
    short = schema.shorten(iri)
    for name in (short, f":{short}"):
        if _WRITABLE.fullmatch(name) and name.lower() not in reserved:
            try:
                if resolve(name) == iri:
                    return name
            except UnknownName:
                continue
    return f"<{iri}>"
