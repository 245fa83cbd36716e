"""Laws of RDFTL on random rules: a normal text compiles to the same rule, and no text breaks the compiler."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mdv.errors import InvalidRule
from mdv.model import XSD
from mdv.rdf.schema import Schema
from mdv.rdf.values import ValueKind
from mdv.rdftl.compile import compile_rules, compile_update
from mdv.rdftl.model import (
    AbortDependency,
    Action,
    AllNodes,
    AllOf,
    Always,
    AnyOf,
    ArcAction,
    ArcEvent,
    Axis,
    CallAction,
    ChangeKind,
    Condition,
    ConstantValue,
    ContextNode,
    Coupling,
    DeltaField,
    DeltaValue,
    EcaRule,
    Event,
    Exists,
    NamedNode,
    Negation,
    NodeAction,
    NodeEvent,
    NodePath,
    NodeStep,
    PathHead,
    SequenceNext,
    Triple,
    TripleNode,
    ValueComparison,
)
from mdv.rdftl.write import write_action, write_condition, write_rule, write_update
from mdv.rules.operators import Operator
from tests.support.rdftl_texts import FOLDER, rdftl_schema

SCHEMA: Schema = rdftl_schema()
OWN = "http://while.example/"
EQUALITY = [Operator.EQ, Operator.NE]
ORDER = [*EQUALITY, Operator.LT, Operator.LE, Operator.GT, Operator.GE]
TEXTS = st.sampled_from(["0", "x y", "it's", "", '"', "ü<>", "a;;b # c", "line\nbreak", "http://a/b", "true", "-5"])
URIS = st.sampled_from([OWN + "x", "http://a/b(c)", "urn:x:y", "http://a/#_:b1", OWN + "has-value"])
PROPERTIES = sorted(SCHEMA.properties)
TARGET_FIELDS = (DeltaField.TARGET, DeltaField.OLD_TARGET, DeltaField.NEW_TARGET)
CLASSES = sorted(SCHEMA.classes)
VALUES = {
    ValueKind.NUMBER: ["5", "-1.50", "1e3", "+7", ".5"],
    ValueKind.INSTANT: ["2024-02-29", "12:30:00", "2024"],
    ValueKind.TRUTH: ["true", "false", "1", "0"],
}


def constant(text: str, base: str, lang: str | None = None, datatype: str | None = None) -> ConstantValue:
    return ConstantValue(text, text if text == "http://a/b" else base + text, lang, datatype)


@dataclass(frozen=True)
class Parts:
    """Strategies for the parts of a rule. `fields`: the fields of `$delta` that the part can use. `arc`: the property
    of the event, which the targets of `$delta` are values of."""

    base: str
    fields: tuple[DeltaField, ...] = ()
    arc: str | None = None

    @cache  # noqa: B019 - strategies are built once for each value of `self`
    def heads(self) -> st.SearchStrategy[PathHead]:
        named: list[st.SearchStrategy[PathHead]] = [st.just(AllNodes()), URIS.map(NamedNode)]
        return st.one_of(*named, *(st.just(DeltaValue(field)) for field in self.fields))

    @cache  # noqa: B019 - strategies are built once for each value of `self`
    def constants(self) -> st.SearchStrategy[ConstantValue]:
        kinds = [(None, None), ("en", None), ("de-AT", None), (None, XSD + "integer"), (None, "http://a/own")]
        return st.builds(lambda text, kind: constant(text, self.base, *kind), TEXTS, st.sampled_from(kinds))

    @cache  # noqa: B019 - strategies are built once for each value of `self`
    def nested(self, depth: int, inside: bool = False) -> st.SearchStrategy[Condition]:
        paths = self.paths(depth, inside)
        single = st.one_of(
            st.just(Always()), paths.map(Exists), self.comparisons(paths), self.comparisons(paths), self.negated(paths)
        )
        both = st.lists(single, min_size=2, max_size=3).map(lambda parts: AllOf(tuple(parts)))
        either = st.lists(st.one_of(single, both), min_size=2, max_size=3).map(lambda parts: AnyOf(tuple(parts)))
        mixed = st.tuples(single, either).map(AllOf)
        return st.one_of(single, both, either, mixed, st.one_of(either, both).map(Negation))

    def negated(self, paths: st.SearchStrategy[NodePath]) -> st.SearchStrategy[Condition]:
        return st.one_of(paths.map(Exists), self.comparisons(paths)).map(Negation).map(Negation)

    @cache  # noqa: B019 - strategies are built once for each value of `self`
    def qualifiers(self, depth: int) -> st.SearchStrategy[tuple[Condition, ...]]:
        if depth == 0:
            return st.just(())
        return st.lists(self.nested(depth - 1, inside=True), max_size=1).map(tuple)

    @cache  # noqa: B019 - strategies are built once for each value of `self`
    def steps(self, depth: int) -> st.SearchStrategy[NodeStep]:
        arcs = st.builds(
            NodeStep,
            st.sampled_from([Axis.TARGET, Axis.SOURCE]),
            st.one_of(st.none(), st.sampled_from(PROPERTIES)),
            qualifiers=self.qualifiers(depth),
        )
        elements = st.builds(
            NodeStep, st.just(Axis.ELEMENT), index=st.sampled_from([None, 1, 20]), qualifiers=self.qualifiers(depth)
        )
        return st.one_of(arcs, elements)

    @cache  # noqa: B019 - strategies are built once for each value of `self`
    def paths(self, depth: int, inside: bool = False) -> st.SearchStrategy[NodePath]:
        several = st.lists(self.steps(depth), max_size=2).map(tuple)
        absolute = st.builds(NodePath, self.heads(), self.qualifiers(depth), several)
        if not inside:
            return absolute
        relative = st.lists(self.steps(depth), min_size=1, max_size=2).map(
            lambda steps: NodePath(ContextNode(), steps=tuple(steps))
        )
        return st.one_of(absolute, relative)

    def kind_of(self, path: NodePath) -> ValueKind:
        property_ = None
        if path.steps:
            last = path.steps[-1]
            property_ = last.property if last.axis is Axis.TARGET else None
        elif isinstance(path.head, DeltaValue) and path.head.field in TARGET_FIELDS:
            property_ = self.arc
        if property_ is None:
            return ValueKind.TEXT
        found = SCHEMA.property_of(property_)
        assert found is not None
        return found.kind

    @st.composite
    @staticmethod
    def comparisons_of(draw: st.DrawFn, self: Parts, paths: st.SearchStrategy[NodePath]) -> Condition:
        left = draw(paths)
        kind = self.kind_of(left)
        ordered = kind in (ValueKind.NUMBER, ValueKind.INSTANT)
        operator = draw(st.sampled_from(ORDER if ordered else EQUALITY))
        right: NodePath | ConstantValue
        if kind is ValueKind.TEXT:
            right = draw(self.constants())
        else:
            right = constant(draw(st.sampled_from(VALUES[kind])), self.base)
        if draw(st.booleans()) and self.kind_of(other := draw(paths)) is kind:
            right = other
        if draw(st.booleans()):
            return ValueComparison(right, operator, left, kind)
        return ValueComparison(left, operator, right, kind)

    def comparisons(self, paths: st.SearchStrategy[NodePath]) -> st.SearchStrategy[Condition]:
        return Parts.comparisons_of(self, paths)

    # Triples

    @cache  # noqa: B019 - strategies are built once for each value of `self`
    def sources(self, is_event: bool = False) -> st.SearchStrategy[TripleNode]:
        value = st.one_of(st.none(), self.paths(1))
        return st.builds(TripleNode, value, st.one_of(st.none(), st.sampled_from(CLASSES)))

    @cache  # noqa: B019 - strategies are built once for each value of `self`
    def targets(self, property_: str | None, wildcard: bool) -> st.SearchStrategy[TripleNode]:
        paths = st.builds(TripleNode, self.paths(1), st.one_of(st.none(), st.sampled_from(CLASSES)))
        found = SCHEMA.property_of(property_ or "")
        range_ = found.range if found else None
        choices: list[st.SearchStrategy[TripleNode]] = [paths]
        if wildcard:
            choices.append(st.just(TripleNode()))
        if range_ is None or range_ == XSD + "string":
            choices.append(self.constants().map(TripleNode))
        elif range_ == XSD + "integer":
            choices.append(st.just(TripleNode(constant("42", self.base))))
        return st.one_of(choices)

    @st.composite
    @staticmethod
    def triples_of(draw: st.DrawFn, self: Parts, kind: ChangeKind, is_event: bool) -> Triple:
        any_arc = is_event or kind is ChangeKind.DELETE
        arcs: list[str | SequenceNext | None] = [*PROPERTIES]
        arcs += [None] if any_arc else []
        arcs += [SequenceNext()] if kind is ChangeKind.INSERT and not is_event else []
        arc = draw(st.sampled_from(arcs))
        property_ = arc if isinstance(arc, str) else None
        new = None
        if kind is ChangeKind.UPDATE:
            new = draw(self.targets(property_, wildcard=is_event))
        old_wildcard = is_event or kind is not ChangeKind.INSERT
        return Triple(draw(self.sources()), arc, draw(self.targets(property_, old_wildcard)), new)

    @cache  # noqa: B019 - strategies are built once for each value of `self`
    def actions(self) -> st.SearchStrategy[Action]:
        classes = st.sampled_from(CLASSES)
        inserts = st.builds(NodeAction, st.just(ChangeKind.INSERT), self.paths(1), classes)
        deletes = st.builds(NodeAction, st.just(ChangeKind.DELETE), self.paths(1), st.one_of(st.none(), classes))

        def arcs(kind: ChangeKind) -> st.SearchStrategy[Action]:
            triples = st.lists(Parts.triples_of(self, kind, False), min_size=1, max_size=2)
            return triples.map(lambda found: ArcAction(kind, tuple(found)))

        operands = st.one_of(self.paths(1), self.constants())
        actions = st.sampled_from(["http://act/a", OWN + "act", "urn:x:y"])
        calls = st.builds(CallAction, actions, st.lists(operands, max_size=3).map(tuple))
        return st.one_of(inserts, deletes, calls, *map(arcs, ChangeKind))


@st.composite
def events(draw: st.DrawFn, base: str) -> Event:
    parts = Parts(base)
    kind = draw(st.sampled_from(list(ChangeKind)))
    if kind is not ChangeKind.UPDATE and draw(st.booleans()):
        classes = [None, OWN + "Counter", *CLASSES[:3]]
        classes = [one for one in classes if one is None or not one.endswith("#Resource")]
        return NodeEvent(kind, draw(parts.paths(1)), draw(st.sampled_from(classes)))
    return ArcEvent(kind, draw(Parts.triples_of(parts, kind, True)))


def fields_of(event: Event) -> list[DeltaField]:
    if isinstance(event, NodeEvent):
        return [DeltaField.SOURCE]
    ends = [DeltaField.TARGET]
    if event.kind is ChangeKind.UPDATE:
        ends = [DeltaField.OLD_TARGET, DeltaField.NEW_TARGET]
    return [DeltaField.SOURCE, DeltaField.ARC_NAME, *ends]


NAMES = st.sampled_from(["a", "rule-1", "lib.3", "it's", "on", "7"])


@st.composite
def rules(draw: st.DrawFn) -> EcaRule:
    base = draw(st.sampled_from([OWN, "http://other.example/"]))
    event = draw(events(base))
    arc = event.triple.arc if isinstance(event, ArcEvent) and isinstance(event.triple.arc, str) else None
    parts = Parts(base, tuple(fields_of(event)), arc)
    actions = tuple(draw(st.lists(parts.actions(), min_size=1, max_size=3)))
    coupling = draw(st.sampled_from(list(Coupling)))
    # A detached call is limited by its own rules, which `test_eca_processes.py` shows.
    assume(coupling is not Coupling.DETACHED or not any(isinstance(one, CallAction) for one in actions))
    others = st.lists(st.sampled_from(["b", "c d", "e.1"]), max_size=2, unique=True).map(tuple)
    return EcaRule(
        event,
        draw(parts.nested(2)),
        actions,
        draw(st.one_of(st.none(), NAMES)),
        coupling,
        draw(st.sampled_from(list(AbortDependency))),
        draw(others),
        draw(others),
        draw(st.booleans()),
        draw(st.booleans()),
    )


@given(rules())
def test_the_normal_text_of_a_rule_compiles_to_the_rule(rule: EcaRule) -> None:
    text = write_rule(rule, SCHEMA)
    (compiled,) = compile_rules(text, SCHEMA)
    assert compiled.rule == rule
    assert compiled.normal == compiled.text == text
    assert write_condition(rule.condition, SCHEMA) in text
    assert all(write_action(action, SCHEMA) in text for action in rule.actions)


@given(st.lists(Parts(OWN).actions(), min_size=1, max_size=3))
def test_the_normal_text_of_an_update_compiles_to_the_update(actions: list[Action]) -> None:
    text = write_update(actions, SCHEMA)
    compiled = compile_update(text, SCHEMA)
    assert compiled.actions == tuple(actions) and compiled.normal == text


PIECES = [
    piece
    for path in sorted(FOLDER.glob("*/*"))
    if path.suffix in (".rule", ".update", ".normal")
    for piece in path.read_text("utf-8").split(" ")
]


@settings(max_examples=300)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=30).map(" ".join))
def test_any_text_is_compiled_or_refused_with_places(text: str) -> None:
    for compiler in (compile_rules, compile_update):
        try:
            compiler(text, SCHEMA)
        except InvalidRule as error:
            assert error.flaws and all(flaw.line and flaw.column for flaw in error.flaws)


@settings(max_examples=200)
@given(st.sampled_from(sorted(FOLDER.glob("*/*.rule"))), st.data())
def test_a_rule_with_a_changed_place_is_compiled_or_refused_with_places(path: Path, data: st.DataObject) -> None:
    text = path.read_text("utf-8")
    start = data.draw(st.integers(0, len(text)))
    changed = text[:start] + data.draw(st.sampled_from(["", "'", "(", "]", "$", " _ ", "<", "\0", "é"]))
    changed += text[start + data.draw(st.integers(0, 3)) :]
    try:
        compile_rules(changed, SCHEMA)
    except InvalidRule as error:
        assert error.flaws and all(flaw.line and flaw.column for flaw in error.flaws)
