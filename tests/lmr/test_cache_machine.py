"""The cache against a naive MDP: after every step it holds the closure, statement by statement.

Resources come, change and go, refer to each other in cycles, are selected and left; references become strong and weak;
pages are cut anywhere and come again; snapshots are taken, or left half done; the process ends and begins again; local
documents say what they like. The mutants at the end show that the machine would notice.

MDV_MODEL_EXAMPLES sets the number of runs, for longer searches.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from cache_content import assert_cache_holds, content_of
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from naive_mdp import KNOWS, LABEL, OWNS, PART, SIZE, URIS, NaiveMdp, Said

import mdv.lmr.apply as apply_
import mdv.lmr.collect as collect_
from mdv.lmr.apply import Gap, apply
from mdv.lmr.local import delete_local, get_local, list_local, put_local
from mdv.lmr.store import Cache
from mdv.model import Statement, Term

if TYPE_CHECKING:
    from conftest import Urls

EXAMPLES = int(os.environ.get("MDV_MODEL_EXAMPLES", "6"))
STEPS = 25
DOCUMENTS = ["http://local/1", "http://local/2"]

uris = st.sampled_from(URIS)
edges = st.tuples(st.sampled_from([OWNS, OWNS, KNOWS, PART]), uris.map(Term.uri))
values = st.tuples(st.sampled_from([SIZE, LABEL]), st.sampled_from(["1", "1.0", "20", "x"]).map(Term.literal))
contents = st.frozensets(edges | edges | values, max_size=4)
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

    def teardown(self) -> None:
        self.cache.close()
        self.stack.close()

    def check(self) -> None:
        assert_cache_holds(self.cache, self.mdp.state_at(self.applied), self.local)

    @property
    def cursor(self) -> int:
        """From where the feed goes on: the cursors of this MDP are offsets."""
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
            with pytest.raises(Gap):
                apply(self.cache, self.mdp.page(start, 5))
            assert self.cache.state() == before
            self.check()

    @rule(size=st.integers(1, 6), left=st.lists(st.integers(1, 3), max_size=1))
    def take_snapshot(self, size: int, left: list[int]) -> None:
        """`left`: after so many pages it is begun again."""
        self.cache.refetch()
        before = content_of(self.cache)
        for most in [*left, 10**9]:
            for page in list(self.mdp.snapshot(size=size))[:most]:
                assert content_of(self.cache) == before, "a snapshot shows before it is whole"
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
    lines = (f"<{s}> <{p}> " + (f"<{o.value}>" if o.is_uri else f'"{o.value}"') + " ." for s, p, o in statements)
    return "\n".join(lines).encode()


def test_cache_is_the_closure(cache_urls: Urls) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    profile = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, suppress_health_check=checks,
                       report_multiple_bugs=False, phases=[Phase.reuse, Phase.generate])  # fmt: skip
    run_state_machine_as_test(lambda: CacheMachine(cache_urls), settings=profile)


def wander(urls: Urls, steps: int, seed: int) -> None:
    """A long way through a world with many references: the same laws, checked after each step."""
    choice = Random(seed)

    def content() -> Said:
        said: set[tuple[str, Term]] = {(SIZE, Term.literal(choice.choice(["1", "1.0", "20", "x"])))}
        for _ in range(choice.randrange(4)):
            said.add((choice.choice([OWNS, OWNS, KNOWS, PART]), Term.uri(choice.choice(URIS))))
        return frozenset(said)

    machine = CacheMachine(urls)
    try:
        machine.begin({uri: content() for uri in URIS}, {URIS[0]})
        for _ in range(steps):
            step = choice.randrange(20)
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
            if choice.random() < 0.6:
                machine.deliver_all()
    finally:
        machine.teardown()


def test_cache_is_the_closure_on_a_long_way(cache_urls: Urls) -> None:
    wander(cache_urls, 12 * EXAMPLES, seed=1)


# -- mutants: each is a mistake that the machine must notice


def _no_cycles(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(collect_, "unsupported", lambda connection, doubtful: set())


def _no_support(patch: pytest.MonkeyPatch) -> None:
    """A suspect goes although something alive refers to it."""
    patch.setattr(collect_, "_reach", lambda start, edges: set())


def _no_way_from_support(patch: pytest.MonkeyPatch) -> None:
    """What a supported suspect refers to goes, unless it has support of its own."""
    patch.setattr(collect_, "_reach", lambda start, edges: start)


def _counts_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(collect_.gc, "strong_targets", lambda connection, ids: {})


def _believe_one(patch: pytest.MonkeyPatch) -> None:
    kept = collect_.gc.kept_by_selected
    patch.setattr(collect_.gc, "kept_by_selected", lambda connection, ids: kept(connection, ids) | set(list(ids)[:1]))


def _rows_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply_, "drop_rows", lambda connection, ids: None)


def _twice(patch: pytest.MonkeyPatch) -> None:
    """What was applied already is applied again, in the middle of what came after it."""
    patch.setattr(apply_, "_fresh", lambda events, last: list(events))


def _no_gaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply_, "_fresh", lambda events, last: [event for event in events if event["offset"] > last])


def _only_last_page(patch: pytest.MonkeyPatch) -> None:
    """What was staged is forgotten when the rest comes."""
    patch.setattr(apply_.db, "staged_events", lambda connection, lane: iter(()))


def _references_stay_as_they_were(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply_.db, "change_strength", lambda connection, number, strong: {})


def _values_stay_as_they_were(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply_.db, "retype", lambda connection, number, typed: None)


def _nothing_is_lost_by_change(patch: pytest.MonkeyPatch) -> None:
    """Only what comes is looked at by the collector, not what lost a reference."""

    def collect(connection: Any, lost: Any, spoken: set[int]) -> None:
        collect_.collect(connection, [number for number in lost if number not in spoken], spoken)

    patch.setattr(apply_, "collect", collect)


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
]
"""A mistake in words, and how it is made."""


@pytest.mark.parametrize(("mistake", "mutate"), MUTANTS, ids=[mistake for mistake, _ in MUTANTS])
def test_machine_notices_when(
    mistake: str, mutate: Callable[[pytest.MonkeyPatch], None], sqlite_urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        wander(sqlite_urls, 1000, seed=2)
