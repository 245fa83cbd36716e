"""Several workers at the same time on Postgres: every result is one that single actions could give."""

from __future__ import annotations

import threading

import pytest

from mdv.db.engine import make_engine
from mdv.mdp.provider import Provider
from mdv.mdp.real.program_worker import ProgramWorker
from tests.support.eventually import eventually
from tests.support.mdp import Mdp
from tests.support.real_processes import OPEN, Programs, action

WORKERS = 3


@pytest.fixture
def programs(mdp: Mdp) -> Programs:
    mdp.put_schema(OPEN)
    return Programs(mdp)


def run_all(programs: Programs) -> None:
    """Run slices in several threads until no process is ready."""
    url = programs.mdp.engine.url.render_as_string(hide_password=False).replace("+psycopg", "")
    problems: list[BaseException] = []

    def work() -> None:
        engine = make_engine(url, pool_size=2)
        worker = ProgramWorker(engine, Provider(engine), programs.quotas)
        try:
            while worker.run_slice() is not None or "ready" in programs.states():
                pass
        except BaseException as error:
            problems.append(error)
        finally:
            engine.dispose()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems and not any(thread.is_alive() for thread in threads)


def test_each_ticket_is_taken_once(programs: Programs) -> None:
    programs.mdp.put({"http://d/1": "\n".join(f":t{n} :ticket :free ." for n in range(30))})
    for number in range(4):
        programs.start(f"REPEAT (-:ticket(?t, :free) AND +:sold(?t, :w{number}))")
    run_all(programs)
    assert {pair.split()[0] for pair in programs.shown("sold")} == {f"t{n}" for n in range(30)}
    assert len(programs.shown("sold")) == 30 and set(programs.states()) == {"done"}


def test_ping_pong_alternates(programs: Programs) -> None:
    turn = "FIRST WAIT -:ball(?n, :{0}) AND (:next(?n, ?m) AND +:ball(?m, :{1}) AND CALL :{0}() OR +:over(:game, :{0}))"
    players = "\n".join(action(name, turn.format(name, other)) for name, other in (("ping", "pong"), ("pong", "ping")))
    field = "\n".join(f":n{n} :next :n{n + 1} ." for n in range(12))
    programs.mdp.put({"http://d/actions": players, "http://d/field": field})
    for name in ("ping", "pong"):
        programs.start(f"CALL :{name}()")
    programs.run()
    programs.mdp.put({"http://d/ball": ":n0 :ball :ping ."})
    run_all(programs)
    assert programs.shown("over") == {"game ping"} and programs.states() == ["done", "waiting"]


def test_there_is_no_write_skew(programs: Programs) -> None:
    for round_ in range(5):
        ward = f":ward{round_}"
        programs.mdp.put({f"http://d/{round_}": f":ann :oncall {ward} . :bob :oncall {ward} ."})
        for me, other in (("ann", "bob"), ("bob", "ann")):
            programs.start(f"[:oncall(:{other}, {ward}) AND -:oncall(:{me}, {ward})]")
        run_all(programs)
        assert len([pair for pair in programs.shown("oncall") if pair.endswith(ward[1:])]) == 1


def test_a_counter_loses_no_increment(programs: Programs) -> None:
    programs.mdp.put({"http://d/1": ":c :value 0 ."})
    for _ in range(12):
        programs.start("[-:value(:c, ?n) AND CALL primitive:inc(?n >> ?m) AND +:value(:c, ?m)]")
    run_all(programs)
    assert programs.shown("value") == {"c 12"}


def test_dining_philosophers_take_both_forks_or_none(programs: Programs) -> None:
    count = 5
    programs.mdp.put({"http://d/1": "\n".join(f":f{n} :fork :table ." for n in range(count))})
    for n in range(count):
        left, right = f":f{n}", f":f{(n + 1) % count}"
        programs.start(
            f"[WAIT -:fork({left}, :table) AND WAIT -:fork({right}, :table)] AND +:ate(:p{n}, :food) AND"
            f" [+:fork({left}, :table) AND +:fork({right}, :table)]"
        )
    eventually(lambda: run_all(programs) or set(programs.states()) == {"done"})
    assert programs.shown("ate") == {f"p{n} food" for n in range(count)}
    assert programs.shown("fork") == {f"f{n} table" for n in range(count)}


def test_registrations_and_programs_change_the_same_statements(programs: Programs) -> None:
    mdp = programs.mdp
    for number in range(6):
        programs.start(f"FIRST WAIT -:task(?t, :open) AND +:done(?t, :w{number})")
    programs.run()
    thread = threading.Thread(target=run_all, args=(programs,))
    for number in range(6):
        mdp.put({f"http://d/{number}": f":t{number} :task :open ."})
        if number == 2:
            thread.start()
    thread.join(60)
    run_all(programs)
    assert {pair.split()[0] for pair in programs.shown("done")} == {f"t{n}" for n in range(6)}
    assert programs.states() == ["done"] * 6
