"""The footprint of a rule: the event that it watches, and the cells that its parts read and write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace

from mdv.model import RDF, RDF_TYPE, RDFS_RESOURCE
from mdv.rdf.schema import Schema
from mdv.rdftl.cells import (
    ANY_CELL,
    CONTAINER,
    MEMBERSHIP,
    Cell,
    CellAccess,
    Values,
    arc_cells,
    class_accesses,
    class_cell,
    constant,
    head_nodes,
    membership_cells,
    nodes,
    step_nodes,
    triple_accesses,
)
from mdv.rdftl.model import (
    Action,
    AllNodes,
    AllOf,
    AnyOf,
    ArcAction,
    Axis,
    CallAccess,
    CallAction,
    ChangeKind,
    Condition,
    ConstantValue,
    ContextNode,
    Coupling,
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


@dataclass(frozen=True, slots=True)
class CellWrite:
    """A change of a cell.

    `numbered`: by `seq++`, which also counts the members. `unordered`: of a collection that the schema declares as a
    bag. `inexact`: an UPDATE that can also raise events of INSERT and DELETE. `set_valued`: arcs with the same subject
    and property do not exclude each other. `inserted`: the target, if it is a constant. `computed`: by an action of
    ReAL, which can make new nodes and values.
    """

    kind: ChangeKind
    access: CellAccess
    numbered: bool = False
    unordered: bool = False
    inexact: bool = False
    set_valued: bool = True
    inserted: Operand | None = None
    computed: bool = False

    def without_constants(self) -> CellWrite:
        """Return the write of any rule that differs from this one only in its constants."""
        return replace(self, access=self.access.without_constants(), inserted=None)


@dataclass(frozen=True, slots=True)
class ActionFootprint:
    """The reads and writes of one action. `reads` are those of the paper, `state_reads` those that strict mode adds."""

    kind: ChangeKind
    reads: tuple[CellAccess, ...]
    state_reads: tuple[CellAccess, ...]
    writes: tuple[CellWrite, ...]
    uses_delta: bool

    @property
    def changes_list(self) -> bool:
        """True if the action may insert or delete members of a collection that is not declared as a bag."""
        return any(
            write.access.cell == ANY_CELL or (write.access.cell.property == MEMBERSHIP and not write.unordered)
            for write in self.writes
        )

    def without_constants(self) -> ActionFootprint:
        """Return the footprint of any action that differs from this one only in its constants."""
        reads, state_reads = _without_constants(self.reads), _without_constants(self.state_reads)
        writes = tuple(dict.fromkeys(write.without_constants() for write in self.writes))
        return ActionFootprint(self.kind, reads, state_reads, writes, self.uses_delta)


@dataclass(frozen=True, slots=True)
class Footprint:
    """The parts of a rule that the analysis uses.

    `event`: the watched changes. `node_event`: they are changes of nodes, so that every `$delta` is another node.
    `one_delta`: there is at most one `$delta`. `instance_oriented`: `$delta` occurs in the condition or an action.
    """

    event_kind: ChangeKind
    event: tuple[CellAccess, ...]
    node_event: bool
    one_delta: bool
    instance_oriented: bool
    reads: tuple[CellAccess, ...]
    state_reads: tuple[CellAccess, ...]
    actions: tuple[ActionFootprint, ...]
    coupling: Coupling

    @property
    def writes(self) -> Iterator[CellWrite]:
        """The writes of all actions."""
        return (write for action in self.actions for write in action.writes)

    def without_constants(self) -> Footprint:
        """Return the footprint of any rule that differs from this one only in its constants."""
        return replace(
            self,
            event=_without_constants(self.event),
            reads=_without_constants(self.reads),
            state_reads=_without_constants(self.state_reads),
            actions=tuple(action.without_constants() for action in self.actions),
        )


def _without_constants(accesses: Iterable[CellAccess]) -> tuple[CellAccess, ...]:
    return tuple(dict.fromkeys(access.without_constants() for access in accesses))


def footprint(rule: EcaRule, schema: Schema) -> Footprint:
    """Return the footprint of a rule."""
    reader = _Reader(schema, rule.event)
    event = tuple(_watched(rule.event, schema, reader))
    reader.condition(rule.condition, None)
    path = rule.event.path if isinstance(rule.event, NodeEvent) else None
    return Footprint(
        event_kind=rule.event.kind,
        event=event,
        node_event=path is not None,
        one_delta=path is not None and isinstance(path.head, NamedNode) and not path.steps,
        instance_oriented=_mentions_delta(rule.condition) or _mentions_delta(rule.actions),
        reads=tuple(dict.fromkeys(reader.reads)),
        state_reads=tuple(dict.fromkeys(reader.state_reads)),
        actions=tuple(action_footprint(action, schema, rule.event) for action in rule.actions),
        coupling=rule.coupling,
    )


def queried(rule: EcaRule, schema: Schema) -> frozenset[Cell]:
    """Return the cells that the evaluation of the rule reads: event, condition, and the paths of its actions."""
    found = footprint(rule, schema)
    accesses = [*found.event, *found.reads, *(read for action in found.actions for read in action.reads)]
    return frozenset(access.cell for access in accesses)


def updated(action: Action, schema: Schema, event: Event | None = None) -> frozenset[Cell]:
    """Return the cells that the action changes, superclasses and superproperties included."""
    return frozenset(write.access.cell for write in action_footprint(action, schema, event).writes)


def action_footprint(action: Action, schema: Schema, event: Event | None = None) -> ActionFootprint:
    """Return the footprint of an action. `event`: the event of its rule, for `$delta`."""
    reader = _Reader(schema, event)
    kind = ChangeKind.UPDATE
    if isinstance(action, CallAction):
        writes = list(_call_writes(action, schema, reader))
    elif isinstance(action, NodeAction):
        kind, writes = action.kind, list(_node_writes(action, schema, reader))
    else:
        kind = action.kind
        writes = [write for triple in action.triples for write in _arc_writes(action, triple, schema, reader)]
    return ActionFootprint(
        kind,
        tuple(dict.fromkeys(reader.reads)),
        tuple(dict.fromkeys(reader.state_reads)),
        tuple(dict.fromkeys(writes)),
        _mentions_delta(action),
    )


def _node_writes(action: NodeAction, schema: Schema, reader: _Reader) -> Iterator[CellWrite]:
    subject = constant(action.path, reader.event)
    insert = action.kind is ChangeKind.INSERT
    reader.path(action.path, reads_nodes=insert, reads_name=False)
    if insert:
        for access in class_accesses(action.class_iri or RDFS_RESOURCE, schema, subject):
            yield CellWrite(action.kind, access)
        return
    if action.class_iri is not None:
        reader.type_of(action.class_iri, subject)
    yield CellWrite(action.kind, CellAccess(ANY_CELL, subject))
    yield CellWrite(action.kind, CellAccess(ANY_CELL, None, subject))


def _arc_writes(action: ArcAction, triple: Triple, schema: Schema, reader: _Reader) -> Iterator[CellWrite]:
    insert, update = action.kind is ChangeKind.INSERT, action.kind is ChangeKind.UPDATE
    reader.triple(triple, insert)
    source = triple.source.value
    sources = nodes(source, schema, reader.event) if isinstance(source, NodePath) else None
    numbered = isinstance(triple.arc, SequenceNext)
    if numbered:
        reader.type_of(CONTAINER, constant(source, reader.event))
    unordered = sources is not None and RDF + "Bag" in sources
    for access in triple_accesses(triple, schema, reader.event):
        property_ = schema.property_of(access.cell.property) if access.cell.property else None
        yield CellWrite(
            action.kind,
            access,
            numbered,
            unordered,
            inexact=update and (len(action.triples) > 1 or _is_inexact(triple, schema)),
            set_valued=property_ is not None and property_.set_valued,
            inserted=_inserted(triple.target.value) if insert else None,
        )


ANY_ARC = Triple(TripleNode(), None, TripleNode())
ANY_ACCESS = CallAccess((ANY_ARC,), (ANY_ARC,), (ANY_ARC,))
"""What an action may do whose body is not known."""


def _call_writes(action: CallAction, schema: Schema, reader: _Reader) -> Iterator[CellWrite]:
    """Yield the writes of CALL. Which events they raise depends on what else the action changes."""
    for argument in action.arguments:
        reader.operand(argument, None)
    access = action.access or ANY_ACCESS
    for triple in access.reads:
        reader.reads += triple_accesses(triple, schema, write=False)
    for kind, triples in ((ChangeKind.INSERT, access.inserts), (ChangeKind.DELETE, access.deletes)):
        for triple in triples:
            for cell in triple_accesses(triple, schema):
                property_ = schema.property_of(cell.cell.property) if cell.cell.property else None
                is_set_valued = property_ is not None and property_.set_valued
                yield CellWrite(kind, cell, inexact=True, set_valued=is_set_valued, computed=True)


def _is_inexact(triple: Triple, schema: Schema) -> bool:
    property_ = schema.property_of(triple.arc) if isinstance(triple.arc, str) else None
    if property_ is None or property_.iri == RDF_TYPE:
        return True
    return len(property_.superproperties) > 1 or len(property_.subproperties) > 1


def _inserted(value: Operand | None) -> Operand | None:
    named = isinstance(value, NodePath) and isinstance(value.head, NamedNode) and not value.steps
    return value if named or isinstance(value, ConstantValue) else None


def _watched(event: Event, schema: Schema, reader: _Reader) -> Iterator[CellAccess]:
    if isinstance(event, NodeEvent):
        reader.path(event.path, reads_nodes=False, reads_name=False)
        cell = ANY_CELL if event.class_iri in (None, RDFS_RESOURCE) else class_cell(event.class_iri)
        yield CellAccess(cell, constant(event.path))
        return
    reader.triple(event.triple, watched=True)
    yield from triple_accesses(event.triple, schema, write=False)


class _Reader:
    """Collects the reads of paths and conditions.

    `state_reads`: whether nodes exist, and their classes. The paper omits them.
    """

    def __init__(self, schema: Schema, event: Event | None) -> None:
        self.schema, self.event = schema, event
        self.reads: list[CellAccess] = []
        self.state_reads: list[CellAccess] = []

    def type_of(self, class_iri: str, subject: Values) -> None:
        cell = ANY_CELL if class_iri == RDFS_RESOURCE else class_cell(class_iri)
        self.state_reads.append(CellAccess(cell, subject))

    def triple(self, triple: Triple, insert: bool = False, watched: bool = False) -> None:
        """Collect the reads of a triple. Sources of arcs that are not inserted exist."""
        self.node(triple.source, every=insert, reads_nodes=insert)
        self.node(triple.target, every=insert)
        if triple.new_target is not None:
            self.node(triple.new_target, every=not watched)

    def node(self, node: TripleNode, every: bool, reads_nodes: bool = True) -> None:
        """Collect the reads of a node of a triple. `every`: the wildcard `_` stands for all nodes that exist."""
        if node.value is None and every:
            self.state_reads.append(CellAccess(ANY_CELL))
        if isinstance(node.value, NodePath):
            self.path(node.value, reads_nodes=reads_nodes, reads_name=False)
        if node.class_iri is not None:
            self.type_of(node.class_iri, constant(node.value, self.event))

    def path(
        self,
        path: NodePath,
        context: frozenset[str] | None = None,
        reads_nodes: bool = True,
        reads_name: bool = True,
    ) -> None:
        """Collect the reads of a path.

        `reads_nodes`: `resource()` depends on which nodes exist. `reads_name`: so does `resource(u)`.
        """
        head = constant(replace(path, steps=(), qualifiers=()), self.event)
        if self.depends_on_existence(path, reads_nodes, reads_name):
            self.state_reads += [CellAccess(ANY_CELL, head), CellAccess(ANY_CELL, None, head)]
        found = head_nodes(path, self.schema, self.event, context)
        for qualifier in path.qualifiers:
            self.condition(qualifier, found)
        known: Values = head
        for step in path.steps:
            self.step(step, found, known)
            found, known = step_nodes(step, found, self.schema), None
            for qualifier in step.qualifiers:
                self.condition(qualifier, found)

    def depends_on_existence(self, path: NodePath, reads_nodes: bool, reads_name: bool) -> bool:
        named = isinstance(path.head, NamedNode)
        if not (named or isinstance(path.head, AllNodes)):
            return False
        if path.steps:
            return not (named or path.steps[0].axis is not Axis.SOURCE)
        if any(_implies_existence(qualifier, path.head) for qualifier in path.qualifiers):
            return False
        return bool(path.qualifiers) or (reads_name if named else reads_nodes)

    def step(self, step: NodeStep, sources: frozenset[str] | None, known: Values) -> None:
        if step.axis is Axis.ELEMENT:
            self.reads += [CellAccess(cell, known) for cell in membership_cells(sources, self.schema)]
            self.type_of(CONTAINER, known)
            return
        forward = step.axis is Axis.TARGET
        for cell in arc_cells(step.property, sources if forward else None, self.schema):
            self.reads.append(CellAccess(cell, known) if forward else CellAccess(cell, None, known))

    def condition(self, condition: Condition, context: frozenset[str] | None) -> None:
        match condition:
            case Exists(path):
                self.path(path, context)
            case ValueComparison(left, _, right, _):
                self.operand(left, context)
                self.operand(right, context)
            case Negation(part):
                self.condition(part, context)
            case AllOf(parts) | AnyOf(parts):
                for part in parts:
                    self.condition(part, context)

    def operand(self, operand: Operand, context: frozenset[str] | None) -> None:
        if isinstance(operand, NodePath):
            self.path(operand, context)


def _implies_existence(qualifier: Condition, head: PathHead) -> bool:
    """True if the qualifier holds only for a node that exists: a step from it selects something."""
    match qualifier:
        case Exists(path):
            return _steps_from_context(path, head)
        case ValueComparison(left, _, right, _):
            return any(isinstance(side, NodePath) and _steps_from_context(side, head) for side in (left, right))
        case AllOf(parts):
            return any(_implies_existence(part, head) for part in parts)
        case AnyOf(parts):
            return all(_implies_existence(part, head) for part in parts)
    return False


def _steps_from_context(path: NodePath, head: PathHead) -> bool:
    if not (isinstance(path.head, ContextNode) and path.steps):
        return False
    return isinstance(head, NamedNode) or path.steps[0].axis is not Axis.SOURCE


def _mentions_delta(value: object) -> bool:
    if isinstance(value, DeltaValue):
        return True
    if isinstance(value, tuple):
        return any(map(_mentions_delta, value))
    if is_dataclass(value):
        return any(_mentions_delta(getattr(value, field.name)) for field in fields(value))
    return False
