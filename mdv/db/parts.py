"""The atomic rules of the graph, to be looked at: what each says, what it is made of, who uses it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, bindparam, exists, func, select, text

from mdv.db.tables import atomic_rules, end_rules, lmrs, rule_dependencies, rule_ends, rule_groups, rules
from mdv.db.trace import Walk


class Stored(NamedTuple):
    """An atomic rule as it stands in the graph."""

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
    """A subscription, with the name of the LMR that it is for."""

    id: int
    lmr: str | None
    name: str | None
    text: str


_IS_END = exists().where(end_rules.c.rule_id == atomic_rules.c.rule_id)


def read_parts(connection: Connection, numbers: Collection[int]) -> list[Stored]:
    """These atomic rules, as far as there are such."""
    a = atomic_rules.c
    query = select(a.rule_id, a.text, a["class"], a.group_id, a.uses, _IS_END).where(a.rule_id.in_(numbers))
    return [Stored(*row) for row in connection.execute(query.order_by(a.rule_id))]


def read_below(connection: Connection, numbers: Collection[int]) -> list[Dependency]:
    """All that these atomic rules are made of."""
    rows = Walk(connection).rows("below", rules=list(numbers)) if numbers else []
    return [Dependency(source, target, param, group) for target, param, source, group in rows]


def read_users(connection: Connection, numbers: Collection[int], after: int, most: int) -> list[int]:
    """The join rules that use some of these atomic rules, from the one after `after`."""
    d = rule_dependencies.c
    query = select(d.target).where(d.source.in_(numbers), d.target > after).distinct().order_by(d.target).limit(most)
    return list(connection.scalars(query))


def read_group_texts(connection: Connection, groups: Collection[int]) -> dict[int, tuple[str, int]]:
    """What the rules of these groups have in common, and how many they are."""
    g = rule_groups.c
    rows = connection.execute(select(g.group_id, g.text, g.members).where(g.group_id.in_(groups)))
    return {number: (said, members) for number, said, members in rows}


def read_operator_rows(connection: Connection, numbers: Collection[int]) -> list[OperatorRow]:
    """What stands of these triggering rules in the tables of their operators."""
    query = text(
        "select rule_id, operator, class, property, value from filter_rules_view where rule_id = any (:numbers)"
        " union all select rule_id, null, class, null, null from filter_rules where rule_id = any (:numbers)"
        " order by rule_id"
    ).bindparams(bindparam("numbers", list(numbers)))
    return [OperatorRow(*row) for row in connection.execute(query)]


def ends_of(connection: Connection, numbers: Collection[int]) -> dict[int, list[int]]:
    """The atomic rules that these subscriptions end in."""
    query = select(rule_ends.c.rule_id, rule_ends.c.end_id).where(rule_ends.c.rule_id.in_(numbers))
    found: dict[int, list[int]] = {}
    for rule, end in connection.execute(query.order_by(rule_ends.c.rule_id, rule_ends.c.end_id)):
        found.setdefault(rule, []).append(end)
    return found


def ending_in(connection: Connection, end: int, after: int, most: int) -> list[ListedRule]:
    """The subscriptions that end in an atomic rule."""
    query = _listed().join(rule_ends, rule_ends.c.rule_id == rules.c.id).where(rule_ends.c.end_id == end)
    return _read(connection, query.where(rules.c.id > after).limit(most))


def list_rules(connection: Connection, after: int, most: int, lmr: str = "", holding: str = "") -> list[ListedRule]:
    """Subscriptions by their numbers; of one LMR, or with a text that holds something."""
    return _read(connection, _narrowed(_listed().where(rules.c.id > after).limit(most), lmr, holding))


def count_rules(connection: Connection, lmr: str = "", holding: str = "") -> int:
    """How many of them there are."""
    every = select(func.count()).select_from(rules).outerjoin(lmrs, lmrs.c.id == rules.c.owner)
    return connection.scalar(_narrowed(every, lmr, holding)) or 0


def named_rules(connection: Connection, lmr: str, most: int) -> list[ListedRule]:
    """The first subscriptions of an LMR that have a name, by which other rules can search them."""
    return _read(connection, _narrowed(_listed().where(rules.c.name.is_not(None)).limit(most), lmr, ""))


def _narrowed(query: Select[Any], lmr: str, holding: str) -> Select[Any]:
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
        select(rules.c.id, lmrs.c.name, rules.c.name, rules.c.text)
        .join_from(rules, lmrs, lmrs.c.id == rules.c.owner, isouter=True)
        .order_by(rules.c.id)
    )


def _read(connection: Connection, query: Select[Any]) -> list[ListedRule]:
    return [ListedRule(*row) for row in connection.execute(query)]
