"""Publication against a naive oracle: several LMRs with overlapping rules, each following its feed.

After every step the MDP's record of each LMR's closure equals the oracle's, and every event was needed: puts for
exactly the resources that entered a closure or changed in it, matches and unmatches for exactly the changes of the
selection. Each follower knows only its feed, reads it at any time, in pages of any size, and may restart from an
older cursor or from a snapshot; when it has caught up, it has the closure, statement by statement.

Beside each follower is a real cache behind an unreliable network: answers are lost, or repeated and cut elsewhere. It
is closed and opened, holds local documents, and may be anywhere when events are compacted or dropped. After each of
its steps it has the closure as of the position that it reports, and nothing later. The mutants at the end prove that
the machine detects errors.

MDV_MODEL_EXAMPLES sets the number of runs, for longer searches.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from mdv.db.feed import Feed
from mdv.db.filter import SlowUnderLock
from mdv.db.lmrs import Lmr
from mdv.db.load_sql import load_sql
from mdv.db.publish import ReferenceChanges
from mdv.db.statement_store import StatementStore
from mdv.errors import Conflict, MdvError, MustRefetch, Unavailable
from mdv.feed import Event, EventKind
from mdv.inspect.sql.cache import CachedStatements
from mdv.lmr.cache import Cache
from mdv.lmr.checksum import checksum
from mdv.lmr.garbage_collector import find_problems
from mdv.lmr.local_documents import delete_local, get_local, put_local
from mdv.lmr.sync import Sync
from mdv.mdp.rules import operations
from mdv.mdp.selection_counts import RuleSelectionCounts
from mdv.model import RDF_TYPE, Statement, Term
from mdv.rdf.schema import EMPTY_SCHEMA, Schema, read_schema
from mdv.rdf.syntax import SYNTAXES
from mdv.rules.ast import ParsedRule
from mdv.rules.parse import parse
from tests.support.cache_content import content_of
from tests.support.closure_oracle import Closure, closure_of, reached
from tests.support.edit_rounds import edit_in_rounds, rounds_to
from tests.support.formats import assert_document_is_read, assert_resource_is_read
from tests.support.generated_rules import (
    DOCUMENTS,
    NOWHERE,
    RESOURCES,
    SCHEMA,
    RuleText,
    Said,
    V,
    contents,
    in_order,
    lawful,
    populations,
    rule_texts,
    schema_in_force,
    turtle,
    variants,
)
from tests.support.in_process_source import Unsteady
from tests.support.machines import EXAMPLES, Rotation, run_machine
from tests.support.mdp import Mdp
from tests.support.two_processes import System

pytestmark = pytest.mark.full

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
    frozen: frozenset[str] | None = None
    """If it is suspended: its matches at that time."""


class Follower:
    """A naive LMR: it applies its feed, and marks the resources that it keeps from its roots."""

    def __init__(self, mdp: Mdp, lmr: Lmr) -> None:
        self.mdp, self.lmr = mdp, lmr
        self.cursor: str | None = None
        self.older: list[str] = []
        self.offset = 0
        self.schema = EMPTY_SCHEMA
        self.selected: set[str] = set()
        self.said: dict[str, frozenset[Statement]] = {}
        self.begun: list[Event] = []
        self.position = 0
        self.suspended: set[int] = set()

    def catch_up(self, limit: int) -> None:
        """Read all pending events, in pages of about `limit` events."""
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
        """Return to an older state, as if later events had been forgotten or delivered twice."""
        self.cursor, self.begun = cursor, []

    def apply(self, events: Sequence[Event], snapshot: bool) -> None:
        assert len({event.tx for event in events}) == 1
        if snapshot:
            assert events[0].kind is EventKind.SCHEMA
            self.selected, self.said, self.suspended = set(), {}, set()
        for event in events:
            if event.kind is EventKind.SCHEMA:
                assert event.schema is not None
                self.schema = read_schema(event.schema.statements, event.schema.prefixes)
            elif event.kind is EventKind.PUT:
                assert event.statements
                self.said[event.resource] = frozenset(event.statements)
            elif event.kind is EventKind.MATCH:
                self.selected.add(event.resource)
            elif event.kind is EventKind.SUSPENDED:
                assert event.rule is not None and event.reason
                self.suspended.add(event.rule)
            elif event.kind is EventKind.RESUMED:
                assert event.rule is not None
                self.suspended.discard(event.rule)
            else:
                self.selected.discard(event.resource)
                if event.kind is EventKind.DELETE:
                    self.said.pop(event.resource, None)
        kept = reached(self.schema, self.said, self.selected)
        self.said = {uri: said for uri, said in self.said.items() if uri in kept}


LOCAL = ["http://local/1", "http://local/2"]


class Kept:
    """A real LMR: a cache that is kept current over an unreliable network."""

    def __init__(self, mdp: Mdp, lmr: Lmr, url: str) -> None:
        self.url = url
        self.source = Unsteady(mdp, lmr)
        self.local: dict[str, frozenset[Statement]] = {}
        self.syntaxes = Rotation()
        self.open()

    def open(self) -> None:
        self.cache = Cache.open(self.url)
        self.sync = Sync(self.cache, self.source)

    def close(self) -> None:
        self.cache.close()

    def check(self, closures: Mapping[int, Closure], suspended: Mapping[int, frozenset[int]]) -> None:
        """Check that it holds exactly the closure as of its position, and no partial transaction."""
        position = self.cache.state().position
        wanted = closures.get(position)
        if wanted is None:  # between the gradual publications of a rule's matches
            return
        found = content_of(self.cache)
        assert found.suspended.keys() == suspended[position], "the suspended rules differ"
        assert found.selected == wanted.selected, "the selection differs"
        said = {uri: {(s.property, s.object) for s in about} for uri, about in wanted.said.items()}
        assert found.content == said, "the statements differ"
        assert found.local == self.local
        self.check_reading(wanted)

    def check_reading(self, wanted: Closure) -> None:
        """Compare resources and local documents in every format."""
        local = frozenset().union(*self.local.values())
        for uri in {*wanted.said, *(s.subject for s in local)}:
            said = {*wanted.said.get(uri, ()), *(s for s in local if s.subject == uri)}
            streamed = self.syntaxes.next_of(list(SYNTAXES))
            assert_resource_is_read(uri, CachedStatements(uri), self.cache.reading, said, streamed)
        for uri in self.local:
            assert_document_is_read(get_local(self.cache, uri))

    def catch_up(self) -> None:
        self.source.steady()
        for _ in range(10_000):
            if self.sync.step().up_to_date:
                return
        raise AssertionError("the feed never ends")


@dataclass
class Repository:
    """One LMR of the model: its rules, its followers, and its cache."""

    lmr: Lmr
    follower: Follower
    kept: Kept
    rules: dict[int, Subscribed] = field(default_factory=dict)
    told: int = 0
    """The offset up to which its events have been checked."""
    history: dict[int, Closure] = field(default_factory=dict)
    """Its closure at each position."""
    suspended: dict[int, frozenset[int]] = field(default_factory=dict)
    """Its suspended rules at each position."""

    def suspended_now(self) -> frozenset[int]:
        return frozenset(number for number, rule in self.rules.items() if rule.frozen is not None)


class Model:
    """The state of a whole system: documents, schema, LMRs and their rules."""

    def __init__(self, processes: list[Mdp], urls: Mapping[str, str]) -> None:
        self.processes = processes
        self.acting = 0
        self.store: dict[str, Said] = {}
        self.repositories: dict[str, Repository] = {}
        self.put_schema(SCHEMAS[0])
        for name in LMRS:
            lmr = self.mdp.create_lmr(name)
            kept = Kept(self.mdp, lmr, urls[name])
            self.repositories[name] = Repository(lmr, Follower(self.mdp, lmr), kept)
        self.before = self.closures()
        for name, repository in self.repositories.items():
            repository.history = {0: self.before[name], self.position: self.before[name]}
            repository.suspended = dict.fromkeys(repository.history, frozenset())

    @property
    def mdp(self) -> Mdp:
        return self.processes[self.acting]

    @property
    def position(self) -> int:
        return int(self.mdp.one("select position from mdp_state"))

    def put_schema(self, text: str) -> None:
        """Withdraw the matches of suspended rules that a schema change touches."""
        self.mdp.put_schema(text)
        kept = {number for (number,) in self.mdp.rows("select distinct rule_id from suspended_ends")}
        for repository in self.repositories.values():
            for number, known in repository.rules.items():
                if known.frozen and number not in kept:
                    known.frozen = frozenset()
        self.schema_text = text
        self.schema: Schema = schema_in_force(text).schema

    def put(self, batch: Mapping[str, Said | None]) -> None:
        texts = {uri: turtle(said) if said is not None else None for uri, said in batch.items()}
        answers = self.mdp.put(texts)
        assert not [answer for answer in answers if isinstance(answer, MdvError)]
        self.record(batch)

    def edit(self, batch: Mapping[str, Said | None], noise: Said, flush: bool) -> None:
        """Make the same changes as `put` by rounds of edits."""
        edit_in_rounds(self.mdp, rounds_to(self.store, batch, noise), flush)
        self.record(batch)

    def record(self, batch: Mapping[str, Said | None]) -> None:
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
            active = [rule.parsed for rule in rules if rule.frozen is None]
            frozen = [rule.frozen for rule in rules if rule.frozen is not None]
            found[name] = closure_of(self.schema, self.statements(), active, named, frozenset().union(*frozen))
        return found

    def matches(self, repository: Repository, number: int) -> frozenset[str]:
        """Return the present matches of a rule."""
        rules = repository.rules
        named = {rule.name: rule.parsed for rule in rules.values() if rule.name}
        return closure_of(self.schema, self.statements(), [rules[number].parsed], named).selected

    # -- comparing

    def check(self) -> None:
        """After one step, compare the MDP's record of each LMR and the events sent to it."""
        after, position = self.closures(), self.position
        for name, repository in self.repositories.items():
            repository.history[position] = after[name]
            repository.suspended[position] = repository.suspended_now()
        for name, repository in self.repositories.items():
            rows = self.mdp.rows(
                "select r.uri, c.reasons from lmr_resources c join resources r on r.id = c.resource_id"
                " where c.lmr_id = :lmr", lmr=repository.lmr.id,
            )  # fmt: skip
            assert {uri for uri, _ in rows} == after[name].held, f"{name} does not hold its closure"
            there = self.described()  # a suspended rule keeps matching deleted resources
            selected = {uri for uri, reasons in rows if reasons > 0 and uri in there}
            assert selected == after[name].selected, f"the selection of {name} differs"
            assert all(reasons >= 0 for _, reasons in rows)
            self.check_events(repository, self.before[name], after[name])
        self.before = after

    def check_events(self, repository: Repository, before: Closure, after: Closure) -> None:
        rows = self.mdp.rows(
            "select f.\"offset\", f.kind, r.uri from feed f"
            " left join resources r on r.id = f.resource_id and f.kind < 5"
            " where f.lmr_id = :lmr and f.\"offset\" > :told order by f.\"offset\"",
            lmr=repository.lmr.id, told=repository.told,
        )  # fmt: skip
        events = {kind: [uri for _, k, uri in rows if k == kind] for kind in range(5)}
        repository.told = max((offset for offset, _, _ in rows), default=repository.told)
        for kind, uris in events.items():
            assert len(set(uris)) == len(uris), f"event {kind} sent twice"
        changed = {uri for uri, said in after.said.items() if before.said.get(uri) != said}
        gone = {uri for uri in before.said if uri in before.held} - self.described()
        assert set(events[2]) == changed, "puts are for resources that entered or changed"
        assert set(events[1]) == gone, "deletes are for deleted resources"
        assert set(events[4]) == after.selected - before.selected, "matches"
        assert set(events[3]) == (before.selected - after.selected) - gone, "unmatches"

    def described(self) -> set[str]:
        return {statement.subject for statement in self.statements()}

    def check_followers(self, limit: int, names: Sequence[str]) -> None:
        closures = self.closures()
        for name in names:
            follower = self.repositories[name].follower
            follower.catch_up(limit)
            assert follower.selected == closures[name].selected, f"the selection of {name} differs"
            assert follower.said == closures[name].said, f"the statements of {name} differ"
            assert follower.position == self.position
            assert follower.suspended == self.repositories[name].suspended_now()

    def check_kept(self, name: str) -> None:
        repository = self.repositories[name]
        repository.kept.check(repository.history, repository.suspended)

    def check_at_rest(self, name: str) -> None:
        """Check that a cache that has caught up is correct and reports so."""
        kept, lmr = self.repositories[name].kept, self.repositories[name].lmr
        kept.catch_up()
        self.check_kept(name)
        assert find_problems(kept.cache) == []
        assert kept.cache.state().position == self.position
        assert checksum(kept.cache) == self.mdp.feeds.checksum(lmr)


