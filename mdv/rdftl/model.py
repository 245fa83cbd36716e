"""Rules and updates of RDFTL after their names are resolved: events, conditions and actions as values.

Variables of LET are replaced by their paths; `$delta` is the only variable that is left. All names are IRIs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from mdv.model import Term
from mdv.rdf.values import ValueKind
from mdv.rules.operators import Operator

# Paths


class Axis(Enum):
    """The direction of a step."""

    TARGET = "target"
    SOURCE = "source"
    ELEMENT = "element"


class DeltaField(Enum):
    """A component of `$delta`. A bare `$delta` is `SOURCE`: the node of a node event, or the source of an arc."""

    SOURCE = "source"
    ARC_NAME = "arc_name"
    TARGET = "target"
    OLD_TARGET = "old_target"
    NEW_TARGET = "new_target"


@dataclass(frozen=True, slots=True)
class AllNodes:
    """`resource()`: every resource with at least one statement about it."""


@dataclass(frozen=True, slots=True)
class NamedNode:
    """`resource(u)`: u, where it is a subject or object of a statement. As a component of a triple to insert, or as new
    target, it is u itself."""

    uri: str


@dataclass(frozen=True, slots=True)
class DeltaValue:
    """`$delta` or one of its fields. It is a value: it does not depend on the state."""

    field: DeltaField = DeltaField.SOURCE


@dataclass(frozen=True, slots=True)
class ContextNode:
    """The node that a qualifier tests."""


PathHead: TypeAlias = AllNodes | NamedNode | DeltaValue | ContextNode


@dataclass(frozen=True, slots=True)
class NodeStep:
    """`target(p)`, `source(p)`, `element()` or `element(i)`, with its qualifiers.

    `property`: None for any property (`_`), and for elements. `index`: i of `element(i)`.
    """

    axis: Axis
    property: str | None = None
    index: int | None = None
    qualifiers: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class NodePath:
    """A path expression. It selects a set of nodes and literals. `qualifiers`: those of the head."""

    head: PathHead
    qualifiers: tuple[Condition, ...] = ()
    steps: tuple[NodeStep, ...] = ()


@dataclass(frozen=True, slots=True)
class ConstantValue:
    """A quoted text, a number, or a bare word that stands for a literal.

    In a comparison as text it equals a literal with this text, a URI that is this text, and the URI `uri`. In a
    comparison of another kind it is a value of this kind. `uri`: the text resolved against BASE.
    `lang` and `datatype` are those of an inserted literal; comparisons ignore them.
    """

    text: str
    uri: str
    lang: str | None = None
    datatype: str | None = None


Operand: TypeAlias = NodePath | ConstantValue

# Conditions


@dataclass(frozen=True, slots=True)
class Always:
    """`TRUE`."""


@dataclass(frozen=True, slots=True)
class Exists:
    """A path in the place of a condition: it selects something."""

    path: NodePath


@dataclass(frozen=True, slots=True)
class ValueComparison:
    """A comparison. It holds if some value on the left and some value on the right satisfy it, compared as `kind`.

    At least one side is a path.
    """

    left: Operand
    operator: Operator
    right: Operand
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class Negation:
    """`not`: true if and only if the part is false."""

    part: Condition


@dataclass(frozen=True, slots=True)
class AllOf:
    """`and`."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """`or`."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = Always | Exists | ValueComparison | Negation | AllOf | AnyOf

# Events and actions


class ChangeKind(Enum):
    """The verb of an event or action."""

    INSERT = "INSERT"
    DELETE = "DELETE"
    UPDATE = "UPDATE"


@dataclass(frozen=True, slots=True)
class SequenceNext:
    """The arc `seq++`: the next member of a collection."""


@dataclass(frozen=True, slots=True)
class TripleNode:
    """A node of a triple. `value`: None for the wildcard `_`. `class_iri`: the class of AS INSTANCE OF; it filters."""

    value: Operand | None = None
    class_iri: str | None = None


@dataclass(frozen=True, slots=True)
class Triple:
    """A triple of an event or action. `arc`: the IRI of a property, None for `_`, or `seq++` (in INSERT actions only).

    In an UPDATE, `target` is the old target and `new_target` the new one; else `new_target` is None.
    """

    source: TripleNode
    arc: str | SequenceNext | None
    target: TripleNode
    new_target: TripleNode | None = None


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """INSERT or DELETE of a node. `class_iri`: None for rdfs:Resource."""

    kind: ChangeKind
    path: NodePath
    class_iri: str | None = None


@dataclass(frozen=True, slots=True)
class ArcEvent:
    """INSERT, DELETE or UPDATE of an arc."""

    kind: ChangeKind
    triple: Triple


Event: TypeAlias = NodeEvent | ArcEvent


@dataclass(frozen=True, slots=True)
class NodeAction:
    """INSERT of nodes as instances of a class, or DELETE of nodes (of a class, if one is given)."""

    kind: ChangeKind
    path: NodePath
    class_iri: str | None = None


@dataclass(frozen=True, slots=True)
class ArcAction:
    """INSERT, DELETE or UPDATE of arcs. All triples are one update on one state."""

    kind: ChangeKind
    triples: tuple[Triple, ...]


@dataclass(frozen=True, slots=True)
class CallAccess:
    """The arcs that an action of ReAL may read, insert and delete. `_` stands for what is not known."""

    reads: tuple[Triple, ...] = ()
    inserts: tuple[Triple, ...] = ()
    deletes: tuple[Triple, ...] = ()


@dataclass(frozen=True, slots=True)
class CallAction:
    """CALL of an action of ReAL, by its IRI. Its changes are one update. `access`: for the analysis, if it is known."""

    action: str
    arguments: tuple[Operand, ...] = ()
    access: CallAccess | None = field(default=None, compare=False, repr=False)


Action: TypeAlias = NodeAction | ArcAction | CallAction

# Rules


class Coupling(Enum):
    """When the actions of a rule run: before the rest of the transaction, after it, or in one of their own."""

    IMMEDIATE = "Immediate"
    DEFERRED = "Deferred"
    DETACHED = "Detached"


class AbortDependency(Enum):
    """Which of the triggering transaction (parent) and the actions of the rule (child) aborts if the other does."""

    PARENT_CHILD = "ParentChild"
    CHILD_PARENT = "ChildParent"
    MUTUAL = "Mutual"
    INDEPENDENT = "Independent"


@dataclass(frozen=True, slots=True)
class EcaRule:
    """A rule: ON event IF condition DO actions. `name`: None if the text gives none."""

    event: Event
    condition: Condition
    actions: tuple[Action, ...]
    name: str | None = None
    coupling: Coupling = Coupling.IMMEDIATE
    abort: AbortDependency = AbortDependency.MUTUAL
    precedes: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    local: bool = False
    strict: bool = False


class Delta(NamedTuple):
    """An instantiation of `$delta`: a node, an arc, or an updated arc. For an UPDATE, `target` is the old target."""

    source: str
    arc_name: str = ""
    target: Term | None = None
    new_target: Term | None = None
