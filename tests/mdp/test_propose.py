"""Proposed rules: from a resource, and from a class with chosen values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import mdv
from mdv.errors import BadRequest, InvalidRule, NotFound
from mdv.inspect.propose import Proposal, propose
from mdv.rules.parse import parse
from tests.support.generated_rules import RESOURCES, SCHEMA, Said, populations, schema_in_force, turtle
from tests.support.mdp import Mdp
from tests.support.rule_oracle import World

DEMO = (Path(mdv.__file__).parent / "demo" / "schema.ttl").read_text("utf-8")
D = "http://d/"


def proposed(mdp: Mdp, **asked: Any) -> list[Proposal]:
    with mdp.engine.connect() as connection:
        return propose(connection, mdp.schemas, **asked)


def by_text(found: list[Proposal]) -> dict[str, int | None]:
    """Return the matches of each rule; the rules on one line."""
    return {" ".join(proposal.rule.split()): proposal.selects for proposal in found}


@pytest.fixture(autouse=True)
def counts_without_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Complete every count, however busy the machine is."""
    for name in ("MAX_TOTAL_COUNT_SECONDS", "MAX_SINGLE_COUNT_SECONDS"):
        monkeypatch.setattr(f"mdv.inspect.propose.{name}", 1000)


@pytest.fixture
def paper(mdp: Mdp) -> Mdp:
    """Three providers on the paper's schema: two share a port, two a host name."""
    mdp.put_schema(DEMO)
    mdp.put_one(f"{D}1", "@prefix v: <http://mdv.example/schema#> . " + "".join(
        f"<#{name}> a v:CycleProvider ; v:serverHost '{host}' ; v:serverPort {port} ; v:serverInformation <#i{name}> ."
        f" <#i{name}> a v:ServerInformation ; v:memory {memory} ; v:cpu 600 . "
        for name, host, port, memory in (("a", "pirates", 5874, 92), ("b", "pirates", 5874, 32), ("c", "x", 5874, 92))
    ))  # fmt: skip
    return mdp


# -- from a resource


def test_rules_are_proposed_from_the_uri_values_pairs_paths_and_class_of_a_resource(paper: Mdp) -> None:
    found = proposed(paper, resource=f"{D}1#a")
    assert by_text(found) == {
        f"search CycleProvider c register c where c = <{D}1#a>": 1,
        f"search CycleProvider c register c where c.serverInformation = <{D}1#ia>": 1,
        "search CycleProvider c register c where c.serverHost = 'pirates'": 2,
        "search CycleProvider c register c where c.serverPort = 5874": 3,
        "search CycleProvider c register c where c.serverHost = 'pirates' and c.serverPort = 5874": 2,
        "search CycleProvider c register c where c.serverInformation.memory = 92": 2,
        "search CycleProvider c register c where c.serverInformation.cpu = 600": 3,
        "search CycleProvider c register c": 3,
    }
    assert [proposal.selects for proposal in found] == [1, 1, 2, 3, 2, 2, 3, 3]
    assert found[4].why == "Every CycleProvider whose serverHost is 'pirates' and whose serverPort is 5874."
    assert found[2].as_dict() == {
        "rule": "search    CycleProvider c\nregister  c\nwhere     c.serverHost = 'pirates'",
        "selects": 2,
        "more": False,
        "why": "Every CycleProvider whose serverHost is 'pirates'.",
    }


def test_proposals_can_be_registered_and_select_the_resource(paper: Mdp) -> None:
    found = proposed(paper, resource=f"{D}1#ia")
    added = paper.add_rules([proposal.rule for proposal in found])
    results = [paper.results_of(rule.id) for rule in added]
    assert all(f"{D}1#ia" in result for result in results)
    assert [len(result) for result in results] == [proposal.selects for proposal in found]


TYPED = """
:C a rdfs:Class . :number rdfs:range xsd:double . :day rdfs:range xsd:date . :open rdfs:range xsd:boolean .
:text rdfs:range xsd:string . :tags mdv:setValued true . :ref rdfs:range :C . <http://other/text> rdfs:domain :Other .
"""


CONSTANTS = [
    (":number 1.5e3", "c.number = 1500"),
    (":number -0.25", "c.number = -0.25"),
    (":day '2024-02-29Z'", "c.day = '2024-02-29Z'"),
    (":open true", "c.open = true"),
    (":open 0 ", "c.open = false"),
    (':text "it\'s"@en', "c.text = 'it''s'"),
    (":tags 'a'", "c.tags? = 'a'"),
    (":tags <http://r/2>", "c.tags? = <http://r/2>"),
    (":ref <http://r/2>", "c.ref = <http://r/2>"),
    ("rdfs:label 'l'", "c.rdfs:label = 'l'"),
    ("<http://other/text> 'o'", "c.<http://other/text> = 'o'"),
]


