"""Small worlds for federations: a schema, fragments of peers, and random rules.

Rules of a commuting world have the same result in every order: conditions read statements that nothing changes, and
actions insert, or delete statements that nothing inserts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from mdv.model import RDF, RDF_TYPE, Statement, Term
from mdv.rdftl.model import (
    AbortDependency,
    Action,
    Always,
    Condition,
    Coupling,
    EcaRule,
    Event,
    Exists,
    NamedNode,
    Negation,
    NodePath,
)
from tests.support.rdftl_rules import (
    ANY,
    DELTA,
    EVERYTHING,
    SEQ_NEXT,
    V,
    delta,
    do_arcs,
    do_node,
    element,
    equal,
    on_arc,
    on_node,
    path,
    relative,
    resource,
    schema_of_turtle,
    source,
    target,
    text,
    triple,
    turtle,
)

SCHEMA = schema_of_turtle("""
:Item a rdfs:Class . :Book rdfs:subClassOf :Item . :Person a rdfs:Class . :Mark a rdfs:Class .
:topic rdfs:range xsd:string ; mdv:setValued true . :size rdfs:range xsd:decimal ; mdv:setValued true .
:owner mdv:setValued true . :author rdfs:subPropertyOf :owner ; mdv:setValued true . :list mdv:setValued true .
:tag0 mdv:setValued true . :tag1 mdv:setValued true . :tag2 rdfs:subPropertyOf :tag0 ; mdv:setValued true .
:pending mdv:setValued true . :noise mdv:setValued true .
""")
RESOURCES = [V + f"r{n}" for n in range(5)]
HUB, BOX = V + "hub", V + "box"
TAGS = ["tag0", "tag1", "tag2"]
CLASSES = ["Item", "Book", "Person", "Mark"]
TOPICS = ["a", "b"]
EVERYWHERE = turtle(':hub :topic "a" .')
"""What each peer says, so that all know the hub."""
ANCHORS = turtle("""
:anchor :tag0 "x" ; :tag1 "x" ; :tag2 "x" ; :pending "x" ; :noise "x" ; a :Book, :Person, :Mark .
""")
"""What one peer says, so that each action is relevant somewhere."""


def static_statements(rng: random.Random, peers: int) -> list[set[Statement]]:
    """Return what the peers say, and nothing changes but `pending`, of which each is said once."""
    found: list[set[Statement]] = [set(EVERYWHERE) for _ in range(peers)]
    found[rng.randrange(peers)] |= ANCHORS
    nodes = [*RESOURCES, HUB]
    for uri in nodes:
        for name, value in (
            *((V + "topic", Term.literal(topic)) for topic in TOPICS),
            *((V + "size", Term.literal(size)) for size in ("1", "2.0", "3")),
            *((V + name, Term.uri(other)) for name in ("owner", "author") for other in rng.sample(nodes, 2)),
        ):
            for said in rng.sample(found, rng.choice((0, 0, 1, 1, 2)) % (peers + 1)):
                said.add(Statement(uri, name, value))
        if rng.random() < 0.5:
            rng.choice(found).add(Statement(uri, V + "pending", Term.literal("job")))
    members = [Statement(BOX, f"{RDF}_{n + 1}", Term.uri(uri)) for n, uri in enumerate(rng.sample(RESOURCES, 2))]
    rng.choice(found).update(members)
    rng.choice(found).add(Statement(BOX, RDF_TYPE, Term.uri(RDF + "Bag")))
    return found


def dynamic_statements(rng: random.Random) -> set[Statement]:
    """Return statements that a peer registers."""
    found = set()
    for _ in range(rng.randrange(1, 4)):
        uri = rng.choice(RESOURCES)
        chance = rng.random()
        if chance < 0.5:
            value = Term.uri(rng.choice(RESOURCES)) if rng.random() < 0.5 else Term.literal(rng.choice("uvw"))
            found.add(Statement(uri, V + rng.choice(TAGS), value))
        elif chance < 0.8:
            found.add(Statement(uri, RDF_TYPE, Term.uri(V + rng.choice(CLASSES))))
        else:
            found.add(Statement(uri, V + "noise", Term.literal(rng.choice("mn"))))
    return found


def commuting_rule(rng: random.Random, number: int) -> EcaRule:
    event, has_target = _event(rng)
    actions = tuple(_action(rng, has_target, number) for _ in range(rng.choice((1, 1, 2))))
    if rng.random() < 0.15:
        # Alone: a copy runs only where all of its actions are relevant, and every peer is to delete its own.
        actions = (do_arcs("DELETE", triple(DELTA, "pending", None)),)
    return EcaRule(
        event,
        _condition(rng),
        actions,
        name=f"rule{number}",
        coupling=rng.choice([*Coupling]),
        abort=rng.choice([*AbortDependency]),
        precedes=(f"rule{rng.randrange(number)}",) if number and rng.random() < 0.2 else (),
    )


def _event(rng: random.Random) -> tuple[Event, bool]:
    chance = rng.random()
    if chance < 0.45:
        start: NodePath | None = rng.choice([None, EVERYTHING, NodePath(NamedNode(rng.choice(RESOURCES)))])
        return on_arc("INSERT", triple(start, rng.choice(TAGS), ANY)), True
    if chance < 0.6:
        return on_arc("INSERT", triple(None, "noise", ANY)), True
    if chance < 0.75:
        return on_arc("DELETE", triple(None, "pending", ANY)), True
    return on_node("INSERT", EVERYTHING, rng.choice([*CLASSES])), False


def _condition(rng: random.Random, depth: int = 0) -> Condition:
    chance = rng.random()
    if chance < 0.2:
        return Always()
    if chance < 0.35 and depth < 2:
        return Negation(_condition(rng, depth + 1))
    start = rng.choice([DELTA, DELTA, path("hub")])
    steps = [rng.choice([target("owner"), source("owner"), target("author")]) for _ in range(rng.randrange(3))]
    if chance < 0.6:
        return equal(path(start, *steps, target("topic")), text(rng.choice(TOPICS)))
    if chance < 0.7:
        return equal(path(start, *steps, target("topic")), path("hub", target("topic")))
    if chance < 0.8:
        return Exists(path(start, *(steps or [source("owner")])))
    if chance < 0.9:
        qualifier = equal(relative(target("topic")), text(rng.choice(TOPICS)))
        return Exists(path(start, target("owner", qualifier)))
    return Exists(path(NodePath(NamedNode(BOX)), element(), target("topic")))


def _action(rng: random.Random, has_target: bool, number: int) -> Action:
    tag = rng.choice(TAGS)
    chance = rng.random()
    if chance < 0.4:
        return do_arcs("INSERT", triple(DELTA, tag, text(rng.choice("uvwxyz"))))
    if chance < 0.5 and has_target:
        return do_arcs("INSERT", triple(DELTA, tag, delta("target")))
    if chance < 0.6:
        return do_arcs("INSERT", triple("hub", tag, DELTA), triple("hub", tag, text("h")))
    if chance < 0.75:
        return do_node("INSERT", DELTA, rng.choice(CLASSES))
    return do_node("INSERT", resource(f"made{number}"), rng.choice(CLASSES))


def failing_rule(rng: random.Random, number: int) -> EcaRule:
    """Return a rule that may fail, or that may read what others change. Few of them trigger each other without end."""
    rule = commuting_rule(rng, number)
    chance = rng.random()
    if chance < 0.35:
        return replace(rule, actions=(*rule.actions, do_arcs("INSERT", triple("box", SEQ_NEXT, DELTA))))
    if chance < 0.5:
        return replace(rule, actions=(do_arcs("INSERT", triple("hub", SEQ_NEXT, DELTA)), *rule.actions))
    if chance < 0.6:
        qualified = NodePath(EVERYTHING.head, (equal(relative(target("topic")), text("a")),))
        return replace(rule, event=on_arc("INSERT", triple(qualified, rng.choice(TAGS), ANY)))
    if chance < 0.7:
        return replace(rule, strict=True, condition=Exists(path(DELTA, element())))
    return rule


def without_coupling(rules: Sequence[EcaRule]) -> dict[int, EcaRule]:
    """Return commuting rules for the central oracle: all run at once, in any order."""
    return {
        number: replace(rule, coupling=Coupling.IMMEDIATE, precedes=(), follows=())
        for number, rule in enumerate(rules, 1)
    }
