"""One SQL query per rule on our own store, with the best plans. The documents are stored already."""

from __future__ import annotations

from random import Random

from mdv.bench.rule_store import RuleStore


class SqlQueries:
    """The queries of rules on the documents that were registered last. The store checks their results."""

    def __init__(self, store: RuleStore) -> None:
        self._store = store
        self._random = Random(store.rule_type.name)

    def measure(self) -> float:
        """Return the seconds for all rules, extrapolated from a sample."""
        return self._store.time_rule_queries(self._random)
