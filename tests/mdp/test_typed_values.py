"""Values are typed by the schema's ranges when they are stored, and again when the schema changes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from mdv.mdp.provider import Provider
from mdv.mdp.put_schema import put_schema
from mdv.mdp.schemas import read_schema_document
from tests.support.mdp import Mdp

D = "http://d/1"
OPEN = "<> mdv:world mdv:open . "


def typed(mdp: Mdp, name: str = "p") -> list[tuple[Any, ...]]:
    """Return value, number, instant and boolean of each stored value of a property, ordered by value."""
    return mdp.rows(
        "select value, number, instant, truth from filter_data f join vocabulary v on v.id = f.property_id"
        " where v.uri = :uri order by value",
        uri="http://v/" + name,
    )


def test_numbers_instants_and_booleans_are_stored_typed(mdp: Mdp) -> None:
    mdp.put_schema("""
        :number rdfs:range xsd:decimal . :instant rdfs:range xsd:dateTime . :truth rdfs:range xsd:boolean .
        :text rdfs:range xsd:string . :any a rdf:Property .""")
    mdp.put_one(D, "<#a> :number '9.50' ; :instant '1970-01-02T00:00:00.25Z' ; :truth '1' ; :text '9' ; :any 9 .")
    assert typed(mdp, "number") == [("9.50", Decimal("9.5"), None, None)]
    assert typed(mdp, "instant") == [("1970-01-02T00:00:00.25Z", None, Decimal("86400.25"), None)]
    assert typed(mdp, "truth") == [("1", None, None, True)]
    assert typed(mdp, "text") == [("9", None, None, None)]
    assert typed(mdp, "any") == [("9", None, None, None)]


def test_92_equals_92_0(mdp: Mdp) -> None:
    mdp.put_schema(":p rdfs:range xsd:decimal ; mdv:setValued true .")
    mdp.put_one(D, "<#a> :p 92, 92.0, '092', '+92.', 9.2 .")
    assert mdp.one("select count(*) from filter_data where number = 92") == 4
    assert mdp.one("select count(distinct number) from filter_data") == 2


def test_large_and_long_numbers_stay_exact(mdp: Mdp) -> None:
    mdp.put_schema(":p rdfs:range xsd:decimal ; mdv:setValued true . :d rdfs:range xsd:double ; mdv:setValued true .")
    long = "0." + "123456789" * 30
    mdp.put_one(D, f"<#a> :p '{10**400}', '{long}' ; :d '1e308', '1e-308' .")
    assert [row[1] for row in typed(mdp)] == [Decimal(long), Decimal(10**400)]
    assert [row[1] for row in typed(mdp, "d")] == [Decimal("1e-308"), Decimal("1e308")]


def test_nan_and_infinity_have_no_number(mdp: Mdp) -> None:
    mdp.put_schema(":p rdfs:range xsd:double ; mdv:setValued true .")
    mdp.put_one(D, "<#a> :p 'NaN', 'INF', '-INF', '1e999', '64.5' .")
    assert [(value, number) for value, number, _, _ in typed(mdp)] == [
        ("-INF", None), ("1e999", None), ("64.5", Decimal("64.5")), ("INF", None), ("NaN", None),
    ]  # fmt: skip
    assert mdp.one("select count(*) from filter_data where number > 64") == 1


def test_a_value_is_typed_by_the_range_of_a_superproperty(mdp: Mdp) -> None:
    mdp.put_schema(":up rdfs:range xsd:integer . :p rdfs:subPropertyOf :up . :text rdfs:subPropertyOf :up ;"
                   " rdfs:range xsd:string .")  # fmt: skip
    mdp.put_one(D, "<#a> :p 5 . <#b> :text '7' . <#c> :text 'seven' .")
    assert [row[1] for row in typed(mdp)] == [5]
    assert [row[:2] for row in typed(mdp, "text")] == [("7", 7), ("seven", None)]


def test_declaring_a_property_types_its_stored_values(mdp: Mdp) -> None:
    mdp.put_schema(OPEN)
    mdp.put({D: "<#a> :p '5' ; :q '6' .", "http://d/2": "<#b> :p '7' ."})
    assert [row[1] for row in typed(mdp)] == [None, None]
    mdp.put_schema(OPEN + ":p rdfs:range xsd:integer .")
    assert [row[1] for row in typed(mdp)] == [5, 7]
    assert [row[1] for row in typed(mdp, "q")] == [None]


def test_a_new_subproperty_relation_types_stored_values(mdp: Mdp) -> None:
    mdp.put_schema(OPEN + ":up rdfs:range xsd:integer .")
    mdp.put_one(D, "<#a> :p '5' . <#b> :low '6' .")
    mdp.put_schema(OPEN + ":up rdfs:range xsd:integer ; mdv:setValued true . :p rdfs:subPropertyOf :up ."
                   " :low rdfs:subPropertyOf :p .")  # fmt: skip
    assert [row[1] for row in typed(mdp) + typed(mdp, "low")] == [5, 6]
    mdp.put_schema(OPEN + ":up rdfs:range xsd:integer . :low rdfs:subPropertyOf :p .")
    assert [row[1] for row in typed(mdp) + typed(mdp, "low")] == [None, None]


def test_removing_a_range_removes_the_types_of_stored_values(mdp: Mdp) -> None:
    mdp.put_schema(":p rdfs:range xsd:integer .")
    mdp.put_one(D, "<#a> :p '5' .")
    mdp.put_schema(":p rdfs:range xsd:string .")
    assert [row[1] for row in typed(mdp)] == [None]
    mdp.put_schema(":p a rdf:Property .")
    assert [row[1:] for row in typed(mdp)] == [(None, None, None)]


def test_a_range_of_another_kind_types_stored_values_again(mdp: Mdp) -> None:
    mdp.put_schema(":p rdfs:range xsd:integer .")
    mdp.put_one(D, "<#a> :p '1970' .")
    mdp.put_schema(":p rdfs:range xsd:gYear .")
    assert typed(mdp) == [("1970", None, 0, None)]


def test_a_property_no_longer_declared_in_an_open_world_is_untyped(mdp: Mdp) -> None:
    mdp.put_schema(OPEN + ":p rdfs:range xsd:integer .")
    mdp.put_one(D, "<#a> :p '5' .")
    mdp.put_schema(OPEN)
    assert [row[1] for row in typed(mdp)] == [None]


def test_typing_changes_no_version_no_log_and_no_text(mdp: Mdp) -> None:
    mdp.put_schema(OPEN)
    first = mdp.put_one(D, "<#a> :p '05' .")
    mdp.put_schema(OPEN + ":p rdfs:range xsd:integer .")
    assert mdp.put_one(D, "<#a> :p '05' .").version == first.version
    assert typed(mdp) == [("05", 5, None, None)]
    assert mdp.one("select count(*) from statement_log") == 1


def test_a_schema_can_change_twice_in_one_transaction(mdp: Mdp) -> None:
    mdp.put_schema(OPEN)
    mdp.put_one(D, "<#a> :p '5' ; :q '6' .")
    with mdp.engine.begin() as connection:
        for more in (":p rdfs:range xsd:integer .", ":p rdfs:range xsd:integer . :q rdfs:range xsd:integer ."):
            document = read_schema_document((mdp.PREFIXES + OPEN + more).encode(), "text/turtle")
            put_schema(connection, document, Provider(mdp.engine))
    assert [row[1] for row in typed(mdp) + typed(mdp, "q")] == [5, 6]
