"""Schema changes with rules: new matches are found, and a change that would break a rule is refused."""

from __future__ import annotations

import pytest

from mdv.errors import BreakingSchema
from tests.support.mdp import Mdp

BASE = """<> mdv:world mdv:open .
:Person a rdfs:Class . :Student a rdfs:Class .
:age rdfs:range xsd:integer . :name rdfs:range xsd:string . :knows rdfs:range :Person .
"""
DOCUMENT = "<#s> a :Student ; :age 20 ; :name 'Ann' ; :weight '70' . <#p> a :Person ; :age 50 ; :knows <#s> ."


def follow(mdp: Mdp, pairs: set[tuple[int, str]]) -> set[tuple[int, str]]:
    for end, uri, matched in mdp.changes():
        assert ((end, uri) in pairs) != matched
        pairs = pairs ^ {(end, uri)}
    return pairs


def test_a_new_subclass_adds_its_instances_to_the_rules_of_its_superclass(mdp: Mdp) -> None:
    mdp.put_schema(BASE)
    rules = mdp.add_rules(["search Person p register p", "search Person p register p where p.age > 10",
                           "search Person p register p where p.knows.age = 20"])  # fmt: skip
    pairs = follow(mdp, set())
    mdp.put_one("http://d/1", DOCUMENT)
    pairs = follow(mdp, pairs)
    assert {uri for _, uri in pairs} == {"http://d/1#p"}
    mdp.put_schema(BASE + ":Student rdfs:subClassOf :Person .")
    pairs = follow(mdp, pairs)
    for rule, expected in zip(rules, [{"#p", "#s"}, {"#p", "#s"}, {"#p"}], strict=True):
        found = {uri.removeprefix("http://d/1") for end, uri in pairs if end in mdp.ends_of(rule.id)}
        assert found == expected == {uri.removeprefix("http://d/1") for uri in mdp.results_of(rule.id)}
    mdp.put_schema(BASE)
    pairs = follow(mdp, pairs)
    assert {uri for _, uri in pairs} == {"http://d/1#p"}


def test_later_instances_of_a_new_subclass_are_found(mdp: Mdp) -> None:
    mdp.put_schema(BASE)
    mdp.add_rules(["search Person p register p where p.age = 20"])
    mdp.put_schema(BASE + ":Student rdfs:subClassOf :Person . :Freshman rdfs:subClassOf :Student .")
    mdp.put_one("http://d/1", "<#f> a :Freshman ; :age 20 .")
    assert [(uri, matched) for _, uri, matched in mdp.changes()] == [("http://d/1#f", True)]


def test_a_new_subproperty_counts_for_its_superproperty(mdp: Mdp) -> None:
    mdp.put_schema(BASE)
    mdp.add_rules(["search Student s register s where s.name = 'Ann'", "search Student s register s where s.age > 60"])
    mdp.put_one("http://d/1", "<#s> a :Student ; :nick 'Ann' ; :weight 70 .")
    mdp.put_schema(BASE + ":nick rdfs:subPropertyOf :name . :weight rdfs:subPropertyOf :age .")
    assert len(mdp.changes()) == 2
    assert all(matched and uri == "http://d/1#s" for _, uri, matched in mdp.changes())


def test_values_that_become_numbers_are_compared_as_numbers(mdp: Mdp) -> None:
    mdp.put_schema(BASE + ":weight a rdf:Property .")
    mdp.put_one("http://d/1", "<#s> a :Student ; :weight '070' .")
    (rule,) = mdp.add_rules(["search Student s register s where s.weight != '70'"])
    assert mdp.results_of(rule.id) == {"http://d/1#s"}
    with pytest.raises(BreakingSchema, match="rule"):
        mdp.put_schema(BASE + ":weight rdfs:range xsd:integer .")


