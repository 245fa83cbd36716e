"""Publication against a naive oracle: several LMRs with overlapping rules, each following its feed.

After every step the MDP's idea of each LMR's closure equals the oracle's, and every event was needed: puts for exactly
what entered a closure or changed in it, matches and unmatches for exactly what came to be selected or ceased to be.
Each follower knows nothing but its feed, reads it when it likes, in pages of any size, and may begin again from an
older cursor or from a snapshot; when it has caught up, it has the closure, statement by statement.

MDV_MODEL_EXAMPLES sets the number of runs, for longer searches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from closure_oracle import Closure, closure_of, reached
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from rule_worlds import (
    DOCUMENTS,
    SCHEMA,
    RuleText,
    Said,
    contents,
    in_order,
    lawful,
    populations,
    rule_texts,
    schema_in_force,
    turtle,
    variants,
)
from systems_of_two import System

from mdv.db.lmrs import Lmr
from mdv.errors import Conflict, MdvError, MustRefetch
from mdv.feed import Event, Kind
from mdv.model import Statement
from mdv.rdf.schema import EMPTY, Schema, read_schema
from mdv.rules.ast import ParsedRule
from mdv.rules.parse import parse

if TYPE_CHECKING:
    from conftest import Mdp

EXAMPLES = int(os.environ.get("MDV_MODEL_EXAMPLES", "6"))
STEPS = 25
MOST_RULES = 6
LMRS = ["north", "south", "west"]

SCHEMAS = [
    SCHEMA,
    SCHEMA.replace(":sequel rdfs:range :Book .", ":sequel rdfs:range :Book ; mdv:reference mdv:strong ."),
    SCHEMA.replace(":about mdv:setValued true .", ":about mdv:setValued true ; mdv:reference mdv:strong ."),
    SCHEMA.replace(":author rdfs:range :Agent ; mdv:reference mdv:strong .", ":author rdfs:range :Agent ."),
    SCHEMA.replace(":Agent a rdfs:Class .", ":Agent rdfs:subClassOf :Book ."),
]
"""References that become strong or weak, cycles among them; and a class that becomes a subclass."""


@dataclass
class Subscribed:
    """A rule of an LMR."""

    name: str | None
    written: RuleText
    parsed: ParsedRule


class Follower:
    """An LMR said naively: it applies its feed, and marks from its roots what it keeps."""

    def __init__(self, mdp: Mdp, lmr: Lmr) -> None:
        self.mdp, self.lmr = mdp, lmr
        self.cursor: str | None = None
        self.older: list[str] = []
        self.offset = 0
        self.schema = EMPTY
        self.selected: set[str] = set()
        self.said: dict[str, frozenset[Statement]] = {}
        self.begun: list[Event] = []
        self.position = 0

    def catch_up(self, limit: int) -> None:
        """Read all that there is, in pages of about `limit` events."""
        for _ in range(10_000):
            try:
                page = self.mdp.feed(self.lmr, self.cursor, limit)
            except MustRefetch:
                self.cursor, self.begun = None, []
                continue
            snapshot = page.snapshot
            for event in page.events:
                assert event.prev is None or snapshot or event.prev <= self.offset, "events are missing"
                assert event.prev is None or event.prev < event.offset
                self.begun.append(event)
                self.offset = max(self.offset, event.offset)
                if event.last:
                    self.apply(self.begun, snapshot)
                    self.begun = []
            self.cursor, self.position = page.cursor, page.position
            if not self.begun and not snapshot:
                self.older.append(page.cursor)
            if page.up_to_date:
                assert not self.begun, "up to date in the middle of a transaction"
                return
        raise AssertionError("the feed never ends")

    def begin_again(self, cursor: str | None) -> None:
        """As if all that came after had been forgotten, or delivered twice."""
        self.cursor, self.begun = cursor, []

    def apply(self, events: Sequence[Event], snapshot: bool) -> None:
        assert len({event.tx for event in events}) == 1
        if snapshot:
            assert events[0].kind is Kind.SCHEMA
            self.selected, self.said = set(), {}
        for event in events:
            if event.kind is Kind.SCHEMA:
                assert event.schema is not None
                self.schema = read_schema(event.schema.statements, event.schema.prefixes)
            elif event.kind is Kind.PUT:
                assert event.statements
                self.said[event.resource] = frozenset(event.statements)
            elif event.kind is Kind.MATCH:
                self.selected.add(event.resource)
            else:
                self.selected.discard(event.resource)
                if event.kind is Kind.DELETE:
                    self.said.pop(event.resource, None)
        kept = reached(self.schema, self.said, self.selected)
        self.said = {uri: said for uri, said in self.said.items() if uri in kept}


@dataclass
class Repository:
    """One LMR of the model: its rules, and who follows its feed."""

    lmr: Lmr
    follower: Follower
    rules: dict[int, Subscribed] = field(default_factory=dict)
    told: int = 0
    """The offset up to which its events have been looked at."""


class Model:
    """What is known of a whole system: documents, schema, LMRs and their rules."""

    def __init__(self, processes: list[Mdp]) -> None:
        self.processes = processes
        self.acting = 0
        self.store: dict[str, Said] = {}
        self.put_schema(SCHEMAS[0])
        self.repositories = {}
        for name in LMRS:
            lmr = self.mdp.create_lmr(name)
            self.repositories[name] = Repository(lmr, Follower(self.mdp, lmr))
        self.before = self.closures()

    @property
    def mdp(self) -> Mdp:
        return self.processes[self.acting]

    def put_schema(self, text: str) -> None:
        self.mdp.put_schema(text)
        self.schema_text = text
        self.schema: Schema = schema_in_force(text).schema

    def put(self, batch: Mapping[str, Said | None]) -> None:
        texts = {uri: turtle(said) if said is not None else None for uri, said in batch.items()}
        answers = self.mdp.put(texts)
        assert not [answer for answer in answers if isinstance(answer, MdvError)]
        self.store |= {uri: said for uri, said in batch.items() if said is not None}
        for uri in (uri for uri, said in batch.items() if said is None):
            del self.store[uri]

    def statements(self) -> frozenset[Statement]:
        return frozenset().union(*self.store.values())

    def closures(self) -> dict[str, Closure]:
        found = {}
        for name, repository in self.repositories.items():
            rules = repository.rules.values()
            named = {rule.name: rule.parsed for rule in rules if rule.name}
            found[name] = closure_of(self.schema, self.statements(), [rule.parsed for rule in rules], named)
        return found

    # -- comparing

    def check(self) -> None:
        """After one step: what the MDP holds for each LMR, and what it told each."""
        after = self.closures()
        for name, repository in self.repositories.items():
            rows = self.mdp.rows(
                "select r.uri, c.reasons from lmr_resources c join resources r on r.id = c.resource_id"
                " where c.lmr_id = :lmr", lmr=repository.lmr.id,
            )  # fmt: skip
            assert {uri for uri, _ in rows} == after[name].held, f"{name} does not hold its closure"
            assert {uri for uri, reasons in rows if reasons > 0} == after[name].selected, f"{name} selects otherwise"
            assert all(reasons >= 0 for _, reasons in rows)
            self.check_events(repository, self.before[name], after[name])
        self.before = after

    def check_events(self, repository: Repository, before: Closure, after: Closure) -> None:
        rows = self.mdp.rows(
            "select f.\"offset\", f.kind, r.uri from feed f left join resources r on r.id = f.resource_id"
            " where f.lmr_id = :lmr and f.\"offset\" > :told order by f.\"offset\"",
            lmr=repository.lmr.id, told=repository.told,
        )  # fmt: skip
        events = {kind: [uri for _, k, uri in rows if k == kind] for kind in range(5)}
        repository.told = max((offset for offset, _, _ in rows), default=repository.told)
        for kind, uris in events.items():
            assert len(set(uris)) == len(uris), f"event {kind} told twice"
        changed = {uri for uri, said in after.said.items() if before.said.get(uri) != said}
        gone = {uri for uri in before.said if uri in before.held} - self.described()
        assert set(events[2]) == changed, "puts are for what entered or changed"
        assert set(events[1]) == gone, "deletes are for what is gone"
        assert set(events[4]) == after.selected - before.selected, "matches"
        assert set(events[3]) == (before.selected - after.selected) - gone, "unmatches"

    def described(self) -> set[str]:
        return {statement.subject for statement in self.statements()}

    def check_followers(self, limit: int, names: Sequence[str]) -> None:
        closures = self.closures()
        for name in names:
            follower = self.repositories[name].follower
            follower.catch_up(limit)
            assert follower.selected == closures[name].selected, f"{name} selects otherwise"
            assert follower.said == closures[name].said, f"{name} has other statements"
            assert follower.position == self.mdp.one("select position from mdp_state")


NAME = st.sampled_from(LMRS)
PROCESS = st.sampled_from([0, 1])
SMALL = DOCUMENTS[1:]
BATCHES = st.dictionaries(st.sampled_from(SMALL), contents() | st.none(), min_size=1, max_size=3)


class PublishMachine(RuleBasedStateMachine):
    def __init__(self, system: System) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.model = Model(self.stack.enter_context(system()))

    def teardown(self) -> None:
        try:
            self.model.check_followers(1000, LMRS)
        finally:
            self.stack.close()

    @initialize(population=populations(), data=st.data())
    def begin(self, population: Said, data: st.DataObject) -> None:
        self.model.put({DOCUMENTS[0]: population})
        for name in LMRS:
            self.add(name, data, [None])

    # -- documents

    @rule(process=PROCESS, batch=BATCHES)
    def register_and_delete(self, process: int, batch: Mapping[str, Said | None]) -> None:
        there = {uri: said for uri, said in batch.items() if said is not None or uri in self.model.store}
        if there:
            self.step(process, lambda: self.model.put(there))

    @precondition(lambda self: self.model.store)
    @rule(process=PROCESS, data=st.data(), more=contents(most=2))
    def say_more_and_less(self, process: int, data: st.DataObject, more: Said) -> None:
        uri = data.draw(st.sampled_from(sorted(self.model.store)))
        less = data.draw(st.sets(st.sampled_from(in_order(self.model.store[uri])), max_size=4))
        said = lawful([*in_order(more), *in_order(self.model.store[uri] - less)])
        self.step(process, lambda: self.model.put({uri: said or None}))

    @precondition(lambda self: self.model.store)
    @rule(process=PROCESS, data=st.data())
    def describe_a_resource_no_more(self, process: int, data: st.DataObject) -> None:
        store = self.model.store
        subject = data.draw(st.sampled_from(sorted({s.subject for said in store.values() for s in said})))
        left = {uri: frozenset(s for s in said if s.subject != subject) for uri, said in store.items()}
        batch = {uri: said or None for uri, said in left.items() if said != store[uri]}
        self.step(process, lambda: self.model.put(batch))

    @rule(process=PROCESS, text=st.sampled_from(SCHEMAS))
    def change_the_schema(self, process: int, text: str) -> None:
        self.step(process, lambda: self.model.put_schema(text))

    # -- rules

    @rule(process=PROCESS, name=NAME, data=st.data(), number=st.sampled_from([1, 1, 3]))
    def subscribe(self, process: int, name: str, data: st.DataObject, number: int) -> None:
        repository = self.model.repositories[name]
        if len(repository.rules) < MOST_RULES:
            taken = {known.name for known in repository.rules.values()}
            names = [n for n in ("first", "second") if n not in taken]
            drawn = data.draw(st.permutations([*names[:1], None, None, None]))[:number]
            self.step(process, lambda: self.add(name, data, drawn))

    @rule(process=PROCESS, name=NAME, data=st.data())
    def subscribe_what_another_has(self, process: int, name: str, data: st.DataObject) -> None:
        known = [r for other in self.model.repositories.values() for r in other.rules.values()]
        plain = [known_.written for known_ in known if not known_.written.searches]
        if plain and len(self.model.repositories[name].rules) < MOST_RULES:
            written = data.draw(st.sampled_from(plain))
            again = data.draw(st.just(written) | variants(written))
            self.step(process, lambda: self.subscribe_texts(name, [(None, again)]))

    @rule(process=PROCESS, name=NAME, data=st.data())
    def change(self, process: int, name: str, data: st.DataObject) -> None:
        repository = self.model.repositories[name]
        if repository.rules:
            number = data.draw(st.sampled_from(sorted(repository.rules)))
            known = repository.rules[number]
            same = data.draw(st.booleans())
            written = data.draw(variants(known.written) if same else rule_texts([], small=True))
            self.step(process, lambda: self.change_to(repository, number, written))

    @rule(process=PROCESS, name=NAME, data=st.data())
    def unsubscribe(self, process: int, name: str, data: st.DataObject) -> None:
        repository = self.model.repositories[name]
        if repository.rules:
            numbers = data.draw(st.lists(st.sampled_from(sorted(repository.rules)), min_size=1, unique=True))
            self.step(process, lambda: self.end(repository, numbers))

    # -- followers

    @rule(name=NAME, limit=st.sampled_from([1, 2, 3, 1000]))
    def catch_up(self, name: str, limit: int) -> None:
        self.model.check_followers(limit, [name])

    @rule(name=NAME, data=st.data(), limit=st.sampled_from([1, 2, 1000]))
    def read_again(self, name: str, data: st.DataObject, limit: int) -> None:
        follower = self.model.repositories[name].follower
        if follower.older:
            follower.begin_again(data.draw(st.sampled_from(follower.older[-5:])))
            follower.offset = 0
            self.catch_up_anyhow(name, limit)

    def catch_up_anyhow(self, name: str, limit: int) -> None:
        follower = self.model.repositories[name].follower
        follower.offset = int(follower.cursor.split("-")[2]) if follower.cursor else 0
        self.model.check_followers(limit, [name])

    @rule(name=NAME, limit=st.sampled_from([1, 2, 1000]))
    def take_a_snapshot(self, name: str, limit: int) -> None:
        follower = self.model.repositories[name].follower
        follower.begin_again(None)
        self.model.check_followers(limit, [name])

    @rule(name=NAME)
    def keep_no_events(self, name: str) -> None:
        """Retention runs out."""
        from mdv.db.feed import Feed

        with self.model.mdp.engine.begin() as connection:
            Feed(connection).trim(self.model.repositories[name].lmr.id, 1e9, 0)

    @rule(name=NAME)
    def compact(self, name: str) -> None:
        from mdv.db.feed import Feed

        with self.model.mdp.engine.begin() as connection:
            Feed(connection).compact(self.model.repositories[name].lmr.id)

    # -- carrying out

    def step(self, process: int, act: Callable[[], object]) -> None:
        self.model.acting = process
        act()
        self.model.check()

    def add(self, name: str, data: st.DataObject, names: Sequence[str | None]) -> None:
        drafts = []
        for own in names:
            taken = {known.name for known in self.model.repositories[name].rules.values()}
            searchable = ["first"] if own != "first" and "first" in taken else []
            drafts.append((own, data.draw(rule_texts(searchable, small=own is not None))))
        self.subscribe_texts(name, drafts)
        self.model.check()

    def subscribe_texts(self, name: str, drafts: Sequence[tuple[str | None, RuleText]]) -> None:
        repository = self.model.repositories[name]
        texts = [(own, written.text) if own else written.text for own, written in drafts]
        added = self.model.mdp.subscribe(repository.lmr, *texts)  # type: ignore[arg-type]
        for (own, written), subscription in zip(drafts, added, strict=True):
            repository.rules[subscription.id] = Subscribed(own, written, parse(written.text))

    def change_to(self, repository: Repository, number: int, written: RuleText) -> None:
        self.model.mdp.change_subscription(repository.lmr, number, written.text)
        known = repository.rules[number]
        repository.rules[number] = Subscribed(known.name, written, parse(written.text))

    def end(self, repository: Repository, numbers: Sequence[int]) -> None:
        try:
            self.model.mdp.unsubscribe(repository.lmr, *numbers)
        except Conflict:
            searched = {repository.rules[number].name for number in numbers}
            others = [known for number, known in repository.rules.items() if number not in numbers]
            assert any(searched & known.written.searches for known in others)
            return
        for number in numbers:
            del repository.rules[number]


def search(system: System, examples: int = EXAMPLES, **options: Any) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    profile = settings(max_examples=examples, stateful_step_count=STEPS, deadline=None, suppress_health_check=checks,
                       report_multiple_bugs=False, **options)  # fmt: skip
    run_state_machine_as_test(lambda: PublishMachine(system), settings=profile)


def test_every_lmr_is_told_what_it_should_be(system: System) -> None:
    search(system, phases=[Phase.reuse, Phase.generate])


def test_every_lmr_is_told_the_same_if_rules_are_evaluated_as_many(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdv.mdp.evaluate.FEW", 0)
    monkeypatch.setattr("mdv.mdp.reasons.FEW", 0)
    search(system, phases=[Phase.reuse, Phase.generate])
