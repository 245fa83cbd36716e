"""What a run tells about actions and conditions that did less than their text may suggest: laws A9 and S7."""

from __future__ import annotations

from typing import Any

import pytest

from mdv.cli.eca_tree import tree_lines
from mdv.inspect.eca_runs import build_tree, tree_json
from mdv.mdp.eca.update import UpdateOutcome, UpdateRequest, execute_update
from tests.support.eca_system import RULES, SCHEMA, add, statements
from tests.support.mdp import Mdp

NOT_STATED = "only follows from a subclass or subproperty"


@pytest.fixture
def eca(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    mdp.put_one("http://d/1", "<http://r/1> a :Course ; :editor <http://r/2> . <http://r/3> a :Course , :Lo .")
    return mdp


def update(mdp: Mdp, text: str) -> UpdateOutcome:
    with mdp.engine.begin() as connection:
        return execute_update(connection, UpdateRequest(text), mdp.provider, tracing=True)


def steps(done: UpdateOutcome) -> list[dict[str, Any]]:
    assert isinstance(done.run, dict)
    return list(done.run["steps"])


@pytest.mark.parametrize(
    "text",
    [
        "DELETE (resource(http://r/1), owner, _)",
        "DELETE (_, owner, resource(http://r/2))",
        "UPDATE (resource(http://r/1), owner, _ -> resource(http://r/3))",
        "DELETE (resource(http://r/1), rdf:type, Lo)",
        "DELETE (_ AS INSTANCE OF Course, rdf:type, resource(http://r/1)/target(rdf:type)), (_, tag, 'x')",
    ],
)
def test_an_arc_that_only_follows_is_not_changed_with_a_warning(eca: Mdp, text: str) -> None:
    before = statements(eca, "http://d/1")
    done = update(eca, text)
    (warning,) = done.warnings
    assert NOT_STATED in warning["message"] and NOT_STATED in steps(done)[0]["note"]
    if "instance" not in text.lower():
        assert statements(eca, "http://d/1") == before


@pytest.mark.parametrize(
    "text",
    [
        "DELETE (resource(http://r/1), editor, _)",
        "DELETE (resource(http://r/3), rdf:type, Lo)",
        "DELETE (resource(http://r/3), owner, _)",
        "DELETE (resource(http://r/1), rdf:type, User)",
        "DELETE (resource(http://r/1), _, _)",
        "DELETE resource(http://r/1)",
    ],
)
def test_other_changes_have_no_warning(eca: Mdp, text: str) -> None:
    done = update(eca, text)
    assert done.warnings == () and "note" not in steps(done)[0]


def test_a_rule_has_the_note_in_its_trace(eca: Mdp) -> None:
    add(eca, "ON INSERT (_, tag, _) IF TRUE DO DELETE ($delta, owner, _)")
    done = update(eca, "INSERT (resource(http://r/1), tag, 'x')")
    assert isinstance(done.run, dict) and any(
        NOT_STATED in line for line in tree_lines(tree_json(build_tree(done.run)))
    )
    assert done.warnings == () and [NOT_STATED in step.get("note", "") for step in steps(done)] == [False, True]


def test_elements_of_something_that_is_no_collection_are_noted(eca: Mdp) -> None:
    eca.put_one("http://d/2", "<http://r/bag> a rdf:Bag ; rdf:_1 <http://r/1> .")
    for name, node in (("of-bag", "http://r/bag"), ("of-course", "http://r/1")):
        add(eca, f"RULE {name} ON INSERT (_, tag, 'x') IF not resource({node})/element()/target(tag) = 'none'"
                 " DO INSERT ($delta, tag, 'seen')")  # fmt: skip
    done = update(eca, "INSERT (resource(http://r/1), tag, 'x')")
    assert isinstance(done.run, dict)
    notes = {one["name"]: one["comparisons"][0].get("note") for one in done.run["fired"]}
    assert notes == {"of-bag": None, "of-course": "`element` was applied to something that is no collection"}
    assert ("http://r/1", "tag", "seen") in statements(eca, RULES)