NAME = st.sampled_from(LMRS)
PROCESS = st.sampled_from([0, 1])
SMALL = DOCUMENTS[1:]
OTHER = st.sampled_from([*RESOURCES, NOWHERE])
STRONG = st.sampled_from([V + "author", V + "author", V + "sequel", V + "about"])
"""In some schemas, or in most."""
BATCHES = st.dictionaries(st.sampled_from(SMALL), contents() | st.none(), min_size=1, max_size=3)


FAULTS = st.lists(st.sampled_from(["", "", "loses", "answers again"]), min_size=1, max_size=4)
LIMIT = st.sampled_from([1, 1, 2, 3, 1000])
LOCAL_SAID = st.frozensets(
    st.builds(
        Statement,
        st.sampled_from(RESOURCES),
        st.sampled_from([V + "author", V + "source", V + "undeclared"]),
        st.sampled_from(RESOURCES).map(Term.uri),
    )
    | st.builds(
        Statement,
        st.sampled_from(RESOURCES),
        st.sampled_from([V + "tag", V + "undeclared"]),
        st.sampled_from([Term.literal("ab"), Term.literal("ab", "en"), Term.literal("ab", "de")]),
    ),
    min_size=1,
    max_size=3,
).map(lawful)

_numbers = itertools.count(1)


