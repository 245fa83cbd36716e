"""Count the messages of a federation for one rule that fires, over several superpeers.

python -m tests.support.federation_cost
"""

from __future__ import annotations

import itertools

from mdv.rdftl.model import AbortDependency, EcaRule
from tests.support.federation_simulation import SimulatedFederation
from tests.support.rdftl_rules import (
    ANY,
    DELTA,
    do_arcs,
    equal,
    on_arc,
    path,
    schema_of_turtle,
    target,
    text,
    triple,
    turtle,
)

SCHEMA = schema_of_turtle("""
:start mdv:setValued true . :a mdv:setValued true . :b mdv:setValued true . :done mdv:setValued true .
""")
RULE = EcaRule(
    on_arc("INSERT", triple(None, "start", ANY)),
    equal(path(DELTA, target("a"), target("b")), text("yes")),
    (do_arcs("INSERT", triple(DELTA, "done", text("x"))),),
    abort=AbortDependency.INDEPENDENT,
)
SHAPES = ("line", "ring", "star")


def messages_per_firing(shape: str, superpeers: int) -> int:
    """Return how many messages one firing sends over all links. The condition reads one property in the middle and
    one at the last superpeer, where the action runs."""
    federation = SimulatedFederation(SCHEMA)
    federation.crashes = 0
    names = [f"S{number + 1}" for number in range(superpeers)]
    for number, name in enumerate(names):
        middle = ":u :a :v ." if number == superpeers // 2 else ""
        last = ':v :b "yes" . :x :done "x" .' if name == names[-1] else ""
        federation.add_superpeer(name, turtle(f':x :start "x" . {middle} {last}'))
    for one, other in pairs(shape, names):
        federation.connect(one, other)
    federation.rest(seconds=0.01)
    federation.add_rule(names[0], RULE)
    federation.rest(seconds=0.01)
    before = sent(federation)
    federation.register(names[0], turtle(':u :start "go" .'))
    federation.rest(seconds=0.01)
    assert turtle(':u :done "x" .') <= federation.union()
    return sent(federation) - before


def pairs(shape: str, names: list[str]) -> list[tuple[str, str]]:
    """Return the links between superpeers."""
    if shape == "star":
        return [(names[0], other) for other in names[1:]]
    found = list(itertools.pairwise(names))
    return [*found, (names[-1], names[0])] if shape == "ring" and len(names) > 2 else found


def sent(federation: SimulatedFederation) -> int:
    """Return how many messages were acknowledged so far."""
    return sum(link.acknowledged for site in federation.superpeers.values() for link in site.links.values())


def main() -> None:
    print("superpeers", *SHAPES)
    for superpeers in (2, 3, 5, 10, 20):
        print(superpeers, *(messages_per_firing(shape, superpeers) for shape in SHAPES))


if __name__ == "__main__":
    main()
