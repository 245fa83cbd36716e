"""Explanations why a resource is, or is not, at an LMR: the paper's example, and comparison with the oracle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text

import mdv
from mdv.errors import BadRequest
from mdv.inspect.explain_resource import explain_resource
from mdv.inspect.match_origins import first_stages, stages
from mdv.inspect.resource_reasons import ResourceExplanation, explanation_lines
from mdv.inspect.sql.explain_resource import stop_when_slow
from mdv.rules.normal import Access, Comparison, Conjunction, NormalPredicate, Sort, Variable
from mdv.rules.normalise import normalise
from mdv.rules.parse import parse
from tests.support.generated_rules import RESOURCES, SCHEMA, Said, populations, rule_texts, schema_in_force, turtle
from tests.support.mdp import Mdp
from tests.support.rule_oracle import HOLDS, World

DEMO = Path(mdv.__file__).parent / "demo"
EXAMPLE_1 = (Path(__file__).parents[1] / "golden" / "rules" / "demo" / "example_1.rule").read_text("utf-8")
D = "http://mdv.example/"
HOST, INFO = f"{D}doc.rdf#host", f"{D}doc.rdf#info"
ATLAS, ATLAS_INFO = f"{D}atlas.ttl#host", f"{D}atlas.ttl#info"
LMR = 1


def explained(mdp: Mdp, uri: str, lmr: int = LMR) -> ResourceExplanation:
    with mdp.engine.connect() as connection:
        return explain_resource(connection, lmr, uri, mdp.provider)


def hold(mdp: Mdp, reasons: dict[str, int], lmr: int = LMR) -> None:
    """Record at the MDP that an LMR holds these resources, each with its number of reasons."""
    with mdp.engine.begin() as connection:
        for uri, count in reasons.items():
            connection.execute(
                text("insert into lmr_resources (lmr_id, resource_id, reasons)"
                     " select :lmr, id, :count from resources where uri = :uri"),
                {"lmr": lmr, "uri": uri, "count": count},
            )  # fmt: skip


@pytest.fixture
def paper(mdp: Mdp) -> Mdp:
    """The paper's schema and its servers."""
    mdp.put_schema((DEMO / "schema.ttl").read_text("utf-8"))
    document = (
        f"<{HOST}> a v:CycleProvider ; v:serverHost 'pirates.uni-passau.de' ; v:serverPort 5874 ;"
        f" v:serverInformation <{INFO}> . <{INFO}> a v:ServerInformation ; v:memory 92 ; v:cpu 600 ."
    )
    atlas = (
        f"<{ATLAS}> a v:CycleProvider ; v:serverHost 'atlas.uni-passau.de' ; v:serverPort 5874 ;"
        f" v:serverInformation <{ATLAS_INFO}> . <{ATLAS_INFO}> a v:ServerInformation ; v:memory 32 ; v:cpu 300 ."
    )
    prefix = "@prefix v: <http://mdv.example/schema#> . "
    mdp.put({f"{D}doc.rdf": prefix + document, f"{D}atlas.ttl": prefix + atlas})
    return mdp


def sentences(why: ResourceExplanation) -> list[str]:
    return [rule.sentence for rule in why.nearest]


# -- selected


def test_a_selecting_rule_is_explained_with_the_values_that_satisfy_it(paper: Mdp) -> None:
    (rule,) = paper.add_rules([("passau", EXAMPLE_1)])
    hold(paper, {HOST: 1, INFO: 0})
    why = explained(paper, HOST)
    assert (why.held, why.selected, why.described, why.more) == (True, True, True, False)
    assert why.documents == (f"{D}doc.rdf",)
    assert why.position == rule.position
    (selecting,) = why.as_dict()["rules"]
    assert (selecting["id"], selecting["name"], selecting["rule"]) == (rule.id, "passau", EXAMPLE_1)
    assert selecting["binding"] == {"c": HOST, "c.serverInformation": INFO}
    memory = selecting["predicates"][1]
    assert memory == {
        "predicate": "c.serverInformation.memory > 64",
        "resource": INFO,
        "property": "http://mdv.example/schema#memory",
        "value": "92",
        "type": "literal",
        "operator": ">",
        "constant": "64",
    }
    assert selecting["predicates"][0]["value"] == "pirates.uni-passau.de"
    assert why.nearest == ()
    assert why.chain is None


