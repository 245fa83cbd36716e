"""The cost of a backbone: registrations with the log, and applying operations, relative to local registrations.

Three stores take turns: one without a backbone, one member that makes the operations, and another that applies them.
The first and the last round compare the sums of the two members. The times are CPU times of this process and of the
Postgres processes, because elapsed times of a few percent more cannot be told from the effect of other programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from sqlalchemy import Engine

from mdv.backbone.messages import BackboneMessage, LogPage, LogPoll
from mdv.backbone.replica_store import MemberStatus
from mdv.bench.backbone_repair import LocalPeer, RepairFigures, measure_repair
from mdv.bench.cpu_time import measure_cpu
from mdv.bench.goals import Goal
from mdv.bench.registration import RegistrationBench
from mdv.bench.report import BenchResult
from mdv.bench.sql.bench_store import BenchDatabases
from mdv.bench.sql.copy_floor import vacuum_analyze
from mdv.db.epoch import update_epoch
from mdv.db.replica.log import measure_log
from mdv.mdp.replica import Replica, now_in_microseconds
from mdv.replication.keys import make_private_key, public_key, sign_operation

PrintProgress = Callable[[str], None]

WARM_UP_ROUNDS = 2
WITH_LOG, APPLIED, SUMS = "registration with the log", "applying", "sums of all documents"


@dataclass(frozen=True, slots=True)
class BackbonePlan:
    """What to measure. `documents`: how many are stored before the sums are measured."""

    batches: tuple[int, ...] = (1, 10, 100, 1000)
    rounds: int = 9
    documents: int = 20_000
    mode: str = "orset"

    def rounds_of(self, size: int) -> int:
        """Return how often a batch is measured. Small ones vary more, and take less time.

        >>> [BackbonePlan().rounds_of(size) for size in (1, 10, 100, 1000)]
        [90, 90, 27, 9]
        """
        return self.rounds * min(10, max(1, 300 // size))


@dataclass(slots=True)
class BackboneFigures:
    """What was measured. `log_bytes`: of the log for a statement, by the size of batches. `sums_seconds`: for
    `documents` documents."""

    results: list[BenchResult] = field(default_factory=list)
    log_bytes: dict[int, float] = field(default_factory=dict)
    documents: int = 0
    sums_seconds: float = 0.0
    repair: RepairFigures | None = None


class BenchMember:
    """A store that is a member of a backbone."""

    def __init__(self, engine: Engine, name: str, mode: str) -> None:
        with engine.begin() as connection:
            update_epoch(connection, restored=True)  # copies of a database have the same
        self.engine, self.name = engine, name
        self.bench = RegistrationBench(engine)
        key = make_private_key()
        self.bench.provider.signer = lambda life, seq, chain: sign_operation(key, life, seq, chain)
        self.replica = Replica(self.bench.provider)
        self.replica.create(name, f"http://{name}", mode)
        with self.replica.member() as member:
            member.store.facts.key = public_key(key)

    def pull(self, peer: BenchMember) -> float:
        """Apply what the peer has. Return the CPU seconds of applying alone."""
        with self.replica.member() as member:
            poll: BackboneMessage | None = member.poll(peer.name, now_in_microseconds())[0][1]
        seconds = 0.0
        while isinstance(poll, LogPoll):
            ((_, page), *_) = peer.replica.receive(poll)
            if not isinstance(page, LogPage):
                raise AssertionError(f"{peer.name} answered with {page}")
            with measure_cpu(self.engine) as used:
                further = self.replica.receive(page)
            seconds += used.seconds
            poll = further[0][1] if further else None
        return seconds

    def sums(self) -> dict[int, int]:
        with self.engine.connect() as connection:
            return self.replica.sums(connection)

    def log_bytes(self) -> int:
        with self.engine.connect() as connection:
            return measure_log(connection)[1]


def run_backbone(databases: BenchDatabases, plan: BackbonePlan, print_progress: PrintProgress) -> BackboneFigures:
    """Measure registrations and applying in batches, the size of the log, and the sums."""
    figures = BackboneFigures()
    with ExitStack() as stack:
        alone = RegistrationBench(stack.enter_context(databases.new()))
        origin, other = (BenchMember(stack.enter_context(databases.new()), name, plan.mode) for name in ("a", "b"))
        connect_members(origin, other)
        for size in plan.batches:
            print_progress(f"batches of {size:,}")
            _measure_batches(figures, plan, size, alone, origin, other)
        print_progress(f"sums of {plan.documents:,} documents")
        _measure_sums(figures, plan, origin, other)
        print_progress(f"check and repair of {figures.documents:,} documents")
        peer = LocalPeer(origin.replica, origin.engine)
        figures.repair = measure_repair(other.replica, other.engine, peer, figures.documents, plan.mode)
    return figures


def connect_members(origin: BenchMember, other: BenchMember) -> None:
    """Let one member found a backbone, and another join it."""
    with origin.replica.member() as member:
        member.found(now_in_microseconds())
        member.invite("code", now_in_microseconds() + 10**9)
    with other.replica.member() as member:
        member.join("code", now_in_microseconds())
    members = {"a": origin, "b": other}
    for _ in range(10):
        for name, peer in (("b", "a"), ("a", "b")):
            with members[name].replica.member() as member:
                messages = member.poll(peer, now_in_microseconds())
            while messages:
                to, message = messages.pop(0)
                messages += members[to].replica.receive(message)
        with other.replica.member() as member:
            if member.store.facts.status is MemberStatus.ACTIVE:
                return
    raise AssertionError("The second member has not joined.")


def _measure_batches(
    figures: BackboneFigures, plan: BackbonePlan, size: int, alone: RegistrationBench, origin: BenchMember,
    other: BenchMember,
) -> None:  # fmt: skip
    stored: list[float] = []
    plain: list[float] = []
    texts: list[float] = []
    applied: list[float] = []
    logged: list[float] = []
    rounds = plan.rounds_of(size)
    for round_number in range(rounds + WARM_UP_ROUNDS):
        with measure_cpu(alone.engine) as preparing:
            batch = alone.prepared(size)
        with measure_cpu(alone.engine) as registering:
            alone.register(batch)
        batch = origin.bench.prepared(size)
        before = origin.log_bytes()
        with measure_cpu(origin.engine) as with_log:
            origin.bench.register(batch)
        stored.append(with_log.seconds)
        plain.append(registering.seconds)
        texts.append(preparing.seconds + registering.seconds)
        statements = sum(len(item.hashes) for item in batch)
        logged.append((origin.log_bytes() - before) / statements)
        applied.append(other.pull(origin))
        if round_number in (0, rounds + WARM_UP_ROUNDS - 1) and origin.sums() != other.sums():
            raise AssertionError("The two members differ.")
    per = 1e6 / size
    ours, floor = _median(stored), _median(plain)
    figures.results.append(BenchResult(WITH_LOG, 0, size, per * ours, per * floor))
    figures.results.append(BenchResult(APPLIED, 0, size, per * _median(applied), per * _median(texts)))
    figures.log_bytes[size] = _median(logged)


def _measure_sums(figures: BackboneFigures, plan: BackbonePlan, origin: BenchMember, other: BenchMember) -> None:
    missing = plan.documents - origin.bench.next_number
    for first in range(0, max(missing, 0), 1000):
        origin.bench.register(origin.bench.prepared(min(1000, missing - first)))
    other.pull(origin)
    vacuum_analyze(origin.engine)
    if origin.sums() != other.sums():
        raise AssertionError("The two members differ.")
    times = []
    for _ in range(3):
        began = time.perf_counter()
        origin.sums()
        times.append(time.perf_counter() - began)
    figures.documents, figures.sums_seconds = origin.bench.next_number, median(times)
    per = 1e6 / max(figures.documents, 1)
    figures.results.append(BenchResult(SUMS, 0, figures.documents, per * figures.sums_seconds, per))


def _median(times: Sequence[float]) -> float:
    """Return the median without the warm-up rounds."""
    return median(times[WARM_UP_ROUNDS:])


def evaluate_backbone_goals(figures: BackboneFigures) -> list[Goal]:
    """Return the goals for a backbone with the measured values."""
    ratios = {(result.name, result.batch): result.ratio for result in figures.results}
    goals = []
    for name, bounds in (
        (WITH_LOG, {1: 1.10, 10: 1.15, 100: 1.2, 1000: 1.25}),
        (APPLIED, {1: 1.0, 100: 0.6, 1000: 0.5}),
    ):
        floor = "without" if name == WITH_LOG else "text to commit"
        goals += [
            Goal(f"{name} / {floor}", most=most, measured=ratios.get((name, size)), at=f"batches of {size:,}")
            for size, most in bounds.items()
        ]
    largest = max(figures.log_bytes, default=0)
    goals.append(Goal("log, bytes a statement: alone", most=60, measured=figures.log_bytes.get(1), at="batches of 1"))
    batched = figures.log_bytes[largest] if largest > 1 else None
    goals.append(Goal("log, bytes a statement: batches", most=20, measured=batched, at=f"batches of {largest:,}"))
    scaled = figures.sums_seconds / figures.documents * 125_000 if figures.documents else None
    at = f"scaled from {figures.documents:,} documents"
    goals.append(Goal("sums of 125,000 documents, s", most=1, measured=scaled, at=at))
    found = figures.repair
    factor = 125_000 / found.documents if found is not None and found.documents else 0
    for what, most, seconds in (
        ("check of all rows of 125,000 documents, s", 3, factor * found.deep_seconds if found is not None else None),
        ("repair of ten of 125,000 documents, s", 0.5, factor * found.repair_seconds if found is not None else None),
    ):
        goals.append(Goal(what, most=most, measured=seconds, at=at))
    return goals
