"""A machine that notes what it does, step by step, for people who want to follow a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mdv.model import Term
from mdv.real.compile_code import Code, CodeItem, CodeNode, CodeTriple, Op
from mdv.real.events import MachineSettings
from mdv.real.machine import Machine
from mdv.real.machine_state import Binding
from mdv.rules.ast import Span

OPERATIONS = {
    Op.READ: "read",
    Op.TAKE: "take",
    Op.ADD: "add",
    Op.ENSURE: "ensure",
    Op.INFER: "infer",
    Op.FRESH: "new name",
    Op.SPAWN: "start",
    Op.STOP: "stop",
    Op.CALL: "call",
}
"""The steps that are noted."""


class TracedStep(NamedTuple):
    """A step. `parts`: property, subject and object of a triple, or the name of an action with its inputs; a text is a
    variable without a value. `found`: it had a solution. `binding`: what the solution bound.

    `place`: "[ ]" or "{ }" if its changes are in one, else the document that it changes. `span`: in the program itself.
    """

    number: int
    operation: str
    parts: tuple[CodeItem, ...]
    is_found: bool
    binding: Mapping[str, Term]
    place: str
    span: Span | None


class TracedMachine(Machine):
    """A machine that notes up to `most` steps. `trace` has those since the host cleared it."""

    def __init__(
        self, code: Code, settings: MachineSettings, binding: Mapping[str, Term] | None = None, most: int = 0
    ) -> None:
        super().__init__(code, settings, binding)
        self.trace: list[TracedStep] = []
        self.traced, self.most = 0, most

    def succeed(self, binding: Binding) -> None:
        self._note(binding)
        super().succeed(binding)

    def fail(self) -> None:
        self._note(None)
        super().fail()

    def _note(self, binding: Binding | None) -> None:
        node = self.node
        if node is None or node.op not in OPERATIONS or self.traced >= self.most:
            return
        self.traced += 1
        new = {} if binding is None else {n: t for n, t in binding.items() if n not in self.binding and n[0] != "#"}
        span = node.span if node.code is self.code else None
        self.trace.append(
            TracedStep(
                self.traced, OPERATIONS[node.op], self._parts(node), binding is not None, new, self._place(node), span
            )
        )

    def _parts(self, node: CodeNode) -> tuple[CodeItem, ...]:
        triple: CodeTriple | None = node.triple
        items: tuple[CodeItem | None, ...]
        items = (node.item, *node.inputs) if triple is None else (triple.property, triple.subject, triple.object)
        return tuple(item if (term := self.value(item)) is None else term for item in items if item is not None)

    def _place(self, node: CodeNode) -> str:
        if node.op not in (Op.TAKE, Op.ADD, Op.ENSURE):
            return ""
        overlay = self.overlays[self.tx]
        if overlay.number:
            return "{ }" if overlay.is_sandbox else "[ ]"
        return self.top if node.op != Op.TAKE or self.contexts[0] is not None else ""
