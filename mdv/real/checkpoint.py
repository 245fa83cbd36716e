"""Checkpoints: the whole state of a machine as JSON, at any step. A decoded machine goes on where it was.

Frames, bindings and choices are shared between parts of the state. Frames are written once, in a table. Programs are
not written: the main one is given again, and the bodies of actions are written as texts.
"""

from __future__ import annotations

from typing import Any

from mdv.model import Statement, Term
from mdv.real.compile_code import Code, CodeKey, CodeNode, compile_body
from mdv.real.events import MachineSettings, ProgramLimits
from mdv.real.machine import Machine
from mdv.real.machine_state import (
    C_LAST,
    C_OR,
    C_READ,
    C_REPEAT,
    C_SCOPE,
    C_UNION,
    C_WAIT,
    K_AND,
    K_COMMIT,
    K_CONTEXT,
    K_FIRST,
    K_LAST,
    K_NO,
    K_OR,
    K_REPEAT,
    K_RETURN,
    K_SANDBOX,
    K_WAIT,
    TRUE_NODE,
    Choice,
    Frame,
    Segment,
)
from mdv.real.overlay import Overlay, SpawnedProcess, StopRequest
from mdv.real.store import ReadPattern, ScopedRead
from mdv.rules.ast import Span

VERSION = 1

# The fields of frames and choices: n node, j JSON, k frame, c contexts, b binding, i item pairs, t statement or none,
# T statements, S set of statements, p pattern, s scope. A choice has the fields `bcjk` before its own.
_FRAME_FIELDS = {
    K_AND: "njk",
    K_OR: "jk",
    K_NO: "j",
    K_FIRST: "jk",
    K_LAST: "j",
    K_REPEAT: "j",
    K_WAIT: "jk",
    K_COMMIT: "jjk",
    K_SANDBOX: "jjk",
    K_CONTEXT: "ck",
    K_RETURN: "ibjk",
}
_CHOICE_FIELDS = {C_OR: "njj", C_UNION: "nj", C_LAST: "b", C_REPEAT: "jjj", C_WAIT: "njj", C_SCOPE: "j"}
_READ_FIELDS = "npsjtTjS"
"""Of a read, up to the statements to be skipped. The chunk is read again."""


def write_checkpoint(machine: Machine) -> dict[str, Any]:
    """Return the state of a machine as JSON.

    >>> from mdv.real.compile_code import compile_program
    >>> from mdv.real.resolve import read_program
    >>> write_checkpoint(Machine(compile_program(read_program("TRUE"))))
    {'v': 1, 'count': [0, 0, 0, 0], 'at': [0, 0]}
    """
    writer = _Writer()
    state: dict[str, Any] = {
        "v": VERSION,
        "count": [machine.steps, machine.effects, machine.solutions, machine.counter],
        **writer.control(machine.__dict__, machine.overlays),
    }
    if machine.segment is not None:
        state["segment"] = {
            "number": machine.segment.number,
            **writer.control(machine.segment.state, machine.segment.state["overlays"]),
            "reads": [[writer.read(one), position] for one, position in machine.segment.reads.items()],
        }
    deadlines = [[writer.place(*place), seconds] for place, seconds in machine.deadlines.items()]
    blocked = None if machine.blocked is None else [writer.read(one) for one in machine.blocked]
    optional = {
        "deadlines": deadlines,
        "blocked": blocked,
        "reads": [[writer.read(one), position] for one, position in machine.reads.items()],
        "warnings": [[text, span.start, span.end] for text, span in machine.warnings],
        "log": [write_term(term) for term in machine.log],
        "frames": writer.frames,
        "codes": writer.codes,
    }
    return state | {name: value for name, value in optional.items() if value}


def read_checkpoint(state: dict[str, Any], code: Code, settings: MachineSettings | None = None) -> Machine:
    """Return the machine of a checkpoint. `code` and `settings` are those that the machine began with."""
    if state["v"] != VERSION:
        raise ValueError(f"this checkpoint has the version {state['v']}, not {VERSION}")
    machine = Machine(code, settings)
    machine.steps, machine.effects, machine.solutions, machine.counter = state["count"]
    reader = _Reader(machine, state.get("codes", ()))
    reader.read_frames(state.get("frames", ()))
    reader.control(state, machine.__dict__)
    root = machine.overlays.setdefault(0, Overlay())
    assert root.number == 0
    if "segment" in state:
        given = state["segment"]
        saved: dict[str, Any] = {}
        reader.control(given, saved)
        reads = {reader.read(one): position for one, position in given["reads"]}
        machine.segment = Segment(given["number"], saved, reads)
    machine.deadlines = {reader.place(place): seconds for place, seconds in state.get("deadlines", ())}
    blocked = state.get("blocked")
    machine.blocked = None if blocked is None else tuple(map(reader.read, blocked))
    machine.reads = {reader.read(one): position for one, position in state.get("reads", ())}
    machine.warnings = [(text, Span(start, end)) for text, start, end in state.get("warnings", ())]
    machine.log = [read_term(term) for term in state.get("log", ())]
    return machine


