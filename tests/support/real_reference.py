"""The meaning of ReAL programs as generators over a set of statements: short, slow, and close to the definition.

It has no WAIT, processes or services: these are about several programs. `[ ]` and `{ }` are layers over the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count

from mdv.model import RDF_TYPE, Statement, Term
from mdv.rdf.values import ValueKind, parse_number
from mdv.real.store import ReadPattern, pattern_matches
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
    LastExpr,
    NoExpr,
    OrExpr,
    Program,
    ReadExpr,
    RealConstant,
    RealItem,
    RealVariable,
    RepeatExpr,
    SandboxExpr,
    TakeExpr,
    TransactionExpr,
    TriplePattern,
    TruthExpr,
    UnionExpr,
    replace_items,
)
from mdv.real.terms import XSD_INTEGER
from mdv.real.vocabulary import RDF_GRAPH

Binding = dict[str, Term]
Content = set[tuple[str, Statement]]
INTO = "urn:mdv:real:anonymous"


class ProgramError(Exception):
    """An error that ends the program."""


class Store:
    """The store itself: pairs of a document and a statement."""

    def __init__(self, content: Content) -> None:
        self.pairs = content

    def content(self) -> Content:
        return set(self.pairs)

    def put(self, pair: tuple[str, Statement], is_added: bool) -> None:
        (self.pairs.add if is_added else self.pairs.discard)(pair)


class Layer:
    """Changes of a transaction or sandbox over what is below."""

    def __init__(self, below: Store | Layer) -> None:
        self.below = below
        self.changes: dict[tuple[str, Statement], bool] = {}

    def content(self) -> Content:
        found = self.below.content()
        for pair, is_added in self.changes.items():
            (found.add if is_added else found.discard)(pair)
        return found

    def put(self, pair: tuple[str, Statement], is_added: bool) -> None:
        self.changes[pair] = is_added

    def commit(self) -> None:
        for pair, is_added in self.changes.items():
            self.below.put(pair, is_added)
        self.changes = {}


class Reference:
    """Runs one program. `actions`: input names, output names and body by IRI."""

    def __init__(self, actions: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], Program]] | None = None) -> None:
        self.actions = actions or {}
        self.made: set[str] = set()
        self.numbers = count(1)

    def solve(
        self, e: Expression, b: Binding, contexts: tuple[str | None, ...], store: Store | Layer
    ) -> Iterator[Binding]:
        """Yield the solutions of an expression."""

        def run(part: Expression, binding: Binding = b) -> Iterator[Binding]:
            return self.solve(part, binding, contexts, store)

        match e:
            case TruthExpr(_, value):
                if value:
                    yield b
            case AndExpr(_, parts):
                yield from self.join(parts, b, contexts, store)
            case UnionExpr(_, parts):
                for part in parts:
                    yield from run(part)
            case OrExpr(_, parts):
                for part in parts:
                    is_empty = True
                    for solution in run(part):
                        is_empty = False
                        yield solution
                    if not is_empty:
                        return
            case NoExpr(_, part):
                if next(run(part), None) is None:
                    yield b
            case FirstExpr(_, part):
                first = next(run(part), None)
                if first is not None:
                    yield first
            case LastExpr(_, part):
                yield from list(run(part))[-1:]
            case RepeatExpr(_, part, item):
                yield from self.repeat(run(part), b, item)
            case TransactionExpr(_, part):
                layer = Layer(store)
                for solution in self.solve(part, b, contexts, layer):
                    layer.commit()
                    yield solution
            case SandboxExpr(_, part):
                yield from self.solve(part, b, contexts, Layer(store))
            case ContextExpr():
                yield from self.context(e, b, contexts, store)
            case ReadExpr(_, triple):
                yield from self.read(triple, b, contexts, store)
            case TakeExpr(_, triple):
                for solution, statement in self.matches(triple, b, contexts[:1], store):
                    pairs = [pair for pair in store.content() if pair[1] == statement and sees(contexts[:1], pair[0])]
                    for pair in pairs:
                        store.put(pair, False)
                    if pairs:
                        yield solution
            case AddExpr(_, triple) | EnsureExpr(_, triple):
                statement = self.ground(triple, b)
                is_new = self.add(statement, contexts, store)
                if is_new or isinstance(e, EnsureExpr):
                    yield b
            case FreshExpr(_, variable):
                if variable.name in b:
                    raise ProgramError("bound")
                yield b | {variable.name: Term.uri(f"{contexts[0] or INTO}#{next(self.numbers)}")}
            case CallExpr(_, action, inputs, outputs):
                yield from self.call(action, inputs, outputs, b, contexts, store)
            case ExpandExpr(_, action, inputs):
                names, _, body = self.action(action, b)
                given = dict(zip(names, inputs, strict=True))
                yield from run(replace_items(body.body, lambda item: substituted(item, given)))
            case _:
                raise NotImplementedError(type(e))

    def join(
        self, parts: tuple[Expression, ...], b: Binding, contexts: tuple[str | None, ...], store: Store | Layer
    ) -> Iterator[Binding]:
        if not parts:
            yield b
            return
        for solution in self.solve(parts[0], b, contexts, store):
            yield from self.join(parts[1:], solution, contexts, store)

    def repeat(self, stream: Iterator[Binding], b: Binding, item: RealItem | None) -> Iterator[Binding]:
        wanted = None if item is None else value(item, b)
        if wanted is None:
            number = sum(1 for _ in stream)
            if number and isinstance(item, RealVariable) and item.name:
                yield b | {item.name: Term.literal(str(number), datatype=XSD_INTEGER)}
            elif number:
                yield b
            return
        limit = parse_number(wanted.value, wanted.datatype)
        if limit is None or limit < 0 or limit % 1:
            raise ProgramError("count")
        number = 0
        while number < limit:
            if next(stream, None) is None:
                return
            number += 1
        yield b

    def context(
        self, e: ContextExpr, b: Binding, contexts: tuple[str | None, ...], store: Store | Layer
    ) -> Iterator[Binding]:
        term = value(e.graph, b)
        if term is None:
            term = Term.uri(f"{contexts[0] or INTO}/{next(self.numbers)}")
            self.add(Statement(term.value, RDF_TYPE, Term.uri(RDF_GRAPH)), contexts, store)
            self.made.add(term.value)
            assert isinstance(e.graph, RealVariable)
            b = b | ({e.graph.name: term} if e.graph.name else {})
        if not term.is_uri:
            raise ProgramError("context")
        if term.value in self.made or any(document == term.value for document, _ in store.content()):
            yield from self.solve(e.part, b, (term.value,) if e.is_only else (term.value, *contexts), store)

    def read(
        self, triple: TriplePattern, b: Binding, contexts: tuple[str | None, ...], store: Store | Layer
    ) -> Iterator[Binding]:
        for solution, _ in self.matches(triple, b, contexts, store):
            yield solution

    def matches(
        self, triple: TriplePattern, b: Binding, contexts: tuple[str | None, ...], store: Store | Layer
    ) -> list[tuple[Binding, Statement]]:
        """Return the matching statements of the view as it is now, each once, in order."""
        statements = sorted({statement for document, statement in store.content() if sees(contexts, document)})
        found = ((match(triple, b, statement), statement) for statement in statements)
        return [(solution, statement) for solution, statement in found if solution is not None]

    def ground(self, triple: TriplePattern, b: Binding) -> Statement:
        assert not isinstance(triple.object, tuple)
        subject, name, object_ = (value(item, b) for item in (triple.subject, triple.property, triple.object))  # type: ignore[arg-type]
        if subject is None or name is None or object_ is None or not (subject.is_uri and name.is_uri):
            raise ProgramError("not ground")
        return Statement(subject.value, name.value, object_)

    def add(self, statement: Statement, contexts: tuple[str | None, ...], store: Store | Layer) -> bool:
        if any(one == statement and sees(contexts[:1], document) for document, one in store.content()):
            return False
        store.put((contexts[0] or INTO, statement), True)
        return True

    def action(self, item: RealItem, b: Binding) -> tuple[tuple[str, ...], tuple[str, ...], Program]:
        iri = value(item, b)
        if iri is None or iri.value not in self.actions:
            raise ProgramError("no action")
        return self.actions[iri.value]

    def call(
        self,
        action: RealItem,
        inputs: tuple[RealItem, ...],
        outputs: tuple[RealItem, ...],
        b: Binding,
        contexts: tuple[str | None, ...],
        store: Store | Layer,
    ) -> Iterator[Binding]:
        names, results, body = self.action(action, b)
        given = [value(item, b) for item in inputs]
        if None in given or len(given) != len(names) or len(outputs) != len(results):
            raise ProgramError("inputs")
        for solution in self.solve(body.body, dict(zip(names, given, strict=True)), contexts, store):  # type: ignore[arg-type]
            returned: Binding | None = b
            for item, name in zip(outputs, results, strict=True):
                known, term = value(item, returned), solution.get(name)
                if known is None and term is not None and isinstance(item, RealVariable) and item.name:
                    returned = returned | {item.name: term}
                elif known is not None and known != term:
                    returned = None
                    break
            if returned is not None:
                yield returned


def sees(contexts: tuple[str | None, ...], document: str) -> bool:
    return None in contexts or document in contexts


def value(item: RealItem, b: Binding) -> Term | None:
    if isinstance(item, RealVariable):
        return b.get(item.name)
    assert isinstance(item, RealConstant)
    return item.term


def substituted(item: RealItem, given: Mapping[str, RealItem]) -> RealItem:
    return given.get(item.name, item) if isinstance(item, RealVariable) else item


def match(triple: TriplePattern, b: Binding, statement: Statement) -> Binding | None:
    """Return the binding that makes a triple equal to a statement, or None."""
    terms = Term.uri(statement.subject), Term.uri(statement.property), statement.object
    for item, term in zip((triple.subject, triple.property, triple.object), terms, strict=True):
        if isinstance(item, RealConstant):
            pattern = ReadPattern(object=item.term, is_typed=item.is_typed)
            if not pattern_matches(pattern, Statement("", "", term), ValueKind.TEXT):
                return None
        elif isinstance(item, RealVariable) and item.name:
            if b.get(item.name, term) != term:
                return None
            b = b | {item.name: term}
    return b


Outcome = tuple[list[tuple[tuple[str, Term], ...]], Content, bool]


def run_reference(
    program: Program,
    content: Content,
    actions: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], Program]] | None = None,
    most: int = 200,
    check: Callable[[], None] = lambda: None,
) -> Outcome:
    """Return the solutions in order, the content of the store afterwards, and whether an error ended the program."""
    store = Store(set(content))
    solutions: list[tuple[tuple[str, Term], ...]] = []
    try:
        for solution in Reference(actions).solve(program.body, {}, (None,), store):
            check()
            solutions.append(tuple(sorted(solution.items())))
            if len(solutions) == most:
                return solutions, store.pairs, False
    except ProgramError:
        return solutions, store.pairs, True
    return solutions, store.pairs, False
