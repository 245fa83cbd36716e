"""The paper's rules, decomposed as in its figures, and explanations of existing and new rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import mdv
from mdv.errors import InvalidRule
from mdv.inspect.explain_rule import explain_rule
from mdv.inspect.rule_explanation import RuleExplanation, render_explanation
from tests.support.costly_rule import EXPLOSIVE
from tests.support.costly_rule import SCHEMA as COSTLY_SCHEMA
from tests.support.mdp import Mdp

GOLDEN = Path(__file__).parents[1] / "golden"
DEMO = (Path(mdv.__file__).parent / "demo" / "schema.ttl").read_text("utf-8")
NAMESPACE = "http://mdv.example/schema#"

EXAMPLE_1, SECTION_3_3_1, MEMORY, CPU = (
    (GOLDEN / "rules" / "demo" / f"{name}.rule").read_text("utf-8")
    for name in ("example_1", "section_3_3_1", "section_3_1_memory", "section_3_3_2_cpu")
)


@pytest.fixture
def paper(mdp: Mdp) -> Mdp:
    """An MDP with the paper's schema, and nothing else."""
    mdp.put_schema(DEMO)
    return mdp


def explained(mdp: Mdp, text: str, **options: Any) -> RuleExplanation:
    with mdp.engine.connect() as connection:
        return explain_rule(connection, text, mdp.schemas, mdp.rules, **options)


def golden(name: str) -> str:
    return (GOLDEN / "explain" / name).read_text("utf-8")


def tables(mdp: Mdp, **queries: str) -> str:
    """Return tables of the database as text: the name, the columns, the rows."""
    parts = []
    for name, query in queries.items():
        columns = query.removeprefix("select ").partition(" from ")[0].split(", ")
        head = [column.split()[-1].strip('"') for column in columns]
        rows = [[_shown(value) for value in row] for row in mdp.rows(query)]
        parts.append("".join("\t".join(row) + "\n" for row in [[name], head, *rows]))
    return "\n".join(parts)


def _shown(value: object) -> str:
    return "" if value is None else str(value).removeprefix(NAMESPACE)


def graph(mdp: Mdp) -> str:
    return tables(
        mdp,
        AtomicRules='select rule_id, text, group_id "group" from atomic_rules order by rule_id',
        RuleDependencies='select source, target, param, group_id "group" from rule_dependencies order by target, param',
        RuleGroups='select group_id "group", text from rule_groups where not whole order by group_id',
    )


# -- the paper's figures


def test_the_rule_of_section_3_3_1_becomes_the_tables_of_figure_7(paper: Mdp) -> None:
    paper.add_rules([SECTION_3_3_1])
    assert graph(paper) == golden("figure_7.txt")


def test_the_triggering_rules_of_section_3_3_1_become_the_tables_of_figure_8(paper: Mdp) -> None:
    paper.add_rules([SECTION_3_3_1])
    query = "select rule_id, class, property, value from filter_rules_view where operator = '{}' order by rule_id"
    found = tables(paper, FilterRulesGT=query.format(">"), FilterRulesCON=query.format("contains"))
    assert found == golden("figure_8.txt")
    assert paper.one("select count(*) from filter_rules_view") == 3


def test_the_dependency_tree_of_section_3_3_1_is_figure_5(paper: Mdp) -> None:
    paper.add_rules([SECTION_3_3_1])
    (part,) = explained(paper, SECTION_3_3_1).conjunctions
    assert part.tree + "\n" == golden("figure_5.txt")


def test_the_rules_of_section_3_3_3_share_an_atomic_rule_and_a_group(paper: Mdp) -> None:
    paper.add_rules([MEMORY, CPU])
    # In the order of Figure 7, targets of references come first; the text of 3.3.3 has the opposite order.
    assert graph(paper) == golden("section_3_3_3.txt")
    (first,), (second,) = explained(paper, MEMORY).conjunctions, explained(paper, CPU).conjunctions
    every_provider = "search CycleProvider c register c"
    assert [(rule.id, rule.uses) for rule in first.atomic_rules if rule.text == every_provider] == [(2, 2)]
    assert [(rule.id, rule.uses) for rule in second.atomic_rules if rule.text == every_provider] == [(2, 2)]
    assert first.groups[0].id == second.groups[0].id and first.groups[0].members == 2
    assert (first.groups[0].rules, second.groups[0].rules) == ((4,), (5,))


def test_the_normal_form_of_example_1_is_that_of_section_3_3(paper: Mdp) -> None:
    assert explained(paper, EXAMPLE_1).normal + "\n" == (GOLDEN / "rules/demo/example_1.normal").read_text("utf-8")


# -- existing and new rules


