"""The paper's experiments (section 4): rule bases of one type, documents in batches, and the cost of the filter.

Rule bases of all sizes exist side by side and take turns, each with its floor, so that the ratios are valid on a noisy
machine. Every round checks the results of the filter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from statistics import median

from sqlalchemy import Engine

from mdv.bench.registration import RegistrationBench
from mdv.bench.report import BenchResult
from mdv.bench.rule_store import RoundSeconds, RuleStore, add_in_chunks
from mdv.bench.rule_types import EQUAL_TEXTS, RULE_TYPES, RuleType, comp_rules
from mdv.bench.sql.bench_store import (
    BenchDatabases,
    copy_rule_texts,
    count_rules,
    create_rule_floor_table,
    read_changes_of,
)
from mdv.bench.sql.copy_floor import vacuum_analyze
from mdv.bench.workload import make_document, provider_uri
from mdv.mdp.filter import read_match_changes
from mdv.mdp.register import prepare

PrintProgress = Callable[[str], None]

EXPERIMENTS = ("oid", "path", "join", "comp", "contains", "startswith", "endswith", "ne", "update", "rules")
COMPARED_WITH_EQUAL = ("startswith", "endswith")
"""Rule types that are compared with `=` on as many rules."""
UPDATE_RULE_TYPES = ("path", "join")
ADDED_RULE_TYPES = ("oid", "join")

FILTER, STORE, WHOLE = "filter alone", "store and filter", "text to commit"
UPDATE, INSERT = "update", "insert and filter"
STRPOS, OWN_QUERY, EQUAL = "strpos on all", "one query per rule", "the same with ="
BULK, SINGLE = "rules in bulk", "rules one by one"

WARM_UP_ROUNDS = 2
"""Rounds that fill caches and plans. They are not counted."""
SINGLE_RULES_PER_ROUND = 20
MATCHED_IN_BULK = 100


@dataclass(frozen=True, slots=True)
class PaperPlan:
    """What to measure."""

    rules: tuple[int, ...] = (10_000, 100_000)
    batches: tuple[int, ...] = (1, 10, 100, 1000)
    kinds: tuple[str, ...] = EXPERIMENTS
    rounds: int = 9
    matched: tuple[float, ...] = (10,)
    bulk: int = 100_000

    @property
    def on_all_bases(self) -> frozenset[str]:
        """The rule types that are measured on every rule base. Other percentages of COMP are measured on the smallest
        only.

        >>> sorted(PaperPlan(matched=(1, 10, 20)).on_all_bases - {rule_type.name for rule_type in RULE_TYPES.values()})
        ['COMP 10 %']
        """
        percent = 10 if 10 in self.matched else self.matched[0]
        return frozenset({comp_rules(percent).name} | {rule_type.name for rule_type in RULE_TYPES.values()})


def run_paper(databases: BenchDatabases, paper: PaperPlan, print_progress: PrintProgress) -> Iterator[BenchResult]:
    """Run the experiments, one rule type after the other."""
    for kind in EXPERIMENTS:
        updated = "update" in paper.kinds and kind in UPDATE_RULE_TYPES
        if kind in ("update", "rules") or not (kind in paper.kinds or updated):
            continue
        for rule_type in [comp_rules(percent) for percent in paper.matched] if kind == "comp" else [RULE_TYPES[kind]]:
            with ExitStack() as open_stores:
                stores = []
                for rules in sorted(paper.rules) if rule_type.name in paper.on_all_bases else [min(paper.rules)]:
                    print_progress(f"{rule_type.name}: {rules:,} rules")
                    stores.append(RuleStore(open_stores.enter_context(databases.new()), rule_type, rules))
                equal = {
                    store: RuleStore(open_stores.enter_context(databases.new()), EQUAL_TEXTS, store.rules)
                    for store in stores
                    if kind in COMPARED_WITH_EQUAL
                }
                if kind in paper.kinds:
                    yield from _measure_inserts(stores, paper, equal)
                if updated:
                    yield from _measure_updates(stores, paper)
    if "rules" in paper.kinds:
        for kind in ADDED_RULE_TYPES:
            print_progress(f"{RULE_TYPES[kind].name}: rules registered")
            with databases.new() as engine:
                yield from _measure_rules(engine, RULE_TYPES[kind], paper)


def _measure_inserts(
    stores: Sequence[RuleStore], paper: PaperPlan, equal: Mapping[RuleStore, RuleStore]
) -> Iterator[BenchResult]:
    """Measure insertions. `equal`: for some stores, a store with as many rules that use `=`."""
    name = stores[0].rule_type.name
    random = Random(name)
    for size in paper.batches:
        with_filter_clock: dict[RuleStore, list[RoundSeconds]] = {store: [] for store in stores}
        without_filter_clock: dict[RuleStore, list[RoundSeconds]] = {store: [] for store in stores}
        others: dict[RuleStore, list[float]] = {store: [] for store in stores}
        for _ in range(paper.rounds + WARM_UP_ROUNDS):
            for store in stores:
                with_filter_clock[store].append(store.insert(size, clocked=True))
                without_filter_clock[store].append(store.insert(size))
                if name == "contains":
                    others[store].append(store.strpos())
                elif store in equal:
                    others[store].append(equal[store].insert(size, clocked=True).filter / size)
                elif store.rule_type.matches_one:
                    others[store].append(store.time_rule_queries(random) / size)
        for store in stores:
            peer = STRPOS if name == "contains" else EQUAL if store in equal else OWN_QUERY
            peers = {peer: 1e6 * _median(others[store])} if others[store] else {}
            for what, rounds, part, against in (
                (FILTER, with_filter_clock[store], 0, peers),
                (STORE, without_filter_clock[store], 1, {}),
                (WHOLE, without_filter_clock[store], 2, {}),
            ):
                ours, floor = (_median([seconds[at] for seconds in rounds]) * 1e6 / size for at in (part, 3))
                yield BenchResult(f"{name}: {what}", store.rules, size, ours, floor, against)


def _measure_updates(stores: Sequence[RuleStore], paper: PaperPlan) -> Iterator[BenchResult]:
    """Measure the insertion of documents, and then their update with another value."""
    for size in paper.batches:
        without_filter_clock: dict[RuleStore, list[tuple[RoundSeconds, RoundSeconds]]] = {store: [] for store in stores}
        for _ in range(paper.rounds + WARM_UP_ROUNDS):
            for store in stores:
                without_filter_clock[store].append((store.insert(size), store.update()))
        for store, rounds in without_filter_clock.items():
            per = 1e6 / size
            insert = per * _median([inserted.store for inserted, _ in rounds])
            update = per * _median([updated.store for _, updated in rounds])
            floor = per * _median([inserted.floor for inserted, _ in rounds])
            yield BenchResult(f"{store.rule_type.name}: {UPDATE}", store.rules, size, update, floor, {INSERT: insert})


def _measure_rules(engine: Engine, rule_type: RuleType, paper: PaperPlan) -> Iterator[BenchResult]:
    """Measure the registration of rules: many in one call, and then one by one, each in a durable transaction.

    Some of the rules in bulk, and each single rule, match a stored document. The floor is the COPY of the rules' texts.
    """
    bulk, singles = paper.bulk, SINGLE_RULES_PER_ROUND * paper.rounds
    bench = RegistrationBench(engine)
    schema = bench.schema()
    matched = range(min(MATCHED_IN_BULK, bulk))
    alone = range(bulk, bulk + singles + WARM_UP_ROUNDS)
    documents = [prepare(*make_document(n), "application/rdf+xml", schema) for n in (*matched, *alone)]
    for first in range(0, len(documents), 1000):
        bench.register(documents[first : first + 1000])
    with engine.begin() as connection:
        create_rule_floor_table(connection)
    vacuum_analyze(engine)

    texts = [rule_type.rule(number) for number in range(bulk)]
    began = time.perf_counter()
    added = add_in_chunks(bench, texts)
    ours = time.perf_counter() - began
    floor = _copy_rules(engine, 0, texts)
    with engine.begin() as connection:
        found, stored = sorted(read_match_changes(connection)), count_rules(connection)
    if stored != bulk or found != sorted((added[n].ends[0], provider_uri(n), True) for n in matched):
        raise AssertionError(
            f"{rule_type.name}: {len(found)} first results of {stored:,} rules, expected {len(matched)}."
        )
    vacuum_analyze(engine)
    yield BenchResult(f"{rule_type.name}: {BULK}", 0, bulk, 1e6 * ours / bulk, 1e6 * floor / bulk)

    times, floors = [], []
    for number in alone:
        text = rule_type.rule(number)
        began = time.perf_counter()
        (rule,) = add_in_chunks(bench, [text])
        times.append(time.perf_counter() - began)
        floors.append(_copy_rules(engine, number, [text]))
        with engine.begin() as connection:
            results = read_changes_of(connection, provider_uri(number))
        if results != [(rule.ends[0], True)]:
            raise AssertionError(f"{rule_type.name}: {len(results)} first results of rule {number}, expected one.")
    yield BenchResult(f"{rule_type.name}: {SINGLE}", bulk, 1, 1e6 * _median(times), 1e6 * _median(floors))


def _copy_rules(engine: Engine, first: int, texts: Sequence[str]) -> float:
    """Return the seconds for COPY and commit of the rules' texts."""
    with engine.connect() as connection:
        began = time.perf_counter()
        copy_rule_texts(connection, first, texts)
        return time.perf_counter() - began


def _median(times: Sequence[float]) -> float:
    """Return the median without the warm-up rounds."""
    return median(times[WARM_UP_ROUNDS:])
