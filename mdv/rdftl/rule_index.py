"""Rules grouped by their footprints without constants.

Rules are often generated from few templates. The analysis works on units: single rules where there are few, and else
groups of rules that differ only in their constants. Constants of a group are unknown to the analysis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from mdv.rdf.schema import Schema
from mdv.rdftl.footprint import Footprint, footprint
from mdv.rdftl.model import EcaRule

MAX_SINGLE_RULES = 300
"""Rules that are analysed one by one, with their constants."""


@dataclass(frozen=True, slots=True)
class RuleUnit:
    """Rules that are analysed together: one rule, or all rules of a group. `rules`: their ids, in order of arrival.
    `more`: the number of further rules, whose ids are not listed."""

    rules: tuple[str, ...]
    footprint: Footprint
    more: int = 0

    @property
    def count(self) -> int:
        return len(self.rules) + self.more


class UnitSource(Protocol):
    """Rules that are grouped into units. `rules`: those that the analysis orders by PRECEDES and FOLLOWS, by id."""

    @property
    def schema(self) -> Schema: ...

    @property
    def rules(self) -> Mapping[str, EcaRule]: ...

    def units(self) -> list[RuleUnit]: ...


class RuleIndex:
    """A set of rules by id, grouped by their footprints without constants. Adding a rule costs one footprint."""

    def __init__(self, schema: Schema, rules: Mapping[str, EcaRule] | None = None) -> None:
        self.schema = schema
        self.rules: dict[str, EcaRule] = {}
        self.groups: dict[Footprint, dict[str, None]] = {}
        self._group_of: dict[str, Footprint] = {}
        for id_, rule in (rules or {}).items():
            self.add(id_, rule)

    def add(self, id_: str, rule: EcaRule) -> None:
        """Add a rule, or replace the rule with this id."""
        if id_ in self.rules:
            self.remove(id_)
        key = footprint(rule, self.schema).without_constants()
        members = self.groups.get(key)
        if members is None:
            self.groups[key] = members = {}
            self._group_of[id_] = key
        else:
            # Rules of a group share one key.
            self._group_of[id_] = self._group_of[next(iter(members))]
        members[id_] = None
        self.rules[id_] = rule

    def remove(self, id_: str) -> None:
        """Remove the rule with this id. Raise `KeyError` if there is none."""
        key = self._group_of.pop(id_)
        del self.rules[id_], self.groups[key][id_]
        if not self.groups[key]:
            del self.groups[key]

    def units(self, most: int = MAX_SINGLE_RULES) -> list[RuleUnit]:
        """Return the units. The largest groups stay groups if there are more than `most` rules."""
        single = self._single_groups(most)
        found: list[RuleUnit] = []
        for key, members in self.groups.items():
            if key in single:
                found += [RuleUnit((id_,), footprint(self.rules[id_], self.schema)) for id_ in members]
            else:
                found.append(RuleUnit(tuple(members), key))
        return found

    def _single_groups(self, most: int) -> set[Footprint]:
        found: set[Footprint] = set()
        left = most
        for key, members in sorted(self.groups.items(), key=lambda item: len(item[1])):
            left -= len(members)
            if left >= 0 or len(members) == 1:
                found.add(key)
        return found
