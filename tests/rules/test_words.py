"""Completion in the editor: unambiguous names, each where it is allowed."""

from __future__ import annotations

from pathlib import Path

import mdv
from mdv.rdf.gate import gate
from mdv.rdf.parse import parse as parse_document
from mdv.rdf.schema import Schema, read_schema
from mdv.rdf.syntax import TURTLE
from mdv.rules.completion import completions, example
from mdv.rules.normalise import normalise
from mdv.rules.parse import parse

TWICE = """
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix mdv: <urn:mdv:schema#> . @prefix a: <http://a/#> . @prefix b: <http://b/#> .
a:Book a rdfs:Class . b:Book a rdfs:Class . a:Order a rdfs:Class . <http://c/not-simple%20> a rdfs:Class .
a:Novel a rdfs:Class ; rdfs:subClassOf a:Book . a:Limit a rdfs:Class .
a:title a rdfs:Property ; rdfs:domain a:Book . b:title a rdfs:Property ; rdfs:domain b:Book .
a:part a rdfs:Property ; rdfs:domain a:Book ; rdfs:range a:Book ; mdv:setValued true ; mdv:reference mdv:strong .
a:free a rdfs:Property . b:free a rdfs:Property .
a:weight a rdfs:Property ; rdfs:range xsd:decimal .
""".replace("rdfs:Property", "<http://www.w3.org/1999/02/22-rdf-syntax-ns#Property>")


def schema_of(text: str) -> Schema:
    document = parse_document(gate(text.encode(), TURTLE, None), "urn:mdv:schema")
    return read_schema(document.statements, dict(document.prefixes))


def test_every_completed_name_resolves_to_its_term() -> None:
    schema = schema_of(TWICE)
    told = completions(schema)
    for one in told["classes"]:
        (conjunction,) = normalise(parse(f"search {one['name']} x register x"), schema).conjunctions
        assert conjunction.variables[0].class_iri == one["iri"]
    names = {one["iri"]: one["name"] for one in told["classes"]}
    assert names["http://a/#Book"] == "a:Book"
    assert names["http://b/#Book"] == "b:Book"
    assert names["http://a/#Novel"] == "Novel"
    assert names["http://a/#Limit"] == "a:Limit", "the bare name is a keyword of the language"
    for one in told["properties"]:
        for class_iri in one["of"] or ["http://a/#Novel"]:
            any_ = "?" if one["any"] else ""
            compared = " > 3" if one["says"] == "xsd:decimal" else " != x" if one["to"] else " = 'x'"
            rule = f"search <{class_iri}> x register x where x.{one['name']}{any_}{compared}"
            normalise(parse(rule), schema)  # else it raises


def test_completed_properties_have_domain_and_range() -> None:
    told = completions(schema_of(TWICE))
    part = next(one for one in told["properties"] if one["name"] == "part")
    assert part == {"name": "part", "of": ["http://a/#Book"], "any": True, "to": "http://a/#Book", "says": "a:Book",
                    "strong": True}  # fmt: skip
    assert sorted(one["name"] for one in told["properties"]) == ["a:free", "b:free", "part", "title", "title", "weight"]
    novel = next(one for one in told["classes"] if one["name"] == "Novel")
    assert "http://a/#Book" in novel["above"]


def test_the_demo_schema_completes_bare_names() -> None:
    told = completions(schema_of((Path(mdv.__file__).parent / "demo" / "schema.ttl").read_text("utf-8")))
    assert {one["name"] for one in told["classes"]} == {"CycleProvider", "ServerInformation", "Resource"}
    assert {"serverHost", "memory", "cpu"} <= {one["name"] for one in told["properties"]}
    assert {"contains", "startswith", "endswith"} <= set(told["keywords"])


def test_the_example_is_a_valid_rule_of_its_schema() -> None:
    schema = schema_of(Path(mdv.__file__).parent.joinpath("demo", "schema.ttl").read_text("utf-8"))
    assert example(schema).split() == ["search", "CycleProvider", "x", "register", "x"]
    assert normalise(parse(example(schema)), schema)
