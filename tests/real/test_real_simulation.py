"""Processes that run at the same time: every schedule from a seed gives a result that single actions could give."""

from __future__ import annotations

import pytest

from mdv.model import Statement
from mdv.real.memory import MemoryStore
from mdv.real.scheduler import ProcessState
from mdv.real.store import StatementChange
from mdv.real.terms import number_term
from tests.support.real_programs import NAMESPACE, action_content, iri, memory_store
from tests.support.real_simulation import Simulation

SEEDS = range(20)
DOCUMENT = "urn:t:d"


def said(*triples: str) -> set[tuple[str, Statement]]:
    found = set()
    for triple in triples:
        subject, name, value = triple.split()
        found.add((DOCUMENT, Statement(NAMESPACE + subject, NAMESPACE + name, iri(value))))
    return found


def shown(store: MemoryStore, name: str) -> set[str]:
    """Return the subjects and objects of a property."""
    wanted = NAMESPACE + name
    return {
        f"{one.subject.removeprefix(NAMESPACE)} {one.object.value.removeprefix(NAMESPACE)}"
        for _, one in store.content()
        if one.property == wanted
    }


def simulation(seed: int, *triples: str, actions: dict[str, tuple] | None = None, **options: int) -> Simulation:
    return Simulation(memory_store(said(*triples), action_content(actions or {})), seed, **options)


def states(run: Simulation) -> set[ProcessState]:
    return {process.state for process in run.processes.values()}


@pytest.mark.parametrize("seed", SEEDS)
def test_each_ticket_is_taken_once(seed: int) -> None:
    run = simulation(seed, *(f"t{n} ticket free" for n in range(20)))
    for number in range(5):
        run.start(f"REPEAT (-:ticket(?t, :free) AND +:sold(?t, :w{number}))")
    run.run()
    assert len(shown(run.store, "sold")) == 20
    assert {pair.split()[0] for pair in shown(run.store, "sold")} == {f"t{n}" for n in range(20)}
    assert states(run) == {ProcessState.DONE}


@pytest.mark.parametrize("seed", SEEDS)
def test_ping_pong_alternates(seed: int) -> None:
    turn = "FIRST WAIT -:ball(?n, :{0}) AND (:next(?n, ?m) AND +:ball(?m, :{1}) AND CALL :{0}() OR +:over(:game, :{0}))"
    run = simulation(
        seed, *(f"n{n} next n{n + 1}" for n in range(10)), "n0 ball ping",
        actions={name: ((), (), turn.format(name, other)) for name, other in (("ping", "pong"), ("pong", "ping"))},
    )  # fmt: skip
    players = [run.start(f"CALL :{name}()") for name in ("ping", "pong")]
    run.run()
    assert shown(run.store, "over") == {"game ping"}
    assert [player.state for player in players] == [ProcessState.DONE, ProcessState.WAITING]


@pytest.mark.parametrize("seed", SEEDS)
def test_dining_philosophers_take_both_forks_or_none(seed: int) -> None:
    count = 5
    run = simulation(seed, *(f"f{n} fork table" for n in range(count)))
    for n in range(count):
        left, right = f"f{n}", f"f{(n + 1) % count}"
        run.start(
            f"[WAIT -:fork(:{left}, :table) AND WAIT -:fork(:{right}, :table)] AND +:ate(:p{n}, :food) AND "
            f"[+:fork(:{left}, :table) AND +:fork(:{right}, :table)]"
        )
    run.run()
    assert states(run) == {ProcessState.DONE}
    assert shown(run.store, "ate") == {f"p{n} food" for n in range(count)}
    assert shown(run.store, "fork") == {f"f{n} table" for n in range(count)}


