"""Run many programs in one process of SWI-Prolog, with the meaning that `real_prolog.pl` gives them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path

from mdv.model import Statement, Term
from mdv.real.resolve import read_program
from mdv.real.syntax import (
    AddExpr,
    AndExpr,
    CallExpr,
    EnsureExpr,
    Expression,
    FirstExpr,
    LastExpr,
    ListEntry,
    NoExpr,
    OrExpr,
    ReadExpr,
    RealConstant,
    RealVariable,
    RepeatExpr,
    SandboxExpr,
    TakeExpr,
    TransactionExpr,
    TriplePattern,
    TruthExpr,
    UnionExpr,
)
from mdv.real.terms import XSD_INTEGER
from tests.support.real_programs import ACTION_TEXTS, NAMESPACE, PREFIXES, Content, Outcome
from tests.support.real_reference import INTO

SCRIPT = Path(__file__).with_name("real_prolog.pl")


def prolog_term(e: Expression) -> str:
    """Return an expression as a term of Prolog."""

    def join(name: str, parts: Sequence[Expression]) -> str:
        return reduce(lambda right, left: f"{name}({left},{right})", map(prolog_term, reversed(parts)))

    match e:
        case TruthExpr(_, value):
            return "true" if value else "no(true)"
        case AndExpr(_, parts):
            return join("and", parts)
        case OrExpr(_, parts):
            return join("or", parts)
        case UnionExpr(_, parts):
            return join("union", parts)
        case NoExpr(_, part):
            return f"no({prolog_term(part)})"
        case FirstExpr(_, part):
            return f"first({prolog_term(part)})"
        case LastExpr(_, part):
            return f"last({prolog_term(part)})"
        case RepeatExpr(_, part, None):
            return f"repeat({prolog_term(part)})"
        case RepeatExpr(_, part, RealConstant(_, term)):
            return f"repeat({term.value},{prolog_term(part)})"
        case RepeatExpr(_, part, RealVariable(_, name)):
            return f"repeat_count({name},{prolog_term(part)})"
        case TransactionExpr(_, part):
            return f"transaction({prolog_term(part)})"
        case SandboxExpr(_, part):
            return f"sandbox({prolog_term(part)})"
        case ReadExpr(_, triple):
            return f"read({_triple(triple)})"
        case TakeExpr(_, triple):
            return f"take({_triple(triple)})"
        case AddExpr(_, triple):
            return f"add({_triple(triple)})"
        case EnsureExpr(_, triple):
            return f"ensure({_triple(triple)})"
        case CallExpr(_, action, inputs, outputs):
            name = _item(action).removeprefix("c(").removesuffix(")")
            return f"call({name},[{','.join(map(_item, inputs))}],[{','.join(map(_item, outputs))}])"
    raise NotImplementedError(type(e))


def _triple(triple: TriplePattern) -> str:
    return f"t({_item(triple.property)},{_item(triple.subject)},{_item(triple.object)})"


def _item(item: ListEntry) -> str:
    if isinstance(item, RealVariable):
        return f"v({item.name})" if item.name else "v('')"
    assert isinstance(item, RealConstant)
    return f"c({item.term.value.removeprefix(NAMESPACE)})"


def run_prolog(programs: Iterable[tuple[str, Content]]) -> list[Outcome]:
    """Return the outcome of each program, as `run_machine` does."""
    actions = ",".join(
        f"action({name},[{','.join(inputs)}],[{','.join(outputs)}],{prolog_term(read_program(text, PREFIXES).body)})"
        for name, (inputs, outputs, text) in ACTION_TEXTS.items()
    )
    lines = []
    for number, (text, content) in enumerate(programs):
        facts = ",".join(
            f"base({','.join(one.removeprefix(NAMESPACE) for one in (d, s.subject, s.property, s.object.value))})"
            for d, s in content
        )
        lines.append(f"run({number},[{facts}],[{actions}],{prolog_term(read_program(text, PREFIXES).body)}).")
    found = subprocess.run(
        ["swipl", "--stack-limit=512m", str(SCRIPT)],
        input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    outcomes = [_outcome(line) for line in found.stdout.splitlines()]
    assert len(outcomes) == len(lines), found.stderr
    return outcomes


def _outcome(line: str) -> Outcome:
    _, solutions, content, end = line.split("\t")
    return (
        [tuple(sorted(_pair(one) for one in text.split(",") if one)) for text in solutions.split(";")[1:]],
        {_statement(text) for text in content.split(";") if text},
        end == "error",
    )


def _pair(text: str) -> tuple[str, Term]:
    name, value = text.split("=")
    return name, Term.literal(value, datatype=XSD_INTEGER) if value.isdigit() else Term.uri(NAMESPACE + value)


def _statement(text: str) -> tuple[str, Statement]:
    document, subject, name, value = text.split(",")
    document = INTO if document == "into" else NAMESPACE + document
    return document, Statement(NAMESPACE + subject, NAMESPACE + name, Term.uri(NAMESPACE + value))
