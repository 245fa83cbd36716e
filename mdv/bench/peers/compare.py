"""Compare MDV with its peers on the same rules and documents, round by round.

Each round registers two batches with MDV, one of them with a clock on the filter, and each peer receives both. The
matches are checked every time, pair by pair. A peer that is too slow for a batch, or that uses too much memory, is left
out of the remaining rounds, and the reason is reported. A peer that has used up its total time has fewer rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from mdv.bench.paper import FILTER, STORE, WARM_UP_ROUNDS
from mdv.bench.peers import PEER_KINDS, PeerKind, PeerResult, StatementBatch, rule_family
from mdv.bench.peers.peer_process import PeerProcess, PeerTimeout
from mdv.bench.peers.sql_queries import SqlQueries
from mdv.bench.report import BenchResult
from mdv.bench.rule_store import RoundSeconds, RuleStore
from mdv.bench.rule_types import RULE_TYPES, RuleType, comp_rules
from mdv.bench.sql.bench_store import BenchDatabases

PrintProgress = Callable[[str], None]

PEER_RULE_TYPES = {**{name: RULE_TYPES[name] for name in ("oid", "path", "join", "contains")}, "comp": comp_rules(10)}
ON_OUR_STORE = "sql-queries"


@dataclass(frozen=True, slots=True)
class PeerComparison:
    """What to compare, and the limits after which a peer is left out: seconds for one batch, total seconds for one
    batch size, and memory."""

    rules: tuple[int, ...] = (100_000,)
    batches: tuple[int, ...] = (100, 1000)
    types: tuple[str, ...] = ("oid", "path", "join", "comp")
    peers: tuple[str, ...] = tuple(PEER_KINDS)
    rounds: int = 5
    max_batch_seconds: float = 30.0
    max_total_seconds: float = 30.0
    max_mib: float = 4096.0


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """The results of one rule base and batch size, the peak memory of each peer, and the reasons for leaving peers
    out."""

    results: tuple[BenchResult, ...]
    memory_mib: dict[str, float]
    left_out: dict[str, str]


def compare_peers(
    databases: BenchDatabases, comparison: PeerComparison, print_progress: PrintProgress
) -> Iterator[ComparisonResult]:
    """Measure one rule base after the other, each with all peers."""
    for name in comparison.types:
        rule_type = PEER_RULE_TYPES[name]
        for rules in comparison.rules:
            print_progress(f"{rule_type.name}: {rules:,} rules")
            with ExitStack() as stack:
                store = RuleStore(stack.enter_context(databases.new()), rule_type, rules)
                peer_runs = [_PeerRun(PEER_KINDS[peer], store, comparison) for peer in comparison.peers]
                for peer_run in peer_runs:
                    stack.callback(peer_run.close)
                for size in sorted(comparison.batches):
                    yield _measure(store, peer_runs, size, comparison.rounds)


def _measure(store: RuleStore, peer_runs: Sequence[_PeerRun], size: int, rounds: int) -> ComparisonResult:
    with_filter_clock: list[RoundSeconds] = []
    without_filter_clock: list[RoundSeconds] = []
    for peer_run in peer_runs:
        peer_run.begin(size)
    for _ in range(rounds + WARM_UP_ROUNDS):
        for with_clock, seconds in ((True, with_filter_clock), (False, without_filter_clock)):
            before = store.turns
            seconds.append(store.insert(size, with_clock))
            for peer_run in peer_runs:
                peer_run.take(store_was_emptied=bool(before) and store.turns.start == 0)
    peers = {peer_run.kind.title: us for peer_run in peer_runs if (us := peer_run.us(size)) is not None}
    results = []
    for what, measured, part in ((FILTER, with_filter_clock, 0), (STORE, without_filter_clock, 1)):
        ours, floor = (1e6 / size * _median([seconds[at] for seconds in measured]) for at in (part, 3))
        results.append(BenchResult(f"{store.rule_type.name}: {what}", store.rules, size, ours, floor, peers))
    return ComparisonResult(
        tuple(results),
        {peer_run.kind.title: peer_run.peak_mib for peer_run in peer_runs if peer_run.peak_mib},
        {peer_run.kind.title: peer_run.left_out for peer_run in peer_runs if peer_run.left_out},
    )


@dataclass
class _PeerRun:
    """A peer next to a store, and its measurements."""

    kind: PeerKind
    store: RuleStore
    comparison: PeerComparison
    left_out: str = ""
    peak_mib: float = 0.0
    _seconds: list[float] = field(default_factory=list)
    _seconds_per_document: float = 0.0
    """Seconds per document of the last batch."""
    _elapsed_seconds: float = 0.0
    """Elapsed seconds in batches of this size, including everything that is not timed."""
    _process: PeerProcess | None = None
    _sql: SqlQueries | None = None

    def begin(self, size: int) -> None:
        """Start with batches of another size."""
        self._seconds.clear()
        self._elapsed_seconds = 0.0
        if rule_family(self.store.rule_type) not in self.kind.families:
            self.left_out = "does not support this rule type"
        elif self._seconds_per_document * size > self.comparison.max_batch_seconds and not self.kind.sampled:
            self.left_out = f"over {self.comparison.max_batch_seconds:g} s for a batch"

    def take(self, store_was_emptied: bool) -> None:
        """Process the batch that MDV has just registered. `store_was_emptied` is true if its store was emptied
        before."""
        limits = self.comparison
        if store_was_emptied:  # even if the peer is left out: it must not keep documents that will come again
            self.close()
        if self.left_out or self._elapsed_seconds > limits.max_total_seconds:
            return
        try:
            if self._process is None and self.kind is not PEER_KINDS[ON_OUR_STORE]:
                self._process = PeerProcess(self.kind, self.store.rule_type, self.store.rules)
            began = time.perf_counter()
            seconds = self._seconds_of_batch()
        except PeerTimeout:
            self._seconds.clear()
            self.left_out = f"over {limits.max_batch_seconds:g} s for a batch"
            self.close()
            return
        self._elapsed_seconds += time.perf_counter() - began
        self._seconds_per_document = seconds / len(self.store.turns)
        self._seconds.append(seconds)
        if self.peak_mib > limits.max_mib:
            self.left_out = f"over {limits.max_mib:,.0f} MiB"

    def _seconds_of_batch(self) -> float:
        if self._process is None:
            self._sql = self._sql or SqlQueries(self.store)
            return self._sql.measure()
        batch: StatementBatch = [item.document.statements for item in self.store.batch if item.document is not None]
        result = self._process.take(batch, self.comparison.max_batch_seconds)
        self.peak_mib = max(self.peak_mib, self._process.peak_mib)
        check_matches(self.kind, self.store.rule_type, self.store.rules, self.store.turns, result)
        return result.seconds

    def us(self, size: int) -> float | None:
        """Microseconds per document, or None if the peer was left out."""
        return 1e6 / size * _median(self._seconds, 2 * WARM_UP_ROUNDS) if self._seconds else None

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


def check_matches(kind: PeerKind, rule_type: RuleType, rules: int, turns: range, result: PeerResult) -> None:
    """Check the matches of a peer, pair by pair."""
    expected: dict[str, list[int]] = {}
    for turn in turns:
        numbers = [n for n in rule_type.matching(turn, rules) if result.asked is None or n in result.asked]
        if numbers:
            expected[rule_type.provider(turn, rules)] = sorted(numbers)
    found: Mapping[str, list[int]] = {uri: sorted(numbers) for uri, numbers in result.found.items()}
    if found != expected:
        pairs, wanted = (sum(map(len, numbers.values())) for numbers in (found, expected))
        raise AssertionError(
            f"{rule_type.name}, {rules:,} rules: {kind.title} found {pairs} matches, expected {wanted}."
        )


def _median(times: Sequence[float], warm_up: int = WARM_UP_ROUNDS) -> float:
    """Return the median without the warm-up rounds, or the last value if there are no others."""
    return median(times[warm_up:] or times[-1:])
