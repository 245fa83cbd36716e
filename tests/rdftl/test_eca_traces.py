"""Traces of runs as trees, the log of changes, and the origins of statements."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import text

from mdv.cli.eca_tree import tree_lines
from mdv.errors import NotFound
from mdv.inspect.eca_log import change_json, find_origins, list_changes, origins_json
from mdv.inspect.eca_rules import count_rules, list_eca_rules, list_sets, rule_json
from mdv.inspect.eca_runs import (
    MAX_JSON_LEVELS,
    FiredCopy,
    RunTree,
    build_tree,
    list_runs,
    read_run,
    run_json,
    tree_json,
    walk_tree,
)
from mdv.mdp.eca.change_rules import EcaDraft, add_rules, change_state
from mdv.mdp.eca.comparisons import FiredCondition, read_comparisons
from mdv.mdp.eca.update import UpdateRequest, execute_update
from mdv.model import Statement, Term
from mdv.rdftl.model import Delta
from tests.support.eca_system import submit, work
from tests.support.mdp import Mdp

SCHEMA = """
:Lo a rdfs:Class . :User a rdfs:Class .
:subject rdfs:range xsd:string ; mdv:setValued true .
:level rdfs:range xsd:integer .
:owner rdfs:range :User ; mdv:setValued true .
:tag rdfs:range xsd:string ; mdv:setValued true .
"""
NEWEST = 2**63 - 1


@pytest.fixture
def eca(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    return mdp


def add(mdp: Mdp, text: str, **values: Any) -> None:
    with mdp.engine.begin() as connection:
        add_rules(connection, EcaDraft(text, **values), mdp.provider)


def put(mdp: Mdp, uri: str, turtle: str) -> None:
    (result,) = mdp.put({uri: turtle})
    assert not isinstance(result, Exception), result


def last_tree(mdp: Mdp) -> RunTree:
    with mdp.engine.connect() as connection:
        (run,) = list_runs(connection, NEWEST, 1)
        return build_tree(read_run(connection, run.id)[1])


def literal(value: str) -> dict[str, str]:
    return {"type": "literal", "value": value}


def test_a_trace_is_a_tree_of_updates_and_rules(eca: Mdp) -> None:
    add(eca, "RULE first ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'a')")
    add(eca, "RULE second ON INSERT (_, tag, 'a') IF TRUE DO INSERT ($delta, tag, 'b'); DELETE ($delta, tag, 'a')")

    put(eca, "http://d/1", "<http://r/1> a :Lo ; :subject 'x' .")

    tree = last_tree(eca)
    names = [
        (level, node.name if isinstance(node, FiredCopy) else node.number) for level, node in walk_tree(tree)
    ]  # fmt: skip
    assert names == [(0, "first"), (1, 0), (2, "second"), (3, 1), (3, 2)]
    (first,) = tree.start.copies
    assert first.delta == {"source": "http://r/1", "arc_name": "http://v/subject", "target": literal("x")}
    assert first.updates[0].changes == [
        {"document": "urn:mdv:eca:main", "removed": None, "added": ["http://r/1", "http://v/tag", literal("a")]}
    ]


def test_each_comparison_of_a_condition_has_its_values(eca: Mdp) -> None:
    put(eca, "http://d/0", "<http://u/1> a :User ; :level 3 . <http://u/2> a :User ; :level 5 .")
    add(eca, "RULE r ON INSERT (_, owner, _)"
             " IF ($delta/target(owner)/target(level) > 4 or $delta.source = 'http://none')"
             " and not $delta/target(tag) and $delta.target = resource()"
             " DO INSERT ($delta, tag, 'a')")  # fmt: skip

    put(eca, "http://d/1", "<http://r/1> a :Lo ; :owner <http://u/1>, <http://u/2> .")

    copies = last_tree(eca).start.copies
    assert [copy.delta["target"]["value"] for copy in copies if copy.delta] == ["http://u/1", "http://u/2"]
    level, named, tagged, owner = copies[1].comparisons
    assert level == {
        "text": "$delta/target(owner)/target(level) > 4", "holds": True, "left": [literal("3"), literal("5")],
        "right": [literal("4")],
    }  # fmt: skip
    assert (named["holds"], named["left"]) == (False, [{"type": "uri", "value": "http://r/1"}])
    assert tagged == {"text": "$delta/target(tag)", "holds": False, "left": []}
    assert owner["holds"]
    assert owner["left"] == [{"type": "uri", "value": "http://u/2"}]


def test_comparisons_are_those_of_the_state_that_the_condition_was_evaluated_on(eca: Mdp) -> None:
    add(eca, "RULE a ON INSERT (_, subject, _) IF $delta/target(level) = 1 DO UPDATE ($delta, level, _ -> 2)")
    add(eca, "RULE b ON UPDATE (_, level, _ -> _) IF $delta/target(level) > 1 DO UPDATE ($delta, level, _ -> 1)")

    put(eca, "http://d/1", "<http://r/1> a :Lo ; :subject 'x' ; :level 1 .")

    copies = [node for _, node in walk_tree(last_tree(eca)) if isinstance(node, FiredCopy)]
    assert [(copy.name, copy.comparisons[0]["left"]) for copy in copies] == [
        ("a", [literal("1")]),
        ("b", [literal("2")]),
    ]


def test_comparisons_of_delta_alone_have_their_values(eca: Mdp) -> None:
    add(eca, "RULE r ON UPDATE (_, level, _ -> _) IF $delta.old_target != $delta.new_target and $delta = resource(http://r/1)"
             " and $delta.arc_name = 'http://v/level' DO INSERT ($delta, tag, 'a')")  # fmt: skip
    put(eca, "http://d/1", "<http://r/1> a :Lo ; :level 1 .")
    put(eca, "http://d/1", "<http://r/1> a :Lo ; :level 2 .")

    (copy,) = last_tree(eca).start.copies
    changed, source, arc = copy.comparisons
    assert changed == {"text": "$delta.old_target != $delta.new_target", "holds": True, "left": [literal("1")],
                       "right": [literal("2")]}  # fmt: skip
    node = {"type": "uri", "value": "http://r/1"}
    assert (source["left"], source["right"], source["holds"]) == ([node], [node], True)
    assert (arc["left"], arc["right"]) == ([{"type": "uri", "value": "http://v/level"}], [literal("http://v/level")])


def test_conditions_of_delta_alone_are_explained_without_a_query(eca: Mdp) -> None:
    add(eca, "ON INSERT (_, subject, _) IF $delta.target = 'x' DO INSERT ($delta, tag, 'a')")
    add(
        eca,
        "ON INSERT (_, subject, _) IF $delta/target(tag) != 'x' or $delta.target = 'y' DO DELETE ($delta, tag, 'b')",
    )
    with eca.engine.connect() as connection:
        version = 1
        schema = eca.provider.schemas.now(connection)
        rules = eca.provider.eca_rules.at(connection, version, schema)
    assert [template.values is None for template in rules.by_id.values()] == [True, False]


def test_values_that_take_too_long_are_left_out(eca: Mdp) -> None:
    put(eca, "http://d/1", "".join(f"<http://r/{n}> :subject 's{n}' ; :tag 't{n}' . " for n in range(2000)))
    add(eca, "ON INSERT (_, level, _) IF TRUE or resource()/target(tag) = resource()/target(subject)"
             " DO INSERT ($delta, tag, 'a')")  # fmt: skip
    with eca.engine.begin() as connection:
        schema = eca.provider.schemas.now(connection)
        (template,) = eca.provider.eca_rules.at(connection, 1, schema).by_id.values()
        fired = [FiredCondition(template, 1, (), Delta("http://r/1", "http://v/level", Term.literal("1")))]
        assert read_comparisons(connection, schema, fired, 0.005) == {}
        ((timeout,),) = connection.exec_driver_sql("show statement_timeout").fetchall()
    assert timeout == "0"


def test_a_set_oriented_rule_has_one_copy_with_its_comparisons(eca: Mdp) -> None:
    add(
        eca,
        "RULE once ON INSERT (_, subject, _) IF resource()/target(subject) = 'x'"
        " DO INSERT (resource(http://a/b), tag, 'n')",
    )

    put(eca, "http://d/1", "<http://r/1> a :Lo ; :subject 'x', 'y' .")

    (copy,) = last_tree(eca).start.copies
    assert copy.delta is None
    assert copy.comparisons[0]["holds"]


def test_a_deep_chain_is_json_of_bounded_depth(eca: Mdp) -> None:
    add(eca, "RULE count ON INSERT (_, level, _) IF $delta/target(level) > 0"
             " DO INSERT (resource(http://c/s), seq++, $delta)")  # fmt: skip
    copy = {"rule": 1, "name": "n", "state": "active", "delta": None, "depth": 1}
    fired = [{**copy, "copy": n, "cause": n - 1 if n else None} for n in range(500)]
    trace = {
        "steps": [one | {"n": one["copy"], "action": 0, "changes": [], "change_count": 0} for one in fired],
        "fired": fired,
        "fired_count": 500, "left_out": 0, "failed": [],
    }  # fmt: skip

    found = tree_json(build_tree(trace))

    assert json.loads(json.dumps(found)) == found
    assert len(found["continued"]) == 500 // MAX_JSON_LEVELS - 1
    assert found["continued"][0]["n"] == MAX_JSON_LEVELS - 1


def test_rules_whose_cause_is_left_out_are_after_the_others(eca: Mdp) -> None:
    """A chain of 10 rules with one update each. The trace has the first 3 and the last 2 updates."""
    copy = {"rule": 1, "name": "n", "state": "active", "delta": None, "depth": 1}
    fired = [{**copy, "copy": n, "cause": n - 1 if n else None} for n in range(10)]
    steps = [one | {"n": one["copy"], "action": 0, "changes": [], "change_count": 0} for one in fired]
    trace = {"steps": steps[:3] + steps[8:], "fired": fired, "fired_count": 10, "left_out": 5, "failed": []}

    tree = build_tree(trace)

    found = [node.number for _, node in walk_tree(tree) if isinstance(node, FiredCopy)]
    assert found == [0, 1, 2, 3, 8, 9], "those between did nothing that the trace has"
    assert [one.number for one in tree.start.copies] == [0] and [one.number for one in tree.later] == [8]
    assert [one["copy"] for one in tree_json(tree)["later"]] == [8]
    lines = list(tree_lines(tree_json(tree)))
    assert lines[lines.index("5 updates are left out.") + 1] == "rule n"


def test_an_update_has_its_own_actions_at_the_top(eca: Mdp) -> None:
    add(eca, "RULE first ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'a')")
    with eca.engine.begin() as connection:
        execute_update(connection, UpdateRequest("INSERT (resource(http://r/1), subject, 'x')"), eca.provider)

    tree = last_tree(eca)

    assert [node.number if not isinstance(node, FiredCopy) else node.name for _, node in walk_tree(tree)] == [
        0, "first", 1,
    ]  # fmt: skip


def test_the_log_names_rules_and_reasons(eca: Mdp) -> None:
    add(eca, "RULE first ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'a')")
    put(eca, "http://d/1", "<http://r/1> a :Lo ; :subject 'x' .")
    put(eca, "http://d/2", "<http://r/2> a :Lo ; :subject 'x' .")

    with eca.engine.connect() as connection:
        newest, oldest = list_changes(connection, NEWEST, 10)
        assert list_changes(connection, newest.id, 10) == [oldest]
        assert list_changes(connection, NEWEST, 10, resource="http://r/1") == [oldest]
        assert list_changes(connection, NEWEST, 10, document="urn:mdv:eca:main", rule=oldest.rule_id)[1] == oldest
        assert list_changes(connection, NEWEST, 10, run=newest.run) == [newest]
        assert list_changes(connection, NEWEST, 10, rule=99) == []
    assert change_json(oldest)["text"] == "inserted by rule first because of (<http://r/1>, <http://v/subject>, 'x')"
    assert change_json(oldest)["statement"] == ["http://r/1", "http://v/tag", literal("a")]


def test_the_origin_of_a_statement_is_the_rule_that_inserted_it(eca: Mdp) -> None:
    add(eca, "RULE first ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, $delta.target)")
    put(eca, "http://d/1", "<http://r/1> a :Lo ; :subject 'x' .")
    put(eca, "http://d/2", "<http://r/1> :subject 'y' ; :tag 'own' .")

    statements = [Statement("http://r/1", "http://v/tag", Term.literal(value)) for value in ("x", "y", "own")]
    with eca.engine.connect() as connection:
        origins = find_origins(connection, "http://r/1")
        assert find_origins(connection, "http://none/") == []
    found = origins_json(origins, statements)
    assert [(one["statement"][1]["value"], one["rule"], one["document"]) for one in found] == [
        ("x", "first", "urn:mdv:eca:main"), ("y", "first", "urn:mdv:eca:main"),
    ]  # fmt: skip
    assert found[0]["text"] == "inserted by rule first because of (<http://r/1>, <http://v/subject>, 'x')"

    with eca.engine.begin() as connection:
        execute_update(connection, UpdateRequest("DELETE (resource(http://r/1), tag, 'x')"), eca.provider)
        assert [one.statement.object.value for one in find_origins(connection, "http://r/1")] == ["y"]


def test_rules_are_listed_with_their_states_and_counts(eca: Mdp) -> None:
    add(eca, "RULE a ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'a')")
    add(eca, "RULE b ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'b')", rule_set="other", state="shadow")
    put(eca, "http://d/1", "<http://r/1> a :Lo ; :subject 'x' .")

    with eca.engine.begin() as connection:
        assert [rule_json(one)["fired"] for one in list_eca_rules(connection)] == [1, 1]
        change_state(connection, "a", "disabled", "user anna", eca.provider)
        (found,) = list_eca_rules(connection, state="disabled")
        assert (found.name, found.by) == ("a", "user anna")
        assert count_rules(connection) == {"disabled": 1, "shadow": 1}
        assert list_sets(connection, 10) == {"main": 1, "other": 1}


def test_runs_are_listed_newest_first(eca: Mdp) -> None:
    add(eca, "RULE a ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'a')")
    put(eca, "http://d/1", "<http://r/1> a :Lo ; :subject 'x' .")
    put(eca, "http://d/2", "<http://r/2> a :Lo ; :subject 'x' .")

    with eca.engine.connect() as connection:
        newest, oldest = list_runs(connection, NEWEST, 10)
        assert list_runs(connection, newest.id, 10, rule=1) == [oldest]
        assert list_runs(connection, NEWEST, 10, position=newest.position) == [newest]
        assert list_runs(connection, NEWEST, 10, outcome="refused") == []
        with pytest.raises(NotFound, match="no run 99"):
            read_run(connection, 99)
    assert run_json(newest)["subject"] == "http://d/2"
    assert (newest.cause, newest.outcome, newest.fired) == ("registration", "done", 1)


def test_the_runs_of_a_rule_include_those_in_which_it_changed_nothing(eca: Mdp) -> None:
    """A rule takes part in a run if it fires as a shadow rule, fails alone, or refuses the change."""
    add(eca, "RULE shadow ON INSERT (_, subject, 'shadow') IF TRUE DO INSERT ($delta, tag, 'a')", state="shadow")
    add(eca, "RULE alone ABORT Independent ON INSERT (_, subject, 'alone') IF TRUE DO INSERT ($delta, seq++, $delta)")
    add(eca, "RULE refusing ON INSERT (_, subject, 'refused') IF TRUE DO INSERT ($delta, seq++, $delta)")
    put(eca, "http://d/1", "<http://r/1> a :Lo ; :subject 'shadow' .")
    put(eca, "http://d/2", "<http://r/2> a :Lo ; :subject 'alone' .")
    submit(eca, "register", "http://d/3", "<http://r/3> a :Lo ; :subject 'refused' .")
    work(eca)

    with eca.engine.connect() as connection:
        found = [[run.subject for run in list_runs(connection, NEWEST, 10, rule=rule)] for rule in (1, 2, 3)]
    assert found == [["http://d/1"], ["http://d/2"], ["http://d/3"]]


def test_the_log_of_a_document_is_read_from_an_index(eca: Mdp) -> None:
    with eca.engine.begin() as connection:
        connection.execute(text("set local enable_seqscan = off"))
        connection.execute(
            text(
                "insert into eca_changes (position, run_id, step, is_added, document, subject, property, object)"
                " select n, n, 0, true, 'http://d/' || n, 's', 'p', '{}' from generate_series(1, 5000) n"
            )
        )
        connection.execute(text("analyze eca_changes"))
        plan = connection.scalars(
            text("explain select * from eca_changes where document = 'http://d/7' order by id desc limit 10")
        )
        assert any("eca_changes_document" in line for line in plan)
