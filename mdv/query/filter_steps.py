"""The single steps of the paper's filter (section 3.4) as SQL: which atomic rules match which resources.

The filter itself evaluates whole rules at once (`mdv.query.compile`). These statements use the same conditions and show
the steps of the paper for inspection. Each has the parameter `roots`, the resources to start with.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, FromClause, Numeric, Select, Text, bindparam, func, not_, or_, select, true
from sqlalchemy.dialects.postgresql import ARRAY

from mdv.query.compile import Conditions, Expression, Group, RuleTables, StatementView, find_rules
from mdv.rules.normal import Sort
from mdv.rules.pattern import Leaf, Pattern


def select_triggered(state: StatementView, tables: RuleTables, leaf: Leaf, predicate: int, most: int) -> Select[Any]:
    """Select the triggering rules with this predicate that a value of the roots satisfies: rule and resource."""
    alone = Pattern(((leaf.class_iri,),), (None,), (leaf._replace(node=0),), ())
    roots = _roots()
    source, found = find_rules(state, tables, Group(0, alone, 0, (predicate,)), 0, roots, roots.c.id)
    rows = select(found.c.rule_id, roots.c.id).select_from(source).distinct()
    return rows.order_by(found.c.rule_id, roots.c.id).limit(most)


def select_joined(state: StatementView, pattern: Pattern, register: int) -> Select[Any]:
    """Select the resources that a join rule registers for the roots. Parameters: `constant0`, `constant1` …"""
    constants: list[Expression] = [
        bindparam(f"constant{number}", type_=Text() if leaf.sort in (Sort.TEXT, Sort.REFERENCE) else Numeric())
        for number, leaf in enumerate(pattern.leaves)
    ]
    conditions, path = Conditions(state, pattern, constants), pattern.path(register)
    source = _join_nodes(conditions, path)
    return (
        select(conditions.at(register).label("id"))
        .select_from(source)
        .where(*conditions.of_path(path, None))
        .distinct()
    )  # fmt: skip


def select_join_partners(state: StatementView, pattern: Pattern, most: int) -> Select[Any]:
    """Select the resources, except those in `inside`, that a join rule of this pattern can combine with the roots."""
    conditions = Conditions(state, pattern, ())
    others = range(1, len(pattern.nodes))
    source = _join_nodes(conditions, range(len(pattern.nodes)))
    inside = bindparam("inside", type_=ARRAY(BigInteger))
    outside = [not_(conditions.at(node) == func.any(inside)) for node in others]
    ties = [conditions.tie(tie) for tie in pattern.ties]
    shown = [conditions.at(node).label(f"n{node}") for node in others]
    return select(*shown).select_from(source).where(or_(*outside), *ties).distinct().limit(most)


def _roots() -> FromClause:
    return func.unnest(bindparam("roots", type_=ARRAY(BigInteger))).table_valued("id", name="root").render_derived()


def _join_nodes(conditions: Conditions, nodes: Any) -> FromClause:
    """Return the roots joined with all these nodes, parents first."""
    roots = _roots()
    conditions.bind(0, roots.c.id)
    source: FromClause = roots
    for node in list(nodes)[1:]:
        for table in conditions.step(node):
            source = source.join(table, true())
    return source
