"""While programs: a mini language, its interpreter, and its compiler to RDFTL rules ([L] Appendix B).

Numbers are resources with a successor, variables have a value, and each statement of a program has a flag. Inserting a
flag runs its statement. The rule of a statement deletes the flag when it has run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from hypothesis import strategies as st

from mdv.model import Statement
from mdv.rdftl.model import Action, Always, Condition, EcaRule, Negation
from tests.support.rdftl_oracle import State
from tests.support.rdftl_rules import (
    do_arcs,
    do_node,
    equal,
    on_node,
    path,
    resource,
    schema_of_turtle,
    source,
    target,
    text,
    triple,
    turtle,
)

VARIABLES = ("x", "y", "z")
GREATEST = 12
"""The greatest number. Programs that need a greater one are not compared."""
SCHEMA_TEXT = """
:Number a rdfs:Class . :Counter a rdfs:Class . :Variable a rdfs:Class .
:succ rdfs:range :Number . :value rdfs:range :Number .
"""
SCHEMA = schema_of_turtle(SCHEMA_TEXT)
DOCUMENT = "http://d/numbers"


@dataclass(frozen=True)
class Zero:
    """`x := 0`."""

    variable: str


@dataclass(frozen=True)
class Add:
    """`x := x + 1`, or `x := x - 1`, which leaves 0 as it is."""

    variable: str
    number: int


@dataclass(frozen=True)
class Assign:
    """`x := y`."""

    variable: str
    other: str


@dataclass(frozen=True)
class IfZero:
    """`if x = 0 then … else …`."""

    variable: str
    then: Program
    otherwise: Program


@dataclass(frozen=True)
class While:
    """`while x > 0 do …`."""

    variable: str
    body: Program


@dataclass(frozen=True)
class Sequence:
    """`s1; s2; …`."""

    parts: tuple[Program, ...]


Program: TypeAlias = Zero | Add | Assign | IfZero | While | Sequence


class TooLong(Exception):
    """The program needs too many steps or too great a number."""


def interpret(program: Program, values: dict[str, int], fuel: int) -> int:
    """Run a program on `values`, and return how many of `fuel` statements are left. Raise `TooLong` if none is."""
    if fuel == 0:
        raise TooLong
    fuel -= 1
    match program:
        case Zero(variable):
            values[variable] = 0
        case Add(variable, number):
            values[variable] = max(values[variable] + number, 0)
            if values[variable] > GREATEST:
                raise TooLong
        case Assign(variable, other):
            values[variable] = values[other]
        case IfZero(variable, then, otherwise):
            return interpret(otherwise if values[variable] else then, values, fuel)
        case While(variable, body):
            while values[variable] > 0:
                fuel = interpret(body, values, fuel)
        case Sequence(parts):
            for part in parts:
                fuel = interpret(part, values, fuel)
    return fuel


def numbers(values: dict[str, int]) -> State:
    """Return the state before a program runs."""
    said = "".join(f":n{n} a :Number ; :succ :n{n + 1} ." for n in range(GREATEST)) + f":n{GREATEST} a :Number ."
    said += "".join(f":{name} a :Variable ; :value :n{number} ." for name, number in values.items())
    return State({DOCUMENT: turtle(said)}, SCHEMA)


def variables(statements: Iterable[Statement]) -> dict[str, int]:
    """Return the values of the variables."""
    found = {one.subject: one.object.value for one in statements if one.property.endswith("/value")}
    return {subject[-1]: int(number.rpartition("/n")[2]) for subject, number in found.items()}


def start(flag: str = "flag_0") -> Action:
    """Return the update that runs a compiled program."""
    return do_node("INSERT", flag, "Counter")


@dataclass
class Compiler:
    """Makes the rules of a program. `paper`: sequences are encoded as in the paper. That is wrong if the first part
    is a `while`: its rule inserts the flag of the sequence again, which runs the rest of the sequence again."""

    paper: bool = False
    rules: list[EcaRule] = field(default_factory=list)
    flags: int = 0

    def compile(self, program: Program) -> dict[int, EcaRule]:
        """Return the rules by number. `start()` runs the program."""
        self.statement(program)
        return dict(enumerate(self.rules, 1))

    def statement(self, program: Program) -> str:
        """Add the rules of a statement, and return its flag."""
        flag = f"flag_{self.flags}"
        self.flags += 1
        match program:
            case Sequence((first, *rest)) if self.paper:
                # The flag of the first part is that of the sequence. The rule of the sequence has a lower priority.
                self.flags -= 1
                own = self.statement(first)
                self.rule(own, *(start(self.statement(part)) for part in rest))
            case Sequence(parts):
                actions = [start(self.statement(part)) for part in parts]
                self.rule(flag, *actions, do_node("DELETE", flag))
            case IfZero(variable, then, otherwise):
                self.rule(flag, start(self.statement(then)), do_node("DELETE", flag), condition=is_zero(variable))
                other = start(self.statement(otherwise))
                self.rule(flag, other, do_node("DELETE", flag), condition=Negation(is_zero(variable)))
            case While(variable, body):
                again = (do_node("DELETE", flag), start(self.statement(body)), start(flag))
                self.rule(flag, *again, condition=Negation(is_zero(variable)))
                self.rule(flag, do_node("DELETE", flag), condition=is_zero(variable))
            case _:
                new = triple(program.variable, "value", None, new_value(program))
                self.rule(flag, do_arcs("UPDATE", new), do_node("DELETE", flag))
        return flag

    def rule(self, flag: str, *actions: Action, condition: Condition | None = None) -> None:
        self.rules.append(EcaRule(on_node("INSERT", flag), condition or Always(), actions))


def is_zero(variable: str) -> Condition:
    return equal(path(variable, target("value")), text("n0"))


def new_value(program: Zero | Add | Assign) -> object:
    match program:
        case Zero():
            return resource("n0")
        case Add(variable, number):
            return path(variable, target("value"), target("succ") if number > 0 else source("succ"))
        case Assign(_, other):
            return path(other, target("value"))


def programs() -> st.SearchStrategy[Program]:
    """Random programs. Loops count down, so that most of them end."""
    names = st.sampled_from(VARIABLES)
    simple = st.one_of(
        names.map(Zero), st.builds(Add, names, st.sampled_from((1, 1, -1))), st.builds(Assign, names, names)
    )

    def larger(inner: st.SearchStrategy[Program]) -> st.SearchStrategy[Program]:
        loop = st.builds(lambda name, body: While(name, Sequence((body, Add(name, -1)))), names, inner)
        parts = st.lists(inner, min_size=2, max_size=3).map(lambda some: Sequence(tuple(some)))
        return st.one_of(parts, parts, loop, st.builds(IfZero, names, inner, inner), st.builds(While, names, inner))

    return st.recursive(simple, larger, max_leaves=8)