def write_settings(settings: MachineSettings) -> dict[str, Any]:
    """Return the settings of a process as JSON, for `read_settings`."""
    limits = settings.limits
    return {
        "process": settings.process,
        "into": settings.into,
        "seed": settings.seed,
        "is_read_only": settings.is_read_only,
        "limits": [limits.steps, limits.effects, limits.solutions, limits.depth, limits.choices],
        "actions": None if settings.actions is None else list(settings.actions),
    }


def read_settings(given: dict[str, Any]) -> MachineSettings:
    """Return the settings of a process from JSON."""
    actions = given.get("actions")
    changed = {"limits": ProgramLimits(*given["limits"]), "actions": None if actions is None else tuple(actions)}
    return MachineSettings(**{**given, **changed})


# --- terms ---


def write_term(term: Term) -> Any:
    """Return a term as JSON: `<iri`, `"text`, or a list of value, language and datatype.

    >>> write_term(Term.uri("urn:a")), write_term(Term.literal("b")), write_term(Term.literal("c", "en"))
    ('<urn:a', '"b', ['c', 'en', None])
    """
    if term.type == "uri":
        return "<" + term.value
    return '"' + term.value if term.lang is None and term.datatype is None else [term.value, term.lang, term.datatype]


def read_term(given: Any) -> Term:
    """Return a term from JSON."""
    if isinstance(given, str):
        return Term.uri(given[1:]) if given[0] == "<" else Term.literal(given[1:])
    return Term.literal(*given)


def _write_statement(statement: Statement) -> list[Any]:
    return [statement.subject, statement.property, write_term(statement.object)]


def _read_statement(given: list[Any]) -> Statement:
    return Statement(given[0], given[1], read_term(given[2]))


# --- writing ---


class _Writer:
    def __init__(self) -> None:
        self.frames: list[list[Any]] = []
        self.codes: list[list[Any]] = []
        self._frame_numbers: dict[int, int] = {}
        self._code_numbers: dict[CodeKey, int] = {(): 0}

    def control(self, state: dict[str, Any], overlays: dict[int, Overlay]) -> dict[str, Any]:
        """Return the registers, the choices and the overlays."""
        binding, contexts = state["binding"], state["contexts"]
        optional = {
            "at": self.node(state["node"]),
            "binding": self.binding(binding),
            "contexts": list(contexts) if contexts != (None,) else None,
            "tx": state["tx"],
            "k": self.frame(state["k"]),
            "stack": [self.choice(one) for one in state["stack"]],
            "overlays": [found for one in overlays.values() if (found := self.overlay(one)) is not None],
        }
        return {
            name: value
            for name, value in optional.items()
            if value not in (None, [], {}) and (name, value) != ("tx", 0)
        }

    def field(self, kind: str, value: Any) -> Any:
        match kind:
            case "n":
                return self.node(value)
            case "k":
                return self.frame(value)
            case "c" | "s":
                return None if value is None else list(value)
            case "b":
                return None if value is None else self.binding(value)
            case "i":
                return [[self.item(one) for one in pair] for pair in value]
            case "t":
                return None if value is None else _write_statement(value)
            case "T":
                return [_write_statement(one) for one in value]
            case "S":
                return [_write_statement(one) for one in sorted(value)]
            case "p":
                return self.read(ScopedRead(value))[:4]
        return value

    def node(self, node: CodeNode | None) -> list[int] | None:
        return None if node is None else self.place(node.code.key, node.number)

    def place(self, key: CodeKey, number: int) -> list[int]:
        found = self._code_numbers.get(key)
        if found is None:
            found = self._code_numbers[key] = len(self._code_numbers)
            text, prefixes, arguments = key
            written = [[name, self.item(value)] for name, value in arguments]  # type: ignore[attr-defined]
            self.codes.append([text, [list(pair) for pair in prefixes], written])  # type: ignore[attr-defined]
        return [found, number]

    def frame(self, frame: Frame | None) -> int | None:
        """Return the number of a frame. Those after it get lower ones; a chain can be long, so this is a loop."""
        chain = []
        while frame is not None and id(frame) not in self._frame_numbers:
            chain.append(frame)
            frame = frame[-1] if _FRAME_FIELDS[frame[0]].endswith("k") else None
        for one in reversed(chain):
            fields = _FRAME_FIELDS[one[0]]
            written = [one[0], *(self.field(kind, value) for kind, value in zip(fields, one[1:], strict=True))]
            self._frame_numbers[id(one)] = len(self.frames)
            self.frames.append(written)
        if chain:
            return self._frame_numbers[id(chain[0])]
        return None if frame is None else self._frame_numbers[id(frame)]

    def choice(self, choice: Choice) -> list[Any]:
        kind = choice[0]
        fields = "bcjk" + (_READ_FIELDS if kind == C_READ else _CHOICE_FIELDS.get(kind, ""))
        written = [kind, *(self.field(one, value) for one, value in zip(fields, choice[1:], strict=False))]
        if kind == C_READ:
            written.append(choice[15] and choice[14] >= len(choice[13]))  # nothing is left in the base
        return written

    def binding(self, binding: dict[str, Term]) -> dict[str, Any]:
        return {name: write_term(term) for name, term in binding.items()}

    def item(self, item: Any) -> Any:
        return write_term(item) if isinstance(item, Term) else "?" + item

    def read(self, read: ScopedRead) -> list[Any]:
        (subject, name, value, is_typed), scope = read
        written = None if value is None else write_term(value)
        return [subject, name, written, is_typed, None if scope is None else list(scope)]

    def overlay(self, overlay: Overlay) -> list[Any] | None:
        changes = [[document, _write_statement(one), is_added] for document, one, is_added in overlay.all_changes()]
        spawned = [[one.process, one.action, [write_term(term) for term in one.inputs]] for one in overlay.spawned]
        stopped = [[process, None if m is None else write_term(m)] for process, m in overlay.stopped]
        rest = [changes, spawned, stopped]
        if overlay.number == 0 and not any(rest):
            return None
        return [list(overlay.chain), overlay.is_sandbox, overlay.in_sandbox, overlay.outermost, *rest]


