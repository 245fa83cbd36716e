"""Resolve a parsed rule or update with the schema: names to IRIs, LETs to their paths, comparisons to their kinds.

All flaws of names and types are reported together. The result counts only if the report has no flaws.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property
from typing import NamedTuple

from mdv.model import RDF_TYPE, RDFS_RESOURCE, XSD
from mdv.rdf.schema import Schema, SchemaProperty
from mdv.rdf.values import ValueKind, find_flaw, typed_text
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
    Operand,
    PathHead,
    SequenceNext,
    Triple,
    TripleNode,
    ValueComparison,
)
from mdv.rdftl.names import FlawReport, RuleNames
from mdv.rdftl.parse import MAX_NESTING, MAX_STEPS
from mdv.rdftl.syntax import (
    NameForm,
    WrittenActions,
    WrittenAlways,
    WrittenArc,
    WrittenCall,
    WrittenChange,
    WrittenComparison,
    WrittenCondition,
    WrittenConstant,
    WrittenGroup,
    WrittenLet,
    WrittenName,
    WrittenNode,
    WrittenNodeChange,
    WrittenNot,
    WrittenOperand,
    WrittenPath,
    WrittenPreamble,
    WrittenResource,
    WrittenRule,
    WrittenStep,
    WrittenTest,
    WrittenTriple,
    WrittenUpdate,
    WrittenVariable,
)
from mdv.rules.ast import Span
from mdv.rules.text_errors import quoted

MAX_EXPANDED_PARTS = 4096
"""Paths, steps and conditions of a rule after its LETs are expanded. The longest text without LETs has fewer."""

MAX_ARGUMENTS = 32

DELTA = "delta"

_FIELDS: dict[ChangeKind, tuple[DeltaField, ...]] = {
    ChangeKind.INSERT: (DeltaField.SOURCE, DeltaField.ARC_NAME, DeltaField.TARGET),
    ChangeKind.DELETE: (DeltaField.SOURCE, DeltaField.ARC_NAME, DeltaField.TARGET),
    ChangeKind.UPDATE: (DeltaField.SOURCE, DeltaField.ARC_NAME, DeltaField.OLD_TARGET, DeltaField.NEW_TARGET),
}

_TARGET_FIELDS = (DeltaField.TARGET, DeltaField.OLD_TARGET, DeltaField.NEW_TARGET)
_UNKNOWN = ""
"""Stands for the IRI of a property that could not be resolved."""


def resolve_rule(written: WrittenRule, schema: Schema, report: FlawReport) -> EcaRule:
    """Return the rule with all names resolved. Flaws and warnings go to the report."""
    resolver = _Resolver(RuleNames(schema, written.preamble, report), written.preamble, written.event)
    resolver.define(written.lets)
    event = resolver.event(written.event, written.event_lets)
    resolver.check_detached(written)
    return EcaRule(
        event=event,
        condition=resolver.condition(written.condition, 0),
        actions=resolver.actions(written.actions),
        name=written.name.text if written.name else None,
        coupling=written.coupling,
        abort=written.abort,
        precedes=resolver.other_rules(written.precedes, written.name),
        follows=resolver.other_rules(written.follows, written.name),
        local=written.local,
        strict=written.strict,
    )


def resolve_update(written: WrittenUpdate, schema: Schema, report: FlawReport) -> tuple[Action, ...]:
    """Return the actions of an update with all names resolved. Flaws and warnings go to the report."""
    return _Resolver(RuleNames(schema, written.preamble, report), written.preamble, None).actions(written.actions)


class _Binding(NamedTuple):
    """The path of a LET with its size, its nesting, and whether it contains `$delta`."""

    path: NodePath
    size: int
    depth: int
    uses_delta: bool


class _Resolver:
    """Resolves one rule or update. `event` is the event that binds `$delta`; None in an update."""

    def __init__(self, names: RuleNames, preamble: WrittenPreamble, event: WrittenChange | None) -> None:
        self.names, self.schema, self.report, self.preamble = names, names.schema, names.report, preamble
        self.delta_event = event
        self.in_event = False
        self.in_qualifier = 0
        self.bindings: dict[str, _Binding] = {}
        self.event_only: set[str] = set()
        # Counters of the part that is being resolved. `define` reads them for each LET.
        self.size = 0
        self.depth = 0
        self.uses_delta = False

    # Rules

    def other_rules(self, names: Iterable[WrittenName], own: WrittenName | None) -> tuple[str, ...]:
        for name in names:
            if own is not None and name.text == own.text:
                self.report.flaw(name.span, "a rule cannot precede or follow itself")
        return tuple(dict.fromkeys(name.text for name in names))

    def define(self, lets: Iterable[WrittenLet]) -> None:
        seen: set[str] = set()
        for let in lets:
            name = let.variable.name
            if name == DELTA:
                self.report.flaw(let.variable.span, "$delta is defined by the event", "choose another name")
            elif name in seen:
                self.report.flaw(let.variable.span, f"${name} is defined twice", "give each its own name")
            seen.add(name)
            size, self.depth, self.uses_delta = self.size, 0, False
            path = self.path(let.path, 0)
            self.bindings[name] = _Binding(path, self.size - size, self.depth, self.uses_delta)

    def event(self, written: WrittenChange, lets: tuple[WrittenLet, ...]) -> Event:
        outside = dict(self.bindings)
        self.in_event = True
        self.define(lets)
        event: Event
        if isinstance(written, WrittenNodeChange):
            path, class_iri = self.node_change(written)
            event = NodeEvent(written.kind, path, None if class_iri == RDFS_RESOURCE else class_iri)
        else:
            event = ArcEvent(written.kind, self.triple(written.triples[0], None))
        self.in_event = False
        self.event_only = self.bindings.keys() - outside.keys()
        self.bindings = outside
        return event

    def actions(self, written: WrittenActions) -> tuple[Action, ...]:
        found: list[Action] = []
        for one in written:
            if isinstance(one, tuple):
                self.define(one)
            elif isinstance(one, WrittenCall):
                found.append(self.call(one))
            elif isinstance(one, WrittenNodeChange):
                found.append(self.node_action(one))
            else:
                found.append(ArcAction(one.kind, tuple(self.triple(triple, one.kind) for triple in one.triples)))
        return tuple(found)

    def check_detached(self, written: WrittenRule) -> None:
        """Report a Detached rule whose calls cannot be processes, which start with the commit and run by themselves."""
        calls = [one for one in written.actions if isinstance(one, WrittenCall)]
        if written.coupling is not Coupling.DETACHED or not calls:
            return
        if any(not isinstance(one, tuple | WrittenCall) for one in written.actions):
            message = "CALL of a Detached rule starts a process, which other actions cannot be combined with"
            self.report.flaw(calls[0].span, message, "write two rules")
        if written.abort is not AbortDependency.INDEPENDENT:
            message = "CALL of a Detached rule starts a process, which is not undone with other changes"
            self.report.flaw(calls[0].span, message, "write ABORT Independent")

    def call(self, written: WrittenCall) -> CallAction:
        action = self.names.resource(written.action)
        if len(written.arguments) > MAX_ARGUMENTS:
            self.report.flaw(written.span, f"CALL has more than {MAX_ARGUMENTS} arguments")
        return CallAction(action or _UNKNOWN, tuple(map(self.argument, written.arguments)))

    def argument(self, written: WrittenOperand | WrittenName) -> Operand:
        """Return an argument of CALL. A name is a resource, a quoted text or number a literal."""
        match written:
            case WrittenPath():
                return self.path(written, 0)
            case WrittenConstant():
                return self.names.literal(written)
        if written.form is NameForm.BARE and written.text in self.bindings:
            self.report.warn(written.span, f"{quoted(written.text)} is read as ${written.text}, which a LET defines")
            return self.variable(WrittenVariable(written.text, written.span), 0)
        uri = self.names.resource(written)
        return NodePath(AllNodes() if uri is None else NamedNode(uri))

    def node_change(self, written: WrittenNodeChange) -> tuple[NodePath, str | None]:
        class_iri = self.class_filter(written)
        return self.path(written.path, 0, None if written.class_name else written.namespace), class_iri

    def node_action(self, written: WrittenNodeChange) -> NodeAction:
        path, class_iri = self.node_change(written)
        if written.kind is ChangeKind.INSERT and written.class_name is None:
            self.report.flaw(written.span, "INSERT of a resource needs a class", "add AS INSTANCE OF and a class")
        return NodeAction(written.kind, path, class_iri)

    def class_filter(self, written: WrittenNodeChange | WrittenNode) -> str | None:
        if written.class_name is None:
            return None
        return self.names.class_iri(written.class_name, written.namespace)

    # Triples

    def triple(self, written: WrittenTriple, action: ChangeKind | None) -> Triple:
        """Resolve a triple of an event, or of an `action`."""
        arc, property_ = self.arc(written.arc)
        if action is not None:
            self.check_wildcards(written, action)
        if isinstance(arc, SequenceNext) and action is not ChangeKind.INSERT:
            self.report.flaw(
                written.arc.span, "'seq++' is allowed only in INSERT actions", "write '_' for any property"
            )
        new = written.new_target
        return Triple(
            self.node(written.source, None, is_source=True),
            arc,
            self.node(written.target, property_, is_inserted=action is ChangeKind.INSERT),
            None if new is None else self.node(new, property_, is_inserted=action is ChangeKind.UPDATE),
        )

    def check_wildcards(self, written: WrittenTriple, action: ChangeKind) -> None:
        is_any = written.arc.name is None and not written.arc.is_sequence
        if is_any and action is not ChangeKind.DELETE:
            self.report.flaw(written.arc.span, f"'_' cannot be the property of an {action.value}", "write a property")
        new = written.target if action is ChangeKind.INSERT else written.new_target
        if new is not None and new.value is None:
            what = "target of an INSERT" if action is ChangeKind.INSERT else "new target of an UPDATE"
            self.report.flaw(new.span, f"'_' cannot be the {what}", "write a path or a constant")

    def arc(self, written: WrittenArc) -> tuple[str | SequenceNext | None, SchemaProperty | None]:
        if written.is_sequence:
            return SequenceNext(), None
        if written.name is None:
            return None, None
        property_ = self.names.property(written)
        return (_UNKNOWN, None) if property_ is None else (property_.iri, property_)

    def node(
        self,
        written: WrittenNode,
        property_: SchemaProperty | None,
        is_source: bool = False,
        is_inserted: bool = False,
    ) -> TripleNode:
        class_iri = self.class_filter(written)
        namespace = None if written.class_name else written.namespace
        value: Operand | None
        match written.value:
            case None:
                value = None
                if namespace is not None:
                    self.report.flaw(namespace.span, "'_' has no namespace")
            case WrittenPath() as path:
                value = self.path(path, 0, namespace)
            case WrittenName() | WrittenConstant() as name:
                value = self.constant_node(name, namespace, property_, is_source, is_inserted)
        if isinstance(value, ConstantValue) and class_iri is not None:
            self.report.flaw(written.span, "a literal has no class", "remove AS INSTANCE OF")
        return TripleNode(value, class_iri)

    def constant_node(
        self,
        written: WrittenName | WrittenConstant,
        namespace: WrittenName | None,
        property_: SchemaProperty | None,
        is_source: bool,
        is_inserted: bool,
    ) -> Operand:
        name, constant = _both_forms(written)
        if name.form is NameForm.BARE and name.text in self.bindings:
            self.report.warn(name.span, f"{quoted(name.text)} is read as ${name.text}, which a LET defines")
            return self.variable(WrittenVariable(name.text, name.span), 0)
        range_ = property_.range if property_ else None
        is_datatype = range_ is not None and range_ not in self.schema.classes
        is_uri = name.form is NameForm.IRI or (isinstance(written, WrittenName) and ":" in name.text)
        if is_uri and is_datatype and not is_source:
            return self.uri_literal(name, property_, range_)
        is_text = name.form is NameForm.QUOTED and (range_ is None or is_datatype)
        if not is_source and namespace is None and not is_uri and (is_text or is_datatype):
            return self.literal_node(constant, property_, is_inserted)
        if constant.lang or constant.datatype:
            what = (
                "the source of a triple is a resource" if is_source else f"its range is {self.shown_range(property_)}"
            )
            self.report.flaw(constant.span, f"a literal is not allowed here: {what}")
            return NodePath(AllNodes())
        uri = self.type_or_resource(name, namespace, property_)
        return NodePath(AllNodes() if uri is None else NamedNode(uri))

    def uri_literal(self, name: WrittenName, property_: SchemaProperty | None, range_: str | None) -> Operand:
        """A URI where the range is a datatype. It is a text if the datatype is xsd:anyURI."""
        uri = self.names.resource(name)
        if range_ == XSD + "anyURI" and uri is not None:
            return self.names.constant(uri)
        if range_ != XSD + "anyURI":
            message = f"a URI is not allowed here: the range is {self.shown_range(property_)}"
            self.report.flaw(name.span, message, "write a text in quotes")
        return NodePath(AllNodes())

    def type_or_resource(
        self, name: WrittenName, namespace: WrittenName | None, property_: SchemaProperty | None
    ) -> str | None:
        """Return the URI of a resource. The values of rdf:type are named like classes."""
        if property_ is not None and property_.iri == RDF_TYPE and not self.schema.open:
            return self.names.class_iri(name, namespace)
        return self.names.resource(name, namespace)

    def literal_node(self, written: WrittenConstant, property_: SchemaProperty | None, is_inserted: bool) -> Operand:
        if property_ is not None and property_.range is not None:
            matched, inserted = self.not_a_value(written, property_.kind), find_flaw(written.text, property_.range)
            if (why := inserted if is_inserted else matched) is not None:
                self.report.flaw(written.span, f"{self.schema.shorten(property_.iri)}: {why}")
        return self.names.literal(written)

    def not_a_value(self, written: WrittenConstant, kind: ValueKind) -> str | None:
        if typed_text(written.text, kind) is not None:
            return None
        return f"{quoted(written.text)} is not a {_KIND_NAMES[kind]}"

    def shown_range(self, property_: SchemaProperty | None) -> str:
        assert property_ is not None and property_.range is not None
        return self.schema.shorten(property_.range)

    # Paths

    def path(self, written: WrittenPath, nesting: int, namespace: WrittenName | None = None) -> NodePath:
        head = written.head
        is_named = isinstance(head, WrittenResource) and head.name is not None
        if namespace is not None and not is_named:
            self.report.flaw(namespace.span, "USING NAMESPACE needs a class or a name before it")
        if isinstance(head, WrittenVariable):
            start = self.variable(head, nesting)
        else:
            self.grow(written.span)
            start = NodePath(self.head(head, written.span, namespace))
        path = _qualified(start, self.qualifiers(written.qualifiers, nesting))
        if len(path.steps) + len(written.steps) > MAX_STEPS:
            self.fail(written.span, f"the path has more than {MAX_STEPS} steps after LETs are expanded")
        steps = tuple(self.step(step, nesting) for step in written.steps)
        path = replace(path, steps=path.steps + steps)
        self.warn_of_literals(path, written.steps)
        return path

    def head(self, head: WrittenResource | None, span: Span, namespace: WrittenName | None) -> PathHead:
        if head is None:
            if not self.in_qualifier:
                message = "a path outside of a qualifier begins with resource(…) or a variable"
                self.report.flaw(span, message, f"write $delta/{_short(self.report.text, span)}")
            return ContextNode()
        uri = self.names.resource(head.name, namespace) if head.name is not None else None
        return AllNodes() if uri is None else NamedNode(uri)

    def variable(self, written: WrittenVariable, nesting: int) -> NodePath:
        if written.name == DELTA:
            self.grow(written.span)
            return NodePath(self.delta(written))
        if written.field is not None:
            self.report.flaw(written.field_span or written.span, "only $delta has fields")
        binding = self.bindings.get(written.name)
        if binding is None:
            self.unknown_variable(written)
            return NodePath(AllNodes())
        if binding.uses_delta:
            self.check_delta(written)
        self.grow(written.span, binding.size)
        self.nest(written.span, nesting + binding.depth)
        return binding.path

    def unknown_variable(self, written: WrittenVariable) -> None:
        near = get_close_matches(written.name[:80], [*self.bindings, DELTA], 1, 0.6)
        hint = f"did you mean ${near[0]}?" if near else "define it with LET"
        if written.name in self.event_only:
            hint = "the LET of the event applies to the event only; write it before ON"
        self.report.flaw(written.span, f"unknown variable {quoted('$' + written.name)}", hint)

    def delta(self, written: WrittenVariable) -> DeltaValue:
        if not self.check_delta(written) or written.field is None:
            return DeltaValue()
        assert written.field_span is not None and self.delta_event is not None
        if isinstance(self.delta_event, WrittenNodeChange):
            message = "the event is about nodes, so $delta has no fields"
            self.report.flaw(written.field_span, message, "write $delta for the node")
            return DeltaValue()
        fields = _FIELDS[self.delta_event.kind]
        for field in fields:
            if field.value == written.field:
                return DeltaValue(field)
        names = [field.value for field in fields]
        near = get_close_matches(written.field[:80], names, 2, 0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else f"the fields are {', '.join(names)}"
        kind = f"{self.delta_event.kind.value} event"
        self.report.flaw(written.field_span, f"$delta of an {kind} has no field {quoted(written.field)}", hint)
        return DeltaValue()

    def check_delta(self, written: WrittenVariable) -> bool:
        """Report a `$delta` where it has no value."""
        self.uses_delta = True
        if self.delta_event is None:
            self.report.flaw(written.span, "an update has no $delta")
        elif self.in_event:
            self.report.flaw(written.span, "$delta has no value in the event", "use it in the condition or an action")
        else:
            return True
        return False

    def step(self, written: WrittenStep, nesting: int) -> NodeStep:
        self.grow(written.span)
        qualifiers = self.qualifiers(written.qualifiers, nesting)
        if written.arc is None:
            return NodeStep(written.axis, index=written.index, qualifiers=qualifiers)
        arc, _ = self.arc(written.arc)
        if isinstance(arc, SequenceNext):
            self.report.flaw(written.arc.span, "'seq++' is allowed only in INSERT actions", "write element()")
            arc = None
        return NodeStep(written.axis, arc, qualifiers=qualifiers)

    def warn_of_literals(self, path: NodePath, written: tuple[WrittenStep, ...]) -> None:
        """Warn of steps that select nothing, because the step before them selects only literals."""
        ends = path.steps[len(path.steps) - len(written) - 1 :] if len(path.steps) > len(written) else path.steps
        offset = len(ends) - len(written)
        for before, step, place in zip(ends, ends[1:], written[1 - offset :], strict=False):
            property_ = self.schema.property_of(before.property or "") if before.axis is Axis.TARGET else None
            if property_ is None or property_.range is None or property_.range in self.schema.classes:
                continue
            if step.axis is not Axis.SOURCE:
                name, range_ = self.schema.shorten(property_.iri), self.schema.shorten(property_.range)
                message = f"this step selects nothing: the values of {name} are literals, of range {range_}"
                self.report.warn(place.span, message)

    # Conditions

    def qualifiers(self, written: tuple[WrittenCondition, ...], nesting: int) -> tuple[Condition, ...]:
        self.in_qualifier += 1
        found = tuple(self.condition(one, nesting + 1) for one in written)
        self.in_qualifier -= 1
        return found

    def condition(self, written: WrittenCondition, nesting: int) -> Condition:
        self.depth = max(self.depth, nesting)
        match written:
            case WrittenAlways():
                return Always()
            case WrittenTest(operand):
                return self.test(operand, nesting)
            case WrittenComparison():
                return self.comparison(written, nesting)
            case WrittenNot(part):
                inner = nesting + 1 + isinstance(part, WrittenGroup)
                return Negation(self.condition(part, inner))
            case WrittenGroup(parts, either):
                # In the normal text, `or` within `and` needs parentheses.
                deeper = [not either and isinstance(part, WrittenGroup) and part.either for part in parts]
                return _joined([self.condition(p, nesting + d) for p, d in zip(parts, deeper, strict=True)], either)

    def test(self, operand: WrittenOperand, nesting: int) -> Condition:
        if isinstance(operand, WrittenPath):
            return Exists(self.path(operand, nesting))
        self.report.flaw(operand.span, "a constant is not a condition", "compare it with a path, or write TRUE")
        return Always()

    def comparison(self, written: WrittenComparison, nesting: int) -> Condition:
        self.grow(written.operator_span)
        left, right = self.operand(written.left, nesting), self.operand(written.right, nesting)
        kind = self.common_kind(written, left, right)
        if kind is None:
            return ValueComparison(left, written.operator, right, ValueKind.TEXT)
        if written.operator.orders and kind in (ValueKind.TEXT, ValueKind.TRUTH):
            sign = self.report.text[written.operator_span.start : written.operator_span.end]
            side, operand = (written.left, left) if isinstance(left, NodePath) else (written.right, right)
            message = f"{quoted(sign)} needs numbers, dates or times; {self.described(side, operand)}"
            self.report.flaw(written.operator_span, message)
        for side in (written.left, written.right):
            if isinstance(side, WrittenConstant) and (why := self.not_a_value(side, kind)) is not None:
                other = (written.right, right) if side is written.left else (written.left, left)
                self.report.flaw(side.span, f"{why}, and {self.described(*other)}")
        return ValueComparison(left, written.operator, right, kind)

    def operand(self, written: WrittenOperand, nesting: int) -> Operand:
        return self.path(written, nesting) if isinstance(written, WrittenPath) else self.names.literal(written)

    def common_kind(self, written: WrittenComparison, left: Operand, right: Operand) -> ValueKind | None:
        """Return the kind of a comparison; None if it has none, which is reported unless a property is unknown."""
        paths = [one for one in (left, right) if isinstance(one, NodePath)]
        span = Span(written.left.span.start, written.right.span.end)
        if not paths:
            self.report.flaw(span, "both sides are constants", "one side must be a path")
            return None
        kinds = [self.kind(path) for path in paths]
        if None in kinds:
            return None
        if len(set(kinds)) > 1:
            sides = f"{self.described(written.left, left)} and {self.described(written.right, right)}"
            self.report.flaw(span, f"{sides}: they cannot be compared")
            return None
        return kinds[0]

    def kind(self, path: NodePath) -> ValueKind | None:
        """Return how the values of a path are compared; None if its last property is unknown."""
        name = self.last_property(path)
        if name is None:
            return ValueKind.TEXT
        property_ = self.schema.property_of(name)
        return property_.kind if property_ else None

    def last_property(self, path: NodePath) -> str | None:
        """Return the property whose values a path selects, if it is one. The targets of `$delta` are values of the
        property of the event."""
        if path.steps:
            last = path.steps[-1]
            return last.property if last.axis is Axis.TARGET else None
        is_target = isinstance(path.head, DeltaValue) and path.head.field in _TARGET_FIELDS
        return self.delta_arc if is_target else None

    @cached_property
    def delta_arc(self) -> str | None:
        """The property of the event. LETs before the event need it, too; the event itself reports its flaws."""
        if self.delta_event is None or isinstance(self.delta_event, WrittenNodeChange):
            return None
        names = RuleNames(self.schema, self.preamble, FlawReport(self.report.text, self.report.what))
        arc, _ = _Resolver(names, self.preamble, None).arc(self.delta_event.triples[0].arc)
        return arc if isinstance(arc, str) else None

    def described(self, written: WrittenOperand, operand: Operand) -> str:
        shown = _short(self.report.text, written.span)
        if isinstance(operand, NodePath) and (name := self.last_property(operand)) is not None:
            property_ = self.schema.property_of(name)
            if property_ is not None:
                range_ = self.schema.shorten(property_.range) if property_.range else None
                return f"{shown} is of range {range_}" if range_ else f"{shown} is without a declared range"
        return f"{shown} is compared as text"

    # Limits

    def grow(self, span: Span, parts: int = 1) -> None:
        self.size += parts
        if self.size > MAX_EXPANDED_PARTS:
            message = f"the {self.report.what} has more than {MAX_EXPANDED_PARTS:,} parts after LETs are expanded"
            self.fail(span, message)

    def nest(self, span: Span, depth: int) -> None:
        """Count the nesting of an expanded LET. The parser limits the nesting of the text."""
        self.depth = max(self.depth, depth)
        if depth > MAX_NESTING:
            message = f"conditions are nested more than {MAX_NESTING} deep after LETs are expanded"
            self.fail(span, message)

    def fail(self, span: Span, message: str) -> None:
        self.report.flaw(span, message)
        raise self.report.error()


_KIND_NAMES = {
    ValueKind.NUMBER: "number",
    ValueKind.INSTANT: "date or time",
    ValueKind.TRUTH: "boolean (true or false)",
    ValueKind.TEXT: "text",
}


def _both_forms(written: WrittenName | WrittenConstant) -> tuple[WrittenName, WrittenConstant]:
    """Return a name or constant of a triple as a name and as a constant."""
    if isinstance(written, WrittenName):
        return written, WrittenConstant(written.text, written.span, quoted=False)
    form = NameForm.QUOTED if written.quoted else NameForm.BARE
    return WrittenName(written.text, form, written.span), written


def _qualified(path: NodePath, qualifiers: tuple[Condition, ...]) -> NodePath:
    """Return the path with qualifiers added at its end."""
    if not qualifiers:
        return path
    if not path.steps:
        return replace(path, qualifiers=path.qualifiers + qualifiers)
    last = replace(path.steps[-1], qualifiers=path.steps[-1].qualifiers + qualifiers)
    return replace(path, steps=(*path.steps[:-1], last))


def _joined(parts: Iterable[Condition], either: bool) -> Condition:
    """Join conditions with `or` or `and`, without nested groups of the same kind."""
    kind = AnyOf if either else AllOf
    flat: list[Condition] = []
    for part in parts:
        flat += part.parts if isinstance(part, kind) else [part]
    return kind(tuple(flat))


def _short(text: str, span: Span) -> str:
    shown = " ".join(text[span.start : span.end][:200].split())
    return shown if len(shown) <= 60 else shown[:59] + "…"