def test_the_printed_lines_are_the_same_from_the_object_and_from_its_json(paper: Mdp) -> None:
    paper.add_rules([EXAMPLE_1])
    why = explained(paper, HOST)
    assert explanation_lines(why) == explanation_lines(why.as_dict())
    assert explanation_lines(why)[0] == f"<{HOST}> is at the LMR: one of its rules selects it."
    assert "    c.serverInformation.memory > 64: 92" in explanation_lines(why)


def test_rules_matched_by_ranges_of_constants_are_found(paper: Mdp) -> None:
    constants = [f"{sign} {number}" for sign in (">", ">=", "<", "<=", "!=", "=") for number in (64, 91, 92, 93)]
    rule = "search ServerInformation s register s where s.memory {}"
    ids = [added.id for added in paper.add_rules([rule.format(constant) for constant in constants], owner=2)]
    paper.add_rules([rule.format(constant) for constant in constants], owner=1)
    selecting = [constants[ids.index(rule.id)] for rule in explained(paper, INFO, lmr=2).rules]
    assert selecting == [
        "> 64", "> 91", ">= 64", ">= 91", ">= 92", "< 93", "<= 92", "<= 93", "!= 64", "!= 91", "!= 93", "= 92",
    ]  # fmt: skip


def test_of_many_selecting_rules_some_are_shown(paper: Mdp) -> None:
    ids = [rule.id for rule in paper.add_rules([
        f"search CycleProvider c register c where c.serverPort > {n} and c.serverHost contains 'passau'"
        for n in range(30)
    ])]  # fmt: skip
    why = explained(paper, HOST)
    assert [rule.id for rule in why.rules] == ids[:20]
    assert why.more
    assert why.sentence.endswith("more than 20 of its rules select it.")


def test_rules_of_other_lmrs_are_not_shown(paper: Mdp) -> None:
    paper.add_rules([EXAMPLE_1], owner=2)
    why = explained(paper, HOST)
    assert (why.held, why.selected, why.nearest) == (False, False, ())
    assert why.sentence == f"<{HOST}> is not at the LMR, which has no rules."


def test_a_rule_with_two_variables_is_explained_with_both_resources_and_values(paper: Mdp) -> None:
    paper.add_rules(["search CycleProvider c, CycleProvider d register c where c.serverPort = d.serverPort and c != d"])
    (rule,) = explained(paper, HOST).as_dict()["rules"]
    assert rule["binding"] == {"c": HOST, "d": ATLAS}
    assert rule["predicates"][0]["value"] == "5874"
    assert rule["predicates"][0]["other"] == {
        "resource": ATLAS, "property": "http://mdv.example/schema#serverPort", "value": "5874", "type": "literal",
    }  # fmt: skip
    assert "constant" not in rule["predicates"][0]


def test_for_a_rule_with_or_the_satisfied_side_is_shown(paper: Mdp) -> None:
    paper.add_rules(["search CycleProvider c register c where c.serverPort = 1 or c.serverHost contains 'pirates'"])
    (rule,) = explained(paper, HOST).rules
    assert [held.predicate for held in rule.predicates] == ["c.serverHost contains 'pirates'"]


def test_a_rule_that_searches_a_rule_is_explained_with_the_predicates_of_both(paper: Mdp) -> None:
    paper.add_rules([("big", "search ServerInformation s register s where s.memory > 64"),
                     "search CycleProvider c, big b register c where c.serverInformation = b"])  # fmt: skip
    (rule,) = explained(paper, HOST).rules
    assert rule.binding == {"c": HOST, "b": INFO}
    assert [held.predicate for held in rule.predicates] == ["c.serverInformation = b", "b.memory > 64"]
    assert sentences(explained(paper, ATLAS)) == ["b.memory > 64 fails: memory is 32"]


def test_long_values_are_cut(mdp: Mdp) -> None:
    mdp.put_schema(":C a rdfs:Class . :p rdfs:range xsd:string .")
    mdp.put_one("http://d/1", f"<http://r/1> a :C ; :p '{'long' * 100}' .")
    mdp.add_rules(["search C c register c where c.p contains 'long'"])
    (rule,) = explained(mdp, "http://r/1").rules
    value = rule.predicates[0].found.value
    assert value is not None
    assert (len(value), value[-1]) == (200, "…")


# -- not selected