@pytest.mark.parametrize(("name", "before", "text"), [
    ("new", [], SECTION_3_3_1),
    ("partly_there", [MEMORY], SECTION_3_3_1),
    ("all_there", [EXAMPLE_1, EXAMPLE_1.replace("64", "128")], EXAMPLE_1),
    ("or", [MEMORY], MEMORY.rstrip() + " or c.serverPort = 5874 or c.serverInformation.memory > 64.0"),
    ("unbounded", [], "search CycleProvider c, ServerInformation s register c where c.serverPort < s.memory"),
    ("no_constant", [], "search CycleProvider c register c"),
])  # fmt: skip
def test_an_explanation_equals_its_golden_text(paper: Mdp, name: str, before: list[str], text: str) -> None:
    paper.put_one("http://d/1", f"@prefix v: <{NAMESPACE}> ." + """
        <#a> a v:CycleProvider ; v:serverHost 'a.uni-passau.de' ; v:serverInformation <#i> ; v:serverPort 5874 .
        <#b> a v:CycleProvider ; v:serverHost 'b' ; v:serverInformation <#i> ; v:serverPort 1 .
        <#i> a v:ServerInformation ; v:memory 92 ; v:cpu 600 ."""
    )  # fmt: skip
    for rule in before:
        paper.add_rules([rule])
    written = re.sub(r"(takes|at most) [\d.,]+ ms", r"\1 N ms", render_explanation(explained(paper, text).as_dict()))
    assert written + "\n" == golden(f"{name}.txt")


def test_letters_continue_after_z(paper: Mdp) -> None:
    ports = " or ".join(f"c.serverPort = {port}" for port in range(30))
    rule = explained(paper, f"search CycleProvider c register c where {ports}")
    assert [part.atomic_rules[0].id for part in rule.conjunctions][24:28] == ["Y", "Z", "AA", "AB"]


def test_explaining_writes_nothing(paper: Mdp) -> None:
    before = [paper.rows(f"select count(*) from {table}") for table in ("atomic_rules", "rule_groups", "vocabulary")]
    state = paper.rows("select * from mdp_state")
    explained(paper, SECTION_3_3_1, with_sql=True)
    after = [paper.rows(f"select count(*) from {table}") for table in ("atomic_rules", "rule_groups", "vocabulary")]
    assert (after, paper.rows("select * from mdp_state")) == (before, state)


def test_explaining_waits_for_no_lock(paper: Mdp) -> None:
    paper.add_rules([MEMORY])
    with paper.engine.begin() as connection:
        connection.exec_driver_sql("select * from mdp_state for update")
        connection.exec_driver_sql("lock table rule_groups, atomic_rules in row exclusive mode")
        assert explained(paper, MEMORY).conjunctions[0].atomic_rules[-1].exists


def test_the_explanation_of_a_new_rule_equals_the_rows_that_adding_it_writes(paper: Mdp) -> None:
    """The predicted rows, letters replaced by numbers, are the rows that adding the rule writes."""
    text = SECTION_3_3_1 + " and c.serverPort != 80 or c.serverInformation = c"
    paper.add_rules([MEMORY])
    told = explained(paper, text).conjunctions
    paper.add_rules([text])
    now = explained(paper, text).conjunctions
    names: dict[object, object] = {}
    for before, after in zip(told, now, strict=True):
        for one, other in zip(before.atomic_rules, after.atomic_rules, strict=True):
            assert names.setdefault(one.id, other.id) == other.id and other.exists
            assert one.exists is (one.id == other.id)
            assert (one.class_iri, one.kind) == (other.class_iri, other.kind)
            assert tuple(names[source] for source in one.inputs) == other.inputs
            for old, new in names.items():
                one = type(one)(one.id, one.text.replace(f"view({old},", f"view({new},"), "", "", True, 0)
            assert one.text == other.text
        assert [group.text for group in before.groups] == [group.text for group in after.groups]
        assert before.whole_group.text == after.whole_group.text
    stored = dict(paper.rows("select rule_id, text from atomic_rules"))
    assert all(stored[rule.id] == rule.text for part in now for rule in part.atomic_rules)


def test_the_explained_driving_predicate_is_the_stored_one(paper: Mdp) -> None:
    text = "search CycleProvider c register c where c.serverPort = 80 and c.serverHost contains 'a'"
    (told,) = explained(paper, text).conjunctions
    (rule,) = paper.add_rules([text])
    (part,) = explained(paper, text).conjunctions
    assert told.whole_group.driver is not None and part.whole_group.driver is not None
    assert told.whole_group.driver.text == part.whole_group.driver.text
    assert part.whole_group.driver.table == "filter_rules_eq"
    assert paper.one("select driver_id from end_rules where rule_id = :end", end=rule.ends[0]) == (
        part.whole_group.driver.rule
    )