def test_proposed_constants_are_written_in_the_form_they_are_compared_in(mdp: Mdp) -> None:
    mdp.put_schema(TYPED)
    mdp.put({f"{D}{n}": f"<http://s/{n}> a :C ; {said} ." for n, (said, _) in enumerate(CONSTANTS)})
    for n, (_, predicate) in enumerate(CONSTANTS):
        assert f"search C c register c where {predicate}" in by_text(proposed(mdp, resource=f"http://s/{n}"))


def test_values_that_equal_nothing_or_are_too_long_are_not_proposed(mdp: Mdp) -> None:
    mdp.put_schema(TYPED)
    mdp.put_one(f"{D}1", f"<http://r/1> a :C ; :number 'NaN' ; :text '{'long' * 51}' ; :tags [ a :C ] .")
    assert list(by_text(proposed(mdp, resource="http://r/1"))) == [
        "search C c register c where c = <http://r/1>", "search C c register c",
    ]  # fmt: skip


def test_a_proposed_path_follows_blank_nodes_and_only_instances_of_the_range(mdp: Mdp) -> None:
    mdp.put_schema(TYPED)
    mdp.put_one(f"{D}1", "<http://r/1> a :C ; :ref [ a :C ; :text 'in' ] . <http://r/2> a :C ; :ref [ :text 'out' ] .")
    assert "search C c register c where c.ref.text = 'in'" in by_text(proposed(mdp, resource="http://r/1"))
    assert len(proposed(mdp, resource="http://r/2")) == 2


def test_undeclared_terms_are_not_proposed(mdp: Mdp) -> None:
    mdp.put_schema("<> mdv:world mdv:open . :C a rdfs:Class .")
    mdp.put_one(f"{D}1", "<http://r/1> a :Odd ; :odd 'x' . <http://r/2> a :Odd .")
    assert by_text(proposed(mdp, resource="http://r/1")) == {
        "search rdfs:Resource r register r where r = <http://r/1>": 1,
        "search rdfs:Resource r register r": 2,
    }


def test_only_the_most_specific_classes_are_proposed(mdp: Mdp) -> None:
    mdp.put_schema(":Book a rdfs:Class . :Novel rdfs:subClassOf :Book . :Prize a rdfs:Class .")
    mdp.put_one(f"{D}1", "<http://r/1> a :Book, :Novel, :Prize . <http://r/2> a :Prize .")
    assert by_text(proposed(mdp, resource="http://r/1")) == {
        "search Novel n register n where n = <http://r/1>": 1,
        "search Novel n register n": 1,
        "search Prize p register p": 2,
    }


def test_at_most_ten_rules_are_proposed_and_counts_stop_at_a_thousand(mdp: Mdp) -> None:
    names = [f"p{n}" for n in range(20)]
    mdp.put_schema(":C a rdfs:Class . " + "".join(f":{name} rdfs:range xsd:string . " for name in names))
    mdp.put_one(f"{D}1", "<http://r/1> a :C ; " + " ; ".join(f":{name} 'x'" for name in names) + " .")
    mdp.put_one(f"{D}2", "".join(f"<http://s/{n}> a :C ; :p0 'x' . " for n in range(1100)))
    found = proposed(mdp, resource="http://r/1")
    assert len(found) <= 10
    assert (found[-1].selects, found[-1].more) == (1000, True)
    assert (found[0].selects, found[0].more) == (1, False)


def test_a_resource_without_statements_has_no_proposals(paper: Mdp) -> None:
    for uri in ("http://nowhere/", "http://mdv.example/schema#CycleProvider"):
        with pytest.raises(NotFound, match="No registered document describes"):
            proposed(paper, resource=uri)


# -- from a class


def test_a_class_with_values_gives_the_exact_rule_and_looser_ones(paper: Mdp) -> None:
    values = {"serverHost": "pirates", "serverInformation.memory": {"op": ">", "value": 64}}
    found = proposed(paper, class_="CycleProvider", values=values)
    assert by_text(found) == {
        "search CycleProvider c register c where c.serverHost = 'pirates' and c.serverInformation.memory > 64": 1,
        "search CycleProvider c register c where c.serverInformation.memory > 64": 2,
        "search CycleProvider c register c where c.serverHost = 'pirates'": 2,
        "search CycleProvider c register c": 3,
    }
    assert found[1].why == "The same, with any serverHost."