FAILING = [
    (
        "search CycleProvider c register c where c.serverInformation.memory > 64",
        "c.serverInformation.memory > 64 fails: memory is 32",
    ),
    (
        "search CycleProvider c register c where c.serverHost = 'x'",
        "c.serverHost = 'x' fails: serverHost is 'atlas.uni-passau.de'",
    ),
    (
        "search CycleProvider c register c where not c.serverHost contains 'atlas'",
        "not c.serverHost contains 'atlas' fails: serverHost is 'atlas.uni-passau.de'",
    ),
    ("search CycleProvider c register c where c.synthValue > 1", "it has no value of synthValue"),
    ("search ServerInformation s register s", "it is a CycleProvider, not a ServerInformation"),
    (f"search CycleProvider c register c where c = <{HOST}>", f"c = <{HOST}> fails: c is <{ATLAS}>"),
    (
        "search CycleProvider c register c where c.serverPort = 5874 and c.serverHost contains 'passau'"
        " and c.serverInformation.cpu > 500 and c.serverInformation.memory > 64",
        "c.serverInformation.cpu > 500 fails: cpu is 300; c.serverInformation.memory > 64 fails: memory is 32",
    ),
    (
        "search CycleProvider c, CycleProvider d register c where c.serverHost = d.serverHost and c != d",
        f"c != d fails: c is <{ATLAS}> and d is <{ATLAS}>",
    ),
    (
        "search CycleProvider c, CycleProvider d register c where c.serverPort = d.serverPort"
        f" and d = <{HOST}> and c.serverInformation.memory > d.serverInformation.memory",
        "c.serverInformation.memory > d.serverInformation.memory fails:"
        " c.serverInformation.memory is 32 and d.serverInformation.memory is 92",
    ),
    (
        "search CycleProvider c, ServerInformation s register c where c.serverPort = s.memory",
        "c.serverPort = s.memory fails: no ServerInformation s satisfies it; serverPort is 5874",
    ),
]


def test_the_failing_predicates_are_explained_in_a_sentence(paper: Mdp) -> None:
    for rule, sentence in FAILING:
        (added,) = paper.add_rules([rule])
        why = explained(paper, ATLAS)
        assert (why.held, why.selected, why.described) == (False, False, True)
        assert sentences(why) == [sentence]
        paper.remove_rules([added.id])


THREE_PREDICATES = (
    "search CycleProvider c register c where c.serverHost contains 'uni-passau.de'"
    " and c.serverInformation.memory > 64 and c.serverInformation.cpu > 500"
)


def test_every_failing_predicate_is_named_and_the_predicates_of_the_text_are_counted(paper: Mdp) -> None:
    paper.add_rules([THREE_PREDICATES])
    (rule,) = explained(paper, ATLAS).nearest
    assert (rule.satisfied, rule.of) == (1, 3)
    assert set(rule.failed) == {"c.serverInformation.memory > 64", "c.serverInformation.cpu > 500"}
    assert set(rule.sentences) == {
        "c.serverInformation.memory > 64 fails: memory is 32",
        "c.serverInformation.cpu > 500 fails: cpu is 300",
    }
    assert set(rule.as_dict()["failed"]) == set(rule.failed)
    assert any("memory is 32" in line and "cpu is 300" in line for line in explanation_lines(explained(paper, ATLAS)))


def test_a_missing_reference_fails_every_predicate_that_needs_it(paper: Mdp) -> None:
    paper.put_one(f"{D}doc.rdf", None)
    paper.put_one(
        f"{D}atlas.ttl",
        f"@prefix v: <http://mdv.example/schema#> . <{ATLAS}> a v:CycleProvider ; v:serverHost 'x.uni-passau.de' .",
    )
    paper.add_rules([THREE_PREDICATES])
    (rule,) = explained(paper, ATLAS).nearest
    assert (rule.satisfied, rule.of, len(rule.failed)) == (1, 3, 2)
    assert rule.sentences == ("it has no value of serverInformation",)


def test_steps_over_a_set_valued_property_are_not_counted_as_predicates(mdp: Mdp) -> None:
    mdp.put_schema(
        ":B a rdfs:Class . :A a rdfs:Class . :by rdfs:range :A ; mdv:setValued true ."
        " :n rdfs:range xsd:integer . :m rdfs:range xsd:integer ."
    )
    mdp.put_one("http://d/1", "<#b> a :B ; :by <#a> . <#a> a :A ; :n 1 ; :m 2 .")
    mdp.add_rules(["search B b register b where b.by?.n = 1 and b.by?.m = 1"])
    (rule,) = explained(mdp, "http://d/1#b").nearest
    assert (rule.satisfied, rule.of) == (1, 2)


