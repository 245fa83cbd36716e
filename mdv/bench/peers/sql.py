"""One SQL query per rule, on our own store, planned once and as well as can be; the documents are there already."""

from __future__ import annotations

from random import Random

from mdv.bench.ruled_store import RuledStore


class SqlQueries:
    """The queries that rules would ask of the documents that were registered last; the store checks their answers."""

    def __init__(self, store: RuledStore) -> None:
        self._store = store
        self._random = Random(store.rule_type.name)

    def ask(self) -> float:
        """The seconds that all rules would take, as a sample of them does."""
        return self._store.own_queries(self._random)
