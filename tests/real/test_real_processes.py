"""Processes on Postgres: slices that are committed, conflicts, waits, spawned processes, permissions and quotas."""

from __future__ import annotations

import pytest

from mdv.mdp.write_limits import WriteLimits
from tests.support.mdp import Mdp
from tests.support.real_processes import DOCUMENT, OPEN, Programs, action

LRM = "http://xrce.xerox.com/LRM#"


@pytest.fixture
def programs(mdp: Mdp) -> Programs:
    mdp.put_schema(OPEN)
    return Programs(mdp)


def test_an_effect_is_committed_as_an_edit_of_the_document(programs: Programs) -> None:
    done = programs.run_one("+:p(:a, 1) AND +:q(:a, 'x')")
    assert (done.state, done.added, done.removed, done.solutions) == ("done", 2, 0, 1)
    assert programs.shown("p") == {"a 1"} and programs.shown("q") == {"a x"}
    rows = programs.mdp.rows("select d.uri, v.cause, v.agent, v.changed_by, v.position from document_versions v"
                             " join documents d on d.id = v.document_id")  # fmt: skip
    (iri,) = [agent for _, _, agent, _, _ in rows]
    assert rows == [(DOCUMENT, "program", iri, "token test", done.position)]
    assert iri.startswith("urn:mdv:real:process/")


def test_solutions_are_stored_with_their_bindings(programs: Programs) -> None:
    programs.mdp.put({"http://d/1": ":a :p :b, :c ."})
    done = programs.run_one(":p(?x, ?y)")
    assert sorted(binding["y"] for binding in programs.bindings(done)) == ["b", "c"]
    assert done.added == done.removed == 0


def test_a_failed_program_keeps_its_earlier_effects(programs: Programs) -> None:
    failed = programs.run_one("+:p(:a, :b) AND +:p(?x, :c)")
    assert failed.state == "failed" and failed.problem is not None
    assert "?x is not bound" in failed.problem["message"]
    assert failed.problem["span"]["column"] == 17
    assert programs.shown("p") == {"a b"}


def test_a_removal_is_from_every_document(programs: Programs) -> None:
    programs.mdp.put({"http://d/1": ":a :p :b .", "http://d/2": ":a :p :b ; :q :c ."})
    done = programs.run_one("-:p(:a, :b)")
    assert done.removed == 2 and programs.shown("p") == set() and programs.shown("q") == {"a c"}


def test_a_slice_that_was_overtaken_is_run_again(programs: Programs) -> None:
    programs.mdp.put({"http://d/1": ":a :n 1 ."})
    one, two = (programs.start("[-:n(:a, ?x) AND CALL primitive:inc(?x >> ?y) AND +:n(:a, ?y)]") for _ in range(2))
    other = programs.new_worker(programs.mdp.engine)
    overtaken = []

    def overtake(name: str) -> None:
        if name == "after a slice" and not overtaken:
            overtaken.append(other.run_slice(two))

    from mdv.mdp.real import slice_commit

    slice_commit.hit_failpoint, kept = overtake, slice_commit.hit_failpoint
    try:
        programs.slice(one)
    finally:
        slice_commit.hit_failpoint = kept
    assert programs.shown("n") == {"a 3"}
    assert programs.mdp.rows("select conflicts from real_processes order by id") == [(1,), (0,)]


def test_wait_sleeps_until_a_registration_brings_the_statement(programs: Programs) -> None:
    iri = programs.start("FIRST WAIT :task(?t, :open) AND +:seen(?t, :yes)")
    programs.run()
    assert programs.state(iri) == "waiting"
    programs.mdp.put({"http://d/1": ":x :other :open ."})
    assert programs.state(iri) == "waiting"
    programs.mdp.put({"http://d/1": ":t :task :open ."})
    assert programs.state(iri) == "ready"
    programs.run()
    assert programs.state(iri) == "done" and programs.shown("seen") == {"t yes"}


def test_one_taker_is_woken_for_each_new_statement(programs: Programs) -> None:
    for number in range(3):
        programs.start(f"FIRST WAIT -:task(?t, :open) AND +:done(?t, :w{number})")
    programs.run()
    programs.mdp.put({"http://d/1": ":t1 :task :open ."})
    assert programs.states() == ["ready", "waiting", "waiting"]
    programs.run()
    programs.mdp.put({"http://d/1": ":t2 :task :open . :t3 :task :open ."})
    programs.run()
    assert programs.states() == ["done", "done", "done"]
    assert {pair.split()[0] for pair in programs.shown("done")} == {"t1", "t2", "t3"}


