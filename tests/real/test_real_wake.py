"""Wake-ups: in the transaction of any change, and for the transactions of watched properties alone."""

from __future__ import annotations

import pytest

from mdv.cause import UPDATE, Cause
from mdv.mdp.edit import Edit
from mdv.mdp.real import program_worker
from mdv.mdp.transaction import Transaction
from mdv.model import Statement, Term
from tests.support.mdp import Mdp
from tests.support.real_processes import OPEN, Programs
from tests.support.sent_sql import executed


@pytest.fixture
def programs(mdp: Mdp) -> Programs:
    mdp.put_schema(OPEN)
    return Programs(mdp)


def watched(mdp: Mdp) -> list[int]:
    found: list[int] = mdp.rows("select watched from mdp_state")[0][0]
    return found


def statements_of(mdp: Mdp, monkeypatch: pytest.MonkeyPatch, turtle: str) -> list[str]:
    """Return the SQL that a registration sends, once its statements are prepared."""
    number = mdp.one("select count(*) from documents")
    mdp.put({f"http://d/warm{number}": turtle.replace(":x ", f":w{number} ")})
    with executed(monkeypatch) as sent:
        mdp.put({f"http://d/new{number}": turtle})
    return sent


def test_waiting_processes_cost_other_registrations_no_statement(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdp = programs.mdp
    mdp.put({"http://d/3": ":x :known 1 ; :other 1 ; :task 1 ."})
    before = statements_of(mdp, monkeypatch, ":x :other 'a' .")
    for number in range(20):
        programs.start(f"WAIT :task(:t{number}, ?y)")
    programs.run()
    assert len(watched(mdp)) == 1
    elsewhere = statements_of(mdp, monkeypatch, ":x :other 'b' .")
    assert elsewhere == before
    on_it = statements_of(mdp, monkeypatch, ":x :task 'b' .")
    assert len(on_it) - len(before) <= 4 and set(programs.states()) == {"waiting"}


def test_edits_and_removals_wake(programs: Programs) -> None:
    mdp = programs.mdp
    mdp.put({"http://d/1": ":a :p :b ; :q :c ."})
    added = programs.start("WAIT :p(:new, ?y)")
    removed = programs.start("WAIT +:p(:a, :b)")
    programs.run()
    edit = Edit(Statement("http://v/new", "http://v/p", Term.literal("x")), "http://d/1")
    with mdp.engine.begin() as connection:
        tx = Transaction(mdp.provider, connection)
        tx.edit(Cause(UPDATE), [edit])
        tx.finish()
    assert (programs.state(added), programs.state(removed)) == ("ready", "waiting")
    programs.run()
    mdp.put({"http://d/1": ":a :q :c ."})
    assert programs.state(removed) == "ready"
    programs.run()
    assert set(programs.states()) == {"done"} and "a b" in programs.shown("p")


def test_a_rolled_back_transaction_wakes_no_process(programs: Programs) -> None:
    mdp = programs.mdp
    iri = programs.start("WAIT :p(?x, ?y)")
    programs.run()
    with mdp.engine.connect() as connection:
        tx = Transaction(mdp.provider, connection)
        tx.edit(Cause(UPDATE), [Edit(Statement("http://v/n", "http://v/p", Term.literal("x")), "http://d/1")])
        tx.finish()
        connection.rollback()
    assert programs.state(iri) == "waiting"


def test_a_program_wakes_another(programs: Programs) -> None:
    waiting = programs.start("WAIT :p(:a, ?y) AND +:q(:a, ?y)")
    programs.run()
    programs.run_one("+:p(:a, 1)")
    assert programs.state(waiting) == "done" and programs.shown("q") == {"a 1"}


def test_a_wait_in_a_document_ignores_others(programs: Programs) -> None:
    mdp = programs.mdp
    mdp.put({"http://d/1": ":a :q 1 .", "http://d/2": ":a :q 1 ."})
    iri = programs.start("IN <http://d/1> { WAIT :p(?x, ?y) }")
    programs.run()
    mdp.put({"http://d/2": ":a :p 1 ."})
    assert programs.state(iri) == "waiting"
    mdp.put({"http://d/1": ":a :p 1 ."})
    assert programs.state(iri) == "ready"


def test_a_number_wakes_who_waits_for_an_equal_one(programs: Programs) -> None:
    iri = programs.start("WAIT :p(?x, 3)")
    programs.run()
    programs.mdp.put({"http://d/1": ":a :p 4 ."})
    assert programs.state(iri) == "waiting"
    programs.mdp.put({"http://d/2": ":a :p '3.0'^^xsd:decimal ."})
    assert programs.state(iri) == "ready"


def test_any_property_can_be_awaited(programs: Programs) -> None:
    iri = programs.start("WAIT ?p(:a, :b)")
    programs.run()
    assert watched(programs.mdp) == [0]
    programs.mdp.put({"http://d/1": ":a :r :b ."})
    assert programs.state(iri) == "ready"


def test_properties_that_are_awaited_no_more_are_forgotten(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    iri = programs.start("WAIT :p(?x, ?y)")
    programs.run()
    assert watched(programs.mdp)
    programs.stop(iri)
    programs.run()
    monkeypatch.setattr(program_worker, "TENDING_SECONDS", 0.0)
    programs.worker.work()
    assert watched(programs.mdp) == []


def test_a_process_without_a_reader_is_stopped(programs: Programs) -> None:
    iri = programs.start("WAIT :p(?x, ?y)", is_followed=True)
    programs.run()
    assert programs.state(iri) == "waiting"
    programs.mdp.run("update real_processes set read_at = now() - interval '1 hour'")
    fresh = programs.new_worker(programs.mdp.engine)
    assert fresh.work() == 1 and programs.state(iri) == "stopped"


def test_sleep_ends_at_its_time(programs: Programs) -> None:
    iri = programs.start("CALL primitive:sleep(3600) AND +:slept(:a, :b)")
    programs.run()
    left = programs.worker.seconds_until_due()
    assert programs.state(iri) == "waiting" and left is not None and 3000 < left <= 3600
    programs.mdp.run("update real_processes set wake_at = now()")
    programs.new_worker(programs.mdp.engine).work()
    assert programs.state(iri) == "done" and programs.shown("slept") == {"a b"}
