"""RDFTL as somebody outside of the project reads its specification: the naive execSched of a checker over HTTP.

It imports nothing of `mdv` and shares nothing with `rdftl_oracle.py`. `outside_worlds.py` writes its rules as text.
A resource is its URI, a literal is a pair of its text and its language; a statement is a tuple of three.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Any, Literal, NamedTuple, TypeAlias

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
TYPE = RDF + "type"
CONTAINERS = (RDF + "Bag", RDF + "Seq", RDF + "Alt")


class Text(NamedTuple):
    """A literal."""

    text: str
    lang: str = ""


Value: TypeAlias = str | Text
Arc: TypeAlias = tuple[str, str, Value]
Documents: TypeAlias = Mapping[str, frozenset[Arc]]


# The language


@dataclass(frozen=True)
class Step:
    """`target(p)`, `source(p)`, `element()` or `element(i)` with qualifiers. `of`: a property, an index, or None."""

    axis: Literal["target", "source", "element"]
    of: str | int | None = None
    tests: tuple[Test, ...] = ()


@dataclass(frozen=True)
class Path:
    """`head`: a URI, `all`, `delta`, `delta.FIELD`, or `here`: the node that a qualifier tests."""

    head: str
    tests: tuple[Test, ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Constant:
    """A text or a number."""

    text: str
    is_number: bool = False
    lang: str = ""


@dataclass(frozen=True)
class Test:
    """A condition. `parts`: of `not`, `and` and `or`. `left`, `operator`, `right`: of a comparison or a path alone."""

    kind: Literal["true", "exists", "compare", "not", "and", "or"]
    parts: tuple[Test, ...] = ()
    left: Path | None = None
    operator: str = "="
    right: Path | Constant | None = None


@dataclass(frozen=True)
class Node:
    """A component of a triple. `value`: None stands for `_`."""

    value: Path | Constant | None = None
    class_: str | None = None


@dataclass(frozen=True)
class Triple:
    """`arc`: None stands for `_`; `seq++` is itself. `new`: the new target of an UPDATE."""

    source: Node
    arc: str | None
    target: Node
    new: Node | None = None


Verb: TypeAlias = Literal["INSERT", "DELETE", "UPDATE"]


@dataclass(frozen=True)
class Change:
    """An event or an action: of nodes (`path`) or of triples."""

    verb: Verb
    path: Path | None = None
    class_: str | None = None
    triples: tuple[Triple, ...] = ()


@dataclass(frozen=True)
class Rule:
    event: Change
    condition: Test
    actions: tuple[Change, ...]
    name: str = ""
    coupling: Literal["Immediate", "Deferred", "Detached"] = "Immediate"
    abort: Literal["ParentChild", "ChildParent", "Mutual", "Independent"] = "Mutual"
    precedes: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    set_: str = "main"
    state: Literal["active", "shadow", "disabled", "quarantined"] = "active"


# The world


@dataclass(frozen=True)
class Schema:
    """`above`: the classes and properties that are directly above one. `numbers`: properties compared as numbers.
    `single`: properties with one value in a document. `references`: properties that take no literals."""

    above: Mapping[str, tuple[str, ...]]
    numbers: frozenset[str]
    single: frozenset[str]
    references: frozenset[str]

    def up(self, name: str) -> set[str]:
        found = {name}
        for one in self.above.get(name, ()):
            found |= self.up(one)
        return found


class State:
    """The statements of all documents, and the closure."""

    def __init__(self, documents: Documents, schema: Schema) -> None:
        self.documents, self.schema = documents, schema
        self.stated = frozenset(arc for arcs in documents.values() for arc in arcs)
        self.arcs = frozenset(
            (s, q, c)
            for s, p, o in self.stated
            for q in schema.up(p)
            for c in (schema.up(o) if p == TYPE and isinstance(o, str) else (o,))
        )
        self.nodes = frozenset(s for s, _, _ in self.arcs)

    def extension(self, class_: str | None) -> frozenset[str]:
        if class_ is None:
            return self.nodes
        return frozenset(s for s, p, o in self.arcs if p == TYPE and o == class_)

    def is_collection(self, value: Value, *classes: str) -> bool:
        return any((value, TYPE, name) in self.arcs for name in classes)

    def mentions(self, uri: str) -> bool:
        return any(uri in (s, o) for s, _, o in self.arcs)


class Delta(NamedTuple):
    """A node (`source` alone), an arc, or an arc that was updated."""

    source: str
    arc: str = ""
    target: Value | None = None
    new: Value | None = None

    def order(self) -> tuple[object, ...]:
        return self.source, self.arc, *(place_of(value) for value in (self.target, self.new) if value is not None)


def text_of(value: Value) -> str:
    return value.text if isinstance(value, Text) else value


def place_of(value: Value) -> tuple[bool, str, str]:
    """Return what values are ordered by. Of equal texts, the language decides."""
    return isinstance(value, str), text_of(value), value.lang if isinstance(value, Text) else ""


class Failed(Exception):
    """An action that cannot be carried out."""


# Paths and conditions


@dataclass(frozen=True)
class Look:
    """Evaluates paths on a state. `demands`: `element` of something that is no collection is a failure."""

    state: State
    delta: Delta | None = None
    demands: bool = False

    def select(self, path: Path, here: Value | None = None, itself: bool = False) -> set[Value]:
        found = self._where(self._head(path.head, here, itself), path.tests)
        for step in path.steps:
            found = self._where({end for value in found for end in self._step(value, step)}, step.tests)
        return found

    def _head(self, head: str, here: Value | None, itself: bool) -> set[Value]:
        if head == "here":
            assert here is not None
            return {here}
        if head == "all":
            return {*self.state.nodes}
        if head.startswith("delta"):
            assert self.delta is not None
            place = {"delta": 0, "delta.source": 0, "delta.target": 2, "delta.old_target": 2, "delta.new_target": 3}
            value = self.delta[place[head]]
            assert value is not None
            return {value}
        return {head} if itself or self.state.mentions(head) else set()

    def _where(self, found: set[Value], tests: Sequence[Test]) -> set[Value]:
        return {value for value in found if all(self.holds(test, value) for test in tests)}

    def _step(self, value: Value, step: Step) -> set[Value]:
        if step.axis == "source":
            return {s for s, p, o in self.state.arcs if o == value and step.of in (None, p)}
        if step.axis == "target":
            return {o for s, p, o in self.state.arcs if s == value and step.of in (None, p)}
        kinds = CONTAINERS if step.of is None else (RDF + "Seq",)
        if not self.state.is_collection(value, *kinds):
            if self.demands:
                raise Failed
            return set()
        return {o for s, p, o in self.state.arcs if s == value and member(p) and step.of in (None, member(p))}

    def holds(self, test: Test, here: Value | None = None) -> bool:
        look = replace(self, demands=False)
        match test.kind:
            case "true":
                return True
            case "not":
                return not look.holds(test.parts[0], here)
            case "and":
                return all(look.holds(part, here) for part in test.parts)
            case "or":
                return any(look.holds(part, here) for part in test.parts)
            case "exists":
                assert test.left is not None
                return bool(look.select(test.left, here))
            case "compare":
                return look._compares(test, here)

    def _compares(self, test: Test, here: Value | None) -> bool:
        assert test.left is not None and test.right is not None
        last: str | int | None = test.left.steps[-1].of if test.left.steps else None
        if test.left.head.startswith("delta.") and not test.left.steps and self.delta is not None:
            last = self.delta.arc
        is_number = last in self.state.schema.numbers
        right: Iterable[Value | Constant] = (
            [test.right] if isinstance(test.right, Constant) else self.select(test.right, here)
        )
        return any(
            compare(one, test.operator, other, is_number) for one, other in product(self.select(test.left, here), right)
        )


def member(property_: str) -> int | None:
    """Return the n of rdf:_n."""
    rest = property_.removeprefix(RDF + "_")
    return int(rest) if rest != property_ and rest.isdigit() and rest[0] != "0" else None


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b), "≠": lambda a, b: bool(a != b), "<": lambda a, b: bool(a < b),
    ">=": lambda a, b: bool(a >= b),
}  # fmt: skip


def compare(left: Value, operator: str, right: Value | Constant, is_number: bool) -> bool:
    """Compare as numbers, or as text without regard to language. A number on one side only satisfies nothing."""
    one, other = text_of(left), right.text if isinstance(right, Constant) else text_of(right)
    if not is_number:
        return COMPARE[operator](one, other)
    try:
        if isinstance(left, str) or isinstance(right, str):
            return False
        return COMPARE[operator](Decimal(one), Decimal(other))
    except InvalidOperation:
        return False


Accepts: TypeAlias = Callable[[Value], bool]


def accepts(node: Node, look: Look, arc: str | None = None) -> Accepts:
    """Return what a component of an event, DELETE or UPDATE matches."""
    extension = look.state.extension(node.class_) if node.class_ is not None else None
    selected = look.select(node.value) if isinstance(node.value, Path) else set()

    def accept(value: Value) -> bool:
        if extension is not None and value not in extension:
            return False
        if isinstance(node.value, Constant):
            return compare(value, "=", node.value, arc in look.state.schema.numbers)
        return node.value is None or value in selected

    return accept


# Events


class Difference(NamedTuple):
    came: frozenset[Arc]
    went: frozenset[Arc]
    updated: frozenset[Delta]


def difference(before: State, after: State, pairs: Iterable[tuple[Arc, Value]] | None) -> Difference:
    """Return the arcs that came, went and were updated. `pairs`: what an UPDATE replaced, if it is no registration."""
    came, went = after.arcs - before.arcs, before.arcs - after.arcs
    if pairs is None:
        updated = {*_replaced(came, went)}
    else:
        updated = {
            Delta(s, q, o, new) for (s, p, o), new in pairs for q in after.schema.up(p) if (s, q, o) in went
        }  # fmt: skip
    paired = {(s, p, end) for s, p, *ends in updated for end in ends}
    return Difference(came - paired, went - paired, frozenset(updated))


def _replaced(came: Iterable[Arc], went: Iterable[Arc]) -> Iterator[Delta]:
    """Yield the updates of a registration: by language, then over the remainder, one value for one."""
    for s, p in {(s, p) for s, p, _ in came} & {(s, p) for s, p, _ in went}:
        olds, news = ([o for s2, p2, o in arcs if (s2, p2) == (s, p)] for arcs in (went, came))
        for lang in sorted({_lang(o) for o in olds}):
            one, other = [o for o in olds if _lang(o) == lang], [o for o in news if _lang(o) == lang]
            if len(one) == len(other) == 1:
                yield Delta(s, p, one[0], other[0])
                olds.remove(one[0])
                news.remove(other[0])
        if len(olds) == len(news) == 1:
            yield Delta(s, p, olds[0], news[0])


def _lang(value: Value) -> str:
    return value.lang if isinstance(value, Text) else ""


def deltas(event: Change, before: State, after: State, change: Difference) -> list[Delta]:
    """Return the instantiations of `$delta`, in order."""
    look = Look(before if event.verb == "DELETE" else after)
    if event.path is not None:
        new, old = (after, before) if event.verb == "INSERT" else (before, after)
        nodes = (new.extension(event.class_) - old.extension(event.class_)) & {*map(text_of, look.select(event.path))}
        return sorted(map(Delta, nodes), key=Delta.order)
    (triple,) = event.triples
    if event.verb == "UPDATE":
        found = {*change.updated}
    else:
        found = {Delta(*arc) for arc in (change.came if event.verb == "INSERT" else change.went)}
    source = accepts(triple.source, look)
    target = accepts(triple.target, Look(before) if event.verb == "UPDATE" else look, triple.arc)
    new_target = accepts(triple.new or Node(), Look(after), triple.arc)
    return sorted(
        (
            one for one in found
            if triple.arc in (None, one.arc) and source(one.source)
            and (one.target is None or target(one.target)) and (one.new is None or new_target(one.new))
        ),
        key=Delta.order,
    )  # fmt: skip


# Actions


class Effect(NamedTuple):
    """A statement that a document lost, gained, or replaced."""

    document: str
    old: Arc | None
    new: Arc | None


@dataclass
class Edits:
    gone: set[tuple[str, Arc]] = field(default_factory=set)
    added: set[tuple[str, Arc]] = field(default_factory=set)
    pairs: set[tuple[Arc, Value]] = field(default_factory=set)


def edits_of(action: Change, state: State, delta: Delta | None, document: str) -> Edits:
    """Return what an action does to documents. Raise `Failed`."""
    look, edits = Look(state, delta, demands=True), Edits()
    if action.path is not None:
        _edit_nodes(action, look, document, edits)
        return edits
    ends: dict[str, int] = {}
    for triple in action.triples:
        {"INSERT": _insert, "DELETE": _delete, "UPDATE": _update}[action.verb](triple, look, document, edits, ends)
    return edits


def _edit_nodes(action: Change, look: Look, document: str, edits: Edits) -> None:
    assert action.path is not None
    inserts = action.verb == "INSERT"
    nodes = {value for value in look.select(action.path, itself=inserts) if isinstance(value, str)}
    if inserts:
        assert action.class_ is not None
        edits.added |= {(document, (uri, TYPE, action.class_)) for uri in nodes}
        edits.added = {one for one in edits.added if one[1] not in look.state.stated}
        return
    if action.class_ is not None:
        nodes &= look.state.extension(action.class_)
    edits.gone |= {
        (uri, arc) for uri, arcs in look.state.documents.items() for arc in arcs if arc[0] in nodes or arc[2] in nodes
    }


def _denoted(node: Node, look: Look) -> list[Value]:
    """Return what a component of a triple to insert, or a new target, stands for."""
    if node.value is None:
        found: set[Value] = {*look.state.nodes}
    elif isinstance(node.value, Constant):
        found = {Text(node.value.text, node.value.lang)}
    else:
        found = look.select(node.value, itself=True)
    if node.class_ is not None:
        found &= look.state.extension(node.class_)
    return sorted(found, key=place_of)


def _insert(triple: Triple, look: Look, document: str, edits: Edits, ends: dict[str, int]) -> None:
    for source, target in product(_denoted(triple.source, look), _denoted(triple.target, look)):
        if not isinstance(source, str):
            continue
        arc = triple.arc
        if arc == "seq++":
            if not look.state.is_collection(source, *CONTAINERS):
                raise Failed
            numbers = [member(p) or 0 for s, p, _ in look.state.arcs if s == source]
            ends[source] = ends.get(source, max(numbers, default=0)) + 1
            arc = f"{RDF}_{ends[source]}"
        assert arc is not None
        if (source, arc, target) not in look.state.stated:
            edits.added.add((document, (source, arc, target)))


def _matched(triple: Triple, look: Look) -> list[Arc]:
    source, target = accepts(triple.source, look), accepts(triple.target, look, triple.arc)
    return [arc for arc in look.state.stated if triple.arc in (None, arc[1]) and source(arc[0]) and target(arc[2])]


def _delete(triple: Triple, look: Look, document: str, edits: Edits, ends: dict[str, int]) -> None:
    for arc in _matched(triple, look):
        edits.gone |= {(uri, arc) for uri, arcs in look.state.documents.items() if arc in arcs}


def _update(triple: Triple, look: Look, document: str, edits: Edits, ends: dict[str, int]) -> None:
    assert triple.new is not None
    olds, news = _matched(triple, look), _denoted(triple.new, look)
    if olds and len(news) > 1:
        raise Failed
    for arc, new in product(olds, news):
        holders = [uri for uri, arcs in look.state.documents.items() if arc in arcs]
        edits.gone |= {(uri, arc) for uri in holders}
        edits.added |= {(uri, (arc[0], arc[1], new)) for uri in holders}
        edits.pairs.add((arc, new))


def is_valid(arcs: Collection[Arc], schema: Schema) -> bool:
    """True if references have no literals, and no property that takes one value has two of one resource."""
    if any(p in schema.references and isinstance(o, Text) for _, p, o in arcs):
        return False
    single = [(s, p) for s, p, _ in arcs if p in schema.single or member(p)]
    return len(single) == len({*single})


def apply(edits: Edits, state: State) -> tuple[State, list[Effect]]:
    """Carry out edits, deletions first. Raise `Failed` if a document becomes invalid."""
    documents, effects = dict(state.documents), list[Effect]()
    for uri in {uri for uri, _ in edits.gone | edits.added}:
        before = documents.get(uri, frozenset())
        after = before - {arc for name, arc in edits.gone if name == uri}
        after |= {arc for name, arc in edits.added if name == uri}
        if after - before and not is_valid(after, state.schema):
            raise Failed
        keep(documents, uri, after)
        effects += effects_of(uri, before, after, edits.pairs)
    return State(documents, state.schema), effects


def effects_of(
    uri: str, before: frozenset[Arc], after: frozenset[Arc], pairs: Iterable[tuple[Arc, Value]] = ()
) -> list[Effect]:
    went, came = {*(before - after)}, {*(after - before)}
    found = []
    for old, value in sorted(pairs, key=str):
        new = (old[0], old[1], value)
        if old in went and new in came:
            found.append(Effect(uri, old, new))
            went.remove(old)
            came.remove(new)
    return [*found, *(Effect(uri, arc, None) for arc in went), *(Effect(uri, None, arc) for arc in came)]


def keep(documents: dict[str, frozenset[Arc]], uri: str, arcs: frozenset[Arc]) -> None:
    """A document without statements is not present."""
    documents.pop(uri, None)
    if arcs:
        documents[uri] = arcs


# execSched


class RuleFailed(Exception):
    """A rule refuses the transaction."""


class DoesNotEnd(Exception):
    """A limit is exceeded."""


@dataclass(eq=False)
class Copy:
    """A copy of the actions of a rule. Without a rule, it is the transaction itself."""

    rule: Rule | None = None
    number: int | None = None
    delta: Delta | None = None
    parent: Copy | None = None
    depth: int = 0

    @property
    def fails_parent(self) -> bool:
        return self.rule is not None and self.rule.abort in ("ChildParent", "Mutual")

    @property
    def falls_with_parent(self) -> bool:
        return self.rule is not None and self.rule.abort in ("ParentChild", "Mutual")


class Limits(NamedTuple):
    updates: int
    depth: int


class Transaction:
    """A transaction. `graph`: where its own insertions go."""

    def __init__(self, state: State, rules: Mapping[int, Rule], limits: Limits, graph: str) -> None:
        self.state, self.limits, self.graph = state, limits, graph
        self.rules = {number: rule for number, rule in rules.items() if rule.state in ("active", "shadow")}
        self.order = [number for number in order_of(rules) if number in self.rules]
        self.root = Copy()
        self.schedule: list[tuple[Copy, Change, int]] = []
        self.deferred: list[Copy] = []
        self.detached: list[Copy] = []
        self.fired: list[Copy] = []
        self.done: list[tuple[Copy, int, list[Effect]]] = []
        self.undone: set[Copy] = set()
        self.failed: set[int] = set()
        self.updates = 0

    def register(self, documents: Mapping[str, frozenset[Arc]]) -> None:
        """Replace documents, as one update."""
        self.updates += 1
        now = dict(self.state.documents)
        for uri, arcs in documents.items():
            keep(now, uri, arcs)
        self._move(self.root, State(now, self.state.schema), None)
        self.work()

    def execute(self, root: Copy, actions: Sequence[Change]) -> None:
        self.root = root
        self.schedule = [(root, action, n) for n, action in enumerate(actions)]
        self.work()

    def work(self) -> None:
        while self.schedule or self.deferred:
            if not self.schedule:
                copy = self.deferred.pop(0)
                self.schedule = self._scheduled(copy)
            self._first(*self.schedule.pop(0))

    def _scheduled(self, copy: Copy) -> list[tuple[Copy, Change, int]]:
        return [(copy, action, n) for n, action in enumerate(copy.rule.actions if copy.rule else ())]

    def _first(self, owner: Copy, action: Change, number: int) -> None:
        self.updates += 1
        if self.updates > self.limits.updates or owner.depth > self.limits.depth:
            raise DoesNotEnd
        document = self.graph if owner.rule is None else "urn:mdv:eca:" + owner.rule.set_
        try:
            edits = edits_of(action, self.state, owner.delta, document)
            after, effects = apply(edits, self.state)
        except Failed:
            if owner.rule is None:
                raise
            self._abort(owner)
            return
        self.done.append((owner, number, effects))
        if effects:
            self._move(owner, after, edits.pairs)

    def _move(self, owner: Copy, after: State, pairs: Iterable[tuple[Arc, Value]] | None) -> None:
        """Go to the state after an update, and prefix the copies that it fires."""
        before, self.state = self.state, after
        change = difference(before, after, pairs)
        prefix = []
        for number in self.order:
            rule = self.rules[number]
            found: Sequence[Delta | None] = deltas(rule.event, before, after, change)
            if found and not mentions_delta((rule.condition, rule.actions)):
                found = [None]
            copies = [
                Copy(rule, number, one, owner, owner.depth + 1) for one in found
                if Look(after, one).holds(rule.condition)
            ]  # fmt: skip
            self.fired += copies
            if rule.state == "shadow":
                continue
            if rule.coupling == "Immediate":
                prefix += [update for copy in copies for update in self._scheduled(copy)]
            else:
                (self.deferred if rule.coupling == "Deferred" else self.detached).extend(copies)
        self.schedule = prefix + self.schedule

    def _abort(self, failed: Copy) -> None:
        assert failed.number is not None
        self.failed.add(failed.number)
        fall, size = {failed}, 0
        while size < len(fall):
            size = len(fall)
            fall |= {copy.parent for copy in fall if copy.fails_parent and copy.parent is not None}
            fall |= {copy for copy in self.fired if copy.parent in fall and copy.falls_with_parent}
        if any(copy.parent is None for copy in fall):
            raise RuleFailed
        self.undone |= fall
        self.schedule = [update for update in self.schedule if update[0] not in fall]
        self.deferred = [copy for copy in self.deferred if copy not in fall]
        self.detached = [copy for copy in self.detached if copy not in fall]
        for owner, _, effects in reversed(self.done):
            if owner in fall:
                self.state = undo(effects, self.state)
        self.done = [one for one in self.done if one[0] not in fall]


def undo(effects: Sequence[Effect], state: State) -> State:
    """Invert changes, last one first, where what they left is still there: insertions are withdrawn first."""
    documents = dict(state.documents)
    for uri, old, new in sorted(effects, key=lambda one: (one.old is not None) + (one.new is None)):
        now = documents.get(uri, frozenset())
        if (new is not None and new not in now) or old in now:
            continue
        back = now - {new} | ({old} if old is not None else frozenset())  # type: ignore[arg-type]
        if old is None or is_valid(back, state.schema):
            keep(documents, uri, back)
    return State(documents, state.schema)


def mentions_delta(part: object) -> bool:
    """True if `$delta` occurs."""
    if isinstance(part, tuple):
        return any(map(mentions_delta, part))
    if isinstance(part, Path) and part.head.startswith("delta"):
        return True
    return hasattr(part, "__dataclass_fields__") and any(map(mentions_delta, vars(part).values()))


def order_of(rules: Mapping[int, Rule]) -> list[int]:
    """Return the rules in order: of those that no other must precede, the lowest number first."""
    left, order = dict(rules), list[int]()
    while left:
        free = [
            n for n, rule in left.items()
            if not any(
                (one.name and one.name in rule.follows) or (rule.name and rule.name in one.precedes)
                for m, one in left.items() if m != n
            )
        ]  # fmt: skip
        order.append(min(free))
        del left[order[-1]]
    return order