def cache_urls(mdp: Mdp, folder: Path, stack: ExitStack) -> dict[str, str]:
    """The locations of the caches of a run: one in Postgres, beside the MDP's database."""
    number = next(_numbers)
    name = f"cache_of_machine_{number}"
    server = mdp.engine.url.set(drivername="postgresql", database="postgres")
    administer = stack.enter_context(psycopg.connect(server.render_as_string(hide_password=False), autocommit=True))
    administer.execute(f"create database {name} strategy file_copy")
    stack.callback(administer.execute, f"drop database {name} with (force)")
    urls = {lmr: f"sqlite:///{folder / f'{lmr}{number}.db'}" for lmr in LMRS}
    return urls | {LMRS[-1]: server.set(database=name).render_as_string(hide_password=False)}


class PublishMachine(RuleBasedStateMachine):
    def __init__(self, system: System, folder: Path) -> None:
        super().__init__()
        self.stack = ExitStack()
        processes = self.stack.enter_context(system())
        self.model = Model(processes, cache_urls(processes[0], folder, self.stack))

    def teardown(self) -> None:
        try:
            self.model.check_followers(1000, LMRS)
            for name in LMRS:
                self.model.check_at_rest(name)
        finally:
            self.close()

    def close(self) -> None:
        for repository in self.model.repositories.values():
            repository.kept.close()
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

    @rule(process=PROCESS, batch=BATCHES, noise=contents(most=1) | st.just(frozenset()), flush=st.booleans())
    def edit_documents(self, process: int, batch: Mapping[str, Said | None], noise: Said, flush: bool) -> None:
        there = {uri: said for uri, said in batch.items() if said is not None or uri in self.model.store}
        if there:
            self.step(process, lambda: self.model.edit(there, noise, flush))

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

    @rule(process=PROCESS, name=NAME, uri=st.sampled_from(SMALL), other=OTHER, property_=STRONG, data=st.data())
    def let_what_is_held_refer_to_another(
        self, process: int, name: str, uri: str, other: str, property_: str, data: st.DataObject
    ) -> None:
        """In addition to the references allowed by other documents."""
        held = sorted(self.model.before[name].held)
        if held:
            refers = Statement(data.draw(st.sampled_from(held)), property_, Term.uri(other))
            said = lawful([refers, *in_order(self.model.store.get(uri, frozenset()))])
            self.step(process, lambda: self.model.put({uri: said}))

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

    @rule(process=PROCESS, name=NAME, data=st.data())
    def suspend(self, process: int, name: str, data: st.DataObject) -> None:
        repository = self.model.repositories[name]
        if repository.rules:
            numbers = data.draw(st.lists(st.sampled_from(sorted(repository.rules)), min_size=1, unique=True))
            self.step(process, lambda: self.suspend_rules(repository, numbers))

    @rule(process=PROCESS, name=NAME, data=st.data())
    def resume(self, process: int, name: str, data: st.DataObject) -> None:
        repository = self.model.repositories[name]
        suspended = [number for number, rule in repository.rules.items() if rule.frozen is not None]
        if suspended:
            number = data.draw(st.sampled_from(suspended))
            self.step(process, lambda: self.resume_rule(repository, number))

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
        """Let the retention time pass."""
        with self.model.mdp.engine.begin() as connection:
            Feed(connection).trim(self.model.repositories[name].lmr.id, 1e9, 0)

    @rule(name=NAME)
    def compact(self, name: str) -> None:
        with self.model.mdp.engine.begin() as connection:
            Feed(connection).compact(self.model.repositories[name].lmr.id)

    # -- caches

    def kept(self, name: str, process: int, limit: int) -> Kept:
        """Return the cache of an LMR; that process will answer it."""
        kept = self.model.repositories[name].kept
        kept.source.mdp, kept.source.limit = self.model.processes[process], limit
        kept.source.steady()
        return kept

    @rule(name=NAME, process=PROCESS, limit=LIMIT, faults=FAULTS, data=st.data())
    def sync_a_few_steps(self, name: str, process: int, limit: int, faults: Sequence[str], data: st.DataObject) -> None:
        kept = self.kept(name, process, limit)
        for fault in faults:
            kept.source.steady()
            if fault == "loses":
                kept.source.loses = True
                try:
                    kept.sync.step()  # a cursor from which the feed cannot continue is refused, and no answer is lost
                except Unavailable:
                    self.model.check_kept(name)
                continue
            if fault == "answers again" and kept.source.asked:
                kept.source.answers_from = data.draw(st.sampled_from(kept.source.asked[-5:]))
            kept.sync.step()
            self.model.check_kept(name)

    @rule(name=NAME, process=PROCESS, limit=LIMIT)
    def sync_to_the_end(self, name: str, process: int, limit: int) -> None:
        self.kept(name, process, limit)
        self.model.check_at_rest(name)

    @rule(name=NAME, process=PROCESS)
    def compact_amid_a_transaction(self, name: str, process: int) -> None:
        kept = self.kept(name, process, 1)
        while not kept.sync.step().up_to_date and kept.cache.state().staged_cursor is None:
            pass
        self.model.check_kept(name)
        self.compact(name)
        kept.sync.step()
        self.model.check_kept(name)

    @rule(name=NAME)
    def end_and_begin_again(self, name: str) -> None:
        kept = self.model.repositories[name].kept
        kept.close()
        kept.open()
        self.model.check_kept(name)

    @rule(name=NAME, process=PROCESS, limit=LIMIT)
    def verify_by_checksum(self, name: str, process: int, limit: int) -> None:
        verified = self.kept(name, process, limit).sync.verify()
        assert verified is None or verified == (self.model.position, ()), "buckets differ"
        self.model.check_kept(name)

    @rule(name=NAME, uri=st.sampled_from(LOCAL), said=LOCAL_SAID | st.none())
    def say_locally(self, name: str, uri: str, said: Said | None) -> None:
        kept = self.model.repositories[name].kept
        if kept.cache.state().position == 0:
            return  # queries need a schema
        if said is not None:
            put_local(kept.cache, uri, turtle(said).encode(), "text/turtle")
            kept.local[uri] = said
        elif kept.local.pop(uri, None):
            delete_local(kept.cache, uri)
        self.model.check_kept(name)

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
        self.evaluated_again(repository, number)

    def suspend_rules(self, repository: Repository, numbers: Sequence[int]) -> None:
        frozen = {number: self.model.matches(repository, number) for number in numbers}
        self.model.mdp.suspend(numbers)
        for number, matches in frozen.items():
            known = repository.rules[number]
            known.frozen = matches if known.frozen is None else known.frozen

    def resume_rule(self, repository: Repository, number: int) -> None:
        self.model.mdp.resume(repository.lmr, number)
        self.evaluated_again(repository, number)

    def evaluated_again(self, repository: Repository, number: int) -> None:
        """Return a rule and the rules that search it."""
        todo = [repository.rules[number]]
        while todo:
            evaluated = todo.pop()
            evaluated.frozen = None
            todo += [rule for rule in repository.rules.values() if evaluated.name in rule.written.searches]

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


