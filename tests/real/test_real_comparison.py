"""The machine against the reference and against SWI-Prolog on random programs, and mutants that this must catch."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdv.real import machine, machine_state, read_rows
from mdv.real.compile_code import CodeNode, Op
from mdv.real.machine_state import (
    C_READ,
    EVALUATE_STEPS,
    FRAME_STEPS,
    K_FIRST,
    K_LAST,
    K_NO,
    K_OR,
    K_REPEAT,
    K_RETURN,
    K_SANDBOX,
    Binding,
    Choice,
    Frame,
    MachineState,
)
from mdv.real.resolve import read_program
from tests.support.real_programs import (
    DIRECTED,
    PREFIXES,
    Content,
    RandomText,
    TooLong,
    action_programs,
    random_content,
    run_machine,
    through_json,
)
from tests.support.real_prolog import run_prolog
from tests.support.real_reference import run_reference

ACTIONS = action_programs()


def case(number: int, with_contexts: bool = True) -> tuple[str, Content]:
    """Return a program with a store: every third is a directed shape."""
    random = Random(number)
    if number % 3 == 0:
        return DIRECTED[number // 3 % len(DIRECTED)], random_content(random)
    return RandomText(random, with_contexts).program(), random_content(random)


def differs(number: int) -> bool:
    text, content = case(number)
    try:
        return run_machine(text, content) != run_reference(read_program(text, PREFIXES), content, ACTIONS)
    except TooLong:
        return False


@pytest.mark.parametrize("block", range(4))
def test_the_machine_does_what_the_reference_does(block: int) -> None:
    for number in range(block * 400, block * 400 + 400):
        assert not differs(number), case(number)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 9))
def test_a_checkpoint_at_any_step_changes_nothing(random: Random, chunk: int) -> None:
    text, content = RandomText(random, with_contexts=True).program(), random_content(random)
    try:
        plain = run_machine(text, content)
        assert run_machine(text, content, chunk=chunk, at_chunk=through_json) == plain
    except TooLong:
        return


@pytest.mark.parametrize("text", DIRECTED)
def test_directed_programs_survive_a_checkpoint_at_every_step(text: str) -> None:
    for seed in range(6):
        content = random_content(Random(seed))
        assert run_machine(text, content, chunk=1, at_chunk=through_json) == run_machine(text, content)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("swipl") is None, reason="SWI-Prolog (Debian package swi-prolog-nox) is not installed")
def test_the_machine_does_what_prolog_does() -> None:
    cases, found = [], []
    for number in range(50_000, 52_500):
        one = case(number, with_contexts=False)
        try:
            found.append(run_machine(*one))
        except TooLong:
            continue
        cases.append(one)
    for one, ours, theirs in zip(cases, found, run_prolog(cases), strict=True):
        assert ours == theirs, one


# --- mutants ---

Mutate = Callable[[pytest.MonkeyPatch], None]


def replace_step(patch: pytest.MonkeyPatch, table: str, kind: int, step: object) -> None:
    """Replace a step of the machine until the end of the test."""
    changed = list(getattr(machine_state, table))
    changed[kind] = step
    for module in (machine_state, machine):
        patch.setattr(module, table, changed, raising=False)


def take_yields_what_is_gone(patch: pytest.MonkeyPatch) -> None:
    take = read_rows._take
    patch.setattr(read_rows, "_take", lambda machine, row: take(machine, row) or True)


def or_does_not_cut(patch: pytest.MonkeyPatch) -> None:
    def frame_or(machine: MachineState, k: Frame, binding: Binding) -> Binding:
        machine.k = k[2]
        return binding

    replace_step(patch, "FRAME_STEPS", K_OR, frame_or)


def first_runs_on(patch: pytest.MonkeyPatch) -> None:
    def frame_first(machine: MachineState, k: Frame, binding: Binding) -> Binding:
        machine.k = k[2]
        return binding

    replace_step(patch, "FRAME_STEPS", K_FIRST, frame_first)


def late_view(patch: pytest.MonkeyPatch) -> None:
    def choice_read(machine: MachineState, choice: Choice) -> None:
        machine.resume(choice)
        contexts = machine.contexts if choice[5].op == Op.READ else machine.contexts[:1]
        present, choice[12] = machine.affected(choice[6], contexts)
        seen = set(choice[10][: choice[11]])
        choice[10], choice[11] = [one for one in present if one not in seen], 0
        read_rows.next_row(machine, choice)

    replace_step(patch, "CHOICE_STEPS", C_READ, choice_read)


def transaction_leaks_undone_effects(patch: pytest.MonkeyPatch) -> None:
    leave = machine_state.MachineState.leave_scope

    def leave_scope(machine: MachineState, number: int) -> None:
        overlay = machine.overlays[number]
        if not overlay.is_sandbox:
            overlay.merge_into(machine.overlays[overlay.parent])
        leave(machine, number)

    patch.setattr(machine_state.MachineState, "leave_scope", leave_scope)


def sandbox_leaks(patch: pytest.MonkeyPatch) -> None:
    frame = FRAME_STEPS[K_SANDBOX]

    def frame_sandbox(machine: MachineState, k: Frame, binding: Binding) -> Binding | None:
        machine.overlays[machine.tx].merge_into(machine.overlays[k[2]])
        return frame(machine, k, binding)

    replace_step(patch, "FRAME_STEPS", K_SANDBOX, frame_sandbox)


def sandbox_forgets_between_solutions(patch: pytest.MonkeyPatch) -> None:
    frame = FRAME_STEPS[K_SANDBOX]

    def frame_sandbox(machine: MachineState, k: Frame, binding: Binding) -> Binding | None:
        machine.overlays[machine.tx].clear()
        return frame(machine, k, binding)

    replace_step(patch, "FRAME_STEPS", K_SANDBOX, frame_sandbox)


def no_runs_on(patch: pytest.MonkeyPatch) -> None:
    """NO looks for all solutions, with their effects."""

    def frame_no(machine: MachineState, k: Frame, binding: Binding) -> None:
        machine.stack[k[1]][1] = {"!": binding}

    def choice_no(machine: MachineState, choice: Choice) -> None:
        machine.pop()
        if "!" not in choice[1]:
            machine.resume(choice)
            machine.succeed(machine.binding)

    replace_step(patch, "FRAME_STEPS", K_NO, frame_no)
    replace_step(patch, "CHOICE_STEPS", machine_state.C_NO, choice_no)


def last_is_the_first(patch: pytest.MonkeyPatch) -> None:
    def frame_last(machine: MachineState, k: Frame, binding: Binding) -> None:
        if machine.stack[k[1]][5] is None:
            machine.stack[k[1]][5] = binding

    replace_step(patch, "FRAME_STEPS", K_LAST, frame_last)


def repeat_goes_one_too_far(patch: pytest.MonkeyPatch) -> None:
    frame = FRAME_STEPS[K_REPEAT]

    def frame_repeat(machine: MachineState, k: Frame, binding: Binding) -> Binding | None:
        choice = machine.stack[k[1]]
        if choice[6] is not None and choice[7] + 1 == choice[6] and len(machine.stack) - 1 > k[1]:
            choice[6], choice[7] = choice[6] + 1, choice[7] + 1
            return None
        return frame(machine, k, binding)

    replace_step(patch, "FRAME_STEPS", K_REPEAT, frame_repeat)


def adding_what_is_present_succeeds(patch: pytest.MonkeyPatch) -> None:
    replace_step(patch, "EVALUATE_STEPS", Op.ADD, lambda machine, node: add_anyway(machine, node))


def add_anyway(machine: MachineState, node: CodeNode) -> None:
    assert node.triple is not None
    machine.add(machine.top, machine.ground(node.triple), machine.contexts)
    machine.succeed(machine.binding)


def base_does_not_skip_what_changed(patch: pytest.MonkeyPatch) -> None:
    affected = machine_state.MachineState.affected

    def keeps(machine: MachineState, pattern: object, contexts: object) -> tuple[list[object], frozenset[object]]:
        return affected(machine, pattern, contexts)[0], frozenset()  # type: ignore[arg-type,return-value]

    patch.setattr(machine_state.MachineState, "affected", keeps)


def outputs_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    def frame_return(machine: MachineState, k: Frame, binding: Binding) -> Binding:
        machine.k = k[4]
        found = {target: binding[source] for source, target in k[1] if isinstance(target, str) and source in binding}
        return {**found, **k[2]}

    replace_step(patch, "FRAME_STEPS", K_RETURN, frame_return)


def union_is_or(patch: pytest.MonkeyPatch) -> None:
    replace_step(patch, "EVALUATE_STEPS", Op.UNION, EVALUATE_STEPS[Op.OR])


def on_reads_the_top_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        machine_state.MachineState, "scope", lambda machine, contexts: None if contexts[0] is None else contexts[:1]
    )


MUTANTS: list[Mutate] = [
    take_yields_what_is_gone,
    or_does_not_cut,
    first_runs_on,
    late_view,
    transaction_leaks_undone_effects,
    sandbox_leaks,
    sandbox_forgets_between_solutions,
    no_runs_on,
    last_is_the_first,
    repeat_goes_one_too_far,
    adding_what_is_present_succeeds,
    base_does_not_skip_what_changed,
    outputs_are_not_compared,
    union_is_or,
    on_reads_the_top_alone,
]


@pytest.mark.full
@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda one: one.__name__)
def test_the_comparison_catches_a_mutant(mutate: Mutate, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    for number in range(1600):
        try:
            if differs(number):
                return
        except (AssertionError, KeyError, TypeError, IndexError):
            return
    raise AssertionError("the mutant survived")