# -- counts and costs


def test_a_resource_that_matches_several_conjunctions_is_counted_once(mdp: Mdp) -> None:
    mdp.put_schema(":B a rdfs:Class . :C rdfs:subClassOf :B . :n rdfs:range xsd:integer .")
    mdp.put_one("http://d/1", "<#a> a :B ; :n 5 . <#b> a :C ; :n 7 . <#c> a :C ; :n 1 .")
    assert explained(mdp, "search B b register b where b.n > 4 or b.n = 5 or b.n < 6").matches == 3
    assert explained(mdp, "search C b register b where b.n > 4 or b.n = 5").matches == 1
    assert explained(mdp, "search C b register b where b.n = 1000").matches == 0


def test_a_count_over_the_time_limit_is_unknown_and_the_rest_is_explained(
    mdp: Mdp, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdp.put_schema(":B a rdfs:Class . :n rdfs:range xsd:integer .")
    lines = [f"<#r{n}> a :B ; :n {n} ." for n in range(3000)]
    mdp.put_one("http://d/1", "\n".join(lines))
    rule = "search B a, B b, B c register a where a.n < b.n and b.n < c.n and c.n < a.n"
    told = explained(mdp, rule, seconds=0.2)
    assert told.matches is None
    assert len(told.conjunctions[0].atomic_rules) == 2
    assert told.as_dict()["cost"]["bounded"] is False
    assert "not counted, counting timed out" in render_explanation(told.as_dict())
    with mdp.engine.connect() as connection:
        before = connection.exec_driver_sql("show statement_timeout").scalar_one()
        explain_rule(connection, "search B b register b", mdp.schemas, mdp.rules)
        assert connection.exec_driver_sql("show statement_timeout").scalar_one() == before


def test_a_rule_with_too_many_comparisons_is_not_counted(mdp: Mdp) -> None:
    mdp.put_schema(":B a rdfs:Class . :n rdfs:range xsd:integer . :m rdfs:range xsd:integer . :s rdfs:range :B .")
    either = [f"(b.s.n = {number} or b.s.m = {number})" for number in range(6)]
    all_of = [f"b.s.n > {number}" for number in range(20)]
    told = explained(mdp, "search B b register b where " + " and ".join([*either, *all_of]), with_sql=True)
    assert len(told.conjunctions) == 64
    assert told.matches is None


def test_a_rule_that_is_too_large_is_decomposed_and_not_evaluated(mdp: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    mdp.put_schema(":B a rdfs:Class . :n rdfs:range xsd:integer . :s rdfs:range :B .")
    rule = "search B b register b where b.s.n = 1 or b.s.n = 2"
    assert explained(mdp, rule, with_sql=True).matches == 0
    monkeypatch.setattr("mdv.inspect.explain_rule.MAX_EVALUATED_PARTS", 3)
    told = explained(mdp, rule, with_sql=True)
    assert told.matches is None and [part.sql for part in told.conjunctions] == [None, None]
    assert [rule.id for rule in told.conjunctions[1].atomic_rules] == ["D", "B", "E"]


def test_the_cost_names_the_scans_that_a_change_may_cause(mdp: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    mdp.put_schema(":A a rdfs:Class . :A2 rdfs:subClassOf :A . :B a rdfs:Class . :n rdfs:range xsd:integer .")
    mdp.put_one("http://d/1", "<#a> a :A ; :n 5 . <#b> a :A2 . <#c> a :B ; :n 1 .")
    rule = "search A a, B b register a where a.n {} b.n"
    cost = explained(mdp, rule.format("=")).as_dict()["cost"]
    assert (cost["bounded"], cost["worst"], cost["scans"]) == (True, 0, [])
    (scan,) = explained(mdp, rule.format("!=")).cost.scans
    assert str(scan) == "every change of a B scans all 2 instances of A"
    monkeypatch.setattr("mdv.inspect.explain_rule.MAX_COUNTED_INSTANCES", 1)
    (scan,) = explained(mdp, rule.format("<")).cost.scans
    assert str(scan) == "every change of a B scans more than 1 instances of A"
    everything = "search rdfs:Resource r, B b register r where r != b"
    assert [str(scan) for scan in explained(mdp, everything).cost.scans] == [
        "every change of a B scans more than 1 instances of rdfs:Resource"
    ]


# -- rules that search rules


def test_a_rule_may_search_the_rules_of_its_owner(paper: Mdp) -> None:
    paper.add_rules([("big", MEMORY)], owner=7)
    text = "search big b register b where b.serverPort = 5874"
    told = explained(paper, text, owner=7)
    assert "memory > 64" in told.normal
    assert [rule.exists for rule in told.conjunctions[0].atomic_rules].count(True) == 1
    for owner in (None, 8):
        with pytest.raises(InvalidRule, match="big"):
            explained(paper, text, owner=owner)


@pytest.mark.parametrize(
    "text", ["", "search", "search Nothing n register n", "search CycleProvider c register d", "\0"]
)
def test_invalid_rules_are_refused_with_their_place(paper: Mdp, text: str) -> None:
    with pytest.raises(InvalidRule) as raised:
        explained(paper, text)
    assert raised.value.flaws[0].line == 1


# -- SQL


def test_the_explained_sql_can_be_run_and_finds_the_matches(paper: Mdp) -> None:
    paper.put_one(
        "http://d/1",
        f"@prefix v: <{NAMESPACE}> ."
        + """
        <#a> a v:CycleProvider ; v:serverHost 'it''s%20:x  AS y' ; v:serverPort 5874 .""".replace("''", "\\'"),
    )
    text = "search CycleProvider c register c where c.serverHost contains 'it''s%20:x  AS y' and c.serverPort > 1"
    (rule,) = paper.add_rules([text])
    (part,) = explained(paper, text, with_sql=True).conjunctions
    assert part.sql is not None
    with paper.engine.begin() as connection:
        rows = connection.exec_driver_sql(part.sql.evaluation.replace("%", "%%")).all()
        assert rows == [(paper.one("select id from resources where uri = 'http://d/1#a'"),)]
        # As the filter would query after a change that adds the resource.
        values = {"node0": f"array[{rows[0][0]}]", "known": "0", "first_rule": "0", "position": "0"}
        filter_sql = part.sql.filter
        for name, value in values.items():
            filter_sql = filter_sql.replace(f":{name}::", f"{value}::")
        connection.exec_driver_sql("delete from result_objects")
        connection.exec_driver_sql(filter_sql.replace("%", "%%"))
        found = connection.exec_driver_sql("select rule_id, resource_id, matched from result_objects").all()
        assert found == [(rule.ends[0], rows[0][0], True)]
    assert explained(paper, text).conjunctions[0].sql is None
    assert "SQL, filter" in render_explanation(explained(paper, text, with_sql=True).as_dict())


# -- measured costs of a change


def stored(mdp: Mdp, count: int) -> Mdp:
    mdp.put_schema(COSTLY_SCHEMA)
    mdp.put({f"http://d/{n}": f"<#n> a :N ; :txt 'same' ; :num {n} ; :other -1 ." for n in range(count)})
    return mdp


def test_the_cost_of_a_change_is_measured_on_stored_resources(mdp: Mdp) -> None:
    mdp.rules.seconds = 60.0
    found = explained(stored(mdp, 20), "search N a register a where a.num? = 3 or a.other > 5")
    measured = found.cost.measured
    assert len(measured.milliseconds) == 5 and not measured.stopped
    assert (measured.limit, measured.would_be_suspended) == (60_000, False)
    cost = found.as_dict()["cost"]
    assert cost["sample"] == 5 and 0 < cost["milliseconds"] <= cost["worst_milliseconds"]
    assert re.search(
        r"^Cost: a change of one resource takes .* ms \(median of 5 stored", render_explanation(found.as_dict()), re.M
    )


def test_a_rule_over_the_time_limit_is_reported_as_to_be_suspended(mdp: Mdp) -> None:
    mdp.rules.seconds = 0.2
    found = explained(stored(mdp, 120), EXPLOSIVE, seconds=2.0)
    cost = found.as_dict()["cost"]
    assert (cost["stopped"], cost["would_be_suspended"], cost["limit_milliseconds"]) == (True, True, 200)
    assert cost["worst_milliseconds"] >= 200
    assert render_explanation(found.as_dict()).endswith("more than 200 ms, the limit: the rule would be suspended")


def test_measuring_keeps_its_time_limit_and_resets_all_settings(mdp: Mdp) -> None:
    mdp.rules.seconds = 60.0
    with stored(mdp, 120).engine.connect() as connection:
        before = connection.exec_driver_sql("select name, setting from pg_settings order by name").all()
        found = explain_rule(connection, EXPLOSIVE, mdp.schemas, mdp.rules, seconds=0.5)
        assert connection.exec_driver_sql("select name, setting from pg_settings order by name").all() == before
    cost = found.as_dict()["cost"]
    assert (cost["stopped"], cost["would_be_suspended"], found.matches) == (True, None, None)
    assert re.search("the measurement timed out", render_explanation(found.as_dict()))


def test_without_stored_resources_nothing_is_measured(paper: Mdp) -> None:
    cost = explained(paper, EXAMPLE_1).as_dict()["cost"]
    assert (cost["sample"], cost["milliseconds"], cost["would_be_suspended"]) == (0, None, None)