# --- reading ---


class _Reader:
    def __init__(self, machine: Machine, codes: Any) -> None:
        self.codes = [machine.code]
        for text, prefixes, arguments in codes:
            key: CodeKey = (
                text,
                tuple((name, iri) for name, iri in prefixes),
                tuple((name, self.item(value)) for name, value in arguments),
            )
            machine.codes[key] = compile_body(key)
            self.codes.append(machine.codes[key])
        self.frames: list[Frame] = []

    def read_frames(self, frames: Any) -> None:
        for kind, *values in frames:
            fields = _FRAME_FIELDS[kind]
            self.frames.append((kind, *(self.field(one, value) for one, value in zip(fields, values, strict=True))))

    def control(self, state: dict[str, Any], into: dict[str, Any]) -> None:
        into["node"] = self.field("n", state.get("at"))
        into["binding"] = self.field("b", state.get("binding", {}))
        into["contexts"] = tuple(state.get("contexts", (None,)))
        into["tx"] = state.get("tx", 0)
        into["k"] = self.field("k", state.get("k"))
        into["stack"] = [self.choice(one) for one in state.get("stack", ())]
        overlays = [self.overlay(one) for one in state.get("overlays", ())]
        into["overlays"] = {one.number: one for one in overlays}

    def field(self, kind: str, value: Any) -> Any:
        match kind:
            case "n":
                return None if value is None else self.node(value)
            case "k":
                return None if value is None else self.frames[value]
            case "c" | "s":
                return None if value is None else tuple(value)
            case "b":
                return None if value is None else {name: read_term(term) for name, term in value.items()}
            case "i":
                return tuple((self.item(source), self.item(target)) for source, target in value)
            case "t":
                return None if value is None else _read_statement(value)
            case "T":
                return [_read_statement(one) for one in value]
            case "S":
                return frozenset(map(_read_statement, value))
            case "p":
                return self.read([*value, None]).pattern
        return value

    def node(self, place: list[int]) -> CodeNode:
        code, number = place
        return TRUE_NODE if number < 0 else self.codes[code].nodes[number]

    def place(self, place: list[int]) -> tuple[CodeKey, int]:
        return self.codes[place[0]].key, place[1]

    def choice(self, given: list[Any]) -> Choice:
        kind = given[0]
        fields = "bcjk" + (_READ_FIELDS if kind == C_READ else _CHOICE_FIELDS.get(kind, ""))
        choice = [kind, *(self.field(one, value) for one, value in zip(fields, given[1:], strict=False))]
        if kind == C_READ:
            choice += [(), 0, given[-1], 100]
        return choice

    def item(self, given: Any) -> Any:
        return given[1:] if isinstance(given, str) and given[0] == "?" else read_term(given)

    def read(self, given: list[Any]) -> ScopedRead:
        subject, name, value, is_typed, scope = given
        pattern = ReadPattern(subject, name, None if value is None else read_term(value), is_typed)
        return ScopedRead(pattern, None if scope is None else tuple(scope))

    def overlay(self, given: list[Any]) -> Overlay:
        chain, is_sandbox, in_sandbox, outermost, changes, spawned, stopped = given
        overlay = Overlay(chain[-1], None, is_sandbox)
        overlay.chain, overlay.in_sandbox, overlay.outermost = tuple(chain), in_sandbox, outermost
        for document, statement, is_added in changes:
            overlay.apply(document, _read_statement(statement), is_added)
        overlay.spawned = [SpawnedProcess(p, action, tuple(map(read_term, inputs))) for p, action, inputs in spawned]
        overlay.stopped = [StopRequest(p, None if m is None else read_term(m)) for p, m in stopped]
        return overlay
