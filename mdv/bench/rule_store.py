"""A store with a rule base of one type that is measured and checked in rounds.

Reads are committed too: after a rollback, the driver forgets the prepared statements of its connection, and the next
measurement would include planning them again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine

import mdv.mdp.transaction as transaction_module
from mdv.bench.registration import RegistrationBench
from mdv.bench.rule_types import RuleType
from mdv.bench.sql.bench_store import (
    count_range_resources,
    count_strpos_matches,
    delete_documents,
    query_each_rule,
    read_changes_of,
    resource_id_of,
)
from mdv.bench.sql.copy_floor import vacuum_analyze
from mdv.bench.workload import NAMESPACE, make_document
from mdv.db.pipeline import Pipeline
from mdv.db.state import read_state
from mdv.mdp.filter import read_match_changes
from mdv.mdp.register import Prepared, prepare, register
from mdv.mdp.rules.add import add_rules
from mdv.mdp.rules.planning import AddedRule, RuleDraft
from mdv.model import RDF_TYPE

STRPOS_VALUES_PER_ROUND = 10
"""Values per round that are searched for every constant."""
SAMPLED_RULES = 200
"""Rules per round that are queried one by one. The cost of the others is extrapolated."""


class RoundSeconds(NamedTuple):
    """The seconds of one round: the filter alone, prepared documents to commit, text to commit, and the floor."""

    filter: float
    store: float
    whole: float
    floor: float


@contextmanager
def time_filter(wanted: bool = True) -> Iterator[list[float]]:
    """Collect the seconds of each run of the filter in registrations within the block.

    Pending messages to the database are completed before the filter starts, so that only the filter is measured.
    """
    names = vars(transaction_module)
    filter_run = names["filter_changes"]
    times: list[float] = []
    if not wanted:
        yield times
        return

    def timed(pipeline: Pipeline, *arguments: Any) -> Any:
        pipeline.send()
        began = time.perf_counter()
        found = filter_run(pipeline, *arguments)
        pipeline.send()
        times.append(time.perf_counter() - began)
        return found

    names["filter_changes"] = timed
    try:
        yield times
    finally:
        names["filter_changes"] = filter_run


class RuleStore:
    """The store, its rules, the next turn, and the documents that were inserted last."""

    def __init__(self, engine: Engine, rule_type: RuleType, rules: int) -> None:
        self.rule_type, self.rules = rule_type, rules
        self._bench = RegistrationBench(engine)
        self.engine = engine
        self._schema = self._bench.schema()
        self._ends = [rule.ends[0] for rule in add_in_chunks(self._bench, [rule_type.rule(n) for n in range(rules)])]
        with engine.begin() as connection:
            self._last_kept = read_state(connection).last_resource
        vacuum_analyze(engine)
        self._turn = 0
        self._answers: Sequence[object] = ()
        self.turns = range(0)
        self.batch: Sequence[Prepared] = ()

    def insert(self, size: int, clocked: bool = False) -> RoundSeconds:
        """Register new documents and check the results of the filter. `clocked` measures the filter separately, which
        delays the rest a little."""
        self.turns = self._next_turns(size)
        with time_filter(clocked) as filtering:
            self.batch, seconds = self._register(self._documents())
        self._check_counts("inserted", 2 * len(self.batch))
        self._check({(turn, number, True) for turn in self._checked_turns() for number in self._matching(turn)})
        return seconds._replace(filter=sum(filtering), floor=self._bench.floor.copy(self.batch))

    def update(self) -> RoundSeconds:
        """Register the last documents again with another memory value, and check the results."""
        batch, seconds = self._register(self._documents(moved=1))
        self._check_counts("updated", len(batch))
        stopped = {(turn, number, False) for turn in self.turns for number in self._matching(turn)}
        came = {(turn, number, True) for turn in self.turns for number in self._matching(turn, 1)}
        self._check(stopped | came)
        return seconds

    def strpos(self) -> float:
        """Return the seconds per value for searching it for every constant of `contains`."""
        values = [self.rule_type.host(turn, self.rules) for turn in self.turns[:STRPOS_VALUES_PER_ROUND]]
        with self.engine.begin() as connection:
            began = time.perf_counter()
            found = count_strpos_matches(connection, values)
            seconds = time.perf_counter() - began
        self._require(found == len(values), f"strpos found {found} constants in {len(values)} values")
        return seconds / len(values)

    def time_rule_queries(self, random: Random) -> float:
        """Return the seconds for querying the last documents by each rule, extrapolated from a sample of the rules."""
        sample = random.sample(range(self.rules), min(SAMPLED_RULES, self.rules))
        due = {number for turn in self.turns for number in self._matching(turn)}
        constants = [self.rule_type.constant(number) for number in sample]
        with self.engine.begin() as connection:
            numbers = self._numbers(connection)
            began = time.perf_counter()
            found = query_each_rule(connection, self.rule_type.name, constants, numbers)
            seconds = time.perf_counter() - began
        wrong = [n for n, resources in zip(sample, found, strict=True) if len(resources) != (n in due)]
        self._require(not wrong, f"rules {wrong} had other matches in their own queries")
        return seconds / len(sample) * self.rules

    def _numbers(self, connection: Connection) -> dict[str, int]:
        """Return the ids of classes and properties for the queries of rules, and the last position."""
        names = {name: NAMESPACE + name for name in ("serverInformation", "memory", "cpu", "serverHost")}
        ids = self._bench.provider.vocabulary.ids([RDF_TYPE, *names.values()])
        return {
            **{name: ids[uri] for name, uri in names.items()},
            "type": ids[RDF_TYPE],
            "CycleProvider": resource_id_of(connection, NAMESPACE + "CycleProvider"),
            "position": read_state(connection).position,
        }

    def _next_turns(self, size: int) -> range:
        if self.rule_type.selects_by_uri and self._turn + size > self.rules:
            delete_documents(self.engine, self._last_kept)
            # Register documents that no rule matches, so that statements are planned again before the measurement.
            self._register([make_document(number) for number in range(self.rules, self.rules + size)])
            self._turn = 0
        self._turn += size
        return range(self._turn - size, self._turn)

    def _documents(self, moved: int = 0) -> list[tuple[str, bytes]]:
        return [self.rule_type.document(turn, self.rules, moved) for turn in self.turns]

    def _register(self, texts: Sequence[tuple[str, bytes]]) -> tuple[list[Prepared], RoundSeconds]:
        began = time.perf_counter()
        batch = [prepare(uri, body, "application/rdf+xml", self._schema) for uri, body in texts]
        ready = time.perf_counter()
        with self.engine.begin() as connection:
            bench = self._bench
            self._answers = register(connection, batch, bench.provider)
        done = time.perf_counter()
        return batch, RoundSeconds(0.0, done - ready, done - began, 0.0)

    def _check_counts(self, name: str, due: int) -> None:
        """Check that new documents inserted two resources each, or that changed ones updated their
        ServerInformation."""
        counted = sum(getattr(answer, name, 0) for answer in self._answers)
        self._require(counted == due, f"{len(self._answers)} documents have {name} {counted} resources, expected {due}")

    def _matching(self, turn: int, moved: int = 0) -> Sequence[int]:
        return list(self.rule_type.matching(turn, self.rules, moved))

    def _checked_turns(self) -> Sequence[int]:
        """Return the turns whose results are checked rule by rule: the first and the last one if very many rules
        match."""
        return self.turns if self.rule_type.matches_one else [self.turns[0], self.turns[-1]]

    def _check(self, due: set[tuple[int, int, bool]]) -> None:
        """Check that the last run changed exactly what was expected (turn, number of the rule, whether it matches
        now)."""
        provider, rules = self.rule_type.provider, self.rules
        wanted = {(self._ends[number], provider(turn, rules), matched) for turn, number, matched in due}
        with self.engine.begin() as connection:
            if self.rule_type.matches_one:
                found = read_match_changes(connection)
            else:
                resources = count_range_resources(connection)
                self._require(resources == len(self.turns), f"{resources} of {len(self.turns)} documents had matches")
                uris = {provider(turn, rules) for turn in self._checked_turns()}
                found = [(rule, uri, matched) for uri in uris for rule, matched in read_changes_of(connection, uri)]
        self._require(
            len(found) == len(wanted) and set(found) == wanted,
            f"the filter found {len(found)} changes, {len(wanted & set(found))} of the {len(wanted)} expected ones",
        )

    def _require(self, holds: bool, message: str) -> None:
        if not holds:
            raise AssertionError(f"{self.rule_type.name}, {self.rules:,} rules: {message}.")


RULES_PER_CALL = 100_000
"""Maximum number of rules per call. A million at once would need gigabytes of memory."""


def add_in_chunks(bench: RegistrationBench, texts: Sequence[str]) -> list[AddedRule]:
    """Add rules, each call in one durable transaction."""
    added: list[AddedRule] = []
    for first in range(0, len(texts), RULES_PER_CALL):
        drafts = [RuleDraft(1, None, text) for text in texts[first : first + RULES_PER_CALL]]
        with bench.engine.begin() as connection:
            added += add_rules(connection, drafts, bench.provider)
    return added
