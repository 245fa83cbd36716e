"""The cost of event-condition-action rules: registrations with rules, relative to the same without, round by round.

Stores with different rules take turns with one that has none. Every round checks what the rules inserted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from sqlalchemy import Engine

from mdv.bench.eca_peers import ClipsLearning, TriggerTable
from mdv.bench.eca_workload import (
    SCHEMA,
    SILENT,
    TURTLE_PREFIX,
    chain_rules,
    document_uri,
    idle_rules,
    learning_object,
    learning_objects,
    subject_of,
    watching_rules,
)
from mdv.bench.goals import Goal
from mdv.bench.registration import RegistrationBench
from mdv.bench.report import BenchResult
from mdv.bench.sql.bench_store import BenchDatabases, copy_rule_texts, create_rule_floor_table
from mdv.bench.sql.copy_floor import vacuum_analyze
from mdv.bench.sql.eca import count_document_statements
from mdv.mdp.eca.change_rules import EcaDraft, add_drafts
from mdv.mdp.register import Prepared, prepare, register

PrintProgress = Callable[[str], None]

RULES_DOCUMENT = "urn:mdv:eca:main"
WARM_UP_ROUNDS = 2
RULES_PER_CALL = 100_000
MAX_FIRED = 5_000
"""Copies that fire in a batch, up to which it is measured. A thousand documents that fire ten rules each take long, and
the cost of an action is measured by itself."""

WITHOUT, IDLE, SILENT_RULES, ONE, TEN = "no rules", "none triggered", "triggered", "one fires", "ten fire"
SET, CASCADE, BULK = "action in a set", "cascade step", "rules in bulk"
CLIPS, TRIGGERS = "CLIPS", "Postgres triggers"


@dataclass(frozen=True, slots=True)
class EcaPlan:
    """What to measure. `chain`: updates of a cascade. `set_size`: learning objects of one document whose rules fire."""

    rules: tuple[int, ...] = (10_000, 100_000)
    batches: tuple[int, ...] = (1, 50, 1000)
    rounds: int = 9
    chain: int = 100
    set_size: int = 1000
    triggers: int = 1000
    peers: bool = True


class EcaStore:
    """A store with event-condition-action rules. `fires`: how many fire for each document."""

    def __init__(self, engine: Engine, name: str, rules: Sequence[str], fires: int = 0, per_subject: int = 1) -> None:
        self.name, self.rules, self.fires = name, len(rules), fires
        self.bench = RegistrationBench(engine, turtle=SCHEMA)
        self._schema = self.bench.schema()
        self._subjects = max(1, len(rules) // per_subject)
        self._next = 0
        self._inserted = 0
        self.bulk_seconds = add_in_bulk(self.bench, rules)
        vacuum_analyze(engine)

    def insert(self, size: int) -> tuple[float, float]:
        """Register new documents. Return the seconds with the commit, and those of the floor."""
        numbers = range(self._next, self._next + size)
        self._next += size
        subjects = [subject_of(number % self._subjects) if self.fires else SILENT for number in numbers]
        batch = [self._prepare(*learning_object(n, one)) for n, one in zip(numbers, subjects, strict=True)]
        seconds = self._register(batch)
        self._check(size * self.fires)
        return seconds, self.bench.floor.copy(batch)

    def insert_set(self, size: int) -> float:
        """Register one document of `size` learning objects, each of which fires `fires` rules."""
        number = self._next
        self._next += 1
        subjects = [subject_of((number * size + n) % self._subjects) if self.fires else SILENT for n in range(size)]
        seconds = self._register([self._prepare(document_uri(number), learning_objects(number, subjects))])
        self._check(size * self.fires)
        return seconds

    def cascade(self, length: int) -> float:
        """Register a document that begins a cascade, or the same document if there are no rules."""
        number = self._next
        self._next += 1
        text = TURTLE_PREFIX + f"<#lo> a :LearningObject ; :stage {0 if self.rules else -1} ."
        seconds = self._register([self._prepare(document_uri(number), text.encode())])
        self._check(length if self.rules else 0)
        return seconds

    def _prepare(self, uri: str, body: bytes) -> Prepared:
        return prepare(uri, body, "text/turtle", self._schema)

    def _register(self, batch: Sequence[Prepared]) -> float:
        began = time.perf_counter()
        with self.bench.engine.begin() as connection:
            answers = register(connection, batch, self.bench.provider)
        seconds = time.perf_counter() - began
        for answer in answers:
            if isinstance(answer, Exception):
                raise AssertionError(f"{self.name}: a registration was refused: {answer}") from answer
        return seconds

    def _check(self, inserted: int) -> None:
        with self.bench.engine.begin() as connection:
            found = count_document_statements(connection, RULES_DOCUMENT)
        self._inserted += inserted
        if found != self._inserted:
            raise AssertionError(f"{self.name}: rules inserted {found:,} statements, expected {self._inserted:,}")


def add_in_bulk(bench: RegistrationBench, rules: Sequence[str]) -> float:
    """Add rules, each call in one durable transaction. Return the seconds."""
    began = time.perf_counter()
    for first in range(0, len(rules), RULES_PER_CALL):
        drafts = [EcaDraft(text) for text in rules[first : first + RULES_PER_CALL]]
        with bench.engine.begin() as connection:
            add_drafts(connection, drafts, bench.provider)
    return time.perf_counter() - began


def run_eca(databases: BenchDatabases, plan: EcaPlan, print_progress: PrintProgress) -> Iterator[BenchResult]:
    """Run the measurements. Each result has the cost of the same change without rules as its floor."""
    with ExitStack() as stack:
        stores = list(_open_stores(databases, plan, stack, print_progress))
        yield from _measure_bulk(stores[-1], stack.enter_context(databases.new()))
        for size in plan.batches:
            print_progress(f"batches of {size:,}")
            yield from _measure_inserts(stores, size, plan)
    yield from _measure_sets(databases, plan, print_progress)


def _open_stores(
    databases: BenchDatabases, plan: EcaPlan, stack: ExitStack, print_progress: PrintProgress
) -> Iterator[EcaStore]:
    def store(name: str, rules: Sequence[str], fires: int = 0, per_subject: int = 1) -> EcaStore:
        print_progress(f"{name}: {len(rules):,} rules")
        return EcaStore(stack.enter_context(databases.new()), name, rules, fires, per_subject)

    most = max(plan.rules)
    yield store(WITHOUT, [])
    yield store(IDLE, list(idle_rules(most)))
    for count in sorted(plan.rules):
        yield store(SILENT_RULES, list(watching_rules(count)))
        yield store(ONE, list(watching_rules(count)), fires=1)
    yield store(TEN, list(watching_rules(most, 10)), fires=10, per_subject=10)


def _measure_inserts(stores: Sequence[EcaStore], size: int, plan: EcaPlan) -> Iterator[BenchResult]:
    peer = ClipsLearning(max(plan.rules)) if plan.peers else None
    stores = [store for store in stores if store.fires * size <= MAX_FIRED]
    seconds: dict[EcaStore, list[float]] = {store: [] for store in stores}
    floors: list[float] = []
    clips: list[float] = []
    for number in range(plan.rounds + WARM_UP_ROUNDS):
        for store in stores:
            took, floor = store.insert(size)
            seconds[store].append(took)
            floors.append(floor)
        if peer is not None:
            clips.append(peer.insert(number * size, size))
    without = stores[0]
    per = 1e6 / size
    yield BenchResult(f"{WITHOUT}: / COPY and commit", 0, size, per * _median(seconds[without]), per * median(floors))
    for store in stores[1:]:
        ratios = [ours / plain for ours, plain in zip(seconds[store], seconds[without], strict=True)]
        ours = per * _median(seconds[store])
        against = {CLIPS: per * _median(clips)} if store.name == ONE and clips else {}
        yield BenchResult(store.name, store.rules, size, ours, ours / _median(ratios), against)


def _measure_bulk(store: EcaStore, engine: Engine) -> Iterator[BenchResult]:
    """The registration of the rules of a store, against COPY and commit of their texts."""
    texts = list(watching_rules(store.rules, 10))
    with engine.begin() as connection:
        create_rule_floor_table(connection)
    with engine.connect() as connection:
        began = time.perf_counter()
        copy_rule_texts(connection, 0, texts)
        floor = time.perf_counter() - began
    per = 1e6 / store.rules
    yield BenchResult(BULK, 0, store.rules, per * store.bulk_seconds, per * floor)


def _measure_sets(databases: BenchDatabases, plan: EcaPlan, print_progress: PrintProgress) -> Iterator[BenchResult]:
    """The cost of a fired action, in one set and in a cascade, and of one Postgres trigger for each rule."""
    with ExitStack() as stack:

        def store(name: str, rules: Sequence[str], fires: int = 0) -> EcaStore:
            return EcaStore(stack.enter_context(databases.new()), name, rules, fires)

        print_progress(f"{SET}: {plan.set_size:,} · {CASCADE}: {plan.chain:,}")
        plain, firing = store(WITHOUT, []), store(SET, list(watching_rules(plan.set_size)), fires=1)
        chain = store(CASCADE, list(chain_rules(plan.chain)))
        few = store(SILENT_RULES, list(watching_rules(plan.triggers)))
        table = TriggerTable(stack.enter_context(databases.new()), plan.triggers) if plan.peers else None
        rows: dict[str, list[float]] = {name: [] for name in (SET, CASCADE, "set", "chain", TRIGGERS, "plain", "few")}
        for number in range(plan.rounds + WARM_UP_ROUNDS):
            rows["set"].append(plain.insert_set(plan.set_size))
            rows[SET].append(firing.insert_set(plan.set_size))
            rows["chain"].append(plain.cascade(0))
            rows[CASCADE].append(chain.cascade(plan.chain))
            if table is not None:
                rows["plain"].append(plain.insert(1)[0])
                rows["few"].append(few.insert(1)[0])
                rows[TRIGGERS].append(table.insert(number))
        for name, without, count in ((SET, "set", plan.set_size), (CASCADE, "chain", plan.chain)):
            ours, floor = _median(rows[name]), _median(rows[without])
            yield BenchResult(name, count, 1, 1e6 * (ours - floor) / count, 1e6 * floor / count)
        if table is not None:
            ours, floor = _median(rows["few"]), _median(rows["plain"])
            peers = {TRIGGERS: 1e6 * _median(rows[TRIGGERS])}
            yield BenchResult(SILENT_RULES, plan.triggers, 1, 1e6 * ours, 1e6 * floor, peers)


def _median(times: Sequence[float]) -> float:
    """Return the median without the warm-up rounds."""
    return median(times[WARM_UP_ROUNDS:])


def evaluate_eca_goals(results: Sequence[BenchResult]) -> list[Goal]:
    """Return the goals for event-condition-action rules with the measured values."""
    return list(_goals(results))


def _goals(results: Sequence[BenchResult]) -> Iterator[Goal]:
    def find(name: str, batch: int, peer: str | None = None, few: bool = False) -> BenchResult | None:
        found = [one for one in results if one.name == name and one.batch == batch and peer in (None, *one.peers)]
        return (min if few else max)(found, key=lambda one: one.rules, default=None)

    def goal(what: str, most: float, measured: Callable[[BenchResult], float], found: BenchResult | None) -> Goal:
        at = "" if found is None else f"{found.rules:,} rules, batches of {found.batch:,}"
        return Goal(what, most=most, measured=None if found is None else measured(found), at=at)

    def ratio(found: BenchResult) -> float:
        return found.ratio

    yield goal(f"{IDLE} / {WITHOUT}", 1.02, ratio, find(IDLE, 1))
    for batch, most in ((1, 1.10), (50, 1.35)):
        yield goal(f"{SILENT_RULES}, none fires / {WITHOUT}", most, ratio, find(SILENT_RULES, batch))
    for name, most in ((ONE, 1.3), (TEN, 1.6)):
        yield goal(f"{name} / {WITHOUT}", most, ratio, find(name, 1))
    yield goal("a fired action in a set, µs", 80, lambda one: one.ours_us, find(SET, 1))
    yield goal("a cascade step, µs", 300, lambda one: one.ours_us, find(CASCADE, 1))
    few, many = find(ONE, 1, few=True), find(ONE, 1)
    grown = few is not None and many is not None and few.rules < many.rules
    yield goal(
        "growth with the rules: one fires", 1.2, lambda one: one.ours_us / (few.ours_us if few else one.ours_us),
        many if grown else None,
    )  # fmt: skip
    with_triggers = next((one for one in results if TRIGGERS in one.peers), None)
    yield Goal(
        "one Postgres trigger per rule / ours", least=1000, at="" if with_triggers is None else "1 learning object",
        measured=None if with_triggers is None else with_triggers.peers[TRIGGERS] / with_triggers.ours_us,
    )  # fmt: skip
    yield goal("one fires / CLIPS in memory", 8, lambda one: one.ours_us / one.peers[CLIPS], find(ONE, 1000, CLIPS))
    bulk = next((one for one in results if one.name == BULK), None)
    yield Goal(
        "rules in bulk, per second", least=10_000, at="" if bulk is None else f"{bulk.batch:,} rules",
        measured=None if bulk is None else 1e6 / bulk.ours_us,
    )  # fmt: skip