def test_a_wrong_class_satisfies_no_predicate(paper: Mdp) -> None:
    paper.add_rules([THREE_PREDICATES])
    (rule,) = explained(paper, INFO).nearest
    assert (rule.satisfied, rule.of, rule.failed) == (0, 3, ())


def test_a_missing_referrer_is_explained(paper: Mdp) -> None:
    paper.add_rules(["search CycleProvider c, ServerInformation s register s"
                     " where c.serverInformation = s and c.serverPort = 1"])  # fmt: skip
    assert sentences(explained(paper, INFO)) == ["c.serverPort = 1 fails: serverPort is 5874"]
    paper.put_one(f"{D}doc.rdf", None)
    paper.put_one(f"{D}new", f"@prefix v: <http://mdv.example/schema#> . <{INFO}> a v:ServerInformation ; v:cpu 1 .")
    assert sentences(explained(paper, INFO)) == ["no CycleProvider refers to it by serverInformation"]
    paper.add_rules(["search CycleProvider c, CycleProvider d register c where c != d and d.serverPort = 1"])
    assert sentences(explained(paper, ATLAS)) == ["c != d fails: no CycleProvider d satisfies it; c is <" + ATLAS + ">"]


def test_a_reference_to_an_undescribed_resource_or_a_wrong_class_is_explained(mdp: Mdp) -> None:
    mdp.put_schema(
        "<> mdv:world mdv:open . :C a rdfs:Class . :I a rdfs:Class . :info rdfs:range :I . :m a rdf:Property ."
    )
    mdp.put_one("http://d/1", "<http://r/1> a :C ; :info <http://r/9> . <http://r/2> a :C ; :info <http://r/1> .")
    mdp.add_rules(["search C c register c where c.info.m = '1'"])
    assert sentences(explained(mdp, "http://r/1")) == ["info is <http://r/9>, which no document describes"]
    assert sentences(explained(mdp, "http://r/2")) == ["info is <http://r/1>, which is not an I"]


def test_the_rules_that_get_furthest_come_first_and_five_are_shown(paper: Mdp) -> None:
    near = "search CycleProvider c register c where c.serverPort = 5874 and c.serverHost contains 'passau' and {}"
    paper.add_rules([f"search CycleProvider c register c where c.serverPort = {n}" for n in range(50)])
    paper.add_rules(["search ServerInformation s register s where s.memory > 100"])
    (last,) = paper.add_rules([near.format("c.serverInformation.memory > 1000")])
    why = explained(paper, HOST)
    assert len(why.nearest) == 5
    first = why.nearest[0]
    assert first.id == last.id
    assert (first.predicate, first.satisfied, first.of) == ("c.serverInformation.memory > 1000", 2, 3)
    assert [found.as_dict() for found in first.found] == [
        {"resource": INFO, "property": "http://mdv.example/schema#memory", "value": "92", "type": "literal"}
    ]
    assert [rule.sentence for rule in why.nearest[1:]] == [
        f"c.serverPort = {n} fails: serverPort is 5874" for n in range(4)
    ]


def test_among_rules_that_get_equally_far_different_patterns_come_first(paper: Mdp) -> None:
    paper.add_rules([f"search CycleProvider c register c where c.serverPort = {n}" for n in range(50)])
    (other,) = paper.add_rules(["search CycleProvider c register c where c.serverHost = 'x'"])
    assert [rule.id for rule in explained(paper, HOST).nearest[:3]] == [1, other.id, 2]


def test_an_unknown_resource_has_no_rules_in_its_explanation(paper: Mdp) -> None:
    paper.add_rules(["search rdfs:Resource r register r"])
    why = explained(paper, "http://nowhere/")
    assert (why.held, why.selected, why.described, why.rules, why.nearest) == (False, False, False, (), ())
    assert why.sentence.startswith("No registered document describes <http://nowhere/>")


def test_an_invalid_uri_is_refused(paper: Mdp) -> None:
    for uri in ("host", "http://a/ b", "http://a/\0", "http://a/\ud800"):
        with pytest.raises(BadRequest, match="not an absolute URI"):
            explained(paper, uri)


def test_a_slow_step_is_cancelled_and_the_transaction_continues(connection: Connection) -> None:
    finished = False
    with stop_when_slow(connection, 1):
        connection.execute(text("select pg_sleep(30)"))
        finished = True
    assert not finished
    assert connection.execute(text("select 1")).scalar_one() == 1


