"""Run an action to its end at once: what CALL of an event-condition-action rule does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from mdv.model import Term
from mdv.real.compile_code import compile_program
from mdv.real.events import MachineSettings, ProgramEnded, ProgramFailed, ServiceCalled, SolutionFound, WaitingFor
from mdv.real.machine import Machine
from mdv.real.machine_state import ProgramFault
from mdv.real.store import StatementChange, StoreView
from mdv.real.syntax import CallExpr, Program, RealConstant, RealVariable, TruthExpr, UnionExpr
from mdv.rules.ast import Span
from mdv.rules.text_errors import Mark, flaw_of

MAX_KEPT_SOLUTIONS = 10
"""Solutions that are kept. The others are counted."""

_NOWHERE = Span(0, 0)


class ActionError(Exception):
    """An error of an action, or something that it must not do here."""


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """What an action did. The changes are net changes, and nothing is committed. `first`: its first solutions.
    `digests`: SHA-256 of the bodies that were run."""

    changes: tuple[StatementChange, ...]
    solutions: int
    first: tuple[Mapping[str, Term], ...]
    steps: int
    warnings: tuple[str, ...]
    digests: tuple[str, ...] = ()


def run_action(
    view: StoreView, action: str, calls: Sequence[Sequence[Term]], settings: MachineSettings
) -> ActionOutcome:
    """Call an action once for each list of inputs, in order, and pull all of its solutions. Each call sees the changes
    of those before. Raise `ActionError` if it fails with an error, waits, calls a service, or starts or stops a
    process."""
    outputs = _outputs(view, action, settings)
    every = tuple(_call(action, inputs, outputs) for inputs in calls)
    body = every[0] if len(every) == 1 else UnionExpr(_NOWHERE, every)
    machine = Machine(compile_program(Program(_NOWHERE, (), body), ""), settings)
    first: list[Mapping[str, Term]] = []
    while True:
        match machine.run(view, settings.limits.steps):
            case SolutionFound(binding):
                if len(first) < MAX_KEPT_SOLUTIONS:
                    first.append(binding)
            case ProgramFailed(message, span, text):
                raise ActionError(_placed(message, span, text, action))
            case WaitingFor():
                raise ActionError("it would wait, which is not possible within a transaction")
            case ServiceCalled():
                raise ActionError("it calls a service, which is not possible within a transaction")
            case ProgramEnded():
                break
    root = machine.root
    if root.spawned or root.stopped:
        raise ActionError("it starts or stops a process, which is not possible within a transaction")
    warnings = tuple(dict.fromkeys(message for message, _ in machine.warnings))
    changes = tuple(StatementChange(*change) for change in root.all_changes())
    bodies = sorted({str(key[0]) for key in machine.codes if key})
    digests = tuple(sha256(body.encode()).hexdigest() for body in bodies)
    return ActionOutcome(changes, machine.solutions, tuple(first), machine.steps, warnings, digests)


def _outputs(view: StoreView, action: str, settings: MachineSettings) -> tuple[str, ...]:
    """Return the names of the outputs of an action. All of them are taken, so that they can be shown."""
    machine = Machine(compile_program(Program(_NOWHERE, (), TruthExpr(_NOWHERE, True)), ""), settings)
    machine.view = view
    try:
        return machine.load_action(action).signature.outputs
    except ProgramFault as fault:
        raise ActionError(fault.message) from None


def _call(action: str, inputs: Sequence[Term], outputs: Sequence[str]) -> CallExpr:
    return CallExpr(
        _NOWHERE,
        RealConstant(_NOWHERE, Term.uri(action)),
        tuple(RealConstant(_NOWHERE, term) for term in inputs),
        tuple(RealVariable(_NOWHERE, name) for name in outputs),
    )


def _placed(message: str, span: Span | None, text: str, action: str) -> str:
    """Return the message of an error with its place in the body of the action."""
    if span is None or not text:
        return message
    flaw = flaw_of(text, Mark(span, message))
    return f"{message} (line {flaw.line}, column {flaw.column} of the body of <{action}>)"
