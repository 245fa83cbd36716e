"""What a program may read and write, and how it reads: found in its text, without running it.

A program reads and writes nothing else. Variables stand for any term, and both parts of an OR count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from mdv.model import RDF_TYPE, Term
from mdv.real.check import Signature
from mdv.real.syntax import (
    AddExpr,
    AndExpr,
    CallExpr,
    ContextExpr,
    EnsureExpr,
    ExpandExpr,
    Expression,
    FirstExpr,
    FreshExpr,
    InferExpr,
    LastExpr,
    ListEntry,
    NoExpr,
    OrExpr,
    Program,
    ReadExpr,
    RealConstant,
    RealItem,
    RealList,
    RealVariable,
    RepeatExpr,
    SandboxExpr,
    SpawnExpr,
    StopExpr,
    TakeExpr,
    TransactionExpr,
    TriplePattern,
    TruthExpr,
    UnionExpr,
    WaitExpr,
    replace_items,
    walk,
)
from mdv.real.vocabulary import ENGINE, PRIMITIVE, RDF_FIRST, RDF_GRAPH, RDF_REST
from mdv.rules.ast import Span

MAX_PLAN_STEPS = 2000
MAX_ACTION_CALLS = 200

MAX_COMPARED = 300
"""Reads, and likewise writes, that are compared with each other, so that each is listed once."""

PatternTerms: TypeAlias = tuple[str | None, str | None, Term | None]
"""Subject, property and object. None stands for any."""


class PlannedRead(NamedTuple):
    """Statements that a program may read. `documents`: None for all."""

    pattern: PatternTerms
    documents: tuple[str, ...] | None


class PlannedWrite(NamedTuple):
    """Statements that a program may add to a document, or remove from it. `document`: None for any."""

    is_added: bool
    document: str | None
    pattern: PatternTerms


class PlanStep(NamedTuple):
    """A part of a program. `action`: the action whose body it is in; None for the program itself.

    `access`: how a read finds its statements. `repeats`: it is done again for each solution of what is before it.
    `read`: what it reads at most, and `is_typed` as in a pattern.
    """

    level: int
    operation: str
    text: str
    span: Span
    action: str | None = None
    access: str | None = None
    repeats: bool = False
    read: PlannedRead | None = None
    is_typed: bool = False


class KnownAction(NamedTuple):
    """An action as it is stored: its signature, its body (None: it has an error), and the text of the body."""

    signature: Signature
    body: Program | None
    text: str


FindAction: TypeAlias = Callable[[str, bool], KnownAction | None]
"""Returns an action by its name; with True, also a template."""


@dataclass
class ProgramPlan:
    """The steps of a program, and all that it may do."""

    steps: list[PlanStep] = field(default_factory=list)
    reads: dict[PlannedRead, None] = field(default_factory=dict)
    writes: dict[PlannedWrite, None] = field(default_factory=dict)
    calls: dict[str, None] = field(default_factory=dict)
    starts: dict[str, None] = field(default_factory=dict)
    """Actions that it may start as processes. What these do is not among its reads and writes."""
    gaps: dict[str, None] = field(default_factory=dict)
    """Why it may do more than is listed."""

    @property
    def is_complete(self) -> bool:
        return not self.gaps


def plan_program(
    program: Program, text: str, into: str, find_action: FindAction, inputs: frozenset[str] = frozenset()
) -> ProgramPlan:
    """Return the plan of a resolved program. `into`: where its default context writes. `inputs`: the variables that are
    bound before it runs.

    >>> from mdv.real.resolve import read_program
    >>> code = "rdf:type(?x, rdfs:Class) AND +rdfs:label(?x, 'a')"
    >>> plan = plan_program(read_program(code), code, "urn:a", lambda iri, is_template: None)
    >>> [(step.level, step.operation, step.access) for step in plan.steps]
    [(0, 'AND', None), (1, 'read', 'references to one resource'), (1, 'add', 'one statement')]
    >>> [(write.is_added, write.document) for write in plan.writes]
    [(True, 'urn:a')]
    """
    planner = _Planner(text, find_action)
    planner.visit(program.body, _Place(0, (None,), into, inputs))
    return planner.plan


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an expression stands. `contexts`: the documents of the stack, the top first; None is the default context,
    `?` a document that is not known. `bound`: the variables that are bound when it runs."""

    level: int
    contexts: tuple[str | None, ...]
    into: str
    bound: frozenset[str]
    is_sandbox: bool = False
    repeats: bool = False
    action: str | None = None

    def below(self, bound: frozenset[str] | None = None, **more: Any) -> _Place:
        return replace(self, level=self.level + 1, bound=self.bound if bound is None else bound, **more)

    @property
    def documents(self) -> tuple[str, ...] | None:
        """The documents that reads see."""
        known = tuple(dict.fromkeys(one for one in self.contexts if one is not None))
        return None if None in self.contexts or UNKNOWN in known else known


