"""Rules that are matched to a skeleton are the rules that parsing gives."""

from __future__ import annotations

import random

import pytest

from mdv.errors import InvalidRule
from mdv.rdf.schema import Schema
from mdv.rdftl.compile import compile_rules
from mdv.rdftl.match import RuleMatcher
from mdv.rdftl.template import abstract_rule, bind_slots
from tests.support.mdp import Mdp

SCHEMA = """
:Lo a rdfs:Class . :flag_1 a rdf:Property .
:subject rdfs:range xsd:string ; mdv:setValued true . :level rdfs:range xsd:integer . :lang rdfs:range xsd:language .
:seen rdfs:range :Lo ; mdv:setValued true . :any mdv:setValued true . :day rdfs:range xsd:date .
"""
TEXTS = ["x", "it''s", "", "a b", "5", "-3.5", "true", "2020-01-01", "en", "x:y", "http://a/b", "flag_1", "seen", "ü–𝄞",
         "no such", "RULE r1 ", "a;b", "# x", "// y", "marker0x0", "é" * 50]  # fmt: skip
URIS = [
    "http://a/b",
    "https://a/b#c?d=e",
    "http://a/%zz",
    "http://a/ü",
    "http://",
    "http://a/[b]",
    "http://a/(b)",
    "http://marker.invalid/x0x",
]
NAMES = ["r1", "r2", "a_9", "ON1", "x" * 30 + "7", "é1", "marker0x0"]
RULES = [
    "RULE {n} ON INSERT (_, subject, _) IF $delta.target = '{t}' DO INSERT (resource({u}), any, $delta)",
    "RULE {n} ON INSERT resource(<{u}>)"
    " IF $delta/target(<http://v/any>) = resource(<{u}>) or $delta/target(subject) = '{t}'"
    " DO INSERT (resource(<{u}>), <http://v/any>, $delta)",
    "ON INSERT (resource(<{u}>)/target(<{u}>), any, _) IF TRUE DO DELETE $delta",
    "RULE {n} ON INSERT (_, subject, '{t}')"
    " IF $delta/target(any) = '{s}' or not $delta/target(any)[target(any) = '{t}']"
    " DO INSERT ($delta, subject, '{s}'), ($delta, any, '{t}'@en); DELETE resource({u})",
    "ON INSERT (resource({u}), level, '{t}') IF TRUE DO UPDATE ($delta, level, _ -> '{s}')",
    "ON INSERT (_, any, _) IF $delta/target(day) = '{t}' and $delta/target(lang) = '{s}'"
    " DO INSERT ($delta, lang, '{t}')",
    "ON INSERT (_, '{t}', _) IF TRUE DO DELETE $delta",
    "ON INSERT ('{t}', any, _) IF TRUE DO DELETE $delta",
    "BASE <http://base/> ON INSERT (_, any, '{t}') IF resource('{s}')/target(any)"
    " DO INSERT (resource({u}), any, '{s}')",
    "RULE {n} PRECEDES r9 ON INSERT (_, any, '{t}') IF TRUE DO DELETE $delta",
    "RULE {n} COUPLING Deferred ABORT Independent LET $x := '{t}' ON INSERT (_, any, $x) IF TRUE"
    " DO DELETE $delta # it's",
    'ON INSERT (_, any, "it\'s") IF $delta = \'{t}\' DO INSERT ($delta, any, "{s}")',
    "RULE {n} // '{t}'\n ON INSERT (_, any, _) IF TRUE DO\n\tINSERT ($delta, any, '{t}'^^xsd:date)",
    "RULE {n} ON INSERT (_, any, _) IF TRUE DO INSERT ($delta, any, '{t}')"
    " ;; ON INSERT (_, any, '{s}') IF TRUE DO DELETE $delta",
    "ON INSERT (_, ANY, '{t}') IF TRUE DO DELETE $delta",
    "ON INSERT (_, any, '{t}') IF TRUE DO DELETE",
]


@pytest.fixture
def schema(mdp: Mdp) -> Schema:
    mdp.put_schema(SCHEMA)
    with mdp.engine.connect() as connection:
        return mdp.provider.schemas.now(connection).schema


def outcome(matcher: RuleMatcher, text: str) -> object:
    try:
        return [
            (one.name, one.text, one.normal, one.warnings, one.template, one.constants, one.rule.precedes,
             one.rule.follows, one.rule.coupling)
            for one in matcher.compile(text)
        ]  # fmt: skip
    except InvalidRule as error:
        return error.problem()


def expected(schema: Schema, text: str) -> object:
    try:
        return [
            (one.rule.name, one.text, one.normal, one.warnings, *abstract_rule(one.rule, schema), one.rule.precedes,
             one.rule.follows, one.rule.coupling)
            for one in compile_rules(text, schema)
        ]  # fmt: skip
    except InvalidRule as error:
        return error.problem()


def test_a_matched_rule_is_the_parsed_rule(schema: Schema) -> None:
    matcher, randomly = RuleMatcher(schema), random.Random(7)
    refused = 0
    for _ in range(60):
        for rule in RULES:
            text = rule.format(t=randomly.choice(TEXTS), s=randomly.choice(TEXTS), u=randomly.choice(URIS),
                               n=randomly.choice(NAMES))  # fmt: skip
            wanted = expected(schema, text)
            assert outcome(matcher, text) == wanted, text
            refused += isinstance(wanted, dict)
    known = [one for one in matcher._skeletons.values() if one is not None]
    assert refused > 50 and len(known) >= 3


@pytest.mark.parametrize("resource", ["{u}", "<{u}>"])
def test_rules_with_one_skeleton_are_parsed_once(
    schema: Schema, monkeypatch: pytest.MonkeyPatch, resource: str
) -> None:  # fmt: skip
    matcher, text = RuleMatcher(schema), RULES[0].replace("{u}", resource)
    matcher.compile(text.format(n="r1", t="a", u="http://a/1"))
    monkeypatch.setattr(matcher, "_parse", None)

    (rule,) = matcher.compile(text.format(n="r2", t="it''s", u="http://a/2"))

    bound = bind_slots(rule.template, rule.constants)
    assert (rule.name, rule.constants[:2], bound.condition.right.text) == ("r2", ("it's", "http://v/it's"), "it's")
