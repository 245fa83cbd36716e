"""Actions of ReAL in the worlds of event-condition-action rules, and rules that call them."""

from __future__ import annotations

from hypothesis import strategies as st

from mdv.model import Statement, Term
from mdv.rdftl.model import Action, AllNodes, CallAction, ConstantValue, DeltaValue, NamedNode, NodePath, Operand
from mdv.real.vocabulary import INPUT_SIGNATURE, LRM_BODY, REAL_CODE
from tests.support import rdftl_worlds as worlds

ACTIONS_DOCUMENT = "http://d/actions"
BODIES = {
    "mark": ("x", "rdf:type(?x, ?) AND ++:label(?x, 'a')"),
    "move": ("x", "-:about(?x, ?y) AND +:mentions(?x, ?y)"),
    "rate": ("x", "[-:size(?x, ?n)] AND ++:rating(?x, ?n)"),
    "author": ("x, y", "(+:author(?x, ?y) OR -:author(?x, ?z)) AND ++:mentions(?x, ?y)"),
    "inside": ("x", "IN <http://d/1> { :name(?x, ?n) AND -:about(?x, ?y) AND ++:about(?y, ?x) }"),
    "fails": ("x", "++:name(?x, 'a') AND :label(?x, ?l) AND +:mentions(?x, ?unbound)"),
    "none": ("x", "NO :about(?x, ?) AND +:rating(?x, '3')"),
    "sandbox": ("x", "{-:about(?x, ?y)} AND ++:mentions(?x, ?y)"),
    "undone": ("x", "[-:about(?x, ?y) AND :label(?y, ?)] OR -:label(?x, ?)"),
    "retype": ("x, c", "-rdf:type(?x, ?) AND ++rdf:type(?x, ?c)"),
}
"""Their results do not depend on the order of streams."""


def _action_statements() -> frozenset[Statement]:
    found = set()
    for name, (inputs, code) in BODIES.items():
        iri, body = f"http://act/{name}", f"http://act/{name}/body"
        found |= {
            Statement(iri, INPUT_SIGNATURE, Term.literal(inputs)),
            Statement(iri, LRM_BODY, Term.uri(body)),
            Statement(body, REAL_CODE, Term.literal(code)),
        }
    return frozenset(found)


ACTION_STATEMENTS = _action_statements()


@st.composite
def calls(draw: st.DrawFn, delta: bool) -> CallAction:
    """A call with nodes, classes, paths and texts as arguments, now and then too many or of no action."""
    name = draw(st.sampled_from([*BODIES, *BODIES, "unknown"]))
    count = len(BODIES.get(name, ("x", ""))[0].split(",")) + draw(st.sampled_from([0] * 9 + [1]))
    heads = worlds.heads(delta)
    nodes = [head for head in heads if isinstance(head, NamedNode | DeltaValue)]
    argument: st.SearchStrategy[Operand] = st.one_of(
        st.sampled_from(nodes).map(NodePath),
        st.sampled_from([NodePath(NamedNode(uri)) for uri in worlds.CLASSES]),
        worlds.paths(heads, 0),
        st.just(NodePath(AllNodes())),
        st.just(ConstantValue("text", "text")),
    )
    return CallAction(f"http://act/{name}", tuple(draw(argument) for _ in range(count)))


@st.composite
def with_calls(draw: st.DrawFn, actions: tuple[Action, ...], delta: bool) -> tuple[Action, ...]:
    place = draw(st.integers(0, len(actions)))
    return (*actions[:place], draw(calls(delta)), *actions[place:])