UNKNOWN = "?"


class _Planner:
    def __init__(self, text: str, find_action: FindAction) -> None:
        self.plan = ProgramPlan()
        self.text = text
        self.find_action = find_action
        self.seen: set[tuple[object, ...]] = set()

    def visit(self, node: Expression, at: _Place) -> frozenset[str]:
        """Add an expression to the plan, and return the variables that may be bound after it."""
        match node:
            case AndExpr(_, parts):
                self.step("AND", node, at)
                inner = at.below()
                for part in parts:
                    inner = at.below(self.visit(part, inner), repeats=True)
                return inner.bound
            case OrExpr(_, parts) | UnionExpr(_, parts):
                self.step("OR" if isinstance(node, OrExpr) else "UNION", node, at)
                return frozenset().union(*(self.visit(part, at.below()) for part in parts))
            case NoExpr(_, part):
                self.step("NO", node, at)
                self.visit(part, at.below())
                return at.bound
            case FirstExpr(_, part) | LastExpr(_, part):
                self.step("FIRST" if isinstance(node, FirstExpr) else "LAST", node, at)
                return self.visit(part, at.below())
            case RepeatExpr(_, part, count):
                self.step("REPEAT", node, at)
                self.visit(part, at.below())
                return at.bound | _names(count)
            case WaitExpr(_, part, _):
                self.step("WAIT", node, at)
                return self.visit(part, at.below())
            case TransactionExpr(_, part):
                self.step("[ ]", node, at)
                return self.visit(part, at.below())
            case SandboxExpr(_, part):
                self.step("{ }", node, at)
                return self.visit(part, at.below(is_sandbox=True))
            case ContextExpr(_, graph, part, is_only):
                return self.context(node, graph, part, is_only, at)
            case TruthExpr(_, value):
                self.step("TRUE" if value else "FALSE", node, at)
                return at.bound
            case FreshExpr(_, variable):
                self.step("new name", node, at)
                return at.bound | {variable.name}
            case InferExpr(_, engine, triple):
                self.infer(node, engine, triple, at)
                return at.bound | _triple_names(triple)
            case ReadExpr(_, triple) | TakeExpr(_, triple):
                self.read(node, triple, at, isinstance(node, TakeExpr))
                return at.bound | _triple_names(triple)
            case AddExpr(_, triple) | EnsureExpr(_, triple):
                self.add(node, triple, at)
                return at.bound
            case CallExpr(_, action, inputs, outputs):
                self.call(node, action, inputs, at)
                return at.bound.union(*map(_names, outputs))
            case ExpandExpr(_, action, inputs):
                return self.expand(node, action, inputs, at)
            case SpawnExpr(_, action, _, outputs):
                self.step("SPAWN", node, at)
                if isinstance(action, RealConstant):
                    self.plan.starts[action.term.value] = None
                else:
                    self.plan.gaps["the action of a SPAWN is a variable"] = None
                return at.bound.union(*map(_names, outputs))
            case StopExpr():
                self.step("STOP", node, at)
                return at.bound

    def step(self, operation: str, node: Expression, at: _Place, **more: Any) -> None:
        if len(self.plan.steps) >= MAX_PLAN_STEPS:
            self.plan.gaps[f"the plan has more than {MAX_PLAN_STEPS:,} steps"] = None
            return
        text = " ".join(self.text[node.span.start : node.span.end].split())
        step = PlanStep(at.level, operation, text, node.span, at.action, repeats=at.repeats)
        self.plan.steps.append(step._replace(**more))

    # Reads and writes

    def read(self, node: Expression, triple: TriplePattern, at: _Place, takes: bool) -> None:
        scope, top = at.documents, at.contexts[0]
        if takes and top is not None:
            scope = None if top == UNKNOWN else (top,)
        pattern = _pattern(triple)
        self.plan.reads[PlannedRead(pattern, scope)] = None
        access = _access(triple, at.bound, scope is not None)
        found = PlannedRead(_constants(triple), scope)
        self.step("take" if takes else "read", node, at, access=access, read=found, is_typed=_is_typed(triple))
        if takes and not at.is_sandbox:
            self.plan.writes[PlannedWrite(False, None if top == UNKNOWN else top, pattern)] = None
        self.cells(triple, at, scope, False if takes else None)

    def add(self, node: Expression, triple: TriplePattern, at: _Place) -> None:
        pattern, top = _pattern(triple), at.contexts[0]
        scope = None if top is None or top == UNKNOWN else (top,)
        self.plan.reads[PlannedRead(pattern, scope)] = None
        self.step("add", node, at, access="one statement")
        self.write(at, pattern)
        self.cells(triple, at, scope, True)

    def write(self, at: _Place, pattern: PatternTerms) -> None:
        """Note an addition to the top context."""
        if not at.is_sandbox:
            top = at.contexts[0]
            document = at.into if top is None else None if top == UNKNOWN else top
            self.plan.writes[PlannedWrite(True, document, pattern)] = None

    def cells(self, triple: TriplePattern, at: _Place, scope: tuple[str, ...] | None, is_added: bool | None) -> None:
        """Note the cells of a list. `is_added`: None if they are only read."""
        if not isinstance(triple.object, RealList):
            return
        for name in (RDF_FIRST, RDF_REST):
            pattern: PatternTerms = (None, name, None)
            self.plan.reads[PlannedRead(pattern, scope)] = None
            if is_added:
                self.write(at, pattern)
            elif is_added is False and not at.is_sandbox:
                top = at.contexts[0]
                self.plan.writes[PlannedWrite(False, None if top == UNKNOWN else top, pattern)] = None

    def infer(self, node: Expression, engine: RealItem | None, triple: TriplePattern, at: _Place) -> None:
        is_schema = engine is None or (isinstance(engine, RealConstant) and _iri(engine) == ENGINE + "schema")
        subject = _constants(triple)[0] if is_schema else None  # other engines read everything
        found = PlannedRead((subject, None, None), at.documents)
        self.plan.reads[found] = None
        what = "statements that follow from the schema" if is_schema else "statements that an inference engine finds"
        self.step("infer", node, at, access=what)

    def context(self, node: Expression, graph: RealItem, part: Expression, is_only: bool, at: _Place) -> frozenset[str]:
        self.step("IN" if is_only else "ON", node, at)
        name = graph.term.value if isinstance(graph, RealConstant) else UNKNOWN
        if isinstance(graph, RealConstant):
            self.plan.reads[PlannedRead((None, None, None), (name,))] = None  # it must exist
        elif not _names(graph) <= at.bound or not _names(graph):
            self.write(at, (None, RDF_TYPE, Term.uri(RDF_GRAPH)))
        contexts = (name,) if is_only else (name, *at.contexts)
        return self.visit(part, at.below(at.bound | _names(graph), contexts=contexts))

    # Actions

    def call(self, node: Expression, action: RealItem, inputs: tuple[RealItem, ...], at: _Place) -> None:
        self.step("CALL", node, at)
        if isinstance(action, RealConstant) and _iri(action) == PRIMITIVE + "service":
            self.plan.reads[PlannedRead((None, None, None), at.documents)] = None  # the request
            self.write(at, (None, None, None))  # statements of the answer
        if (known := self.find(action, "CALL")) is None:
            return
        iri = _iri(action)
        given = dict(zip(known.signature.inputs, inputs, strict=False))
        fixed = {name: item for name, item in given.items() if isinstance(item, RealConstant)}
        inner = at.below(frozenset(given), action=iri)
        self.body(iri, known, fixed, inner)

    def expand(self, node: Expression, action: RealItem, inputs: tuple[RealItem, ...], at: _Place) -> frozenset[str]:
        self.step("EXPAND", node, at)
        known = self.find(action, "EXPAND")
        if known is None:
            return at.bound.union(*map(_names, inputs))
        iri = _iri(action)
        return self.body(iri, known, dict(zip(known.signature.inputs, inputs, strict=False)), at.below(action=iri))

    def find(self, action: RealItem, keyword: str) -> KnownAction | None:
        if not isinstance(action, RealConstant):
            self.plan.gaps[f"the action of a {keyword} is a variable"] = None
            return None
        iri = action.term.value
        if iri.startswith(PRIMITIVE):
            return None
        self.plan.calls[iri] = None
        known = self.find_action(iri, keyword == "EXPAND")
        if known is None or known.body is None:
            self.plan.gaps[f"the action <{iri}> is not stored, or cannot be run"] = None
            return None
        return known

    def body(self, iri: str, known: KnownAction, given: Mapping[str, RealItem], at: _Place) -> frozenset[str]:
        """Add the body of an action, unless it was added with the same inputs and at the same place before."""
        key = (iri, *((name, given[name]) for name in sorted(given)), at.contexts, at.is_sandbox, at.bound)
        if key in self.seen:
            return at.bound
        if len(self.seen) >= MAX_ACTION_CALLS:
            self.plan.gaps[f"it has more than {MAX_ACTION_CALLS} calls of actions"] = None
            return at.bound
        self.seen.add(key)

        def substitute(item: RealItem) -> RealItem:
            return given.get(item.name, item) if isinstance(item, RealVariable) else item

        text, self.text = self.text, known.text
        try:
            assert known.body is not None
            return self.visit(replace_items(known.body.body, substitute), at)
        finally:
            self.text = text


