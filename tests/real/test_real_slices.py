"""Slices: what they read and write, conflicts, waits, and checkpoints that go on in another process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdv.model import Statement, Term
from mdv.rdf.schema import read_schema
from mdv.rdf.values import ValueKind
from mdv.real.checkpoint import write_checkpoint
from mdv.real.compile_code import compile_program
from mdv.real.events import ProgramEnded, SolutionFound, StepsUsed, WaitingFor
from mdv.real.machine import Machine
from mdv.real.memory import MemoryStore
from mdv.real.resolve import read_program
from mdv.real.scheduler import ProcessState, SliceBudget, find_conflict, refresh_segment, run_slice
from mdv.real.store import ReadPattern, ScopedRead, StatementChange
from mdv.real.terms import number_term
from mdv.real.waits import WaitEntry, change_keys, change_matches, choose_woken, wait_keys
from tests.support.real_programs import PREFIXES, action_content, iri, memory_store, through_json

NAMES = [f"urn:t:{name}" for name in "abc"]
TERMS = [*(Term.uri(name) for name in NAMES), Term.literal("3"), number_term("3"), number_term("3.0")]


def machine_of(text: str) -> Machine:
    return Machine(compile_program(read_program(text, PREFIXES), text))


def said(text: str) -> Statement:
    subject, name, value = text.split()
    return Statement(f"urn:t:{subject}", f"urn:t:{name}", iri(value))


def change(text: str, is_added: bool = True, document: str = "urn:t:d") -> StatementChange:
    return StatementChange(document, said(text), is_added)


def kind_of(name: str) -> ValueKind:
    return ValueKind.TEXT


# --- conflicts and waits ---

_names = st.sampled_from(NAMES)
_changes = st.builds(
    StatementChange, _names, st.builds(Statement, _names, _names, st.sampled_from(TERMS)), st.booleans()
)
_patterns = st.builds(
    ReadPattern, st.none() | _names, st.none() | _names, st.none() | st.sampled_from(TERMS), st.booleans()
)
_reads = st.builds(ScopedRead, _patterns, st.none() | st.lists(_names, max_size=2).map(tuple))


@given(_reads, _changes)
def test_a_change_that_matches_a_read_has_its_key(read: ScopedRead, changed: StatementChange) -> None:
    for kind in (ValueKind.TEXT, ValueKind.NUMBER):
        if change_matches(read, changed, kind):
            assert change_keys(changed) & set(wait_keys(read))
            assert find_conflict([read], [changed], lambda name, kind=kind: kind) == read


@given(_reads, _changes)
def test_a_change_has_no_key_of_an_exact_read_that_it_does_not_match(
    read: ScopedRead, changed: StatementChange
) -> None:
    read = ScopedRead(read.pattern._replace(is_typed=False), read.scope)
    assert bool(change_keys(changed) & set(wait_keys(read))) == change_matches(read, changed)


def test_each_new_statement_wakes_one_taker_and_all_readers() -> None:
    task = ScopedRead(ReadPattern(property="urn:t:task"))
    entries = [WaitEntry(f"taker{n}", (task,), True, n) for n in range(4)]
    entries += [WaitEntry(f"reader{n}", (task,), False, 9) for n in range(2)]
    new = [change("1 task open"), change("2 task open")]
    assert choose_woken(entries, new, kind_of) == ["taker0", "reader0", "reader1", "taker1"]
    assert choose_woken(entries, [change("1 task open", is_added=False)], kind_of) == ["reader0", "reader1"]
    assert choose_woken(entries, [change("1 other open")], kind_of) == []


@pytest.mark.parametrize(
    ("text", "changed", "conflicts"),
    [
        (":p(:a, ?x)", "a p z", True),
        (":p(:a, ?x)", "b p z", False),
        ("NO :p(:a, ?)", "a p z", True),
        ("+:q(:a, :b)", "a q b", True),
        ("+:q(:a, :b)", "a q c", False),
        ("-:p(:a, ?x)", "a p b", True),
        ("ON :d {:p(?x, ?y)}", "z p z", True),
        ("IN :e {:p(?x, ?y)}", "z p z", False),
        ("REPEAT ?n ?p(:a, ?x)", "a new z", True),
        ("CALL :f()", "f-body other b", False),
        ("CALL :f()", "a q b", True),
    ],
)
def test_a_slice_conflicts_with_changes_of_what_it_read(text: str, changed: str, conflicts: bool) -> None:
    content = {("urn:t:d", said("a p b")), ("urn:t:e", said("c r d"))}
    store = memory_store(content, action_content({"f": ((), (), "+:q(:a, :b)")}))
    result = run_slice(machine_of(text), store.view())
    assert (find_conflict(result.reads, [change(changed)], kind_of) is not None) == conflicts


def test_a_number_conflicts_with_literals_of_equal_value() -> None:
    store = MemoryStore()
    store.schema = read_schema(
        [Statement("urn:t:n", "http://www.w3.org/2000/01/rdf-schema#range",
                   Term.uri("http://www.w3.org/2001/XMLSchema#integer"))], {},
    )  # fmt: skip
    result = run_slice(machine_of("NO :n(?x, 3)"), store.view())
    new = StatementChange("urn:t:d", Statement("urn:t:a", "urn:t:n", Term.literal("03")), True)
    assert find_conflict(result.reads, [new], store.range_kind) is not None
    entry = WaitEntry("urn:p", tuple(result.reads))
    assert choose_woken([entry], [new], store.range_kind) == ["urn:p"]
    assert choose_woken([entry], [new], kind_of) == []


# --- slices ---


def test_a_slice_ends_at_its_budget_and_the_next_goes_on() -> None:
    store = memory_store({("urn:t:d", said(f"s{n:03} p o")) for n in range(300)})
    machine = machine_of(":p(?x, ?y) AND +:q(?x, ?y)")
    states, solutions = [], 0
    while machine.ended is None:
        result = run_slice(machine, store.view(), SliceBudget(effects=40, steps_between=10, solutions=70))
        assert len(result.changes) <= 70
        store.commit(result.changes)
        machine.end_slice()
        machine = through_json(machine, store)
        states.append(result.state)
        solutions += len(result.solutions)
        if result.state is ProcessState.DONE:
            break
    assert solutions == 300
    assert states[-1] is ProcessState.DONE and len(states) >= 5
    assert sum(1 for _, one in store.content() if one.property == "urn:t:q") == 300


def test_a_time_limit_ends_a_slice_between_steps() -> None:
    store = memory_store(set(), action_content({"loop": ((), (), "CALL :loop()")}))
    asked = iter([False, False, True])
    result = run_slice(machine_of("CALL :loop()"), store.view(), SliceBudget(is_over=lambda: next(asked)))
    assert result.state is ProcessState.READY and isinstance(result.event, StepsUsed)


def test_an_open_transaction_begins_again_if_what_it_read_changes_between_slices() -> None:
    store = memory_store({("urn:t:d", said("a k one"))})
    machine = machine_of("[:k(:a, ?v) AND TRUE AND TRUE AND TRUE AND TRUE AND +:r(:a, ?v)] AND +:end(:a, ?v)")
    result = run_slice(machine, store.view(), SliceBudget(steps=4, steps_between=1))
    assert result.state is ProcessState.READY and machine.segment is not None
    machine.end_slice()
    machine = through_json(machine, store)
    assert refresh_segment(machine, store.view(), store.changes_after)  # nothing has changed
    store.commit([change("a other z")])
    assert refresh_segment(machine, store.view(), store.changes_after)
    store.commit([change("a k one", is_added=False), change("a k two")])
    assert not refresh_segment(machine, store.view(), store.changes_after)
    machine = through_json(machine, store)
    result = run_slice(machine, store.view())
    assert {one.statement for one in result.changes} == {said("a r two"), said("a end two")}


def test_a_program_that_waits_looks_again_if_a_slice_ended_in_between() -> None:
    """Otherwise a statement that came between two slices would be missed."""
    store = memory_store(set())
    machine = machine_of("WAIT :task(?t, :open)")
    machine.run(store.view(), 2)  # the read has failed, but the program does not wait yet
    machine.end_slice()
    machine = through_json(machine, store)
    store.commit([change("1 task open")])
    event = machine.run(store.view(), 100)
    assert isinstance(event, SolutionFound)


def test_a_program_that_waits_has_read_what_it_waits_for() -> None:
    store = memory_store(set())
    machine = machine_of("WAIT :task(?t, :open)")
    machine.run(store.view(), 2)
    machine.end_slice()
    result = run_slice(machine, store.view())
    assert isinstance(result.event, WaitingFor)
    assert find_conflict(result.reads, [change("1 task open")], kind_of) is not None


def test_a_read_that_rejects_many_statements_takes_several_steps() -> None:
    """So that a slice can end in between."""
    store = memory_store({("urn:t:d", said(f"s{n:04} p o")) for n in range(1000)} | {("urn:t:d", said("z p z"))})
    machine = machine_of(":p(?x, ?x)")
    assert isinstance(machine.run(store.view(), 3), StepsUsed)
    machine = through_json(machine, store)
    assert isinstance(machine.run(store.view(), 100), SolutionFound)


# --- checkpoints ---

EVERY_STEP = [
    "+:l(:a, [1 :b [:c]]) AND :l(:a, {?x | ?t}) AND -:l(:a, [1 :b [?y]])",
    "ON ?g {+:p(:a, :b) AND (TRUE UNION -:p(:a, :b))} AND IN ?g {NO :p(?x, ?y) OR :p(?x, ?y)}",
    ":p(?x, ?y) AND EXPAND :tail(?x, :z)",
    "!rdf:type(?x, ?y) UNION engine:schema!:p(?x, ?y)",
    "FIRST ($x UNION $x) AND +:p(?x, :a) AND LAST :p(?u, ?v)",
    "REPEAT ?n [:p(?x, ?y) AND {-:p(?x, ?y) AND (TRUE UNION TRUE)} AND ++:q(?y, ?x)] AND REPEAT 2 :q(?u, ?v)",
    "(SPAWN :tail(:a, :b >> ?p) UNION [SPAWN :tail(:c, :d)]) AND CALL primitive:log('x')",
    "WAIT -:p(?x, ?y) AND WAIT +:q(?x, ?y) AT MOST 3 seconds AND :p(?u, ?v)",
    ":l(?x, ?y | ?k) OR :p(?x, ?y) AND CALL primitive:concat('a', 'b'@en >> ?z)",
    "CALL :walk(:a >> ?end)",
    "[:p(?x, ?y) AND (+:q(?x, :z) AND FALSE OR TRUE) AND [-:p(?x, ?y) AND (TRUE UNION FALSE)]]",
]


@pytest.mark.parametrize("text", EVERY_STEP)
def test_every_kind_of_state_survives_json_at_every_step(text: str) -> None:
    actions = {
        "tail": (("x", "y"), (), "++:tail(?x, ?y) AND (TRUE UNION :p(?x, ?u))"),
        "walk": (("x",), ("y",), ":p(?x, ?y) UNION :p(?x, ?z) AND CALL :walk(?z >> ?y)"),
    }

    content = {("urn:t:d", said(fact)) for fact in ("a p b", "b p c", "c p d")}

    def run(steps: int) -> tuple[list[dict[str, Term]], set[object], list[Term], int]:
        store = memory_store(content, action_content(actions))
        machine = machine_of(text)
        solutions: list[dict[str, Term]] = []
        while True:
            event = machine.run(store.view(), steps)
            if isinstance(event, SolutionFound):
                solutions.append(dict(event.binding))
            elif isinstance(event, StepsUsed):
                machine = through_json(machine, store)
            else:
                assert isinstance(event, ProgramEnded), event
                root = machine.root
                return solutions, {*root.all_changes(), *root.spawned}, machine.log, machine.steps

    assert run(1)[0]
    assert run(1) == run(3) == run(100_000)


CONTINUE = """
import json, sys
from mdv.model import Statement
from mdv.real.checkpoint import read_checkpoint, read_term, write_term
from mdv.real.compile_code import compile_program
from mdv.real.events import SolutionFound
from mdv.real.memory import MemoryStore
from mdv.real.resolve import read_program
given = json.load(sys.stdin)
store = MemoryStore((d, Statement(s, p, read_term(o))) for d, s, p, o in given["content"])
code = compile_program(read_program(given["text"], {"": "urn:t:"}))
machine = read_checkpoint(given["checkpoint"], code)
solutions = []
while isinstance(event := machine.run(store.view(), 10**6), SolutionFound):
    solutions.append({name: write_term(term) for name, term in event.binding.items()})
print(json.dumps(solutions))
"""


def test_a_checkpoint_goes_on_in_another_process() -> None:
    text = ":p(?x, ?y) AND [-:p(?x, ?y) AND (TRUE UNION :p(?z, ?u))]"
    content = {("urn:t:d", said(fact)) for fact in ("a p b", "b p c", "c p d")}
    store = memory_store(content)
    machine = machine_of(text)
    while not isinstance(machine.run(store.view(), 1), SolutionFound):
        pass
    given = {
        "text": text,
        "checkpoint": write_checkpoint(machine),
        "content": sorted((document, *one[:2], "<" + one.object.value) for document, one in content),
    }
    found = subprocess.run(
        [sys.executable, "-c", CONTINUE], input=json.dumps(given), capture_output=True, text=True, check=True
    )
    here = []
    while isinstance(event := machine.run(store.view(), 10**6), SolutionFound):
        here.append({name: "<" + term.value for name, term in event.binding.items()})
    assert json.loads(found.stdout) == here != []
