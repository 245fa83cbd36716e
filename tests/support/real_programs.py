"""Random ReAL programs over a small universe, and how they run on the machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random

from mdv.model import Statement, Term
from mdv.real.checkpoint import read_checkpoint, write_checkpoint
from mdv.real.compile_code import compile_program
from mdv.real.events import ProgramEnded, ProgramFailed, SolutionFound, StepsUsed
from mdv.real.machine import Machine
from mdv.real.memory import MemoryStore
from mdv.real.resolve import read_program
from mdv.real.store import StatementChange
from mdv.real.syntax import Program
from mdv.real.vocabulary import INPUT_SIGNATURE, LRM_BODY, OUTPUT_SIGNATURE, REAL_CODE

NAMESPACE = "urn:t:"
PREFIXES = {"": NAMESPACE}
NAMES, PROPERTIES, VARIABLES = "abc", "pq", "xyz"
DOCUMENTS = ("urn:t:d", "urn:t:e")
ACTIONS_DOCUMENT = "urn:t:actions"

Content = set[tuple[str, Statement]]

ACTION_TEXTS = {
    "swap": (("x", "y"), ("u", "v"), ":p(?x, ?u) AND :q(?v, ?y)"),
    "move": (("x",), ("z",), "-:p(?x, ?z) AND +:q(?x, ?z)"),
    "walk": (("x",), ("y",), "FIRST :p(?x, ?z) AND (:q(?z, ?y) OR -:p(?x, ?z) AND CALL :walk(?z >> ?y))"),
    "drain": ((), (), "FIRST -:q(?x, ?y) AND CALL :drain() OR TRUE"),
}
"""Actions that random programs call: inputs, outputs and body. The last two call themselves at their end."""

DIRECTED = (
    "-:p(?x, ?y) AND -:p(?z, ?y)",
    "-:p(?x, ?y) AND (REPEAT -:p(?z, ?y) OR TRUE)",
    ":p(?x, ?y) AND -:p(?z, ?u)",
    ":p(?x, ?y) AND +:p(?y, ?x)",
    ":p(?x, ?y) AND ++:p(:c, :c)",
    "-:p(?x, ?y) AND ++:p(:c, :c)",
    "-:p(?x, ?y) AND +:p(?x, ?y)",
    "-:p(?x, ?y) AND ++:p(:a, :b)",
    "(:p(?x, ?y) OR TRUE) AND :q(?x, ?y)",
    "FIRST (-:p(?x, ?y) UNION -:q(?x, ?y))",
    "FIRST -:p(?x, ?y) AND LAST :p(?z, ?u)",
    "[-:p(?x, ?y) AND :q(?x, ?z)] AND :p(?u, ?y)",
    "[+:q(:a, :a) AND FALSE] OR :q(?x, ?x)",
    "[+:q(:a, :a) AND (TRUE UNION +:q(:b, :b) AND FALSE)] AND :q(?x, ?y)",
    "[(TRUE UNION +:q(:a, :a)) AND (TRUE UNION -:p(?x, ?y) AND FALSE)]",
    "[[-:p(?x, ?y)] AND FALSE] UNION :p(?x, ?y)",
    "{-:p(?x, ?y)} AND :p(?x, ?y)",
    "{+:q(:a, ?) OR TRUE} AND TRUE",
    "{-:p(?x, ?y) AND (TRUE UNION :p(?z, ?u))} AND +:q(?x, ?y)",
    "{(TRUE UNION :q(?x, ?y)) AND (+:q(:a, :a) OR TRUE)} AND ++:q(:b, :b)",
    "{TRUE UNION :q(?x, ?y)} AND ++:q(:a, :b)",
    "NO -:p(?x, ?y) OR :p(?x, ?y)",
    "NO NO -:p(?x, ?y) AND :p(?x, ?y)",
    "REPEAT ?n -:p(?x, ?y) AND REPEAT ?m :p(?x, ?y)",
    "REPEAT 2 -:p(?x, ?y) OR :p(?x, ?y)",
    "REPEAT 2 -:p(?x, ?y) AND :p(?x, ?y)",
    "REPEAT 0 -:p(?x, ?y) AND :p(?x, ?y)",
    "LAST -:p(?x, ?y) AND (:p(?z, ?u) OR TRUE)",
    "+:p(?x, :a)",
    "-:p(?x, ?y) UNION +:q(?x, ?z)",
    "(-:p(?x, ?y) UNION +:p(:a, :b)) AND :p(?z, ?u)",
    "{[-:p(?x, ?y)] AND NO :p(?x, ?y)} AND :p(?x, ?y)",
    "[{-:p(?x, ?y)} AND -:p(?x, ?y)]",
    ":p(?x, ?y) AND CALL :move(?x >> ?z)",
    ":p(?x, ?y) AND CALL :walk(?x >> ?z)",
    "CALL :drain() AND :p(?x, ?y)",
    "[FIRST :p(?x, ?y) AND CALL :walk(?x >> :c)] OR CALL :move(:a >> ?z)",
)
"""Shapes that random programs seldom have."""


def iri(name: str) -> Term:
    return Term.uri(NAMESPACE + name)


def random_content(random: Random) -> Content:
    """Return up to eight statements of two documents."""
    return {
        (
            random.choice(DOCUMENTS),
            Statement(
                NAMESPACE + random.choice(NAMES), NAMESPACE + random.choice(PROPERTIES), iri(random.choice(NAMES))
            ),
        )
        for _ in range(random.randint(0, 8))
    }


class RandomText:
    """Makes the text of a program. It mostly adds triples whose variables are bound."""

    def __init__(self, random: Random, with_contexts: bool = False) -> None:
        self.random, self.with_contexts = random, with_contexts

    def program(self) -> str:
        return self.expression(self.random.randint(1, 4), set())

    def item(self, bound: set[str], is_read: bool) -> str:
        random = self.random
        if is_read and random.random() < 0.6:
            name = random.choice(VARIABLES)
            bound.add(name)
            return f"?{name}"
        if bound and random.random() < 0.6:
            return f"?{random.choice(sorted(bound))}"
        if is_read and random.random() < 0.1:
            return "?"
        return f"?{random.choice(VARIABLES)}" if random.random() < 0.02 else f":{random.choice(NAMES)}"

    def triple(self, bound: set[str], is_read: bool) -> str:
        found: set[str] = set(bound)
        text = f":{self.random.choice(PROPERTIES)}({self.item(found, is_read)}, {self.item(found, is_read)})"
        bound |= found
        return text

    def expression(self, depth: int, bound: set[str]) -> str:
        """Return an expression, and add the variables that it may bind to `bound`."""
        random = self.random
        if depth == 0:
            kind = random.choice("rrrrttaaeTF")
            if kind in "TF":
                return "TRUE" if kind == "T" else "FALSE"
            return {"r": "", "t": "-", "a": "+", "e": "++"}[kind] + self.triple(bound, kind in "rt")
        kind = random.choice(
            ["AND"] * 5 + ["UNION", "OR", "FIRST", "[]", "{}"] * 2
            + ["NO", "LAST", "REPEAT", "REPEAT n", "REPEAT ?", "CALL"] + ["ON", "IN"] * self.with_contexts
        )  # fmt: skip
        if kind in ("AND", "UNION", "OR"):
            parts = [self.expression(random.randint(0, depth - 1), bound) for _ in range(random.randint(2, 3))]
            return "(" + f" {kind} ".join(parts) + ")"
        if kind == "CALL":
            return self.call(bound)
        if kind in ("NO", "REPEAT", "REPEAT n", "REPEAT ?"):
            inner = self.expression(depth - 1, set(bound))
            if kind == "REPEAT n":
                return f"REPEAT {random.randint(0, 3)} ({inner})"
            return f"REPEAT ?n{random.randint(0, 99)} ({inner})" if kind == "REPEAT ?" else f"{kind} ({inner})"
        inner = self.expression(depth - 1, bound)
        if kind in ("ON", "IN"):
            return f"{kind} <{random.choice((*DOCUMENTS, 'urn:t:none'))}> {{{inner}}}"
        return {"[]": f"[{inner}]", "{}": f"{{{inner}}}"}.get(kind, f"{kind} ({inner})")

    def call(self, bound: set[str]) -> str:
        name = self.random.choice(sorted(ACTION_TEXTS))
        inputs, outputs, _ = ACTION_TEXTS[name]
        given = ", ".join(self.item(bound, False) for _ in inputs)
        taken = ", ".join(self.item(bound, True) for _ in outputs)
        return f"CALL :{name}({given}{' >> ' if taken else ''}{taken})"


def random_expressions(random: Random, number: int) -> list[str]:
    """Return expressions without actions."""
    found: list[str] = []
    while len(found) < number:
        text = RandomText(random, with_contexts=True).expression(random.randint(0, 2), set())
        if "CALL" not in text and "?n" not in text:
            found.append(f"({text})")
    return found


LAWS = [
    ("({a} AND {b}) AND {c}", "{a} AND ({b} AND {c})"),
    ("({a} OR {b}) OR {c}", "{a} OR ({b} OR {c})"),
    ("({a} UNION {b}) UNION {c}", "{a} UNION ({b} UNION {c})"),
    ("TRUE AND {a}", "{a}"),
    ("{a} AND TRUE", "{a}"),
    ("FALSE OR {a}", "{a}"),
    ("{a} OR FALSE", "{a}"),
    ("FALSE UNION {a}", "{a}"),
    ("{a} UNION FALSE", "{a}"),
    ("FIRST FIRST {a}", "FIRST {a}"),
    ("LAST LAST {a}", "LAST {a}"),
    ("[[{a}]]", "[{a}]"),
    ("NO NO {a}", "NO (NO {a})"),
    ("REPEAT {a} OR FALSE", "REPEAT {a}"),
    ("FIRST ({a} UNION {b})", "FIRST {a} OR FIRST {b}"),
]


def action_content(actions: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], str]] = ACTION_TEXTS) -> Content:
    """Return the statements that declare actions."""
    found = set()
    for name, (inputs, outputs, text) in actions.items():
        action, body = NAMESPACE + name, NAMESPACE + name + "-body"
        for statement in (
            Statement(action, LRM_BODY, Term.uri(body)),
            Statement(body, REAL_CODE, Term.literal(text)),
            *([Statement(action, INPUT_SIGNATURE, Term.literal(", ".join(inputs)))] if inputs else []),
            *([Statement(action, OUTPUT_SIGNATURE, Term.literal(", ".join(outputs)))] if outputs else []),
        ):
            found.add((ACTIONS_DOCUMENT, statement))
    return found


def action_programs() -> dict[str, tuple[tuple[str, ...], tuple[str, ...], Program]]:
    return {
        NAMESPACE + name: (inputs, outputs, read_program(text, PREFIXES))
        for name, (inputs, outputs, text) in ACTION_TEXTS.items()
    }


def memory_store(content: Content, actions: Content | None = None) -> MemoryStore:
    store = MemoryStore(sorted(content | (action_content() if actions is None else actions)))
    store.document_prefixes[ACTIONS_DOCUMENT] = PREFIXES
    return store


Outcome = tuple[list[tuple[tuple[str, Term], ...]], Content, bool]


class TooLong(Exception):
    """The program took too many steps for a comparison."""


def run_machine(
    text: str,
    content: Content,
    *,
    most: int = 200,
    chunk: int = 100_000,
    at_chunk: Callable[[Machine, MemoryStore], Machine] = lambda machine, store: machine,
) -> Outcome:
    """Return the solutions in order, the content of the store afterwards, and whether an error ended the program.

    `at_chunk`: called after every `chunk` steps, for example to write and read a checkpoint.
    """
    store = memory_store(content)
    machine = Machine(compile_program(read_program(text, PREFIXES), text))
    solutions: list[tuple[tuple[str, Term], ...]] = []
    is_error = False
    while len(solutions) < most:
        event = machine.run(store.view(), chunk)
        match event:
            case SolutionFound(binding):
                solutions.append(tuple(sorted(binding.items())))
            case StepsUsed():
                if machine.steps > 300_000:
                    raise TooLong(text)
                machine = at_chunk(machine, store)
            case ProgramEnded():
                break
            case ProgramFailed():
                is_error = True
                break
            case _:
                raise AssertionError(event)
    store.commit(StatementChange(*change) for change in machine.root.all_changes())
    return solutions, {pair for pair in store.content() if pair[0] != ACTIONS_DOCUMENT}, is_error


def through_json(machine: Machine, store: MemoryStore) -> Machine:
    """Return a machine that was written as JSON and read again."""
    state = json.loads(json.dumps(write_checkpoint(machine)))
    return read_checkpoint(state, machine.code, machine.settings)
