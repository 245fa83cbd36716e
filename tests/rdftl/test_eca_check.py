"""The check of rules that are not registered, and the analysis of the active rules of a real store."""

from __future__ import annotations

import pytest

from mdv.errors import InvalidRule
from mdv.inspect import eca_rule_base
from mdv.inspect.eca_check import check_eca_rules, check_json, render_check, warn_about
from mdv.inspect.eca_graph import (
    AnalysedRules,
    analyse_active,
    analysis_json,
    graph_json,
    render_analysis,
    render_graph,
)
from mdv.inspect.eca_rule_base import RuleBaseCache
from mdv.mdp.eca.change_rules import EcaDraft, add_rules, change_state
from mdv.rdftl.analysis import OrderFinding
from mdv.rdftl.compile import compile_rules
from mdv.rdftl.triggering import AnalysisMode
from mdv.real.vocabulary import LRM_BODY, REAL_CODE
from tests.support.mdp import Mdp
from tests.support.real_actions import DECLARED

SCHEMA = """
:Lo a rdfs:Class . :Course rdfs:subClassOf :Lo . :Note a rdfs:Class .
:level rdfs:domain :Lo ; rdfs:range xsd:integer .
:rank rdfs:domain :Lo ; rdfs:range xsd:integer .
:subject rdfs:domain :Lo ; rdfs:range xsd:string ; mdv:setValued true .
:tag rdfs:range xsd:string ; mdv:setValued true .
"""
MARK = "RULE mark ON INSERT resource() AS INSTANCE OF Lo IF TRUE DO INSERT $delta AS INSTANCE OF Note"
RANK = (
    "RULE rank ON INSERT resource() AS INSTANCE OF Note IF $delta/target(subject) = 'x'"
    " DO UPDATE ($delta, rank, _ -> 1)"
)
LOWER = "RULE lower ON INSERT resource() AS INSTANCE OF Note IF TRUE DO UPDATE ($delta, rank, _ -> 2)"


