"""Ours and its peers on the same rules and the same documents, taking turns round by round.

Each round registers two batches with ours, one of them with a clock on the filter, and each peer takes both. What is
found is checked every time, pair by pair. A peer that would need too long for a batch, or has grown too large, is left
out of what remains, and that is said; one that has had its share of the time has fewer rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from mdv.bench.paper import FILTER, STORE, WARM_UP
from mdv.bench.peers import KINDS, Batch, Kind, Taken, family
from mdv.bench.peers.hosted import Hosted, TooSlow
from mdv.bench.peers.sql import SqlQueries
from mdv.bench.report import Result
from mdv.bench.rulebase import TYPES, RuleType, comp
from mdv.bench.ruled_store import RuledStore, Seconds
from mdv.db.bench import Databases

Say = Callable[[str], None]

RULE_TYPES = {**{name: TYPES[name] for name in ("oid", "path", "join", "contains")}, "comp": comp(10)}
ON_OUR_STORE = "sql-queries"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What to compare, and when a peer is left out: after so many seconds for one batch, or in all for one size of
    batches, or with so much memory."""

    rules: tuple[int, ...] = (100_000,)
    batches: tuple[int, ...] = (100, 1000)
    types: tuple[str, ...] = ("oid", "path", "join", "comp")
    peers: tuple[str, ...] = tuple(KINDS)
    rounds: int = 5
    most_seconds: float = 30.0
    most_seconds_in_all: float = 30.0
    most_mib: float = 4096.0


@dataclass(frozen=True, slots=True)
class Compared:
    """The results of one rule base and one size of batches, the most memory each peer had, and why which was left
    out."""

    results: tuple[Result, ...]
    memory_mib: dict[str, float]
    left_out: dict[str, str]


def compare(databases: Databases, comparison: Comparison, say: Say) -> Iterator[Compared]:
    """Measure, one rule base after the other, each with its peers beside it."""
    for name in comparison.types:
        rule_type = RULE_TYPES[name]
        for rules in comparison.rules:
            say(f"{rule_type.name}: {rules:,} rules")
            with ExitStack() as stack:
                store = RuledStore(stack.enter_context(databases.new()), rule_type, rules)
                contenders = [_Contender(KINDS[peer], store, comparison) for peer in comparison.peers]
                for contender in contenders:
                    stack.callback(contender.close)
                for size in sorted(comparison.batches):
                    yield _measure(store, contenders, size, comparison.rounds)


def _measure(store: RuledStore, contenders: Sequence[_Contender], size: int, rounds: int) -> Compared:
    clocked: list[Seconds] = []
    taken: list[Seconds] = []
    for contender in contenders:
        contender.begin(size)
    for _ in range(rounds + WARM_UP):
        for with_clock, seconds in ((True, clocked), (False, taken)):
            before = store.turns
            seconds.append(store.insert(size, with_clock))
            for contender in contenders:
                contender.take(started_anew=bool(before) and store.turns.start == 0)
    peers = {contender.kind.title: us for contender in contenders if (us := contender.us(size)) is not None}
    results = []
    for what, measured, part in ((FILTER, clocked, 0), (STORE, taken, 1)):
        ours, floor = (1e6 / size * _median([seconds[at] for seconds in measured]) for at in (part, 3))
        results.append(Result(f"{store.rule_type.name}: {what}", store.rules, size, ours, floor, peers))
    return Compared(
        tuple(results),
        {contender.kind.title: contender.peak_mib for contender in contenders if contender.peak_mib},
        {contender.kind.title: contender.left_out for contender in contenders if contender.left_out},
    )


@dataclass
class _Contender:
    """A peer beside a store, and what it took."""

    kind: Kind
    store: RuledStore
    comparison: Comparison
    left_out: str = ""
    peak_mib: float = 0.0
    _seconds: list[float] = field(default_factory=list)
    _each: float = 0.0
    """The seconds that a document took it last."""
    _spent: float = 0.0
    """The seconds that went by for it, with all that is not timed, in batches of this size."""
    _hosted: Hosted | None = None
    _sql: SqlQueries | None = None

    def begin(self, size: int) -> None:
        """From here on batches have that size."""
        self._seconds.clear()
        self._spent = 0.0
        if family(self.store.rule_type) not in self.kind.families:
            self.left_out = "does not do this type of rules"
        elif self._each * size > self.comparison.most_seconds and not self.kind.sampled:
            self.left_out = f"over {self.comparison.most_seconds:g} s for a batch"

    def take(self, started_anew: bool) -> None:
        """The batch that ours has just registered; `started_anew`: into a store that was emptied before."""
        limits = self.comparison
        if started_anew:  # also if it is not its turn: it must not keep documents that will come again
            self.close()
        if self.left_out or self._spent > limits.most_seconds_in_all:
            return
        try:
            if self._hosted is None and self.kind is not KINDS[ON_OUR_STORE]:
                self._hosted = Hosted(self.kind, self.store.rule_type, self.store.rules)
            began = time.perf_counter()
            seconds = self._seconds_of_batch()
        except TooSlow:
            self._seconds.clear()
            self.left_out = f"over {limits.most_seconds:g} s for a batch"
            self.close()
            return
        self._spent += time.perf_counter() - began
        self._each = seconds / len(self.store.turns)
        self._seconds.append(seconds)
        if self.peak_mib > limits.most_mib:
            self.left_out = f"over {limits.most_mib:,.0f} MiB"

    def _seconds_of_batch(self) -> float:
        if self._hosted is None:
            self._sql = self._sql or SqlQueries(self.store)
            return self._sql.ask()
        batch: Batch = [item.document.statements for item in self.store.batch if item.document is not None]
        taken = self._hosted.take(batch, self.comparison.most_seconds)
        self.peak_mib = max(self.peak_mib, self._hosted.peak_mib)
        check(self.kind, self.store.rule_type, self.store.rules, self.store.turns, taken)
        return taken.seconds

    def us(self, size: int) -> float | None:
        """Microseconds a document, or None if it was left out."""
        return 1e6 / size * _median(self._seconds, 2 * WARM_UP) if self._seconds else None

    def close(self) -> None:
        if self._hosted is not None:
            self._hosted.close()
            self._hosted = None


def check(kind: Kind, rule_type: RuleType, rules: int, turns: range, taken: Taken) -> None:
    """That a peer found what it should have, pair by pair."""
    due: dict[str, list[int]] = {}
    for turn in turns:
        numbers = [n for n in rule_type.matching(turn, rules) if taken.asked is None or n in taken.asked]
        if numbers:
            due[rule_type.provider(turn, rules)] = sorted(numbers)
    found: Mapping[str, list[int]] = {uri: sorted(numbers) for uri, numbers in taken.found.items()}
    if found != due:
        pairs, wanted = (sum(map(len, numbers.values())) for numbers in (found, due))
        raise AssertionError(
            f"{rule_type.name}, {rules:,} rules: {kind.title} found {pairs} matches, not {wanted} due."
        )


def _median(times: Sequence[float], warm_up: int = WARM_UP) -> float:
    """The median of all rounds but the first, which warmed up; of the last, if there were no more."""
    return median(times[warm_up:] or times[-1:])