def test_a_stopped_taker_passes_its_wake_up_on(programs: Programs) -> None:
    first, second = (programs.start("FIRST WAIT -:task(?t, :open) AND +:done(?t, :yes)") for _ in range(2))
    programs.run()
    programs.mdp.put({"http://d/1": ":t :task :open ."})
    programs.stop(first)
    programs.run()
    assert (programs.state(first), programs.state(second)) == ("stopped", "done")
    assert programs.shown("done") == {"t yes"}


def test_spawn_starts_a_process_with_an_activity_document(programs: Programs) -> None:
    programs.mdp.put({"http://d/actions": action("greet", "+:greeted(?who, :yes)", "who")})
    done = programs.run_one("SPAWN :greet(:bob >> ?p)")
    (binding,) = programs.bindings(done)
    child = binding["p"]
    assert programs.shown("greeted") == {"bob yes"}
    assert programs.shown(LRM + "activity-event") == {f"{child} {child}#started", f"{child} {child}#stopped"}
    assert programs.shown(LRM + "action") == {f"{child} greet"}
    assert programs.state(child) == "done"


def test_stop_ends_a_process_with_a_message(programs: Programs) -> None:
    programs.mdp.put({"http://d/actions": action("serve", "WAIT :never(?x, ?y)")})
    (binding,) = programs.bindings(programs.run_one("SPAWN :serve( >> ?p)"))
    child = binding["p"]
    assert programs.state(child) == "waiting"
    stopped = programs.run_one(f"STOP <{child}>('enough')")
    assert stopped.state == "done" and stopped.solutions == 1
    assert programs.state(child) == "stopped"
    assert programs.shown(LRM + "message") == {f"{child}#stopped enough"}
    assert programs.run_one(f"STOP <{child}>").solutions == 0


def test_a_change_outside_of_the_permissions_fails_with_a_warning(programs: Programs) -> None:
    done = programs.run_one(
        "(+:p(:a, 1) OR +:q(:a, 1)) UNION ON <http://d/other> DO +:p(:a, 2)",
        limits=WriteLimits(("http://d/program",)),
    )
    assert done.state == "done" and programs.shown("p") == {"a 1"}
    limited = programs.run_one("IN <http://d/1> DO +:p(:a, 2) OR TRUE", limits=WriteLimits(("http://d/program",)))
    assert limited.solutions == 1
    programs.mdp.put({"http://d/1": ":x :y :z ."})
    refused = programs.run_one("IN <http://d/1> DO +:p(:a, 2) OR TRUE", limits=WriteLimits(("http://d/program",)))
    warnings = [body["message"] for _, _, kind, body in refused.entries if kind == "warning"]
    assert warnings == ["token test may not write http://d/1"] and programs.shown("p") == {"a 1"}


def test_an_endless_fork_ends_at_the_quota(mdp: Mdp) -> None:
    mdp.put_schema(OPEN)
    mdp.put({"http://d/actions": action("bomb", "SPAWN :bomb() AND SPAWN :bomb()")})
    bounded = Programs(mdp, Programs(mdp).quotas._replace(family=5))
    bounded.start("CALL :bomb()")
    for _ in range(60):
        bounded.worker.run_slice()
    live = mdp.rows("select count(*) from real_processes where ended_at is null")[0][0]
    assert live <= 5
    limits = {problem["limit"] for (problem,) in mdp.rows("select problem from real_processes where state = 'failed'")}
    assert limits <= {"processes"}


def test_a_full_process_goes_on_when_its_solutions_are_read(programs: Programs) -> None:
    programs.mdp.put({"http://d/1": "\n".join(f":a{n} :p :b ." for n in range(1500))})
    iri = programs.start(":p(?x, ?y)")
    programs.run()
    news = programs.news(iri)
    assert (news.state, news.solutions) == ("full", 1000)
    from mdv.db.real.processes import read_news

    with programs.mdp.engine.begin() as connection:
        read_news(connection, iri, 1000, 0, 1000, 1000)
    programs.run()
    assert (programs.state(iri), programs.news(iri).solutions) == ("done", 1500)


def test_wait_at_most_fails_at_its_deadline(programs: Programs) -> None:
    iri = programs.start("WAIT :task(?t, ?) AT MOST 0 seconds OR +:gave(:up, :yes)")
    programs.run()
    assert programs.state(iri) == "done" and programs.shown("gave") == {"up yes"}


def test_a_transaction_that_waits_holds_nothing(programs: Programs) -> None:
    iri = programs.start("[+:mark(:a, :b) AND WAIT :go(?x, ?y)] AND +:went(:a, :b)")
    programs.run()
    assert programs.state(iri) == "waiting" and programs.shown("mark") == set()
    programs.mdp.put({"http://d/1": ":g :go :h ."})
    programs.run()
    assert programs.state(iri) == "done" and programs.shown("mark") == programs.shown("went") == {"a b"}