def test_a_class_or_a_target_without_statements_is_not_described(paper: Mdp) -> None:
    paper.put_one(f"{D}doc.rdf", None)
    why = explained(paper, "http://mdv.example/schema#CycleProvider")
    assert (why.described, why.documents) == (False, ())


# -- reached


def test_a_referenced_resource_is_explained_with_its_chain_and_the_rules_of_its_root(paper: Mdp) -> None:
    (rule,) = paper.add_rules([("passau", EXAMPLE_1)])
    hold(paper, {HOST: 1, INFO: 0})
    why = explained(paper, INFO)
    assert (why.held, why.selected) == (True, False)
    assert why.as_dict()["chain"] == {
        "rules": [{"id": rule.id, "name": "passau"}],
        "more": False,
        "steps": [{"resource": HOST, "property": "http://mdv.example/schema#serverInformation", "target": INFO}],
    }
    assert (
        why.sentence == f"<{INFO}> is at the LMR: no rule selects it, but <{HOST}> leads to it by a strong reference."
    )
    assert sentences(why) == ["it is a ServerInformation, not a CycleProvider"]


CHAINS = """
:C a rdfs:Class . :D a rdfs:Class . :strong mdv:reference mdv:strong ; mdv:setValued true .
:weak mdv:setValued true . :below rdfs:subPropertyOf :strong .
"""


def test_the_chain_is_a_shortest_path_over_strong_references_and_blank_nodes(mdp: Mdp) -> None:
    mdp.put_schema(CHAINS)
    mdp.put_one(
        "http://d/1",
        """
        <http://r/start> a :C ; :strong <http://r/a> ; :weak <http://r/end> .
        <http://r/a> a :D ; :below <http://r/b> . <http://r/b> a :D ; :strong <http://r/a>, <http://r/c> .
        <http://r/c> a :D ; :weak [ a :D ; :strong <http://r/end> ] . <http://r/b> :strong <http://r/end2> .
        <http://r/end> a :D . <http://r/end2> a :D .
    """,
    )
    (rule,) = mdp.add_rules(["search C c register c"])
    blank = mdp.one("select uri from resources where uri like '%#\\_:%'")
    names = ["start", "a", "b", "c", "end", "end2"]
    hold(mdp, {f"http://r/{name}": int(name == "start") for name in names} | {blank: 0})
    chain = explained(mdp, "http://r/end").chain
    assert chain is not None
    assert [rule.id for rule in chain.rules] == [rule.id]
    way = [(step.resource, step.property.removeprefix("http://v/")) for step in chain.steps]
    assert way == [
        ("http://r/start", "strong"), ("http://r/a", "below"), ("http://r/b", "strong"),
        ("http://r/c", "weak"), (blank, "strong"),
    ]  # fmt: skip
    assert [step.target for step in chain.steps] == [uri for uri, _ in way[1:]] + ["http://r/end"]
    shorter = explained(mdp, "http://r/end2").chain
    assert shorter is not None
    assert len(shorter.steps) == 3


def test_an_awaited_resource_is_not_held_and_its_chain_is_explained(mdp: Mdp) -> None:
    mdp.put_schema(CHAINS)
    mdp.put_one("http://d/1", "<http://r/1> a :C ; :strong <http://r/2> .")
    mdp.add_rules(["search C c register c"])
    hold(mdp, {"http://r/1": 1, "http://r/2": 0})
    why = explained(mdp, "http://r/2")
    assert (why.held, why.described) == (False, False)
    assert why.chain is not None
    assert "will be sent when a document describes it" in why.sentence


def test_the_chain_contains_only_resources_held_by_that_lmr(mdp: Mdp) -> None:
    mdp.put_schema(CHAINS)
    mdp.put_one(
        "http://d/1",
        """
        <http://r/1> a :C ; :strong <http://r/3> . <http://r/2> a :D ; :strong <http://r/3> . <http://r/3> :weak 'x' .
    """,
    )
    mdp.add_rules(["search C c register c"], owner=1)
    mdp.add_rules(["search D d register d"], owner=2)
    hold(mdp, {"http://r/1": 1, "http://r/3": 0}, lmr=1)
    hold(mdp, {"http://r/2": 1, "http://r/3": 0}, lmr=2)
    chains = [explained(mdp, "http://r/3", lmr).chain for lmr in (1, 2)]
    assert [chain and chain.steps[0].resource for chain in chains] == ["http://r/1", "http://r/2"]


