"""RDFTL is computationally complete: while programs run as rules ([L] Appendix B)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.rdftl_oracle import Limits, RulesDoNotEnd, exec_sched
from tests.support.while_programs import (
    DOCUMENT,
    VARIABLES,
    Add,
    Compiler,
    Program,
    Sequence,
    TooLong,
    While,
    interpret,
    numbers,
    programs,
    start,
    variables,
)

FUEL = 60
ROUNDS = 1_500
"""About one program in five is too long."""


@pytest.mark.full
def test_compiled_programs_compute_what_the_interpreter_does() -> None:
    compared: Counter[str] = Counter()

    @given(programs(), st.tuples(*[st.integers(0, 3)] * len(VARIABLES)))
    @settings(max_examples=ROUNDS, phases=(Phase.generate, Phase.shrink), suppress_health_check=[*HealthCheck])
    def compare(program: Program, begin: tuple[int, ...]) -> None:
        values = dict(zip(VARIABLES, begin, strict=True))
        state = numbers(values)
        rules = Compiler().compile(program)
        try:
            interpret(program, values, FUEL)
        except TooLong:
            compared["too long"] += 1
            return
        compared["while" if "While" in repr(program) else "other"] += 1
        outcome = exec_sched([start()], rules, state)
        assert variables(outcome.documents[DOCUMENT]) == values
        assert outcome.documents.keys() == {DOCUMENT}, "all flags are deleted"

    compare()
    assert compared["while"] > 100 and compared["while"] + compared["other"] >= 1_000, compared


def add_twice() -> Program:
    """`while x > 0 do (x := x - 1; y := y + 1); z := z + 1`."""
    loop = While("x", Sequence((Add("x", -1), Add("y", 1))))
    return Sequence((loop, Add("z", 1)))


def test_the_encoding_of_sequences_in_the_paper_repeats_what_follows_a_while() -> None:
    """Every round of the loop inserts the flag of `while` again. In the paper it is also the flag of the sequence, so
    that the statement after the loop runs once per round. With a flag of its own, it runs once."""
    values = {"x": 2, "y": 0, "z": 0}
    right = exec_sched([start()], Compiler().compile(add_twice()), numbers(values))
    wrong = exec_sched([start()], Compiler(paper=True).compile(add_twice()), numbers(values))
    assert variables(right.documents[DOCUMENT]) == {"x": 0, "y": 2, "z": 1}
    assert variables(wrong.documents[DOCUMENT]) == {"x": 0, "y": 2, "z": 3}


def test_the_encoding_of_sequences_in_the_paper_is_right_without_while() -> None:
    program = Sequence((Add("x", 1), Add("y", 1), Add("z", -1)))
    outcome = exec_sched([start()], Compiler(paper=True).compile(program), numbers({"x": 0, "y": 1, "z": 2}))
    assert variables(outcome.documents[DOCUMENT]) == {"x": 1, "y": 2, "z": 1}


def test_a_loop_without_end_is_refused() -> None:
    with pytest.raises(RulesDoNotEnd):
        exec_sched(
            [start()], Compiler().compile(While("x", Add("y", -1))), numbers({"x": 1, "y": 0, "z": 0}), Limits(200)
        )
