"""The paper's experiments (section 4): rule bases of one type, documents in batches, and what the filter costs.

Rule bases of all sizes stand side by side and take turns round by round, each with its floor, so that their ratios hold
on a noisy machine. Every round checks what the filter found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from statistics import median

from sqlalchemy import Engine

from mdv.bench.registration import Bench
from mdv.bench.report import Result
from mdv.bench.rulebase import TYPES, RuleType, comp
from mdv.bench.ruled_store import RuledStore, Seconds, add
from mdv.bench.workload import provider_uri, rdf_xml
from mdv.db.bench import Databases, changes_of, copy_rule_floor, count_rules, make_rule_floor
from mdv.db.floor import tidy
from mdv.mdp.filter import read_changes
from mdv.mdp.register import prepare

Say = Callable[[str], None]

KINDS = ("oid", "path", "join", "comp", "contains", "ne", "update", "rules")
UPDATED = ("path", "join")
ADDED = ("oid", "join")

FILTER, STORE, WHOLE = "filter alone", "store and filter", "text to commit"
UPDATE, INSERT = "update", "insert and filter"
STRPOS, OWN_QUERY = "strpos on all", "one query per rule"
BULK, SINGLE = "rules in bulk", "rules one by one"

WARM_UP = 2
"""Rounds that warm caches and plans."""
SINGLES_A_ROUND = 20
MATCHED_IN_BULK = 100


@dataclass(frozen=True, slots=True)
class Paper:
    """What to measure."""

    rules: tuple[int, ...] = (10_000, 100_000)
    batches: tuple[int, ...] = (1, 10, 100, 1000)
    kinds: tuple[str, ...] = KINDS
    rounds: int = 9
    matched: tuple[float, ...] = (10,)
    bulk: int = 100_000

    @property
    def on_all_bases(self) -> frozenset[str]:
        """The rule types that are measured on every rule base; other percentages of COMP only on the smallest.

        >>> sorted(Paper(matched=(1, 10, 20)).on_all_bases - {rule_type.name for rule_type in TYPES.values()})
        ['COMP 10 %']
        """
        percent = 10 if 10 in self.matched else self.matched[0]
        return frozenset({comp(percent).name} | {rule_type.name for rule_type in TYPES.values()})


def run_paper(databases: Databases, paper: Paper, say: Say) -> Iterator[Result]:
    """Measure, one rule type after the other."""
    for kind in KINDS:
        updated = "update" in paper.kinds and kind in UPDATED
        if kind in ("update", "rules") or not (kind in paper.kinds or updated):
            continue
        for rule_type in [comp(percent) for percent in paper.matched] if kind == "comp" else [TYPES[kind]]:
            with ExitStack() as open_stores:
                stores = []
                for rules in sorted(paper.rules) if rule_type.name in paper.on_all_bases else [min(paper.rules)]:
                    say(f"{rule_type.name}: {rules:,} rules")
                    stores.append(RuledStore(open_stores.enter_context(databases.new()), rule_type, rules))
                if kind in paper.kinds:
                    yield from _measure_inserts(stores, paper)
                if updated:
                    yield from _measure_updates(stores, paper)
    if "rules" in paper.kinds:
        for kind in ADDED:
            say(f"{TYPES[kind].name}: rules registered")
            with databases.new() as engine:
                yield from _measure_rules(engine, TYPES[kind], paper)


def _measure_inserts(stores: Sequence[RuledStore], paper: Paper) -> Iterator[Result]:
    name = stores[0].rule_type.name
    random = Random(name)
    for size in paper.batches:
        clocked: dict[RuledStore, list[Seconds]] = {store: [] for store in stores}
        taken: dict[RuledStore, list[Seconds]] = {store: [] for store in stores}
        others: dict[RuledStore, list[float]] = {store: [] for store in stores}
        for _ in range(paper.rounds + WARM_UP):
            for store in stores:
                clocked[store].append(store.insert(size, clocked=True))
                taken[store].append(store.insert(size))
                if name == "contains":
                    others[store].append(store.strpos())
                elif store.rule_type.matches_one:
                    others[store].append(store.own_queries(random) / size)
        for store in stores:
            peer = STRPOS if name == "contains" else OWN_QUERY
            peers = {peer: 1e6 * _median(others[store])} if others[store] else {}
            for what, rounds, part, against in (
                (FILTER, clocked[store], 0, peers),
                (STORE, taken[store], 1, {}),
                (WHOLE, taken[store], 2, {}),
            ):
                ours, floor = (_median([seconds[at] for seconds in rounds]) * 1e6 / size for at in (part, 3))
                yield Result(f"{name}: {what}", store.rules, size, ours, floor, against)


def _measure_updates(stores: Sequence[RuledStore], paper: Paper) -> Iterator[Result]:
    """Documents inserted, and then registered again with another value."""
    for size in paper.batches:
        taken: dict[RuledStore, list[tuple[Seconds, Seconds]]] = {store: [] for store in stores}
        for _ in range(paper.rounds + WARM_UP):
            for store in stores:
                taken[store].append((store.insert(size), store.update()))
        for store, rounds in taken.items():
            per = 1e6 / size
            insert = per * _median([inserted.store for inserted, _ in rounds])
            update = per * _median([updated.store for _, updated in rounds])
            floor = per * _median([inserted.floor for inserted, _ in rounds])
            yield Result(f"{store.rule_type.name}: {UPDATE}", store.rules, size, update, floor, {INSERT: insert})


def _measure_rules(engine: Engine, rule_type: RuleType, paper: Paper) -> Iterator[Result]:
    """Rules registered: many in one call, and after them one by one, each in a durable transaction of its own.

    Some of those in bulk, and each that comes alone, match a document that is stored. Here the floor is the COPY of the
    rules' texts.
    """
    bulk, singles = paper.bulk, SINGLES_A_ROUND * paper.rounds
    bench = Bench(engine)
    schema = bench.schema()
    matched = range(min(MATCHED_IN_BULK, bulk))
    alone = range(bulk, bulk + singles + WARM_UP)
    documents = [prepare(*rdf_xml(n), "application/rdf+xml", schema) for n in (*matched, *alone)]
    for first in range(0, len(documents), 1000):
        bench.register(documents[first : first + 1000])
    with engine.begin() as connection:
        make_rule_floor(connection)
    tidy(engine)

    texts = [rule_type.rule(number) for number in range(bulk)]
    began = time.perf_counter()
    added = add(bench, texts)
    ours = time.perf_counter() - began
    floor = _copy_rules(engine, 0, texts)
    with engine.begin() as connection:
        found, kept = sorted(read_changes(connection)), count_rules(connection)
    if kept != bulk or found != sorted((added[n].ends[0], provider_uri(n), True) for n in matched):
        raise AssertionError(f"{rule_type.name}: {len(found)} first results of {kept:,} rules, not {len(matched)}.")
    tidy(engine)
    yield Result(f"{rule_type.name}: {BULK}", 0, bulk, 1e6 * ours / bulk, 1e6 * floor / bulk)

    times, floors = [], []
    for number in alone:
        text = rule_type.rule(number)
        began = time.perf_counter()
        (rule,) = add(bench, [text])
        times.append(time.perf_counter() - began)
        floors.append(_copy_rules(engine, number, [text]))
        with engine.begin() as connection:
            results = changes_of(connection, provider_uri(number))
        if results != [(rule.ends[0], True)]:
            raise AssertionError(f"{rule_type.name}: {len(results)} first results of rule {number}, not one.")
    yield Result(f"{rule_type.name}: {SINGLE}", bulk, 1, 1e6 * _median(times), 1e6 * _median(floors))


def _copy_rules(engine: Engine, first: int, texts: Sequence[str]) -> float:
    """The seconds that COPY and commit of the rules' texts take."""
    with engine.connect() as connection:
        began = time.perf_counter()
        copy_rule_floor(connection, first, texts)
        return time.perf_counter() - began


def _median(times: Sequence[float]) -> float:
    """The median of all rounds but the first, which warmed up."""
    return median(times[WARM_UP:])
