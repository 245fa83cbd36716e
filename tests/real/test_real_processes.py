"""Processes on Postgres: slices that are committed, conflicts, waits, spawned processes, permissions and quotas."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from mdv.db.real.processes import read_news
from mdv.db.tokens import create_token
from mdv.errors import NotFound
from mdv.inspect.processes import find_process
from mdv.mdp.real import slice_commit
from mdv.mdp.real.quotas import ProcessQuotas
from mdv.mdp.real.start import request_stop
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


@pytest.mark.full
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
    assert limits == {"processes"}


def test_a_full_process_goes_on_when_its_solutions_are_read(programs: Programs) -> None:
    programs.mdp.put({"http://d/1": "\n".join(f":a{n} :p :b ." for n in range(1500))})
    iri = programs.start(":p(?x, ?y)")
    programs.run()
    news = programs.news(iri)
    assert (news.state, news.solutions) == ("full", 1000)
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


def test_a_repository_is_sent_the_net_change_of_a_slice(mdp: Mdp) -> None:
    mdp.put_schema(OPEN + " :A a rdfs:Class . :p rdfs:range xsd:integer .")
    lmr = mdp.create_lmr("local")
    mdp.subscribe(lmr, "search A a register a where a.p > 5")
    mdp.put({"http://d/1": ":one a :A ; :p 1 . :two a :A ; :p 7 ."})
    cursor = mdp.feed(lmr).cursor
    Programs(mdp).run_one(
        "ON <http://d/1> { -:p(:one, ?) AND +:p(:one, 9) AND -:p(:one, 9) AND +:p(:one, 8) AND"
        " -:p(:two, ?) AND +:p(:two, 2) }"
    )
    events = mdp.feed(lmr, cursor).events
    shown = sorted((event.kind, event.resource) for event in events)
    assert shown == [("match", "http://v/one"), ("put", "http://v/one"), ("unmatch", "http://v/two")]
    (put,) = [event for event in events if event.kind == "put"]
    assert [one.object.value for one in put.statements if one.property == "http://v/p"] == ["8"]


def test_an_endless_program_ends_at_its_quotas(mdp: Mdp) -> None:
    mdp.put_schema(OPEN)
    mdp.put({"http://d/actions": action("forever", "FIRST $x AND CALL :forever()")})
    small = Programs(mdp, ProcessQuotas(steps=20_000))
    assert small.run_one("CALL :forever()").problem["limit"] == "steps"
    assert small.run_one("REPEAT 100 ($x AND +:p(?x, 1)) OR TRUE").state == "done"
    few = Programs(mdp, ProcessQuotas(effects=50))
    failed = few.run_one(" AND ".join(f"++:many(:a, {number})" for number in range(60)))
    assert failed.problem["limit"] == "effects" and len(few.shown("many")) == 50
    fast = Programs(mdp, ProcessQuotas(seconds=0.3))
    assert fast.run_one("CALL :forever()").problem["limit"] == "seconds"


def test_a_large_state_ends_a_process(programs: Programs) -> None:
    programs.mdp.put({"http://d/1": f":a :w '{'x' * 2_000_000}' . :b :go 1 ."})
    failed = programs.run_one(":w(:a, ?v) AND WAIT :never(?x, ?y)")
    assert failed.problem["limit"] == "state"


def test_a_revoked_token_stops_its_processes(programs: Programs) -> None:
    with programs.mdp.engine.begin() as connection:
        _, token = create_token(connection, "ci", "admin", None, None)
    iri = programs.start("WAIT :go(?x, ?y) AND +:went(?x, ?y)", token=token.id)
    programs.run()
    programs.mdp.run("update tokens set revoked_at = now()")
    programs.mdp.put({"http://d/1": ":a :go :b ."})
    programs.run()
    assert programs.state(iri) == "stopped" and programs.shown("went") == set()
    assert "revoked" in programs.news(iri).problem["message"]


def test_actions_of_other_documents_are_not_run(mdp: Mdp) -> None:
    mdp.put_schema(OPEN)
    mdp.put({"http://d/actions": action("greet", "+:greeted(:bob, :yes)")})
    limited = Programs(mdp, ProcessQuotas(actions=("http://trusted/",)))
    assert "MDV_REAL_ACTIONS" in limited.run_one("CALL :greet()").problem["message"]
    allowed = Programs(mdp, ProcessQuotas(actions=("http://d/",)))
    done = allowed.run_one("CALL :greet()")
    assert done.state == "done" and allowed.shown("greeted") == {"bob yes"}
    assert [len(body["digest"]) for _, _, kind, body in done.entries if kind == "call"] == [64]


def test_an_invalid_value_is_refused_with_a_warning(mdp: Mdp) -> None:
    mdp.put_schema(":A a rdfs:Class . :p rdfs:range xsd:integer ; mdv:setValued true .")
    done = Programs(mdp).run_one("+:p(:a, 'no number') OR +:p(:a, 7)")
    assert done.state == "done" and Programs(mdp).shown("p") == {"a 7"}
    warnings = [body["message"] for _, _, kind, body in done.entries if kind == "warning"]
    assert len(warnings) == 1 and "integer" in warnings[0]


def test_stalled_processes_are_marked(programs: Programs) -> None:
    waiting = programs.start("WAIT :ball(?n, :mine)")
    programs.run()

    def is_stalled() -> bool:
        with programs.mdp.engine.connect() as connection:
            return bool(find_process(connection, waiting)["stalled"])

    assert is_stalled()
    programs.start("CALL primitive:sleep(3600) AND +:ball(:a, :mine)")
    assert not is_stalled()
    programs.run()
    assert not is_stalled()


def test_a_list_gets_the_names_that_a_registration_gives(programs: Programs) -> None:
    programs.run_one("+:list(:a, [1 2])", into="http://d/list")
    before = programs.mdp.rows("select count(*) from filter_data")
    (outcome,) = programs.mdp.put({"http://d/list": ":a :list (1 2) ."})
    assert outcome.inserted == outcome.deleted == 0 and programs.mdp.rows("select count(*) from filter_data") == before


def test_a_closed_schema_allows_activities_and_new_documents(mdp: Mdp) -> None:
    mdp.put_schema(":p mdv:setValued true .")
    mdp.put({"http://d/actions": action("note", "ON ?g { +:p(:a, ?who) }", "who")})
    programs = Programs(mdp)
    done = programs.run_one("SPAWN :note('bob' >> ?p)")
    (binding,) = programs.bindings(done)
    assert programs.state(binding["p"]) == "done", programs.news(binding["p"]).problem
    assert programs.shown("p") == {"a bob"}
    assert len(programs.shown(LRM + "activity-event")) == 2
    refused = programs.run_one("+rdf:type(:a, :Unknown) OR +:p(:a, 'instead')")
    assert refused.added == 1 and programs.shown("p") == {"a bob", "a instead"}


def test_processes_take_turns(programs: Programs) -> None:
    programs.mdp.put({"http://d/actions": action("forever", "FIRST $x AND CALL :forever()")})
    long = programs.start("CALL :forever()")
    short = programs.start("+:p(:a, 1)")
    ran = [programs.worker.run_slice() for _ in range(3)]
    assert [one.iri for one in ran if one is not None] == [long, short, long]
    assert programs.state(short) == "done"


def test_a_context_around_the_whole_program_is_the_only_one(programs: Programs) -> None:
    programs.mdp.put({"http://d/y": "<http://r/1> :note 'other' .", "http://d/x": "<http://r/1> :note 'own' ."})
    for code, notes in (("IN", ["own"]), ("ON", ["other", "own"])):
        news = programs.run_one(f"{code} <http://d/x> {{ :note(?x, ?note) }}")
        assert sorted(one["note"] for one in programs.bindings(news)) == notes


def test_a_limited_caller_stops_its_own_processes_alone(programs: Programs) -> None:
    limited = {"caller": "token limited", "limits": WriteLimits(("http://d/",))}
    other, own = programs.start("WAIT :never(?x, ?y)"), programs.start("WAIT :never(?x, ?y)", **limited)
    programs.run()
    found = programs.run_one(f"STOP <{other}> UNION STOP <{own}>", **limited)
    assert found.solutions == 1 and programs.states() == ["waiting", "stopped", "done"]
    (warning,) = [body["message"] for _, _, kind, body in found.entries if kind == "warning"]
    assert "its own processes alone" in warning
    assert programs.run_one(f"STOP <{other}>").solutions == 1 and programs.state(other) == "stopped"


def test_a_process_that_stops_itself_ends_with_its_slice(programs: Programs) -> None:
    programs.mdp.put({"http://d/actions": action("serve", "CALL primitive:self(>> ?p) AND STOP ?p('tired') AND"
                                                 " +:said(?p, :last) AND WAIT :never(?x, ?y)")})  # fmt: skip
    (binding,) = programs.bindings(programs.run_one("SPAWN :serve( >> ?p)"))
    child = binding["p"]
    assert programs.state(child) == "stopped" and programs.shown("said") == {f"{child} last"}
    assert programs.shown(LRM + "message") == {f"{child}#stopped tired"}
    assert not programs.mdp.rows("select 1 from real_waits") and not programs.mdp.rows("select 1 from real_states")
    assert programs.run_one("CALL primitive:self(>> ?p) AND STOP ?p").state == "done"


def test_the_processes_of_a_caller_are_limited_also_when_they_are_spawned(mdp: Mdp) -> None:
    mdp.put_schema(OPEN)
    mdp.put({"http://d/actions": action("serve", "WAIT :never(?x, ?y)")})
    bounded = Programs(mdp, ProcessQuotas(processes=3))
    failed = bounded.run_one("SPAWN :serve() AND SPAWN :serve() AND SPAWN :serve()")
    assert failed.problem["limit"] == "processes" and bounded.states() == ["failed", "waiting", "waiting"]
    assert bounded.run_one("SPAWN :serve()").problem["limit"] == "processes"
    assert bounded.run_one("SPAWN :serve()", caller="token other").state == "done"


def test_a_revoked_token_stops_processes_that_wait(programs: Programs) -> None:
    with programs.mdp.engine.begin() as connection:
        _, token = create_token(connection, "ci", "admin", None, None)
    iri, other = (programs.start("WAIT :never(?x, ?y)", token=number) for number in (token.id, None))
    programs.run()
    programs.mdp.run("update tokens set revoked_at = now()")
    programs.new_worker(programs.mdp.engine).work()
    assert (programs.state(iri), programs.state(other)) == ("stopped", "waiting")


def test_solutions_count_as_read_up_to_the_last_one(programs: Programs) -> None:
    programs.mdp.put({"http://d/1": "\n".join(f":a{n} :p :b ." for n in range(1100))})
    iri = programs.start(":p(?x, ?y)")
    programs.run()
    with programs.mdp.engine.begin() as connection:
        read_news(connection, iri, 10_000, 0, 1000, 1000, counts=False)
    assert programs.state(iri) == "full"
    with programs.mdp.engine.begin() as connection:
        read_news(connection, iri, 10_000, 0, 1000, 1000)
    assert programs.mdp.rows("select state, read_solutions from real_processes") == [("ready", 1000)]


def test_a_large_family_does_not_delay_other_programs_by_all_of_its_slices(programs: Programs) -> None:
    programs.mdp.put({"http://d/actions": action("bomb", "SPAWN :bomb() AND SPAWN :bomb() AND FALSE")})
    programs.start("CALL :bomb()")
    for _ in range(8):
        programs.worker.run_slice()
    detached = programs.start("+:p(:a, 1)")
    followed = programs.start("+:p(:a, 2)", is_followed=True)
    ran = [one.iri for one in (programs.worker.run_slice() for _ in range(4)) if one is not None]
    assert [iri for iri in ran if iri in (detached, followed)] == [followed, detached] and len(ran) == 4


def test_an_internal_error_is_tried_again_later(programs: Programs) -> None:
    iri = programs.start("WAIT :go(?x, ?y)")
    programs.run()
    kept = programs.mdp.rows("select checkpoint::text from real_states")[0][0]
    programs.mdp.run("update real_states set checkpoint = '{}'")
    programs.mdp.put({"http://d/1": ":a :go :b ."})
    assert programs.run() == 1 and programs.state(iri) == "waiting"
    with programs.mdp.engine.begin() as connection:
        connection.execute(text("update real_states set checkpoint = cast(:kept as json)"), {"kept": kept})
    programs.mdp.run("update real_processes set wake_at = now()")
    programs.new_worker(programs.mdp.engine).work()
    assert programs.state(iri) == "done" and programs.news(iri).solutions == 1


def test_a_family_is_stopped_as_a_whole(programs: Programs) -> None:
    programs.mdp.put({"http://d/actions": action("bomb", "SPAWN :bomb() AND SPAWN :bomb() AND FALSE")})
    root, other = programs.start("CALL :bomb()"), programs.start("WAIT :never(?x, ?y)")
    for _ in range(8):
        programs.worker.run_slice()
    assert programs.state(root) == "done"
    with programs.mdp.engine.begin() as connection:
        request_stop(connection, root, family=True)
    programs.run()
    assert set(programs.states()) == {"done", "stopped", "waiting"} and programs.state(other) == "waiting"
    with programs.mdp.engine.begin() as connection, pytest.raises(NotFound):
        request_stop(connection, root, family=True)