def _access(triple: TriplePattern, bound: frozenset[str], is_scoped: bool) -> str:
    """Return how a read finds its statements. `mdv/db/real/statement_reader.py` has the statements in SQL.

    >>> from mdv.real.resolve import read_program
    >>> def access(code, *bound): return _access(read_program(code).body.triple, frozenset(bound), False)
    >>> access("rdfs:label(?x, ?y)"), access("rdfs:label(?x, ?y)", "x")
    ('all statements of the property', 'values of one property of a resource')
    """
    subject, name = _is_bound(triple.subject, bound), _is_bound(triple.property, bound)
    value = not isinstance(triple.object, RealList) and _is_bound(triple.object, bound)
    if subject:
        if name:
            return "one statement" if value else "values of one property of a resource"
        return "statements of a resource"
    is_resource = isinstance(triple.object, RealConstant) and triple.object.term.is_uri
    if name and value and is_resource and not is_scoped:
        return "references to one resource"
    if name and value and isinstance(triple.object, RealVariable) and not is_scoped:
        return "references to one resource, or a search for one value"
    if is_scoped:
        return "search in a document"
    if value:
        return "search for one value"
    return "all statements of the property" if name else "all statements"


def _is_bound(item: ListEntry, bound: frozenset[str]) -> bool:
    return isinstance(item, RealConstant) or (isinstance(item, RealVariable) and bool(item.name) and item.name in bound)