CHOICES: list[tuple[dict[str, Any], str]] = [
    ({"serverPort": [1, {"op": "<", "value": 0}]}, "(c.serverPort = 1 or c.serverPort < 0)"),
    ({"serverPort": "5874"}, "c.serverPort = 5874"),
    ({"serverPort": 5.5}, "c.serverPort = 5.5"),
    ({"serverHost": 5}, "c.serverHost = '5'"),
    ({"serverHost": {"op": "contains", "value": "it's"}}, "c.serverHost contains 'it''s'"),
    ({"serverHost": {"op": "startswith", "value": "5"}}, "c.serverHost startswith '5'"),
    ({"serverInformation": {"op": "endswith", "value": "#ia"}}, "c.serverInformation endswith '#ia'"),
    ({"serverInformation": "http://d/1#ia"}, "c.serverInformation = <http://d/1#ia>"),
    ({"http://mdv.example/schema#serverPort": 1}, "c.serverPort = 1"),
    (
        {"rdf:type?": "http://mdv.example/schema#CycleProvider"},
        "c.rdf:type? = <http://mdv.example/schema#CycleProvider>",
    ),
]


def test_chosen_values_are_written_in_the_form_they_are_compared_in(paper: Mdp) -> None:
    for values, predicate in CHOICES:
        found = by_text(proposed(paper, class_="CycleProvider", values=values))
        whole = "search CycleProvider c register c"
        assert list(found) == [f"{whole} where {predicate}", whole]


def test_a_class_without_values_gives_the_rule_for_all_instances(paper: Mdp) -> None:
    assert by_text(proposed(paper, class_="ServerInformation")) == {"search ServerInformation s register s": 3}


ERRORS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, BadRequest, "Give either"),
    ({"resource": "http://a/", "class_": "CycleProvider"}, BadRequest, "Give either"),
    ({"resource": "http://a/", "values": {}}, BadRequest, "only be given with `class`"),
    ({"resource": "a"}, BadRequest, "not an absolute URI"),
    ({"resource": "http://a/\0"}, BadRequest, "not an absolute URI"),
    ({"resource": "http://a/\ud800"}, BadRequest, "not an absolute URI"),
    ({"class_": "\0\ud800"}, NotFound, "Unknown class"),
    ({"class_": "CycleProvider", "values": {"serverHost": "\0"}}, InvalidRule, "NUL"),
    ({"class_": "CycleProvider", "values": {"serverPort": [[1]]}}, BadRequest, "a string, a number"),
    ({"class_": "CycleProvidr"}, NotFound, "did you mean CycleProvider"),
    ({"class_": "CycleProvider", "values": {"serverPrt": 1}}, NotFound, "did you mean serverPort"),
    ({"class_": "CycleProvider", "values": {"serverInformation.mem": 1}}, NotFound, "mem"),
    ({"class_": "CycleProvider", "values": {"serverPort": []}}, BadRequest, "empty"),
    ({"class_": "CycleProvider", "values": {"serverPort": None}}, BadRequest, "a string, a number"),
    ({"class_": "CycleProvider", "values": {"serverPort": {"op": "~", "value": 1}}}, BadRequest, "no operator '~'"),
    ({"class_": "CycleProvider", "values": {"serverPort": {"op": "="}}}, BadRequest, '"value"'),
    ({"class_": "CycleProvider", "values": {"serverInformation": "info"}}, BadRequest, "an absolute URI"),
    ({"class_": "CycleProvider", "values": {"serverPort": "many"}}, InvalidRule, "write a number"),
    ({"class_": "CycleProvider", "values": {"serverHost": {"op": "<", "value": "b"}}}, InvalidRule, "ordered range"),
    ({"class_": "CycleProvider", "values": {"serverPort": list(range(40))}}, InvalidRule, "32"),
]


def test_errors_say_what_to_do(paper: Mdp) -> None:
    for asked, error, message in ERRORS:
        with pytest.raises(error) as caught:
            proposed(paper, **asked)
        assert message in str(caught.value)


# -- the oracle

EXAMPLES = int(os.environ.get("MDV_MODEL_EXAMPLES", "60")) // 15
WORLD = schema_in_force(SCHEMA)


@pytest.mark.full
@settings(
    max_examples=EXAMPLES, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(content=populations())
def test_every_proposal_selects_its_resource_and_as_many_as_stated(mdp: Mdp, content: Said) -> None:
    if mdp.one("select schema_version from mdp_state") == 0:
        mdp.put_schema(SCHEMA)
    mdp.put_one(f"{D}1", turtle(content))
    world = World(WORLD.schema, content, {})
    for resource in world.resources:
        found = proposed(mdp, resource=resource)
        assert 2 <= len(found) <= 10
        assert len({proposal.rule for proposal in found}) == len(found)
        for proposal in found:
            selected = world.registered(parse(proposal.rule))
            assert resource in selected
            assert len(selected) == proposal.selects
    assert world.resources <= set(RESOURCES)