# -- the oracle


def test_stages_are_the_class_the_predicates_and_the_unconstrained_variables() -> None:
    rule = normalise(parse("search Book b, Agent a, Place p register b where b.author.home = p"), WORLD.schema)
    (conjunction,) = rule.conjunctions
    told = [([v.name for v in stage.variables], stage.predicate is None) for stage in stages(conjunction)]
    assert told == [(["b"], True), (["a2"], False), (["p"], False), (["a"], True)]
    assert first_stages(conjunction, 4) == Conjunction(
        tuple(sorted(conjunction.variables, key=lambda v: ["b", "a2", "p", "a"].index(v.name))), "b",
        conjunction.predicates,
    )  # fmt: skip


WORLD = schema_in_force(SCHEMA)


def satisfiable(part: Conjunction, world: World, resource: str) -> bool:
    """Return True if a conjunction registers a resource, by the naive definition."""

    def values(access: Access, sort: Sort, binding: dict[str, str]) -> list[Any]:
        if access.property is None:
            return [binding[access.variable]]
        declared = world.schema.property_of(access.property)
        assert declared is not None
        seen = (world.value(s, sort) for s in world.values(binding[access.variable], declared))
        return [value for value in seen if value is not None]

    def holds(predicate: NormalPredicate, binding: dict[str, str]) -> bool:
        if isinstance(predicate, Comparison):
            pairs = product(values(predicate.access, predicate.sort, binding), [predicate.constant.value])
        else:
            pairs = product(*(values(side, predicate.sort, binding) for side in (predicate.left, predicate.right)))
        return any(HOLDS[predicate.operator](one, other) for one, other in pairs)

    def bindings(rest: tuple[Variable, ...], binding: dict[str, str]) -> Iterator[dict[str, str]]:
        if not rest:
            yield binding
            return
        extent = world.instances(rest[0].class_iri)
        for one in extent & {resource} if rest[0].name == part.register else extent:
            yield from bindings(rest[1:], binding | {rest[0].name: one})

    return any(all(holds(p, binding) for p in part.predicates) for binding in bindings(part.variables, {}))


def test_a_variable_that_must_refer_to_itself_is_explained(mdp: Mdp) -> None:
    mdp.put_schema(":C a rdfs:Class . :D a rdfs:Class . :next rdfs:range :D .")
    mdp.put_one("http://d/1", "<#c> a :C . <#d> a :D ; :next <#e> . <#e> a :D .")
    mdp.add_rules(["search C c, D d register c where d.next = d"])
    assert sentences(explained(mdp, "http://d/1#c")) == ["no D refers to itself by next"]


EXAMPLES = int(os.environ.get("MDV_MODEL_EXAMPLES", "60")) // 6


@pytest.mark.full
@settings(
    max_examples=EXAMPLES, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)  # fmt: skip
@given(content=populations(), texts=st.lists(rule_texts(small=True), min_size=6, max_size=6))
def test_explanations_agree_with_the_oracle(mdp: Mdp, content: Said, texts: list[Any]) -> None:
    if mdp.one("select schema_version from mdp_state") == 0:
        mdp.put_schema(SCHEMA)
    mdp.put_one("http://d/1", turtle(content))
    rules = dict(zip([rule.id for rule in mdp.add_rules([rule.text for rule in texts])],
                     [rule.text for rule in texts], strict=True))  # fmt: skip
    world = World(WORLD.schema, content, {})
    try:
        for resource in RESOURCES:
            why = explained(mdp, resource)
            if resource not in world.resources:
                assert not why.described
                continue
            expected = {number for number, rule in rules.items() if resource in world.registered(parse(rule))}
            assert {rule.id for rule in why.rules} == expected
            assert why.selected is bool(expected)
            for rule in why.rules:
                assert all(held.found.value is not None for held in rule.predicates), rule
            for failing in why.nearest:
                check_failing(failing.id, failing.part, failing.stages, rules, world, resource)
                assert failing.satisfied + len(failing.failed) <= failing.of
            assert expected or why.nearest
    finally:
        mdp.remove_rules(list(rules))


