"""The results of a rule by full evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from mdv.db import filter as db
from mdv.db.rule_graph import RuleGraph
from mdv.db.state import read_state
from mdv.db.tables import resources
from mdv.db.vocabulary import Vocabulary
from mdv.mdp.groups import constant_parameters, constant_values, read_names, statement_states
from mdv.mdp.merge import best_starting_leaf
from mdv.mdp.plan import ConjunctionPlan, constant_of
from mdv.mdp.provider import Provider
from mdv.mdp.rule_cache import NamedRules
from mdv.mdp.rules.planning import get_rule
from mdv.mdp.schemas import SchemaInForce
from mdv.query.compile import matches
from mdv.rules.normal import Constant


def results_of(connection: Connection, rule_id: int, provider: Provider) -> set[str]:
    """Return the URIs of all resources that a rule registers now, by full evaluation."""
    graph = RuleGraph(connection)
    stored = get_rule(graph, rule_id)
    schema = provider.schemas.at(connection, read_state(connection).schema_version)
    _, rule_plan, constants = provider.rules.read(stored.text, schema, NamedRules(graph, stored.owner, {}))
    return evaluate_plan(connection, rule_plan, constants, schema, provider.vocabulary)


def evaluate_plan(
    connection: Connection,
    rule_plan: Sequence[ConjunctionPlan],
    constants: Sequence[Constant],
    schema: SchemaInForce,
    vocabulary: Vocabulary,
) -> set[str]:
    """Return the URIs of all resources that a rule with this plan and these constants registers now."""
    patterns = [part.pattern for part in rule_plan]
    names = read_names(RuleGraph(connection), patterns, schema.schema, vocabulary, None)
    now, _, _ = statement_states(names)
    found: set[str] = set()
    for part in rule_plan:
        its_constants = [constant_of(part.triggering[place], constants) for place in part.leaves]
        numbers = matches(
            now, part.pattern, constant_parameters(part.pattern), best_starting_leaf(part.pattern)
        ).subquery("found")
        uris = select(resources.c.uri).join(numbers, numbers.c.resource_id == resources.c.id)
        rows = db.evaluate(
            connection, db.compile_statement(uris), constant_values([c for c in its_constants if c is not None])
        )
        found.update(uri for (uri,) in rows)
    return found
