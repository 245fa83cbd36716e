"""Which rules may have read a statement: used to find what a compensation makes out of date."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mdv.model import Statement
from mdv.rdf.schema import Schema
from mdv.rdftl.cells import CellAccess, may_coincide
from mdv.rdftl.footprint import Footprint, action_footprint
from mdv.rdftl.model import ArcAction, ChangeKind, NamedNode, NodePath, Triple, TripleNode


def statement_accesses(statements: Iterable[Statement], schema: Schema) -> frozenset[CellAccess]:
    """Return the cells that these statements belong to, superclasses and superproperties included."""
    actions = (ArcAction(ChangeKind.DELETE, (_triple(one),)) for one in statements)
    return frozenset(write.access for action in actions for write in action_footprint(action, schema).writes)


def may_read(rule: Footprint, accesses: Collection[CellAccess]) -> bool:
    """True if the event, the condition or an action of a rule may read one of these cells."""
    reads = {*rule.event, *rule.reads, *rule.state_reads}
    for action in rule.actions:
        reads |= {*action.reads, *action.state_reads}
    return any(may_coincide(read, access) for read in reads for access in accesses)


def _triple(statement: Statement) -> Triple:
    subject, name, term = statement
    target = TripleNode(NodePath(NamedNode(term.value))) if term.is_uri else TripleNode()
    return Triple(TripleNode(NodePath(NamedNode(subject))), name, target)
