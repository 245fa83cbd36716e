"""/eca/check, /eca/graph and /eca/analysis over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx2
import pytest

from tests.support.eca_rules import adding_eca_rules
from tests.support.server import Api, Server
from web.models import EcaAnalysis, EcaChecked, EcaGraph, EcaRuleAdded

NOTE = "RULE noted ON INSERT resource() AS INSTANCE OF Provider IF TRUE DO INSERT ($delta, note, 'new')"
ANSWER = "RULE answer ON INSERT (_, note, 'new') IF TRUE DO DELETE ($delta, note, 'new')"


@pytest.fixture
def add_rule(system_database: str) -> Iterator[Callable[[str], list[int]]]:
    with adding_eca_rules(system_database) as add:
        yield add


def check(api: Api, text: str, **more: str) -> httpx2.Response:
    return api.http.post("/api/v1/eca/check", json={"text": text, **more})


def test_a_text_is_checked_among_the_active_rules(api: Api, add_rule: Callable[[str], list[int]]) -> None:
    add_rule(NOTE)
    answer = check(api, ANSWER)
    assert answer.status_code == 200, answer.text
    (rule,) = EcaChecked.model_validate(answer.json()).rules
    assert [unit.rules for unit in rule.triggered_by] == [["noted"]] and rule.analysis.keys() == {"paper", "strict"}
    assert [one.code for one in rule.analysis_warnings] == ["does-not-commute"]
    assert check(api, NOTE.replace("noted", "same"), replaces="noted").json()["rules"][0]["analysis_warnings"] == []


def test_errors_are_a_problem_with_all_places(api: Api) -> None:
    answer = check(api, "ON INSERT (_, nota, _) IF TRUE\nDO INSERT ($delta, memori, 1)")
    assert answer.status_code == 422
    assert [(one["line"], one["column"]) for one in answer.json()["errors"]] == [(1, 15), (2, 20), (2, 28)]
    assert check(api, NOTE, replaces="nothing").status_code == 404
    assert check(api, "ON INSERT (_, note, _) IF TRUE DO " + "DELETE $delta;" * 2_000).status_code == 422


def test_the_graph_and_the_analysis_of_all_rules(api: Api, add_rule: Callable[[str], list[int]]) -> None:
    add_rule(f"{NOTE};;{ANSWER}")
    graph = EcaGraph.model_validate(api.get("/eca/graph", limit=1).json())
    assert ([unit.rules for unit in graph.items], graph.items[0].triggers, graph.next) == ([["noted"]], [1], "0")
    rest = EcaGraph.model_validate(api.get("/eca/graph", limit=1, after=graph.next).json())
    assert ([unit.rules for unit in rest.items], rest.next, rest.rules) == ([["answer"]], None, 2)
    for mode in ("paper", "strict"):
        found = EcaAnalysis.model_validate(api.get("/eca/analysis", mode=mode).json())
        assert found.mode == mode and {one.test for one in found.pairs} >= {"C1"}, found.pairs
    assert api.get("/eca/graph", after="x").status_code == 400
    assert api.get("/eca/analysis", mode="lenient").status_code == 400


def test_readers_may_analyse_and_strangers_may_not(server: Server, make_token: Callable[..., tuple[str, int]]) -> None:
    viewer = server.api(make_token("viewer")[0])
    assert check(viewer, NOTE).status_code == 200 and viewer.get("/eca/graph").status_code == 200
    stranger = server.api("")
    assert check(stranger, NOTE).status_code == 401 and stranger.get("/eca/analysis").status_code == 401


def test_warnings_of_the_analysis_are_returned_at_registration(api: Api, add_rule: Callable[[str], list[int]]) -> None:
    add_rule(NOTE)
    added = api.http.post("/api/v1/eca/rules", json={"text": ANSWER})
    assert added.status_code == 201, added.text
    (warning,) = EcaRuleAdded.model_validate(added.json()).warnings
    assert (warning.code, warning.rules, warning.count) == ("does-not-commute", ["noted"], 1)
    changed = api.http.put("/api/v1/eca/rules/answer", json={"text": ANSWER.replace("'new')\"", "'x')")})
    assert [one["code"] for one in changed.json()["warnings"]] == ["does-not-commute"]
    many = [{"text": NOTE.replace("noted", f"n{number}")} for number in range(25)]
    items = api.http.post("/api/v1/eca/rules", json=many).json()["items"]
    assert [bool(item["warnings"]) for item in items] == [True] * 20 + [False] * 5, "only the first are analysed"
