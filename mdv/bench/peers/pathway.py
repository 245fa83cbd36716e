"""Pathway, incrementally maintained tables in memory. Rules are a table that is joined with the documents.

A row is a document; its providers and computers become separate tables. One commit is a batch, and the engine reports
its end. Measured with 100,000 rules: one row per resource in a single table takes half as long again. With two tables
and separate commits, there is no way to know when a batch has passed both.

Only commits advance the time (there are no periodic commits). The table of rules is closed after its last row;
otherwise it would hold back the time of the documents. Pathway joins on equality only. So for COMP, thresholds are in
buckets, and a document joins all buckets up to its value. Nothing is sent over the network: there is no license key, no
monitoring and no server.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import pathway as pw

from mdv.bench.peers import (
    PeerResult,
    ProviderRow,
    StatementBatch,
    group_by_resource,
    provider_row,
    rule_constant,
    rule_family,
)
from mdv.bench.rule_types import RuleType

BATCH_TIMEOUT_SECONDS = 600.0
"""A batch without matches has no recognizable end."""


class RowSource(pw.io.python.ConnectorSubject):  # type: ignore[misc]
    """Rows from the measuring thread. `run` only waits for the last one."""

    deletions_enabled = False

    def __init__(self) -> None:
        super().__init__()
        self.ended = threading.Event()

    def run(self) -> None:
        self.ended.wait()


class Pathway:
    """A running engine with the rules joined."""

    def __init__(self, rule_type: RuleType, rules: int) -> None:
        self._feed, subscribed = RowSource(), RowSource()
        columns = pw.schema_from_types(**_types())
        documents = pw.io.python.read(self._feed, schema=columns, autocommit_duration_ms=None)
        columns = pw.schema_from_types(rule=int, constant=str if rule_type.selects_by_uri else int)
        subscriptions = pw.io.python.read(subscribed, schema=columns, autocommit_duration_ms=None)
        matches = JOINS[rule_family(rule_type)](documents, subscriptions, rules)
        self._found: list[tuple[int, str]] = []
        self._done, self._ready, self._rules = threading.Event(), threading.Event(), rules
        pw.io.subscribe(matches, on_change=self._match, on_time_end=self._end)
        pw.io.subscribe(subscriptions.reduce(count=pw.reducers.count()), on_change=self._count)
        running = {"monitoring_level": pw.MonitoringLevel.NONE, "default_logging": False}
        threading.Thread(target=pw.run, kwargs=running, daemon=True).start()
        for number in range(rules):
            subscribed.next(rule=number, constant=rule_constant(rule_type, number))
        subscribed.commit()
        subscribed.ended.set()
        if not self._ready.wait(BATCH_TIMEOUT_SECONDS):
            raise TimeoutError(f"Pathway did not load {rules:,} rules within {BATCH_TIMEOUT_SECONDS:.0f} s.")

    def prepare(self, batch: StatementBatch) -> list[dict[str, Any]]:
        return [provider_row(document)._asdict() for document in batch]

    def take(self, rows: list[dict[str, Any]]) -> PeerResult:
        self._found.clear()
        self._done.clear()
        add = self._feed.next
        began = time.perf_counter()
        for row in rows:
            add(**row)
        self._feed.commit()
        self._done.wait(BATCH_TIMEOUT_SECONDS)
        seconds = time.perf_counter() - began
        return PeerResult(seconds, group_by_resource(self._found))

    def _match(self, key: object, row: dict[str, Any], time: int, is_addition: bool) -> None:
        self._found.append((row["rule"], row["uri"]))

    def _end(self, time: int) -> None:
        if self._found:
            self._done.set()

    def _count(self, key: object, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition and row["count"] == self._rules:
            self._ready.set()


def _types() -> dict[str, type]:
    return {name: str if name in ("uri", "serverHost", "serverInformation") else int for name in ProviderRow._fields}


def _oid(documents: Any, rules: Any, _: int) -> Any:
    return documents.join(rules, documents.uri == rules.constant).select(rules.rule, documents.uri)


def _path(documents: Any, rules: Any, _: int) -> Any:
    providers = documents.select(pw.this.uri, pw.this.serverInformation)
    return _of_computers(providers, _computers(documents), rules)


def _join(documents: Any, rules: Any, _: int) -> Any:
    here = documents.filter(documents.serverHost.str.count("uni-passau.de") > 0)
    providers = here.select(pw.this.uri, pw.this.serverInformation)
    return _of_computers(providers, _computers(documents).filter(pw.this.cpu == 600), rules)


def _computers(documents: Any) -> Any:
    return documents.select(uri=pw.this.serverInformation, memory=pw.this.memory, cpu=pw.this.cpu)


def _of_computers(providers: Any, computers: Any, rules: Any) -> Any:
    matched = computers.join(rules, computers.memory == rules.constant).select(computers.uri, rules.rule)
    joined = providers.join(matched, providers.serverInformation == matched.uri)
    return joined.select(matched.rule, providers.uri)


def _comp(documents: Any, rules: Any, count: int) -> Any:
    width = max(1, math.isqrt(count))
    taken = pw.apply_with_type(lambda value: tuple(range(value // width + 1)), tuple[int, ...], pw.this.synthValue)
    spread = documents.select(pw.this.uri, pw.this.synthValue, bucket=taken).flatten(pw.this.bucket)
    rules = rules.select(pw.this.rule, pw.this.constant, bucket=pw.this.constant // width)
    joined = spread.join(rules, spread.bucket == rules.bucket)
    pairs = joined.select(rules.rule, rules.constant, spread.uri, spread.synthValue)
    return pairs.filter(pw.this.synthValue > pw.this.constant).select(pw.this.rule, pw.this.uri)


JOINS = {"OID": _oid, "PATH": _path, "JOIN": _join, "COMP": _comp}
"""For each rule type, the function that returns the table of matches."""