def check_failing(number: int, part: int, satisfied: int, rules: dict[int, str], world: World, resource: str) -> None:
    """The predicates before the failing one hold, and no conjunction of the rule gets further."""
    normal = normalise(parse(rules[number]), WORLD.schema)
    conjunction = normal.conjunctions[part]
    assert not satisfied or satisfiable(first_stages(conjunction, satisfied), world, resource)
    for other in normal.conjunctions:
        further = satisfied + 1
        if further <= len(stages(other)):
            assert not satisfiable(first_stages(other, further), world, resource)


# -- suspended rules

PORT_RULE = "search CycleProvider c register c where c.serverPort = {}"


def test_a_resource_selected_only_by_a_suspended_rule_is_explained(paper: Mdp) -> None:
    lmr = paper.create_lmr("north")
    (rule, other) = paper.subscribe(lmr, ("ports", PORT_RULE.format(5874)), PORT_RULE.format(1))
    position = paper.suspend([rule.id], "It took 9 s.")
    found = explained(paper, HOST, lmr.id)
    assert (found.held, found.selected, found.rules, found.nearest) == (True, True, (), ())
    assert found.sentence == f"<{HOST}> is at the LMR: only a suspended rule selects it."
    (suspended,) = found.suspended
    assert (suspended.id, suspended.position, suspended.selects) == (rule.id, position, True)
    assert explanation_lines(found)[-2:] == [
        f"Rule {rule.id} (ports) has been suspended since position {position}; its matches at that position still"
        " count. It selected this resource.",
        "  It took 9 s.",
    ]
    # Resources that it refers to, too.
    led = explained(paper, INFO, lmr.id)
    assert led.chain is not None and [named.id for named in led.chain.rules] == [rule.id]
    # Another rule is named first, and the suspended one as well.
    paper.change_subscription(lmr, other.id, PORT_RULE.format(5874))
    both = explained(paper, HOST, lmr.id)
    assert [selecting.id for selecting in both.rules] == [other.id]
    assert [(one.id, one.selects) for one in both.suspended] == [(rule.id, True)]


def test_the_suspended_rule_that_selected_a_resource_is_evaluated_as_of_its_suspension(paper: Mdp) -> None:
    lmr = paper.create_lmr("north")
    texts = [PORT_RULE.format(5874), PORT_RULE.format(9999), "search CycleProvider c register c where c.serverPort > 9"]
    rules = paper.subscribe(lmr, *texts)
    paper.suspend([rule.id for rule in rules])
    prefix = "@prefix v: <http://mdv.example/schema#> . "
    paper.put_one(f"{D}doc.rdf", prefix + f"<{HOST}> a v:CycleProvider ; v:serverPort 9999 .")
    found = explained(paper, HOST, lmr.id)
    assert [one.selects for one in found.suspended] == [True, False, True]
    missing = explained(paper, f"{D}nowhere", lmr.id)
    assert [one.selects for one in missing.suspended] == [False] * 3
    assert "suspended" not in missing.sentence


def test_suspended_rules_that_may_select_an_unselected_resource_are_mentioned(paper: Mdp) -> None:
    lmr = paper.create_lmr("north")
    (rule,) = paper.subscribe(lmr, PORT_RULE.format(1))
    paper.suspend([rule.id])
    found = explained(paper, HOST, lmr.id)
    assert (found.held, found.selected) == (False, False)
    assert found.sentence.endswith("; suspended rules may select it when they are resumed.")
    paper.put_one(f"{D}doc.rdf", None)
    assert "No registered document" in explained(paper, HOST, lmr.id).sentence


def test_a_deleted_resource_that_a_suspended_rule_still_selects_is_explained(paper: Mdp) -> None:
    lmr = paper.create_lmr("north")
    (rule,) = paper.subscribe(lmr, PORT_RULE.format(5874))
    paper.suspend([rule.id])
    paper.put_one(f"{D}doc.rdf", None)
    found = explained(paper, HOST, lmr.id)
    assert (found.held, found.described) == (False, False)
    assert found.sentence.endswith("because a suspended rule still selects it.")


def test_the_evaluation_of_suspended_rules_has_a_time_limit(paper: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    lmr = paper.create_lmr("north")
    rules = paper.subscribe(lmr, PORT_RULE.format(5874), PORT_RULE.format(5874) + " and c.serverPort > 3")
    paper.suspend([rule.id for rule in rules])
    monkeypatch.setattr("mdv.inspect.explain_resource.MAX_SUSPENDED_SECONDS", 0)
    found = explained(paper, HOST, lmr.id)
    assert found.selected and [one.selects for one in found.suspended] == [None, None]