def test_every_lmr_gets_the_events_of_the_oracle(system: System, tmp_path: Path) -> None:
    run_machine(lambda: PublishMachine(system, tmp_path))


def test_every_lmr_gets_the_same_events_if_rules_are_evaluated_in_bulk(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdv.mdp.evaluate.MAX_RULES_EVALUATED_SINGLY", 0)
    monkeypatch.setattr("mdv.mdp.selection_counts.MAX_RULES_EVALUATED_SINGLY", 0)
    run_machine(lambda: PublishMachine(system, tmp_path), max(1, EXAMPLES // 2))


LANGUAGES = [None, "en", "de"]
RULES = [
    "search Book a register a where a.pages > {}",
    "search Book a register a where a.pages <= {}",
    "search rdfs:Resource a register a where a.pages != {}",
    "search Book a register a where a.author.pages >= {}",
    "search Novel a register a",
    "search Agent a, Book b register a where b.sequel = a and a.pages > {}",
]


def wander(system: System, folder: Path, steps: int, seed: int) -> None:
    """A long walk through a dataset with many references: the same invariants, checked after each step."""
    choice = Random(seed)

    def content() -> Said:
        said = []
        for subject in choice.sample(RESOURCES, choice.randrange(1, 4)):
            said.append(Statement(subject, RDF_TYPE, Term.uri(V + choice.choice(["Book", "Novel", "Agent"]))))
            said.append(Statement(subject, V + "pages", Term.literal(str(choice.randrange(10)))))
            said += [Statement(subject, V + "tag", Term.literal("ab", lang)) for lang in choice.choices(LANGUAGES, k=2)]
            for name in choice.choices(["author", "sequel", "mentions"], k=choice.randrange(3)):
                said.append(Statement(subject, V + name, Term.uri(choice.choice([*RESOURCES, NOWHERE]))))
        return lawful(said)

    def written() -> RuleText:
        return RuleText(choice.choice(RULES).format(choice.randrange(10)))

    machine = PublishMachine(system, folder)
    model = machine.model
    try:
        for number in range(steps):
            process, name, limit = choice.randrange(2), choice.choice(LMRS), choice.choice([1, 2, 1000])
            repository = model.repositories[name]
            step = choice.randrange(21)
            if step < 10:
                drawn = {uri: content() if choice.random() < 0.8 else None for uri in choice.sample(DOCUMENTS, 2)}
                if number % 3 == 2:
                    noise = (
                        lawful(statement for said in drawn.values() for statement in said or ()) if number % 2 else ()
                    )
                    machine.edit_documents(process, drawn, frozenset(noise), flush=number % 4 == 1)
                else:
                    machine.register_and_delete(process, drawn)
            elif step < 13 and len(repository.rules) < MOST_RULES:
                drafts = [(None, written()) for _ in range(choice.randrange(1, 3))]
                machine.step(process, partial(machine.subscribe_texts, name, drafts))
            elif step < 15 and repository.rules:
                number = choice.choice(sorted(repository.rules))
                machine.step(process, partial(machine.change_to, repository, number, written()))
            elif step < 16 and repository.rules:
                ended = choice.sample(sorted(repository.rules), choice.randrange(1, len(repository.rules) + 1))
                machine.step(process, partial(machine.end, repository, ended))
            elif step < 17:
                machine.change_the_schema(process, choice.choice(SCHEMAS))
            elif step < 18 and repository.rules:
                some = choice.sample(sorted(repository.rules), choice.randrange(1, len(repository.rules) + 1))
                frozen = [number for number in some if repository.rules[number].frozen is not None]
                if frozen:
                    machine.step(process, partial(machine.resume_rule, repository, frozen[0]))
                else:
                    machine.step(process, partial(machine.suspend_rules, repository, some))
            else:
                act = choice.choice([machine.keep_no_events, machine.compact, machine.end_and_begin_again, lambda _: 0])
                act(name)
                follow = choice.choice([machine.catch_up, machine.take_a_snapshot])
                follow(name, limit)
                machine.sync_to_the_end(choice.choice(LMRS), process, limit)
    except BaseException:
        machine.close()
        raise
    machine.teardown()


def test_every_lmr_gets_the_same_events_if_results_are_precomputed(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = operations._attempt

    def too_slow_at_first(connection: Any, change: Any, provider: Any, precomputed: Any) -> Any:
        if precomputed is None:
            raise SlowUnderLock
        return attempt(connection, change, provider, precomputed)

    monkeypatch.setattr(operations, "_attempt", too_slow_at_first)
    run_machine(lambda: PublishMachine(system, tmp_path), max(1, EXAMPLES // 2))
    wander(system, tmp_path, 12 * EXAMPLES, seed=3)


def test_every_lmr_gets_the_same_events_if_results_are_published_in_chunks(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("add", "remove", "operations"):
        monkeypatch.setattr(f"mdv.mdp.rules.{module}.MAX_RESULTS_PER_TRANSACTION", 0)
    monkeypatch.setattr("mdv.mdp.rules.chunked_publish.FIRST_CHUNK_RESOURCES", 1)
    monkeypatch.setattr("mdv.mdp.rules.chunked_publish.MIN_CHUNK_RESOURCES", 1)
    monkeypatch.setattr("mdv.mdp.rules.chunked_publish.TARGET_CHUNK_SECONDS", 0)
    run_machine(lambda: PublishMachine(system, tmp_path), max(1, EXAMPLES // 2))
    wander(system, tmp_path, 12 * EXAMPLES, seed=4)


def test_every_lmr_gets_the_events_of_the_oracle_over_a_long_walk(system: System, tmp_path: Path) -> None:
    wander(system, tmp_path, 12 * EXAMPLES, seed=1)


# -- mutants: each is an error that the machine must detect


def _rewrite(patch: pytest.MonkeyPatch, file: str, name: str, *changes: tuple[str, str]) -> None:
    """Change the text of a named SQL statement."""
    text = load_sql(file)[name]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    patch.setitem(load_sql(file), name, text)


def _skip(file: str, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setitem(load_sql(file), name, "select")


def _believe_the_doubtful(patch: pytest.MonkeyPatch) -> None:
    """Every referenced resource stays, also if its referrer is a suspect: a cycle keeps itself."""
    beyond_doubt = """
          and not exists (
              select from doubtful_resources o where o.lmr_id = d.lmr_id and o.resource_id = f.resource_id offset 0)"""
    _rewrite(patch, "publish", "trust", (beyond_doubt, ""))


def _ignore_new_references(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("mdv.mdp.publish.ReferenceChanges", lambda sources, targets, lost: ReferenceChanges(lost=lost))


def _count_one_reason(patch: pytest.MonkeyPatch) -> None:
    for name in ("count_reasons", "count_rule_reasons"):
        _rewrite(patch, "publish", name, ("c.reasons + excluded.reasons", "sign(c.reasons + excluded.reasons)"),
                 ("resource_id, more from changed", "resource_id, sign(more) from changed"))  # fmt: skip


def _ignore_ranges(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RuleSelectionCounts, "_compare_ranges", lambda self, groups, new: None)


def _forget_marks(patch: pytest.MonkeyPatch) -> None:
    _rewrite(patch, "feed", "count_held", (" + count(*) filter (where reasons > 0)", ""))
    _rewrite(patch, "feed", "fill_snapshot", ("(k.kind = 2 or c.reasons > 0)", "k.kind = 2"))


def _read_ahead(patch: pytest.MonkeyPatch) -> None:
    """Read by the greatest offset seen, while smaller ones are still uncommitted."""
    _rewrite(patch, "feed", "stand", ("s.last_offset", "s.last_offset + 1"))


def _forget_what_was_frozen(patch: pytest.MonkeyPatch) -> None:
    """Resuming or removing a suspended rule leaves its matches behind."""
    patch.setattr("mdv.mdp.precompute._suspended_deltas", lambda kept, gone: [])


def _freeze_ranges_alone(patch: pytest.MonkeyPatch) -> None:
    """Matches of other rules of the same ranges are not counted again."""
    patch.setattr(RuleSelectionCounts, "freeze", lambda self, groups, kept: self._db.make_ranges(self._touched))


def _look_up_visible_changes_alone(patch: pytest.MonkeyPatch) -> None:
    """A resource counts as gone if another document contains its removed statements."""
    conclude = StatementStore._conclude

    def mutant(self: StatementStore, gains: Any, losses: Any, kept: set[int]) -> None:
        conclude(self, gains, losses, kept & {key.resource for key in (*gains, *losses)})

    patch.setattr(StatementStore, "_conclude", mutant)


MUTANTS: list[tuple[str, Callable[[pytest.MonkeyPatch], None]]] = [
    ("what is selected comes without what it references", _skip("publish", "enter")),
    ("nothing ever leaves", _skip("publish", "doubt")),
    ("cycles keep themselves", _believe_the_doubtful),
    ("what is gone is not told", _skip("publish", "note_gone")),
    ("references that came are ignored", _ignore_new_references),
    ("only the first reason counts", _count_one_reason),
    ("ranges stay when rules change", _ignore_ranges),
    ("a snapshot has no marks", _forget_marks),
    ("what commits late is skipped", _read_ahead),
    ("a suspended rule leaves its matches behind", _forget_what_was_frozen),
    ("suspended rules take the reasons of others along", _freeze_ranges_alone),
    ("what returns is not matched again", _skip("publish", "note_returned")),
    ("what others still say is gone", _look_up_visible_changes_alone),
]
"""The name of a mutant, and how it is made."""
SEEDS = {"what commits late is skipped": 14, "a suspended rule leaves its matches behind": 5}
"""Walks that detect these mutants within twelve steps. The walk of seed 2 detects the others soon."""


@pytest.mark.parametrize(("mistake", "mutate"), MUTANTS, ids=[mistake for mistake, _ in MUTANTS])
def test_the_machine_detects_a_mutant(
    mistake: str,
    mutate: Callable[[pytest.MonkeyPatch], None],
    system: System,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        wander(system, tmp_path, 1000, SEEDS.get(mistake, 2))
