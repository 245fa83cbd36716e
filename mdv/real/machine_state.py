"""The state of a machine: registers, transactions, and how it reads and changes the store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mdv.errors import InvalidRule
from mdv.model import Statement, Term
from mdv.rdf.values import ValueKind
from mdv.real.check import Signature
from mdv.real.compile_code import Code, CodeItem, CodeKey, CodeNode, CodeTriple, Op, compile_body
from mdv.real.events import MachineEvent, MachineSettings, SolutionFound
from mdv.real.overlay import Overlay
from mdv.real.store import (
    FactReader,
    ReadPattern,
    ReadScope,
    ScopedRead,
    StatementChange,
    StoreView,
    pattern_matches,
)
from mdv.real.vocabulary import (
    INPUT_SIGNATURE,
    LRM_BODY,
    OUTPUT_SIGNATURE,
    REAL_CODE,
    REAL_VARIABLES,
    SCHEMA_CONTEXT,
)
from mdv.rules.ast import Span

FIRST_CHUNK, LATER_CHUNKS = 100, 1000
MAX_RECORDED_READS = 2000
"""Reads of a slice that are recorded one by one. Later ones are recorded by the constants of their triple alone."""
MAX_INFERRED = 50_000
MAX_WARNINGS = 1000
"""Warnings of a slice that are kept."""

_PREFIX = re.compile(r"((?:[^\W\d][\w-]*)?):")
_ACTION_PROPERTIES = frozenset((LRM_BODY, REAL_CODE, REAL_VARIABLES, INPUT_SIGNATURE, OUTPUT_SIGNATURE))

Binding: TypeAlias = dict[str, Term]
Contexts: TypeAlias = tuple[str | None, ...]
"""The stack of contexts, the top first. None is the default context."""
Frame: TypeAlias = tuple[Any, ...]
Choice: TypeAlias = list[Any]

# Frames begin with their kind.
K_AND, K_OR, K_NO, K_FIRST, K_LAST, K_REPEAT, K_WAIT, K_COMMIT, K_SANDBOX, K_CONTEXT, K_RETURN = range(11)
# Choices begin with their kind, the binding, the contexts, the overlay and the continuation.
C_OR, C_UNION, C_NO, C_LAST, C_REPEAT, C_WAIT, C_SCOPE, C_READ = range(8)


EvaluateStep: TypeAlias = "Callable[[MachineState, CodeNode], None]"
FrameStep: TypeAlias = "Callable[[MachineState, Frame, Binding], Binding | None]"
ChoiceStep: TypeAlias = "Callable[[MachineState, Choice], None]"


def _not_there(*_: Any) -> Any:
    raise AssertionError("there is no such step")


# The decorators below fill these tables.
EVALUATE_STEPS: list[EvaluateStep] = [_not_there] * len(Op)
FRAME_STEPS: list[FrameStep] = [_not_there] * 11
CHOICE_STEPS: list[ChoiceStep] = [_not_there] * 8


def evaluates(op: Op) -> Callable[[EvaluateStep], EvaluateStep]:
    """Register the function that evaluates the nodes of an operation."""

    def register(step: EvaluateStep) -> EvaluateStep:
        EVALUATE_STEPS[op] = step
        return step

    return register


def continues(kind: int) -> Callable[[FrameStep], FrameStep]:
    """Register the function that passes a solution through a kind of frame. It returns None to fail."""

    def register(step: FrameStep) -> FrameStep:
        FRAME_STEPS[kind] = step
        return step

    return register


def takes_up(kind: int) -> Callable[[ChoiceStep], ChoiceStep]:
    """Register the function that takes up a kind of choice after a failure."""

    def register(step: ChoiceStep) -> ChoiceStep:
        CHOICE_STEPS[kind] = step
        return step

    return register


class ProgramFault(Exception):
    """An error of the program at the current node."""

    def __init__(self, message: str, limit: str | None = None) -> None:
        super().__init__(message)
        self.message, self.limit = message, limit


@dataclass(slots=True)
class Segment:
    """The state at the beginning of the current segment of the outermost `[ ]`, and what was read since."""

    number: int
    """The overlay of the `[ ]`; 0 before it is entered."""
    state: dict[str, Any]
    reads: dict[ScopedRead, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Action:
    signature: Signature
    body: str
    prefixes: tuple[tuple[str, str], ...]
    reads: tuple[ScopedRead, ...]


class MachineState:
    """The registers of a running program, its transactions, and how it reads and changes the store."""

    def __init__(
        self, code: Code, settings: MachineSettings | None = None, binding: Mapping[str, Term] | None = None
    ) -> None:
        self.code = code
        self.settings = settings or MachineSettings()
        self.steps = self.effects = self.solutions = self.counter = 0
        self.codes: dict[CodeKey, Code] = {(): code}
        # Registers
        self.node: CodeNode | None = code.root
        self.binding: Binding = dict(binding or {})
        self.contexts: Contexts = (None,)
        self.tx = 0
        self.k: Frame | None = None
        self.stack: list[Choice] = []
        # State of transactions and waiting
        self.overlays: dict[int, Overlay] = {0: Overlay()}
        self.segment: Segment | None = None
        self.deadlines: dict[tuple[CodeKey, int], float] = {}
        # Of the current slice, until the host takes them
        self.reads: dict[ScopedRead, int] = {}
        self.warnings: list[tuple[str, Span]] = []
        self.log: list[Term] = []
        self.event: MachineEvent | None = None
        self.blocked: tuple[ScopedRead, ...] | None = None
        self.action_cache: dict[tuple[str, bool], tuple[int, _Action]] = {}
        self.ended: MachineEvent | None = None
        self.view: StoreView = NO_VIEW
        self.spawns_left: int | None = None
        """How many processes the slice may spawn; None: the host was not asked yet."""
        self.count_spawnable: Callable[[], int | None] = lambda: None
        """Asks the host; None: any number."""

    # --- effects, taken by the host at the end of a slice ---

    @property
    def root(self) -> Overlay:
        """The changes outside `[ ]` and `{ }`, which the slice commits."""
        return self.overlays[0]

    def end_slice(self) -> None:
        """Forget the changes, reads and messages of the slice, which are committed."""
        self.root.clear()
        self.reads, self.warnings, self.log = {}, [], []
        self.action_cache = {}

    def restart_segment(self) -> None:
        """Undo the current segment of the outermost `[ ]`: what it read has changed since."""
        assert self.segment is not None
        number = self.segment.number if self.segment.number in self.segment.state["overlays"] else 0
        self.restore(self.segment.state)
        self.segment = Segment(number, self.saved_state())

    # --- success and failure ---

    def succeed(self, binding: Binding) -> None:
        """Pass a solution to the continuation."""
        while True:
            k = self.k
            if k is None:
                self.found_solution(binding)
                return
            if k[0] == K_AND:
                parts, number = k[1].parts, k[2]
                self.binding = binding
                self.node = parts[number]
                self.k = (K_AND, k[1], number + 1, k[3]) if number + 1 < len(parts) else k[3]
                return
            found = FRAME_STEPS[k[0]](self, k, binding)
            if found is None:
                self.node = None
                return
            binding = found

    def fail(self) -> None:
        self.node = None

    def found_solution(self, binding: Binding) -> None:
        self.solutions += 1
        if self.solutions > self.settings.limits.solutions:
            raise ProgramFault(
                f"the program has {self.settings.limits.solutions:,} solutions, which is the limit", "solutions"
            )
        self.node = None
        self.event = SolutionFound({name: term for name, term in binding.items() if name[0] != "#"})

    def resume(self, choice: Choice) -> None:
        """Restore the registers of a choice."""
        _, self.binding, self.contexts, self.tx, self.k = choice[:5]

    def push(self, kind: int, *fields: object) -> int:
        """Push a choice with the current registers, and return its height."""
        height = len(self.stack)
        if height >= self.settings.limits.choices:
            raise ProgramFault(f"the program has {height:,} open choices, which is the limit", "choices")
        self.stack.append([kind, self.binding, self.contexts, self.tx, self.k, *fields])
        return height

    def pop(self) -> None:
        choice = self.stack.pop()
        if choice[0] == C_SCOPE:
            self.leave_scope(choice[5])

    def cut(self, height: int) -> None:
        """Remove the choices from a height on: their solutions are not wanted."""
        for choice in self.stack[height:]:
            if choice[0] == C_SCOPE:
                self.leave_scope(choice[5])
        del self.stack[height:]

    def leave_scope(self, number: int) -> None:
        del self.overlays[number]
        if self.segment is not None and self.segment.number == number:
            self.end_segment()

    def end_segment(self) -> None:
        if self.segment is not None:
            for read, position in self.segment.reads.items():
                self.reads[read] = min(position, self.reads.get(read, position))
            self.segment = None
        self.deadlines = {}

    # --- saved states of a segment ---

    def saved_state(self) -> dict[str, Any]:
        """Return a copy of the control state and of the overlays of open `[ ]`."""
        return {
            "node": self.node,
            "binding": self.binding,
            "contexts": self.contexts,
            "tx": self.tx,
            "k": self.k,
            "stack": [list(choice) for choice in self.stack],
            "overlays": {number: one.copy() for number, one in self.overlays.items() if one.outermost},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.node, self.binding, self.contexts = state["node"], state["binding"], state["contexts"]
        self.tx, self.k = state["tx"], state["k"]
        self.stack = [list(choice) for choice in state["stack"]]
        kept = {number: one for number, one in self.overlays.items() if not one.outermost}
        self.overlays = kept | {number: one.copy() for number, one in state["overlays"].items()}

    # --- names ---

    @property
    def top(self) -> str:
        """The document that the top context writes to."""
        return self.settings.into if self.contexts[0] is None else self.contexts[0]

    def fresh_token(self) -> str:
        self.counter += 1
        return f"{self.settings.seed}-{self.counter}"

    def new_overlay(self, is_sandbox: bool) -> int:
        # Numbers are not used again within a process, so that a restored segment cannot mix them up.
        self.counter += 1
        self.overlays[self.counter] = Overlay(self.counter, self.overlays[self.tx], is_sandbox)
        return self.counter

    # --- reading ---

    def scope(self, contexts: Contexts) -> ReadScope:
        return None if None in contexts else tuple(one for one in contexts if one != SCHEMA_CONTEXT)  # type: ignore[misc]

    def record(self, node: CodeNode | None, pattern: ReadPattern, scope: ReadScope) -> None:
        """Record a read for the optimistic commit."""
        if len(self.reads) >= MAX_RECORDED_READS and node is not None and node.triple is not None:
            pattern = constants_of(node.triple)
        read = ScopedRead(pattern, scope)
        position = self.view.position
        self.reads.setdefault(read, position)
        if self.segment is not None:
            self.segment.reads.setdefault(read, position)

    def documents_with(self, statement: Statement) -> set[str]:
        """Return the documents that say a statement, with the changes of the current overlays."""
        found = set(self.view.documents_with(statement))
        for number in self.overlays[self.tx].chain:
            for document, is_added in self.overlays[number].changes.get(statement, {}).items():
                (found.add if is_added else found.discard)(document)
        return found

    def is_present(self, statement: Statement, contexts: Contexts) -> bool:
        if SCHEMA_CONTEXT in contexts and statement in set(self.view.schema_statements()):
            return True
        documents = self.documents_with(statement)
        return bool(documents) if None in contexts else not documents.isdisjoint(contexts)

    def affected(self, pattern: ReadPattern, contexts: Contexts) -> tuple[list[Statement], frozenset[Statement]]:
        """Return the matching statements that do not come from the base: those present, and all of them.

        They are read from this list; the base skips them.
        """
        found: set[Statement] = set()
        for number in self.overlays[self.tx].chain:
            overlay = self.overlays[number]
            if overlay.changes:
                found.update(one for one in overlay.candidates(pattern) if self._matches(pattern, one))
        if SCHEMA_CONTEXT in contexts:
            found.update(one for one in self.view.schema_statements() if self._matches(pattern, one))
        if not found:
            return NOTHING_AFFECTED
        return sorted(one for one in found if self.is_present(one, contexts)), frozenset(found)

    def _matches(self, pattern: ReadPattern, statement: Statement) -> bool:
        kind = self.view.range_kind(statement.property) if pattern.is_typed else ValueKind.TEXT
        return pattern_matches(pattern, statement, kind)

    def statements(self, pattern: ReadPattern, contexts: Contexts = (None,)) -> Iterator[Statement]:
        """Yield all statements of the view that match, for lookups that are no choice of the program."""
        scope = self.scope(contexts)
        self.record(None, pattern, scope)
        present, skipped = self.affected(pattern, contexts)
        yield from present
        after, position = None, self.view.position
        while scope != ():
            chunk = self.view.read(pattern, scope, position, after, LATER_CHUNKS)
            yield from (one for one in chunk if one not in skipped)
            if len(chunk) < LATER_CHUNKS:
                return
            after = chunk[-1]

    def facts(self, pattern: ReadPattern) -> Iterable[Statement]:
        return self.statements(pattern, self.contexts)

    def value(self, item: CodeItem) -> Term | None:
        """Return the term of an item; None if it is an unbound variable."""
        return self.binding.get(item) if type(item) is str else item  # type: ignore[return-value]

    # --- changing ---

    def change(self, document: str, statement: Statement, is_added: bool) -> None:
        overlay = self.overlays[self.tx]
        self.effects += 1
        if self.effects > self.settings.limits.effects:
            raise ProgramFault(
                f"the program has {self.settings.limits.effects:,} effects, which is the limit", "effects"
            )
        overlay.apply(document, statement, is_added)
        if statement.property in _ACTION_PROPERTIES:
            self.action_cache = {}

    def count_effect(self) -> None:
        self.effects += 1
        if self.effects > (most := self.settings.limits.effects):
            raise ProgramFault(f"the program has {most:,} effects, which is the limit", "effects")

    def check_may_change(self) -> None:
        if self.settings.is_read_only and not self.overlays[self.tx].in_sandbox:
            raise ProgramFault("the program may only read: it can change the store inside { } alone")

    def warn(self, message: str) -> None:
        if len(self.warnings) < MAX_WARNINGS and self.node is not None:
            span = self.node.span if self.node.code is self.code else Span(0, 0)  # in the body of an action: no place
            self.warnings.append((message, span))

    def add(self, document: str, statement: Statement, contexts: Contexts) -> bool:
        """Add a statement to the top context. Return False, with `_blocked` set, if it is present or refused."""
        self.check_may_change()
        exact = ReadPattern(*statement)
        top: Contexts = contexts[:1]
        scope = self.scope(top)
        self.record(None, exact, scope)
        if document == SCHEMA_CONTEXT:
            self.blocked = None
            self.warn(f"{SCHEMA_CONTEXT} cannot be changed by a program")
            return False
        if self.is_present(statement, top):
            self.blocked = (ScopedRead(exact, scope),)
            return False
        refusal = self.view.refusal(StatementChange(document, statement, True), self.facts_of(document))
        if refusal is not None:
            self.blocked = refusal.awaited or None
            self.warn(refusal.reason)
            return False
        self.change(document, statement, True)
        return True

    def facts_of(self, document: str) -> FactReader:
        """Return a reader of the statements of one document."""
        return lambda pattern: self.statements(pattern, (document,))

    def ground(self, triple: CodeTriple) -> Statement:
        """Return the statement of a triple to be added. Raise a fault if it is not well formed."""
        terms = [self.value(item) for item in (triple.subject, triple.property, triple.object)]
        items = (triple.subject, triple.property, triple.object)
        for item, term in zip(items, terms, strict=True):
            if term is None:
                raise ProgramFault(f"{shown_item(item)} is not bound, so there is no statement to add")
        subject, property_, value = terms
        assert subject is not None and property_ is not None and value is not None
        if not subject.is_uri or not property_.is_uri:
            wrong = subject if not subject.is_uri else property_
            raise ProgramFault(f'the literal "{wrong.value[:60]}" cannot be a subject or a property')
        if triple.annotation is not None:
            value = annotated_literal(value, self.value(triple.annotation), triple.annotation)
        return Statement(subject.value, property_.value, value)

    # --- actions ---

    def load_action(self, iri: str, is_template: bool = False) -> _Action:
        """Return an action from the view. EXPAND also takes templates."""
        cached = self.action_cache.get((iri, is_template))
        if cached is not None and cached[0] == self.view.position:
            for read in cached[1].reads:
                self.record(None, *read)
            return cached[1]
        reads: list[ScopedRead] = []

        def values(subject: str, name: str) -> list[Term]:
            pattern = ReadPattern(subject, name)
            reads.append(ScopedRead(pattern))
            return sorted({one.object for one in self.statements(pattern)})

        bodies = [term.value for term in values(iri, LRM_BODY) if term.is_uri]
        if is_template and not bodies:
            bodies = [iri]
        codes = [(body, term) for body in bodies for term in values(body, REAL_CODE) if not term.is_uri]
        if not codes:
            what = "action or template" if is_template else "action"
            raise ProgramFault(f"there is no {what} <{iri}> (an action has an lrm:body with real:code)")
        if len(codes) > 1:
            raise ProgramFault(f"<{iri}> has {len(codes)} bodies, so it is not clear which one to run")
        (holder, code), *_ = codes
        names = values(iri, INPUT_SIGNATURE)
        if is_template and not names:
            names = values(iri, REAL_VARIABLES) or values(holder, REAL_VARIABLES)
        signature = Signature(_signature(names), _signature(values(iri, OUTPUT_SIGNATURE)))
        documents = sorted(self.documents_with(Statement(holder, REAL_CODE, code)))
        allowed = self.settings.actions
        if allowed is not None and not any(document.startswith(allowed) for document in documents):
            raise ProgramFault(
                f"the body of <{iri}> is in {documents[0] if documents else 'no document'}, whose actions may not be"
                " run: MDV_REAL_ACTIONS limits them"
            )
        known = {**self.view.prefixes(SCHEMA_CONTEXT), **(self.view.prefixes(documents[0]) if documents else {})}
        used = {prefix for prefix in _PREFIX.findall(code.value) if prefix in known}
        prefixes = tuple((prefix, known[prefix]) for prefix in sorted(used))
        action = _Action(signature, code.value, prefixes, tuple(reads))
        self.action_cache[iri, is_template] = self.view.position, action
        return action

    def body(self, action: _Action, iri: str, arguments: tuple[tuple[str, CodeItem], ...] = ()) -> Code:
        key: CodeKey = (action.body, action.prefixes, arguments)
        found = self.codes.get(key)
        if found is None:
            try:
                found = compile_body(key)
            except InvalidRule as error:
                raise ProgramFault(f"the body of <{iri}> cannot be run: {error.flaws[0]}") from None
            self.codes[key] = found
        return found

    def inputs(self, node: CodeNode, iri: str, names: Sequence[str]) -> tuple[Term, ...]:
        """Return the inputs of a call. Raise a fault unless they are bound and as many as the names."""
        if len(node.inputs) != len(names):
            raise ProgramFault(f"<{iri}> has {len(names)} inputs, but {len(node.inputs)} are given")
        found = []
        for item in node.inputs:
            term = self.value(item)
            if term is None:
                raise ProgramFault(f"the input {shown_item(item)} of <{iri}> is not bound")
            found.append(term)
        return tuple(found)

    def depth(self) -> int:
        """Return the number of calls that have not returned."""
        k = self.k
        while k is not None:
            if k[0] == K_RETURN:
                return k[3]  # type: ignore[no-any-return]
            k = self.stack[k[1]][4] if k[0] in REJOINING else k[-1]
        return 0


NO_VIEW: Any = None
NOTHING_AFFECTED: tuple[list[Statement], frozenset[Statement]] = ([], frozenset())
REJOINING = frozenset((K_NO, K_LAST, K_REPEAT))
"""Frames whose continuation is that of their choice."""


def shown_item(item: CodeItem) -> str:
    return f"?{item}" if isinstance(item, str) else item.value


def _signature(terms: Sequence[Term]) -> tuple[str, ...]:
    if len(terms) > 1:
        raise ProgramFault("an action has more than one signature of the same kind")
    names = terms[0].value.split(",") if terms else []
    return tuple(name.strip().lstrip("?") for name in names if name.strip())


def annotated_literal(value: Term, annotation: Term | None, item: CodeItem) -> Term:
    """Return a literal with a language (a text) or a datatype (an IRI)."""
    if value.is_uri:
        raise ProgramFault("an IRI has no language and no datatype")
    if annotation is None:
        raise ProgramFault(f"{shown_item(item)} is not bound, so the literal has no language or datatype")
    if annotation.is_uri:
        found = Term.literal(value.value, datatype=annotation.value)
    else:
        found = Term.literal(value.value, lang=annotation.value.lower())
    if (value.lang, value.datatype) not in ((None, None), (found.lang, found.datatype)):
        raise ProgramFault("the literal has another language or datatype already")
    return found


def constants_of(triple: CodeTriple) -> ReadPattern:
    """Return the pattern of the constants of a triple alone."""
    subject, name, value = triple.subject, triple.property, triple.object
    return ReadPattern(
        subject.value if isinstance(subject, Term) else None,
        name.value if isinstance(name, Term) else None,
        value if isinstance(value, Term) and triple.annotation is None else None,
        triple.is_typed,
    )


TRUE_NODE = CodeNode(Op.TRUE, Span(0, 0), Code((), ""), -1)
"""The node at which a program goes on after a service or a sleep."""