def _constants(triple: TriplePattern) -> PatternTerms:
    value = triple.object
    return (
        triple.subject.term.value if isinstance(triple.subject, RealConstant) else None,
        triple.property.term.value if isinstance(triple.property, RealConstant) else None,
        value.term if isinstance(value, RealConstant) and triple.annotation is None else None,
    )


def _pattern(triple: TriplePattern) -> PatternTerms:
    """Return the pattern that includes everything that matches. A number matches other forms of itself."""
    subject, name, value = _constants(triple)
    return subject, name, None if _is_typed(triple) else value


def _is_typed(triple: TriplePattern) -> bool:
    return isinstance(triple.object, RealConstant) and triple.object.is_typed and triple.annotation is None


def _iri(action: RealItem) -> str:
    assert isinstance(action, RealConstant)
    return action.term.value


def _names(item: RealItem | None) -> frozenset[str]:
    return frozenset([item.name]) if isinstance(item, RealVariable) and item.name else frozenset()


def _triple_names(triple: TriplePattern) -> frozenset[str]:
    return frozenset(one.name for one in walk(triple) if isinstance(one, RealVariable) and one.name)


def distinct_writes(writes: Iterable[PlannedWrite]) -> list[PlannedWrite]:
    """Return the writes without those that another one includes."""
    kept = list(dict.fromkeys(writes))
    if len(kept) > MAX_COMPARED:
        return kept
    return [one for one in kept if not any(other != one and _includes_write(other, one) for other in kept)]


def distinct_reads(reads: Iterable[PlannedRead]) -> list[PlannedRead]:
    """Return the reads without those that another one includes."""
    kept = list(dict.fromkeys(reads))
    if len(kept) > MAX_COMPARED:
        return kept
    return [one for one in kept if not any(other != one and _includes_read(other, one) for other in kept)]


def _includes_write(wide: PlannedWrite, narrow: PlannedWrite) -> bool:
    is_above = wide.is_added == narrow.is_added and wide.document in (None, narrow.document)
    return is_above and _covers(wide.pattern, narrow.pattern)


def _includes_read(wide: PlannedRead, narrow: PlannedRead) -> bool:
    return wide.documents in (None, narrow.documents) and _covers(wide.pattern, narrow.pattern)


def _covers(wide: PatternTerms, narrow: PatternTerms) -> bool:
    return all(one is None or one == other for one, other in zip(wide, narrow, strict=True))
