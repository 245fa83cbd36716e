"""The cache against a naive MDP: after every step it holds the closure, statement by statement.

Resources are added, changed and deleted, form cycles, are selected and deselected; references become strong and weak;
pages are cut anywhere and repeated; snapshots are taken or abandoned; the process restarts; local documents make
arbitrary statements. The mutants at the end prove that the machine detects errors.

MDV_MODEL_EXAMPLES sets the number of runs, for longer searches.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import mdv.lmr.apply as apply_
import mdv.lmr.garbage_collector as collect_
from mdv.inspect.sql.cache import CachedStatements
from mdv.lmr.apply import FeedGap, apply
from mdv.lmr.cache import Cache
from mdv.lmr.local_documents import delete_local, get_local, list_local, put_local
from mdv.model import Statement, Term
from mdv.rdf.serialise import serialise
from mdv.rdf.syntax import N_TRIPLES, SYNTAXES
from tests.support.cache_content import assert_cache_holds, content_of
from tests.support.cache_urls import Urls
from tests.support.formats import assert_document_is_read, assert_resource_is_read
from tests.support.machines import EXAMPLES, Rotation, run_machine
from tests.support.naive_mdp import KNOWS, LABEL, OWNS, PART, SIZE, URIS, NaiveMdp, Said

pytestmark = pytest.mark.full

DOCUMENTS = ["http://local/1", "http://local/2"]

uris = st.sampled_from(URIS)
edges = st.tuples(st.sampled_from([OWNS, OWNS, KNOWS, PART]), uris.map(Term.uri))
values = st.tuples(st.sampled_from([SIZE, LABEL]), st.sampled_from(["1", "1.0", "20", "x"]).map(Term.literal))
ALIKE = [Term.literal("x"), Term.literal("x", "en"), Term.literal("x", "de"), Term.literal("x", datatype="http://v/t")]
"""Terms that differ only in language or datatype."""
labels = st.tuples(st.just(LABEL), st.sampled_from(ALIKE))
contents = st.frozensets(edges | edges | values | labels, max_size=4)
changes = st.dictionaries(uris, st.none() | contents | contents, max_size=4)
chosen = st.sets(st.sampled_from(URIS[:3]), max_size=2)


class CacheMachine(RuleBasedStateMachine):
    def __init__(self, urls: Urls) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.url = self.stack.enter_context(urls())
        self.cache = Cache.open(self.url)
        self.mdp = NaiveMdp()
        self.local: dict[str, set[Statement]] = {}
        self.applied = 0  # the offset up to which the feed was delivered
        self.base = 0  # of the last snapshot
        self.syntaxes = Rotation()

    def teardown(self) -> None:
        self.cache.close()
        self.stack.close()

    def check(self) -> None:
        state = self.mdp.state_at(self.applied)
        assert_cache_holds(self.cache, state, self.local)
        local = frozenset().union(*self.local.values())
        for uri in {*state.content, *(s.subject for s in local)}:
            said = {Statement(uri, name, term) for name, term in state.content.get(uri, ())}
            said |= {s for s in local if s.subject == uri}
            if said:
                streamed = self.syntaxes.next_of(list(SYNTAXES))
                assert_resource_is_read(uri, CachedStatements(uri), self.cache.reading, said, streamed)
        for uri in self.local:
            assert_document_is_read(get_local(self.cache, uri))

    @property
    def cursor(self) -> int:
        """Return the cursor from which the feed continues: the cursors of this MDP are offsets."""
        return int(self.cache.state().next_cursor or 0)

    # -- the MDP

    @initialize(contents=changes, chosen=chosen)
    def begin(self, contents: dict[str, Said | None], chosen: set[str]) -> None:
        self.change(contents, chosen, set())
        self.take_snapshot(10**9, [])

    @rule(contents=changes, chosen=chosen, extra=st.sets(uris, max_size=1))
    def change(self, contents: dict[str, Said | None], chosen: set[str], extra: set[str]) -> None:
        for uri, said in contents.items():
            if said is None:
                self.mdp.store.pop(uri, None)
            else:
                self.mdp.store[uri] = said
        self.mdp.chosen = set(chosen)
        self.mdp.commit(extra)

    @rule(chosen=chosen)
    def choose(self, chosen: set[str]) -> None:
        self.mdp.chosen = set(chosen)
        self.mdp.commit()

    @rule(suspended=st.dictionaries(st.integers(1, 3), st.sampled_from(["It took 2 s.", "It took 5 s."])))
    def suspend_and_resume(self, suspended: dict[int, str]) -> None:
        self.mdp.suspended = suspended
        self.mdp.commit()

    @rule(strong=st.frozensets(st.sampled_from([OWNS, KNOWS])), size=st.sampled_from(["integer", "decimal", None]))
    def change_schema(self, strong: frozenset[str], size: str | None) -> None:
        self.mdp.strong, self.mdp.size = strong, size
        self.mdp.commit()

    # -- the feed

    @precondition(lambda self: self.applied < len(self.mdp.log))
    @rule(number=st.integers(1, 9))
    def deliver(self, number: int) -> None:
        page = self.mdp.page(self.cursor, number)
        apply(self.cache, page)
        self.applied = max(self.applied, int(page.cursor))
        self.check()

    @rule()
    def deliver_all(self) -> None:
        apply(self.cache, self.mdp.page(self.cursor, 10**9))
        self.applied = len(self.mdp.log)
        assert self.cache.state().position == self.mdp.position
        self.check()

    @rule(back=st.integers(1, 12), number=st.integers(1, 12))
    def deliver_again(self, back: int, number: int) -> None:
        page = self.mdp.page(max(self.base, self.cursor - back), number)
        apply(self.cache, page)
        self.applied = max(self.applied, int(page.cursor))
        self.check()

    @precondition(lambda self: self.applied + 2 <= len(self.mdp.log))
    @rule(lost=st.integers(1, 3))
    def lose_events(self, lost: int) -> None:
        start = self.applied + lost
        if start < len(self.mdp.log):
            before = self.cache.state()
            with pytest.raises(FeedGap):
                apply(self.cache, self.mdp.page(start, 5))
            assert self.cache.state() == before
            self.check()

    @rule(size=st.integers(1, 6), left=st.lists(st.integers(1, 3), max_size=1))
    def take_snapshot(self, size: int, left: list[int]) -> None:
        """`left`: restart it after this number of pages."""
        self.cache.refetch()
        before = content_of(self.cache)
        for most in [*left, 10**9]:
            for page in list(self.mdp.snapshot(size=size))[:most]:
                assert content_of(self.cache) == before, "a snapshot is visible before it is complete"
                apply(self.cache, page)
                if page.events[-1].last:
                    before = content_of(self.cache)
        self.applied = self.base = len(self.mdp.log)
        assert self.cache.state().position == self.mdp.position
        self.check()

    @rule()
    def end_and_begin_again(self) -> None:
        self.cache.close()
        self.cache = Cache.open(self.url)
        self.check()

    # -- local documents

    @rule(uri=st.sampled_from(DOCUMENTS), said=st.dictionaries(uris.filter(lambda u: "#_:" not in u), contents))
    def put_local(self, uri: str, said: dict[str, Said]) -> None:
        written = {Statement(s, p, o) for s, about in said.items() for p, o in about if "#_:" not in o.value}
        if not written:
            return
        size = self.mdp.state_at(self.applied).schema.statements[-1].object.value
        if any(o.value in ("x", "1.0") for _, p, o in written if p == SIZE) and not size.endswith("owns"):
            return  # it may not be valid
        created = put_local(self.cache, uri, ntriples(written), "application/n-triples")
        assert created.created == (uri not in self.local)
        assert created.changed == (self.local.get(uri) != written)
        self.local[uri] = written
        assert set(get_local(self.cache, uri).statements) == written
        assert list_local(self.cache) == sorted(self.local)
        self.check()

    @precondition(lambda self: self.local)
    @rule(data=st.data())
    def delete_local(self, data: st.DataObject) -> None:
        uri = data.draw(st.sampled_from(sorted(self.local)))
        delete_local(self.cache, uri)
        del self.local[uri]
        self.check()


def ntriples(statements: set[Statement]) -> bytes:
    return serialise(statements, N_TRIPLES, {})


def test_the_cache_equals_the_closure(cache_urls: Urls) -> None:
    run_machine(lambda: CacheMachine(cache_urls))


def wander(urls: Urls, steps: int, seed: int) -> None:
    """A long walk through a dataset with many references: the same invariants, checked after each step."""
    choice = Random(seed)

    def content() -> Said:
        said: set[tuple[str, Term]] = {(SIZE, Term.literal(choice.choice(["1", "1.0", "20", "x"])))}
        said |= {(LABEL, term) for term in choice.choices(ALIKE, k=choice.randrange(3))}
        for _ in range(choice.randrange(4)):
            said.add((choice.choice([OWNS, OWNS, KNOWS, PART]), Term.uri(choice.choice(URIS))))
        return frozenset(said)

    machine = CacheMachine(urls)
    try:
        machine.begin({uri: content() for uri in URIS}, {URIS[0]})
        for _ in range(steps):
            step = choice.randrange(22)
            if step < 12:
                some = choice.sample(URIS, choice.randrange(4))
                changed = {uri: content() if choice.random() < 0.9 else None for uri in some}
                machine.change(changed, set(choice.sample(URIS[:3], choice.randrange(3))), set())
            elif step < 14:
                machine.change_schema(frozenset(choice.sample([OWNS, KNOWS], choice.randrange(3))),
                                      choice.choice(["integer", None]))  # fmt: skip
            elif step < 16 and machine.applied < len(machine.mdp.log):
                machine.deliver(choice.randrange(1, 9))
            elif step < 17:
                machine.deliver_again(choice.randrange(1, 12), choice.randrange(1, 12))
            elif step < 19 and machine.applied + 2 <= len(machine.mdp.log):
                machine.lose_events(1)
            elif step == 19:
                machine.take_snapshot(choice.randrange(1, 6), [])
            elif step > 19:
                machine.suspend_and_resume(
                    dict.fromkeys(choice.sample(range(1, 4), choice.randrange(3)), "It took 2 s.")
                )
            if choice.random() < 0.6:
                machine.deliver_all()
    finally:
        machine.teardown()


def test_the_cache_equals_the_closure_over_a_long_walk(cache_urls: Urls) -> None:
    wander(cache_urls, 12 * EXAMPLES, seed=1)


# -- mutants: each is an error that the machine must detect


def _no_cycles(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(collect_, "find_unsupported", lambda connection, doubtful: set())


def _no_support(patch: pytest.MonkeyPatch) -> None:
    """A suspect is removed although a live resource refers to it."""
    patch.setattr(collect_, "_reach", lambda start, edges: set())


def _no_way_from_support(patch: pytest.MonkeyPatch) -> None:
    """Targets of a supported suspect are removed unless they have other support."""
    patch.setattr(collect_, "_reach", lambda start, edges: start)


def _counts_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(collect_.gc, "count_strong_targets", lambda connection, ids: {})


def _believe_one(patch: pytest.MonkeyPatch) -> None:
    kept = collect_.gc.find_kept_by_selected
    patch.setattr(
        collect_.gc, "find_kept_by_selected", lambda connection, ids: kept(connection, ids) | set(list(ids)[:1])
    )


def _rows_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply_, "delete_unused_rows", lambda connection, ids: None)


def _twice(patch: pytest.MonkeyPatch) -> None:
    """Events already applied are applied again, after later ones."""
    patch.setattr(apply_, "_new_events", lambda events, last, continued_offset: list(events))


def _no_gaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        apply_,
        "_new_events",
        lambda events, last, continued_offset: [event for event in events if event["offset"] > last],
    )


def _only_last_page(patch: pytest.MonkeyPatch) -> None:
    """Staged events are forgotten when the rest arrives."""
    patch.setattr(apply_.db, "iter_staged_events", lambda connection, lane: iter(()))


def _references_stay_as_they_were(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply_.db, "set_property_strength", lambda connection, number, strong: {})


def _values_stay_as_they_were(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply_.db, "update_typed_values", lambda connection, number, typed: None)


def _nothing_is_lost_by_change(patch: pytest.MonkeyPatch) -> None:
    """The collector looks at added resources only, not at those that lost a reference."""

    def collect(connection: Any, lost: Any, spoken: set[int]) -> None:
        collect_.collect(connection, [number for number in lost if number not in spoken], spoken)

    patch.setattr(apply_, "collect", collect)


def _suspended_for_ever(patch: pytest.MonkeyPatch) -> None:
    note = apply_.db.update_suspended

    def only_suspended(connection: Any, changes: dict[int, str | None]) -> None:
        note(connection, {rule: reason for rule, reason in changes.items() if reason is not None})

    patch.setattr(apply_.db, "update_suspended", only_suspended)


def _suspended_beyond_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply_.db, "clear_suspended", lambda connection: None)


MUTANTS: list[tuple[str, Callable[[pytest.MonkeyPatch], None]]] = [
    ("cycles are not looked for", _no_cycles),
    ("support from outside does not count", _no_support),
    ("support is not passed on", _no_way_from_support),
    ("what goes still refers", _counts_stay),
    ("a suspect is taken for kept", _believe_one),
    ("rows that nobody needs stay", _rows_stay),
    ("what was applied is applied again", _twice),
    ("gaps are not seen", _no_gaps),
    ("what was staged is forgotten", _only_last_page),
    ("references stay as strong as they were", _references_stay_as_they_were),
    ("values stay as they were typed", _values_stay_as_they_were),
    ("what lost a reference is not looked at", _nothing_is_lost_by_change),
    ("resumed rules stay suspended", _suspended_for_ever),
    ("a snapshot does not say all of suspended rules", _suspended_beyond_a_snapshot),
]
"""The name of a mutant, and how it is made."""


@pytest.mark.parametrize(("mistake", "mutate"), MUTANTS, ids=[mistake for mistake, _ in MUTANTS])
def test_the_machine_detects_a_mutant(
    mistake: str, mutate: Callable[[pytest.MonkeyPatch], None], sqlite_urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        wander(sqlite_urls, 1000, seed=2)