@pytest.mark.parametrize("seed", SEEDS)
def test_no_write_skew(seed: int) -> None:
    """Two doctors are on call, and each leaves only if the other stays."""
    run = simulation(seed, "ann oncall ward", "bob oncall ward")
    for me, other in (("ann", "bob"), ("bob", "ann")):
        run.start(f"[:oncall(:{other}, :ward) AND -:oncall(:{me}, :ward)]")
    run.run()
    assert len(shown(run.store, "oncall")) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lock_has_one_owner(seed: int) -> None:
    run = simulation(seed, "r kind lockable")
    for n in range(6):
        run.start(f"[NO :lock(:r, ?) AND +:lock(:r, :p{n})]")
    run.run()
    assert len(shown(run.store, "lock")) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_no_wake_up_is_lost(seed: int) -> None:
    """Takers and readers wait while tasks come one by one, from several processes."""
    run = simulation(seed, "s kind start")
    for n in range(6):
        run.start(f"FIRST WAIT -:task(?t, :open) AND +:done(?t, :w{n})")
        run.start(f"WAIT :done(:t{n}, ?w) AND +:seen(:t{n}, ?w)")
    for n in range(6):
        run.start(f"+:task(:t{n}, :open)")
    run.run()
    assert {pair.split()[0] for pair in shown(run.store, "done")} == {f"t{n}" for n in range(6)}
    assert shown(run.store, "seen") == shown(run.store, "done")
    assert states(run) == {ProcessState.DONE}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stopped_taker_passes_its_wake_up_on(seed: int) -> None:
    run = simulation(seed, "s kind start")
    takers = [run.start("FIRST WAIT -:task(?t, :open) AND +:done(?t, :yes)") for _ in range(3)]
    run.start("+:task(:t, :open)")
    run.start(f"STOP <{takers[0].iri}>(:enough)")
    run.run()
    assert shown(run.store, "done") == {"t yes"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_counter_loses_no_increment(seed: int) -> None:
    run = simulation(seed, "c kind counter")
    start = Statement(NAMESPACE + "c", NAMESPACE + "value", number_term("0"))
    run.store.commit([StatementChange(DOCUMENT, start, True)])
    for _ in range(8):
        run.start("[-:value(:c, ?n) AND CALL primitive:inc(?n >> ?m) AND +:value(:c, ?m)]")
    run.run()
    assert shown(run.store, "value") == {"c 8"}


def test_wait_at_most_fails_at_its_deadline() -> None:
    run = simulation(0, "s kind start")
    late = run.start("WAIT :task(?t, ?) AT MOST 5 seconds AND +:found(:a, :b) OR +:gaveup(:a, :b)")
    inside = run.start("[+:mark(:a, :b) AND WAIT :task(?t, ?) AT MOST 3 seconds] OR +:gaveup(:c, :d)")
    run.run()
    assert shown(run.store, "gaveup") == {"a b", "c d"}
    assert not shown(run.store, "mark") and not shown(run.store, "found")
    assert {late.state, inside.state} == {ProcessState.DONE}
    assert run.store.clock == 5.0


def test_wait_plus_waits_for_what_can_be_cured() -> None:
    run = simulation(0, "a lock me")
    waiting = run.start("WAIT +:lock(:a, :me) AND +:got(:a, :me)")
    malformed = run.start("WAIT +:lock(?x, :me) OR +:malformed(:a, :b)")
    run.run()
    assert (waiting.state, malformed.state) == (ProcessState.WAITING, ProcessState.DONE)
    assert shown(run.store, "malformed") == {"a b"}
    run.start("-:lock(:a, :me)")
    run.run()
    assert waiting.state is ProcessState.DONE
    assert shown(run.store, "got") == {"a me"}


def test_spawn_starts_with_the_commit_of_its_transaction() -> None:
    run = simulation(0, "s kind start", actions={"child": (("n",), (), "+:born(?n, :yes)")})
    run.start(
        "[SPAWN :child(:one) AND FALSE] OR {SPAWN :child(:two)} AND [SPAWN :child(:three >> ?p)] AND +:started(?p, :x)"
    )
    run.run()
    assert shown(run.store, "born") == {"three yes"}


def test_a_fork_bomb_ends_at_the_quota_of_the_host() -> None:
    run = simulation(
        3, "s kind start", actions={"bomb": ((), (), "SPAWN :bomb() AND SPAWN :bomb() AND TRUE")}, max_processes=40
    )
    run.start("CALL :bomb()")
    run.run()
    assert len(run.processes) == 40
    assert {process.limit for process in run.processes.values() if process.state is ProcessState.FAILED} == {
        "processes"
    }


def test_sleep_ends_at_its_time() -> None:
    run = simulation(0, "s kind start")
    run.start("CALL primitive:sleep(7) AND +:slept(:a, :b)")
    run.run()
    assert shown(run.store, "slept") == {"a b"} and run.store.clock == 7.0
