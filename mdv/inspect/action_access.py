"""What the actions that rules call may read and write, for the analysis of rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from sqlalchemy import Connection

from mdv.db.engine import driver
from mdv.db.real.statement_reader import TransactionReader
from mdv.db.real.view import PostgresView
from mdv.inspect.real_actions import ActionCatalogue
from mdv.inspect.run_program import MAX_READ_SECONDS
from mdv.rdf.schema import Schema
from mdv.rdftl.model import CallAccess, CallAction, EcaRule, NamedNode, NodePath, Triple, TripleNode
from mdv.rdftl.template import find_parts
from mdv.real.plan import PatternTerms, plan_program
from mdv.real.vocabulary import INPUT_SIGNATURE, LRM_BODY, OUTPUT_SIGNATURE, REAL_CODE

_DEFINITION: tuple[PatternTerms, ...] = tuple(
    (None, name, None) for name in (LRM_BODY, REAL_CODE, INPUT_SIGNATURE, OUTPUT_SIGNATURE)
)
"""What describes actions."""


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
    found: dict[str, CallAccess] = {}
    if not actions:
        return found
    with TransactionReader(driver(connection), MAX_READ_SECONDS, {}).reading() as reader:
        view = PostgresView(reader.position()[0], schema)
        view.use(reader)
        catalogue = ActionCatalogue(view)
        for iri in sorted(actions):
            known = catalogue.find(iri)
            if known is None or known.body is None:
                continue
            inputs = frozenset(known.signature.inputs)
            plan = plan_program(known.body, known.text, "", catalogue.find, inputs)
            if plan.is_complete:
                reads = [*_DEFINITION, *(read.pattern for read in plan.reads)]
                adds = [write.pattern for write in plan.writes if write.is_added]
                removes = [write.pattern for write in plan.writes if not write.is_added]
                found[iri] = CallAccess(_triples(reads), _triples(adds), _triples(removes))
    return found


def _triples(patterns: Iterable[PatternTerms]) -> tuple[Triple, ...]:
    return tuple(map(_triple, dict.fromkeys(patterns)))


def _triple(pattern: PatternTerms) -> Triple:
    """Return the arcs that match a pattern. A literal can be equal to others, so it stands for any target."""
    subject, name, value = pattern
    source, target = TripleNode(), TripleNode()
    if subject is not None:
        source = TripleNode(NodePath(NamedNode(subject)))
    if value is not None and value.is_uri:
        target = TripleNode(NodePath(NamedNode(value.value)))
    return Triple(source, name, target)