@pytest.fixture
def eca(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    return mdp


def add(mdp: Mdp, *texts: str) -> list[int]:
    with mdp.engine.begin() as connection:
        return [one.id for text in texts for one in add_rules(connection, EcaDraft(text), mdp.provider)]


def check(mdp: Mdp, text: str, replaced: str | None = None, bases: RuleBaseCache | None = None) -> dict:
    with mdp.engine.connect() as connection:
        return check_json(check_eca_rules(connection, text, mdp.schemas, bases or RuleBaseCache(), replaced))


def names(units: list[dict]) -> list[str]:
    return [name for unit in units for name in unit["rules"]]


def test_a_rule_is_checked_among_the_active_rules(eca: Mdp) -> None:
    add(eca, MARK, RANK)
    ((rule,), *_) = check(eca, LOWER).values()

    assert rule["normal"].startswith("RULE lower\nON INSERT resource() AS INSTANCE OF Note")
    assert (names(rule["triggered_by"]), rule["triggers"]) == (["mark"], [])
    strict = rule["analysis"]["strict"]
    assert strict["well_defined"] and not strict["commutes"]
    assert [(one["test"], names(one["units"])) for one in strict["findings"]] == [
        ("C2", ["lower", "mark"]), ("C1", ["lower", "rank"]),
    ]  # fmt: skip
    (warning,) = rule["analysis_warnings"]
    assert (warning["code"], warning["rules"], warning["count"]) == ("does-not-commute", ["mark", "rank"], 2)
    assert rule["analysis"]["paper"]["commutes"] is False


def test_a_rule_that_is_replaced_is_not_compared_with(eca: Mdp) -> None:
    add(eca, RANK)
    assert not check(eca, LOWER)["rules"][0]["analysis"]["strict"]["commutes"]
    (rule,) = check(eca, LOWER, replaced="rank")["rules"]
    assert rule["analysis"]["strict"]["commutes"] and rule["analysis_warnings"] == []


def test_the_rules_of_one_text_are_analysed_together(eca: Mdp) -> None:
    first, second = check(eca, f"{MARK};; {RANK}")["rules"]
    assert (names(first["triggers"]), names(second["triggered_by"])) == (["rank"], ["mark"])


def test_irregular_notation_is_a_warning_with_its_place(eca: Mdp) -> None:
    (rule,) = check(eca, "ON INSERT (_, TAG, _)\nIF TRUE DO INSERT ($delta, tag, 'x')")["rules"]
    (warning,) = rule["warnings"]
    assert (warning["line"], warning["column"]) == (1, 15) and "differs in case" in warning["message"]
    assert names(rule["triggers"]) == ["this rule"], "its action can insert what its event watches"
    (cycle,) = rule["analysis"]["strict"]["cycles"]
    assert cycle["termination"] == "terminates", "it only inserts"


def test_errors_have_their_places(eca: Mdp) -> None:
    with pytest.raises(InvalidRule) as raised:
        check(eca, "ON INSERT (_, tagg, _)\nIF $delta/target(level) > 'x' DO INSERT ($delta, tag, 'x')")
    assert [(flaw.line, flaw.column) for flaw in raised.value.flaws] == [(1, 15), (2, 27)]


def test_rules_like_it_are_counted(eca: Mdp) -> None:
    numbers = add(
        eca, *(f"ON INSERT (_, subject, _) IF $delta.target = 's{n}' DO INSERT ($delta, tag, 't{n}')" for n in range(3))
    )
    with eca.engine.begin() as connection:
        change_state(connection, str(numbers[0]), "disabled", None, eca.provider)
    (rule,) = check(eca, "ON INSERT (_, subject, _) IF $delta.target = 'other' DO INSERT ($delta, tag, 'other')")[
        "rules"
    ]
    assert rule["template"]["rules"] == 2
    (other,) = check(eca, MARK)["rules"]
    assert other["template"]["rules"] == 0


def test_warnings_about_registered_rules_leave_them_out_of_the_comparison(eca: Mdp) -> None:
    add(eca, MARK, RANK, LOWER)
    with eca.engine.connect() as connection:
        schema = eca.schemas.now(connection)
        rules = {
            "lower": compile_rules(LOWER, schema.schema)[0].rule,
            "mark": compile_rules(MARK, schema.schema)[0].rule,
        }
        found = warn_about(connection, rules, schema, RuleBaseCache())
    assert {name: [one.code for one in warnings] for name, warnings in found.items()} == {
        "lower": ["does-not-commute"], "mark": ["not-well-defined", "does-not-commute"],
    }  # fmt: skip


def test_the_graph_has_a_unit_for_each_rule(eca: Mdp) -> None:
    add(eca, MARK, RANK, LOWER)
    with eca.engine.connect() as connection:
        found = analyse_active(connection, eca.schemas, RuleBaseCache(), AnalysisMode.STRICT)
    page = graph_json(found, -1, 2)
    assert [(names([unit]), unit["event"], unit["triggers"]) for unit in page["items"]] == [
        (["mark"], "INSERT resource() AS INSTANCE OF Lo", [1, 2]),
        (["rank"], "INSERT resource() AS INSTANCE OF Note", []),
    ]  # fmt: skip
    last = graph_json(found, int(page["next"]), 2)
    assert (names(last["items"]), last["next"], last["rules"]) == (["lower"], None, 3)
    analysis = analysis_json(found)
    assert [(one["test"], names(one["units"])) for one in analysis["pairs"]] == [
        ("C2", ["mark", "rank"]), ("C2", ["mark", "lower"]), ("C1", ["rank", "lower"]),
    ]  # fmt: skip
    assert analysis["pair_count"] == 3 and analysis["cycles"] == []
    assert list(render_graph(graph_json(found, -1, 9)))[:2] == [
        "mark  ON INSERT resource() AS INSTANCE OF Lo", "  may trigger rank",
    ]  # fmt: skip
    assert list(render_analysis(analysis))[-1:] == [
        "C1  rank, lower: rank updates (Lo, rank, xsd:integer), which lower updates"
    ]


def test_many_rules_of_one_template_are_one_unit(eca: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eca_rule_base, "MAX_SINGLE_RULES", 4)
    add(eca, MARK, RANK, "RULE self ON INSERT (_, level, _) IF TRUE DO UPDATE ($delta, level, _ -> 3)")
    add(
        eca,
        *(
            f"ON INSERT (_, subject, 's{n}') IF TRUE DO INSERT resource(<http://n/{n}>) AS INSTANCE OF Note"
            for n in range(7)
        ),
    )
    with eca.engine.connect() as connection:
        found = analyse_active(connection, eca.schemas, RuleBaseCache(), AnalysisMode.STRICT)
    page = graph_json(found, -1, 100)
    *_, group = page["items"]
    assert (len(page["items"]), group["count"], group["event"]) == (4, 7, "INSERT (_, subject, 's0')")
    assert group["rules"] == [f"rule {n}" for n in range(4, 9)] and group["triggers"] == [1]
    assert page["rules"] == 10 and page["left_out"] == 0
    (rule,) = check(eca, LOWER)["rules"]
    assert [(unit["rules"][0], unit["count"]) for unit in rule["triggered_by"]] == [("mark", 1), ("rule 4", 7)]
    text = "\n".join(render_check(check(eca, LOWER)))
    assert "may be triggered by: mark, rule 4 and 6 like it" in text and "strict analysis: well defined" in text


def test_rules_beyond_the_limit_are_left_out_and_counted(eca: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eca_rule_base, "MAX_SINGLE_RULES", 1)
    monkeypatch.setattr(eca_rule_base, "MAX_UNITS", 2)
    add(eca, MARK, RANK, LOWER)
    add(eca, *(f"ON INSERT (_, subject, 's{n}') IF TRUE DO INSERT ($delta, tag, 't{n}')" for n in range(3)))
    report = check(eca, MARK.replace("mark", "other"))
    assert (report["compared_with"], report["left_out"]) == (4, 2), "one rule, and the largest template"


def test_classes_as_constants_of_a_large_template_are_unknown(eca: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eca_rule_base, "MAX_SINGLE_RULES", 0)
    prefix = "ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, rdf:type, "
    add(eca, prefix + "resource(<http://v/Note>))", prefix + "resource(<http://v/Course>))")
    (rule,) = check(eca, "ON INSERT resource() AS INSTANCE OF Lo IF TRUE DO DELETE ($delta, tag, 'x')")["rules"]
    assert [unit["count"] for unit in rule["triggered_by"]] == [2]


def test_the_rule_base_follows_changes(eca: Mdp) -> None:
    bases = RuleBaseCache()
    (number,) = add(eca, MARK)
    assert check(eca, RANK, bases=bases)["compared_with"] == 1
    with eca.engine.begin() as connection:
        change_state(connection, str(number), "disabled", None, eca.provider)
    assert check(eca, RANK, bases=bases)["compared_with"] == 0


def define(mdp: Mdp, **bodies: str) -> None:
    mdp.put_schema(SCHEMA + DECLARED)
    turtle = "\n".join(
        f"<http://act/{name}> <{LRM_BODY}> <http://act/{name}/body> . <http://act/{name}/body> <{REAL_CODE}> '{code}' ."
        for name, code in bodies.items()
    )
    (result,) = mdp.put({"http://d/actions": turtle})
    assert not isinstance(result, Exception), result


CALLING = "RULE calls ON INSERT resource() AS INSTANCE OF Lo IF TRUE DO CALL <http://act/tag>($delta)"
TAGGED = "RULE tagged ON INSERT (_, tag, _) IF TRUE DO INSERT $delta AS INSTANCE OF Note"


def test_the_analysis_knows_what_a_called_action_may_write(eca: Mdp) -> None:
    bases = RuleBaseCache()
    define(eca, tag=":subject(?x, ?s) AND CALL <http://act/other>(?x)", other="+:tag(?x, ?x)")
    add(eca, CALLING, TAGGED, RANK)

    (rule,) = check(eca, CALLING, "calls", bases)["rules"]
    assert names(rule["triggers"]) == ["tagged"]

    define(eca, tag="-:rank(?x, ?s)")
    (rule,) = check(eca, CALLING, "calls", bases)["rules"]
    assert names(rule["triggers"]) == []
    with eca.engine.connect() as connection:
        found = analyse_active(connection, eca.schemas, bases, AnalysisMode.STRICT)
    assert ["calls", "rank"] in [sorted(names_of(found, one)) for one in found.analysis.pairs]


def names_of(found: AnalysedRules, finding: OrderFinding) -> list[str]:
    return [name for number in finding.units for name in found.analysis.units[number].rules]


@pytest.mark.parametrize(
    "body", ["CALL ?any()", "CALL <http://act/unknown>()", "AND", "CALL primitive:service(?x)", None]
)  # fmt: skip
def test_an_action_that_is_not_known_may_do_anything(eca: Mdp, body: str | None) -> None:
    if body is not None:
        define(eca, tag=body)
    add(eca, TAGGED, RANK)

    (rule,) = check(eca, CALLING)["rules"]

    assert sorted(names(rule["triggers"])) == ["calls", "rank", "tagged"]
    assert any(warning["code"] == "may-not-terminate" for warning in rule["analysis_warnings"])


def test_a_rule_that_makes_nodes_by_an_action_may_not_terminate(eca: Mdp) -> None:
    define(eca, tag="$y AND +rdf:type(?y, <http://v/Lo>)")

    (rule,) = check(eca, CALLING)["rules"]

    assert [warning["code"] for warning in rule["analysis_warnings"]].count("may-not-terminate") == 1
