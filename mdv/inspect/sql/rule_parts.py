"""Read the rule graph for display: atomic rules, their inputs, and the rules that use them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, and_, bindparam, exists, func, select, text

from mdv.db.tables import (
    atomic_rules,
    end_rules,
    lmr_rules,
    lmrs,
    rule_dependencies,
    rule_ends,
    rule_groups,
    rules,
    suspended_rules,
)
from mdv.inspect.sql.filter_replay import RuleGraphReader


class RulePart(NamedTuple):
    """An atomic rule of the graph."""

    id: int
    text: str
    class_iri: str
    group: int | None
    uses: int
    is_end: bool


class Dependency(NamedTuple):
    """A row of RuleDependencies."""

    source: int
    target: int
    param: int
    group: int


class OperatorRow(NamedTuple):
    """A row of one of the tables FilterRulesOP, or of FilterRules, which has no operator."""

    rule: int
    operator: str | None
    class_iri: str
    property: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class ListedRule:
    """A rule with the name of its LMR. `suspended`: the position since which it is suspended. `lasting_id`: of its
    subscription, if that differs."""

    id: int
    lmr: str | None
    name: str | None
    text: str
    suspended: int | None = None
    lasting_id: int | None = None

    @property
    def subscription(self) -> int:
        """The ID of its subscription."""
        return self.lasting_id or self.id


_SUSPENDED = and_(suspended_rules.c.rule_id == rules.c.id, ~suspended_rules.c.pending)
_IS_END = exists().where(end_rules.c.rule_id == atomic_rules.c.rule_id)


def read_parts(connection: Connection, numbers: Collection[int]) -> list[RulePart]:
    """Return those of these atomic rules that exist."""
    a = atomic_rules.c
    query = select(a.rule_id, a.text, a["class"], a.group_id, a.uses, _IS_END).where(a.rule_id.in_(numbers))
    return [RulePart(*row) for row in connection.execute(query.order_by(a.rule_id))]


def read_dependencies(connection: Connection, numbers: Collection[int]) -> list[Dependency]:
    """Return all direct and indirect inputs of these atomic rules."""
    rows = RuleGraphReader(connection).rows("below", rules=list(numbers)) if numbers else []
    return [Dependency(source, target, param, group) for target, param, source, group in rows]


def read_dependents(connection: Connection, numbers: Collection[int], after: int, most: int) -> list[int]:
    """Return a page of the join rules that use these atomic rules, after the ID `after`."""
    d = rule_dependencies.c
    query = select(d.target).where(d.source.in_(numbers), d.target > after).distinct().order_by(d.target).limit(most)
    return list(connection.scalars(query))


def read_group_texts(connection: Connection, groups: Collection[int]) -> dict[int, tuple[str, int]]:
    """Return the common text of the rules of these groups, and their number."""
    g = rule_groups.c
    rows = connection.execute(select(g.group_id, g.text, g.members).where(g.group_id.in_(groups)))
    return {number: (text_, members) for number, text_, members in rows}


def read_operator_rows(connection: Connection, numbers: Collection[int]) -> list[OperatorRow]:
    """Return the rows of these triggering rules in the tables FilterRules and FilterRulesOP."""
    query = text(
        "select rule_id, operator, class, property, value from filter_rules_view where rule_id = any (:numbers)"
        " union all select rule_id, null, class, null, null from filter_rules where rule_id = any (:numbers)"
        " order by rule_id"
    ).bindparams(bindparam("numbers", list(numbers)))
    return [OperatorRow(*row) for row in connection.execute(query)]


def read_rule_ends(connection: Connection, numbers: Collection[int]) -> dict[int, list[int]]:
    """Return the end rules of these subscriptions."""
    query = select(rule_ends.c.rule_id, rule_ends.c.end_id).where(rule_ends.c.rule_id.in_(numbers))
    found: dict[int, list[int]] = {}
    for rule, end in connection.execute(query.order_by(rule_ends.c.rule_id, rule_ends.c.end_id)):
        found.setdefault(rule, []).append(end)
    return found


def list_rules_of_end(connection: Connection, end: int, after: int, most: int) -> list[ListedRule]:
    """Return a page of the subscriptions with this end rule."""
    query = _listed().join(rule_ends, rule_ends.c.rule_id == rules.c.id).where(rule_ends.c.end_id == end)
    return _read(connection, query.where(rules.c.id > after).limit(most))


def list_rules(
    connection: Connection, after: int, most: int, lmr: str = "", holding: str = "", suspended: bool = False
) -> list[ListedRule]:
    """Return a page of subscriptions, ordered by ID: optionally of one LMR, with a text that contains `holding`, or
    only suspended ones."""
    return _read(connection, _narrowed(_listed().where(rules.c.id > after).limit(most), lmr, holding, suspended))


def count_rules(connection: Connection, lmr: str = "", holding: str = "", suspended: bool = False) -> int:
    """Return the number of subscriptions that `list_rules` lists on all pages."""
    every = select(func.count()).select_from(rules).outerjoin(lmrs, lmrs.c.id == rules.c.owner)
    return connection.scalar(_narrowed(every, lmr, holding, suspended)) or 0


def list_named_rules(connection: Connection, lmr: str, most: int) -> list[ListedRule]:
    """Return the first named subscriptions of an LMR. Other rules can search rules by name."""
    return _read(connection, _narrowed(_listed().where(rules.c.name.is_not(None)).limit(most), lmr, ""))


def _narrowed(query: Select[Any], lmr: str, holding: str, suspended: bool = False) -> Select[Any]:
    if suspended:
        query = query.where(exists().where(_SUSPENDED).correlate(rules))
    if lmr:
        query = query.where(lmrs.c.name == lmr)
    if holding:
        query = query.where(func.strpos(func.lower(rules.c.text), holding.lower()) > 0)
    return query


def find_rule(connection: Connection, number: int) -> ListedRule | None:
    found = _read(connection, _listed().where(rules.c.id == number))
    return found[0] if found else None


def _listed() -> Select[Any]:
    return (
        select(rules.c.id, lmrs.c.name, rules.c.name, rules.c.text, suspended_rules.c.position, lmr_rules.c.lasting_id)
        .join_from(rules, lmrs, lmrs.c.id == rules.c.owner, isouter=True)
        .join(suspended_rules, _SUSPENDED, isouter=True)
        .join(lmr_rules, and_(lmr_rules.c.rule_id == rules.c.id, lmr_rules.c.lmr_id == rules.c.owner), isouter=True)
        .order_by(rules.c.id)
    )


def _read(connection: Connection, query: Select[Any]) -> list[ListedRule]:
    return [ListedRule(*row) for row in connection.execute(query)]
