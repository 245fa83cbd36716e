"""A store with a rule base of one type, that is measured and checked round by round.

What only looks commits, too: after a rollback the driver forgets the statements that its connection has prepared, and
the next measurement would pay for planning them again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine

import mdv.mdp.register as registering
from mdv.bench.registration import Bench
from mdv.bench.rulebase import RuleType
from mdv.bench.workload import NAMESPACE, rdf_xml
from mdv.db.bench import ask_each, changes_of, count_ranged, forget_documents, number_of, strpos_on_all
from mdv.db.exchange import Exchange
from mdv.db.floor import tidy
from mdv.db.state import read_state
from mdv.mdp.filter import read_changes
from mdv.mdp.register import Prepared, prepare, register
from mdv.mdp.rules import AddedRule, RuleDraft, add_rules
from mdv.model import RDF_TYPE

VALUES_TRIED = 10
"""Values of a round that are looked through for every constant."""
RULES_ASKED = 200
"""Rules of a round that are asked one by one; the cost of the others is taken to be the same."""


class Seconds(NamedTuple):
    """What one round took: the filter alone, from prepared documents to commit, from text to commit, and the floor."""

    filter: float
    store: float
    whole: float
    floor: float


@contextmanager
def filter_clock(wanted: bool = True) -> Iterator[list[float]]:
    """The seconds of every run of the filter that registrations make meanwhile.

    So that they are the filter's alone, what was sent to the database before is answered first.
    """
    names = vars(registering)
    run = names["filter_changes"]
    times: list[float] = []
    if not wanted:
        yield times
        return

    def timed(exchange: Exchange, *arguments: Any) -> Any:
        exchange.send()
        began = time.perf_counter()
        found = run(exchange, *arguments)
        exchange.send()
        times.append(time.perf_counter() - began)
        return found

    names["filter_changes"] = timed
    try:
        yield times
    finally:
        names["filter_changes"] = run


class RuledStore:
    """The store, its rules, the turns of the documents not used yet, and what was inserted last."""

    def __init__(self, engine: Engine, rule_type: RuleType, rules: int) -> None:
        self.rule_type, self.rules = rule_type, rules
        self._bench = Bench(engine)
        self.engine = engine
        self._schema = self._bench.schema()
        self._ends = [rule.ends[0] for rule in add(self._bench, [rule_type.rule(n) for n in range(rules)])]
        with engine.begin() as connection:
            self._last_kept = read_state(connection).last_resource
        tidy(engine)
        self._turn = 0
        self._answers: Sequence[object] = ()
        self.turns = range(0)
        self.batch: Sequence[Prepared] = ()

    def insert(self, size: int, clocked: bool = False) -> Seconds:
        """Register as many new documents, and check what the filter found; `clocked`: with a clock on the filter, which
        delays the rest a little."""
        self.turns = self._next_turns(size)
        with filter_clock(clocked) as filtering:
            self.batch, seconds = self._register(self._documents())
        self._check_counts("inserted", 2 * len(self.batch))
        self._check({(turn, number, True) for turn in self._shown() for number in self._matching(turn)})
        return seconds._replace(filter=sum(filtering), floor=self._bench.floor.copy(self.batch))

    def update(self) -> Seconds:
        """Register the last documents again with another value of memory, and check likewise."""
        batch, seconds = self._register(self._documents(moved=1))
        self._check_counts("updated", len(batch))
        ceased = {(turn, number, False) for turn in self.turns for number in self._matching(turn)}
        came = {(turn, number, True) for turn in self.turns for number in self._matching(turn, 1)}
        self._check(ceased | came)
        return seconds

    def strpos(self) -> float:
        """The seconds that it takes, a value, to look for every constant of `contains` in it."""
        values = [self.rule_type.host(turn, self.rules) for turn in self.turns[:VALUES_TRIED]]
        with self.engine.begin() as connection:
            began = time.perf_counter()
            found = strpos_on_all(connection, values)
            seconds = time.perf_counter() - began
        self._expect(found == len(values), f"strpos found {found} constants in {len(values)} values")
        return seconds / len(values)

    def own_queries(self, random: Random) -> float:
        """The seconds that all rules would take, each asking the last documents by itself, as some of them do."""
        sample = random.sample(range(self.rules), min(RULES_ASKED, self.rules))
        due = {number for turn in self.turns for number in self._matching(turn)}
        constants = [self.rule_type.constant(number) for number in sample]
        with self.engine.begin() as connection:
            numbers = self._numbers(connection)
            began = time.perf_counter()
            found = ask_each(connection, self.rule_type.name, constants, numbers)
            seconds = time.perf_counter() - began
        wrong = [n for n, resources in zip(sample, found, strict=True) if len(resources) != (n in due)]
        self._expect(not wrong, f"rules {wrong} matched otherwise by queries of their own")
        return seconds / len(sample) * self.rules

    def _numbers(self, connection: Connection) -> dict[str, int]:
        """The numbers that queries of rules name classes and properties by, and the last position."""
        names = {name: NAMESPACE + name for name in ("serverInformation", "memory", "cpu", "serverHost")}
        ids = self._bench.vocabulary.ids([RDF_TYPE, *names.values()])
        return {
            **{name: ids[uri] for name, uri in names.items()},
            "type": ids[RDF_TYPE],
            "CycleProvider": number_of(connection, NAMESPACE + "CycleProvider"),
            "position": read_state(connection).position,
        }

    def _next_turns(self, size: int) -> range:
        if self.rule_type.recurs and self._turn + size > self.rules:
            forget_documents(self.engine, self._last_kept)
            # Documents that no rule matches, so that plans are made again before it counts.
            self._register([rdf_xml(number) for number in range(self.rules, self.rules + size)])
            self._turn = 0
        self._turn += size
        return range(self._turn - size, self._turn)

    def _documents(self, moved: int = 0) -> list[tuple[str, bytes]]:
        return [self.rule_type.document(turn, self.rules, moved) for turn in self.turns]

    def _register(self, texts: Sequence[tuple[str, bytes]]) -> tuple[list[Prepared], Seconds]:
        began = time.perf_counter()
        batch = [prepare(uri, body, "application/rdf+xml", self._schema) for uri, body in texts]
        ready = time.perf_counter()
        with self.engine.begin() as connection:
            bench = self._bench
            self._answers = register(connection, batch, bench.schemas, bench.vocabulary, bench.rules)
        done = time.perf_counter()
        return batch, Seconds(0.0, done - ready, done - began, 0.0)

    def _check_counts(self, name: str, due: int) -> None:
        """That a new document brought two resources, or a moved one changed its ServerInformation."""
        counted = sum(getattr(answer, name, 0) for answer in self._answers)
        self._expect(counted == due, f"{counted} resources were {name} by {len(self._answers)} documents")

    def _matching(self, turn: int, moved: int = 0) -> Sequence[int]:
        return list(self.rule_type.matching(turn, self.rules, moved))

    def _shown(self) -> Sequence[int]:
        """The turns whose results are looked at rule by rule: where a great many rules match, the first and last."""
        return self.turns if self.rule_type.matches_one else [self.turns[0], self.turns[-1]]

    def _check(self, due: set[tuple[int, int, bool]]) -> None:
        """That the last run changed what is due (turn, number of the rule, whether it matches now) and nothing else."""
        provider, rules = self.rule_type.provider, self.rules
        wanted = {(self._ends[number], provider(turn, rules), matched) for turn, number, matched in due}
        with self.engine.begin() as connection:
            if self.rule_type.matches_one:
                found = read_changes(connection)
            else:
                resources = count_ranged(connection)
                self._expect(resources == len(self.turns), f"{resources} of {len(self.turns)} documents had matches")
                uris = {provider(turn, rules) for turn in self._shown()}
                found = [(rule, uri, matched) for uri in uris for rule, matched in changes_of(connection, uri)]
        self._expect(
            len(found) == len(wanted) and set(found) == wanted,
            f"the filter found {len(found)} changes, {len(wanted & set(found))} of the {len(wanted)} due",
        )

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise AssertionError(f"{self.rule_type.name}, {self.rules:,} rules: {otherwise}.")


CALL = 100_000
"""Rules of one call, at most: a million of them at once would be gigabytes of memory."""


def add(bench: Bench, texts: Sequence[str]) -> list[AddedRule]:
    """Add rules, each call in one durable transaction."""
    added: list[AddedRule] = []
    for first in range(0, len(texts), CALL):
        drafts = [RuleDraft(1, None, text) for text in texts[first : first + CALL]]
        with bench.engine.begin() as connection:
            added += add_rules(connection, drafts, bench.schemas, bench.vocabulary, bench.rules)
    return added
