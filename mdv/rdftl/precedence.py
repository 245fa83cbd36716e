"""The partial order of rules by PRECEDES and FOLLOWS."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from mdv.rdftl.model import EcaRule


class PrecedenceOrder:
    """The order of rules by id. Names that no rule has order nothing."""

    def __init__(self, rules: Mapping[str, EcaRule]) -> None:
        ids = {rule.name: id_ for id_, rule in rules.items() if rule.name is not None}
        self._after: dict[str, set[str]] = defaultdict(set)
        for id_, rule in rules.items():
            if rule.precedes:
                self._after[id_].update(ids[name] for name in rule.precedes if name in ids)
            for name in rule.follows:
                if name in ids:
                    self._after[ids[name]].add(id_)

    def is_ordered(self, one: str, other: str) -> bool:
        """True if one of the two rules precedes the other, directly or through other rules."""
        return self._precedes(one, other) or self._precedes(other, one)

    def _precedes(self, first: str, second: str) -> bool:
        seen, todo = {first}, [first]
        while todo:
            for id_ in self._after.get(todo.pop(), ()):
                if id_ == second:
                    return True
                if id_ not in seen:
                    seen.add(id_)
                    todo.append(id_)
        return False