def test_a_changed_range_changes_the_decomposition_of_a_rule(mdp: Mdp) -> None:
    mdp.put_schema(BASE + ":friend a rdf:Property .")
    mdp.put_one("http://d/1", "<#a> a :Person ; :friend <#s> . <#s> a :Student ; :age 20 .")
    (rule,) = mdp.add_rules(["search Person p register p where p.friend.age = 20"])
    pairs = follow(mdp, set())
    assert mdp.results_of(rule.id) == {"http://d/1#a"}
    # From here on a friend is a Person; <#s> is not.
    mdp.put_schema(BASE + ":friend rdfs:range :Person .")
    ends = mdp.ends_of(rule.id)
    assert mdp.results_of(rule.id) == set()
    pairs = {(end, uri) for end, uri in follow(mdp, pairs) if end in ends}
    assert pairs == set()
    mdp.put_one("http://d/2", "<http://d/1#s> a :Person .")
    assert [(uri, matched) for _, uri, matched in mdp.changes()] == [("http://d/1#a", True)]


@pytest.mark.parametrize("schema", [
    BASE.replace(":age rdfs:range xsd:integer .", ":age rdfs:range xsd:string ."),
    BASE.replace(":knows rdfs:range :Person .", ""),
    BASE + ":age mdv:setValued true .",
])  # fmt: skip
def test_a_schema_change_that_would_break_a_rule_is_refused_and_names_it(mdp: Mdp, schema: str) -> None:
    mdp.put_schema(BASE)
    mdp.add_rules([("grown", "search Person p register p where p.knows.age > 18")])
    before = mdp.one("select schema_version from mdp_state")
    with pytest.raises(BreakingSchema) as caught:
        mdp.put_schema(schema)
    assert "grown" in caught.value.detail
    assert "grown" in caught.value.flaws[0].message
    assert mdp.one("select schema_version from mdp_state") == before


def test_a_class_takes_precedence_over_a_rule_of_its_name(mdp: Mdp) -> None:
    mdp.put_schema(BASE)
    mdp.put_one("http://d/1", DOCUMENT)
    mdp.add_rules([("Grown", "search Person p register p where p.age > 18")])
    (over,) = mdp.add_rules(["search Grown g register g"])
    assert mdp.results_of(over.id) == {"http://d/1#p"}
    # Its meaning would change.
    with pytest.raises(BreakingSchema, match="the new schema has a class of that name"):
        mdp.put_schema(BASE + ":Grown a rdfs:Class .")
    mdp.remove_rules([over.id])
    mdp.put_schema(BASE + ":Grown a rdfs:Class .")
    (over,) = mdp.add_rules(["search Grown g register g"])
    assert mdp.results_of(over.id) == set()


Y = "@prefix y: <http://y/> . "
MOVING = (
    Y
    + """<> mdv:world mdv:open . :C a rdfs:Class . :E a rdfs:Class .
:p rdfs:range xsd:integer ; mdv:setValued true . y:q rdfs:range xsd:integer ; mdv:setValued true .
y:p rdfs:range xsd:integer ; rdfs:domain :E ; mdv:setValued true .
"""
)
BELOW = " y:q rdfs:subPropertyOf y:p ."


@pytest.mark.parametrize(("before", "after"), [(BELOW, ""), ("", BELOW)], ids=["leaves", "joins"])
def test_a_rule_that_moves_between_groups_during_a_schema_change_is_reported_once(
    mdp: Mdp, before: str, after: str
) -> None:
    """`c.p` now means y:p, which other rules use already and whose values change at the same time."""
    mdp.put_schema(MOVING + before)
    mdp.put_one("http://d/1", Y + "<#a> a :C ; y:p 9 ; y:q 1 . <#b> a :C ; y:q 1 .")
    texts = [
        f"search C c register c where c.{name}? {rest}" for name in ("<http://y/p>", "p") for rest in ("< 100", "= 2")
    ]
    texts += ["search C c register c where c.p? < 5", "search C c register c where c.p? = 1"]
    rules = [mdp.add_rules([text])[0] for text in texts]
    pairs = {(end, uri) for rule in rules for uri in mdp.results_of(rule.id) for end in mdp.ends_of(rule.id)}
    mdp.put_schema(MOVING.replace("rdfs:domain :E", "rdfs:domain :C") + after)
    ends = {end for rule in rules for end in mdp.ends_of(rule.id)}
    pairs = {(end, uri) for end, uri in follow(mdp, {pair for pair in pairs if pair[0] in ends}) if end in ends}
    for rule in rules:
        assert {uri for end, uri in pairs if end in mdp.ends_of(rule.id)} == mdp.results_of(rule.id)
