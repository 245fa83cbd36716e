"""What the actions that rules call may read and write, for the analysis of rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from sqlalchemy import Connection

from mdv.inspect.sql.actions import read_action_bodies
from mdv.rdf.schema import Schema
from mdv.rdftl.model import CallAccess, CallAction, EcaRule, NamedNode, NodePath, Triple, TripleNode
from mdv.rdftl.template import find_parts
from mdv.real.access import MAX_ACTIONS, UNKNOWN, ProgramAccess, action_access, program_access, read_body
from mdv.real.store import ReadPattern
from mdv.real.syntax import Program


def called_actions(rules: Iterable[EcaRule]) -> frozenset[str]:
    """Return the actions that rules call."""
    return frozenset(call.action for rule in rules for call in find_parts(rule.actions, CallAction))


def with_accesses(rule: EcaRule, accesses: Mapping[str, CallAccess]) -> EcaRule:
    """Return a rule whose calls know what their actions may do."""
    if not any(isinstance(action, CallAction) for action in rule.actions):
        return rule
    actions = tuple(
        replace(one, access=accesses.get(one.action)) if isinstance(one, CallAction) else one for one in rule.actions
    )
    return replace(rule, actions=actions)


def read_accesses(connection: Connection, actions: Collection[str], schema: Schema) -> dict[str, CallAccess]:
    """Return what actions may do, with the actions that they call. Those that may do anything are missing."""
    bodies: dict[str, Program | None] = {}
    waiting = set(actions)
    while waiting and len(bodies) < MAX_ACTIONS:
        found = read_action_bodies(connection, waiting)
        for action in waiting:
            texts = found.get(action, [])
            prefixes = {**schema.prefixes, **texts[0].prefixes} if texts else {}
            bodies[action] = read_body(texts[0].code, prefixes) if len({one.code for one in texts}) == 1 else None
        known = [body for action in waiting if (body := bodies[action]) is not None]
        waiting = {other for body in known for other in program_access(body).calls or ()} - bodies.keys()
    accesses = {action: action_access(action, bodies.get) for action in actions}
    return {action: _call_access(found) for action, found in accesses.items() if found is not UNKNOWN}


def _call_access(found: ProgramAccess) -> CallAccess:
    return CallAccess(
        *(tuple(map(_triple, sorted(some, key=repr))) for some in (found.reads, found.adds, found.removes))
    )


def _triple(pattern: ReadPattern) -> Triple:
    """Return the arcs that match a pattern. A literal can be equal to others, so it stands for any target."""
    source, target = TripleNode(), TripleNode()
    if pattern.subject is not None:
        source = TripleNode(NodePath(NamedNode(pattern.subject)))
    if pattern.object is not None and pattern.object.is_uri:
        target = TripleNode(NodePath(NamedNode(pattern.object.value)))
    return Triple(source, pattern.property, target)
