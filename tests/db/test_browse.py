"""The queries behind the pages for browsing: bounded, paged by keys, safe for any content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import Connection

from mdv.errors import BadRequest, InvalidRule, TooCostly
from mdv.inspect.browse import BY_URI, InstanceQuery, filter_rule, find_instances
from mdv.inspect.listed_values import BoundedCount
from mdv.inspect.sql import browse
from mdv.inspect.sql.explain_resource import EvidenceReader
from mdv.mdp.schemas import SchemaCache
from mdv.model import RDFS_RESOURCE, Term
from mdv.rdf.browsable_properties import browsable_properties
from mdv.rdf.classes import class_tree
from mdv.rdf.values import ValueKind
from tests.support.mdp import Mdp

SCHEMA = """
:Thing a rdfs:Class . :Part rdfs:subClassOf :Thing . :Wheel rdfs:subClassOf :Part . :Other a rdfs:Class .
:title rdfs:domain :Thing ; rdfs:range xsd:string .
:size rdfs:domain :Part ; rdfs:range xsd:integer .
:has rdfs:domain :Thing ; rdfs:range :Part ; mdv:reference mdv:strong ; mdv:setValued true .
:note mdv:setValued true . :knows mdv:setValued true .
"""
V = "http://v/"


@pytest.fixture
def filled(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    return mdp


def number_of(connection: Connection, uri: str) -> int:
    found = EvidenceReader(connection).number(uri)
    assert found is not None
    return found


def through(page: Callable[[Any], Sequence[Any]], start: Any, key: Callable[[Any], Any], size: int) -> list[Any]:
    """Return all items of a list, page by page."""
    items: list[Any] = []
    after = start
    while found := page(after):
        assert len(found) <= size
        items += found
        after = key(found[-1])
    return items


def test_a_class_counts_the_instances_of_its_subclasses_once(filled: Mdp) -> None:
    filled.put(
        {
            "http://d/1": "<http://r/a> a :Wheel, :Part . <http://r/b> a :Thing .",
            "http://d/2": "<http://r/a> a :Wheel .",
        }
    )
    groups = [[V + "Thing", V + "Part", V + "Wheel"], [V + "Wheel"], [V + "Other"], [V + "Unheard"]]
    with filled.engine.connect() as connection:
        counted = browse.count_instances(connection, groups)
    assert counted == [BoundedCount(2, False), BoundedCount(1, False), BoundedCount(0, False), BoundedCount(0, False)]


def test_a_large_class_is_counted_up_to_a_bound(filled: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "MAX_ROWS_COUNTED", 5)
    monkeypatch.setattr(browse, "MIN_ROWS_COUNTED", 5)
    filled.put_one("http://d/1", " ".join(f"<http://r/{n}> a :Thing ; :knows <http://r/x> ." for n in range(7)))
    with filled.engine.connect() as connection:
        assert browse.count_instances(connection, [[V + "Thing"]]) == [BoundedCount(5, True)]
        assert browse.count_referrers(connection, number_of(connection, "http://r/x")) == BoundedCount(5, True)


def test_uris_are_found_by_prefix_and_paged(filled: Mdp) -> None:
    filled.put_one(
        "http://d/1",
        "<http://r/a> :note '1' ; :knows <http://r/ab> . <http://r/a%25b> :note '1' . <http://s> :note '1' .",
    )
    with filled.engine.connect() as connection:
        assert browse.list_uris_with_prefix(connection, "http://r/a", "", 9) == [
            ("http://r/a", True), ("http://r/a%25b", True), ("http://r/ab", False)
        ]  # fmt: skip
        assert browse.list_uris_with_prefix(connection, "http://r/a", "http://r/a", 1) == [("http://r/a%25b", True)]
        assert browse.list_uris_with_prefix(connection, "http://r/a%", "", 9) == [("http://r/a%25b", True)]
        assert browse.list_uris_with_prefix(connection, "HTTP", "", 9) == []


def test_literals_are_paged_without_duplicates_and_long_ones_are_cut(filled: Mdp) -> None:
    long = "ä" * 500_000
    notes = ", ".join(f"'{n}'" for n in range(7))
    said = f"<http://r/a> :note {notes}, '''<script>alert(1)</script>''', 'عربي'@ar ; :title '{long}' ."
    filled.put({"http://d/1": said, "http://d/2": f"<http://r/a> :note {notes} ."})
    with filled.engine.connect() as connection:
        number = number_of(connection, "http://r/a")
        found = through(
            lambda after: browse.list_literals(connection, number, after, 3),
            ("", 0),
            lambda one: (one.property, one.hash),
            3,
        )
        texts = {one.text: one for one in found}
        assert len(found) == len(texts) == 10
        assert texts["عربي"].lang == "ar" and texts["<script>alert(1)</script>"].whole
        (cut,) = [one for one in found if not one.whole]
        assert cut.text == long[: browse.MAX_LITERAL_CHARACTERS] and cut.bytes == 1_000_000
        assert browse.read_literal(connection, number, cut.property, cut.hash) == long
        assert browse.read_literal(connection, number, V + "note", cut.hash) is None


def test_references_and_referrers_are_paged_without_duplicates(filled: Mdp) -> None:
    targets = ", ".join(f"<http://r/{n}>" for n in range(5))
    said = (
        f"<http://r/a> a :Thing ; :knows {targets}, <javascript:alert(1)> ; :has <http://r/0> . <http://r/0> :note 'x'."
    )
    filled.put({"http://d/1": said, "http://d/2": said})
    with filled.engine.connect() as connection:
        number = number_of(connection, "http://r/a")
        found = through(
            lambda after: browse.list_references(connection, number, after, 2), ("", 0), lambda one: one.after, 2
        )
        assert len(found) == 7 and (found[0].property, found[0].uri, found[0].described) == (
            V + "has",
            "http://r/0",
            True,
        )
        assert [one.described for one in found if one.uri == "javascript:alert(1)"] == [False]
        assert browse.count_references(connection, number) == BoundedCount(7, False)
        target = number_of(connection, "http://r/0")
        came = through(
            lambda after: browse.list_referrers(connection, target, after, 1), (0, 0), lambda one: one.after, 1
        )
        assert sorted((one.property, one.uri) for one in came) == [
            (V + "has", "http://r/a"),
            (V + "knows", "http://r/a"),
        ]


def test_holders_distinguish_selected_from_referenced_resources(filled: Mdp) -> None:
    lmrs = [filled.create_lmr(name) for name in ("one", "two")]
    filled.subscribe(lmrs[0], "search Thing t register t where t.title = 'it'")
    filled.subscribe(lmrs[1], "search Part p register p")
    filled.put_one("http://d/1", "<http://r/a> a :Thing ; :title 'it' ; :has <http://r/p> . <http://r/p> a :Part .")
    with filled.engine.connect() as connection:
        held = browse.list_holders(connection, number_of(connection, "http://r/p"), 0, 9)
        assert [(one.name, one.selected) for one in held] == [("one", False), ("two", True)]
        assert browse.list_holders(connection, number_of(connection, "http://r/p"), held[0].id, 9) == held[1:]


def test_a_resource_is_dated_by_its_last_visible_change(filled: Mdp) -> None:
    filled.put_one("http://d/1", "<http://r/a> :note '1', '2' .")
    filled.put_one("http://d/1", "<http://r/a> :note '1' .")
    filled.put_one("http://d/2", "<http://r/a> :note '1' .")
    (second,) = [at for (at,) in filled.rows("select at from transactions order by position desc offset 1 limit 1")]
    with filled.engine.connect() as connection:
        number = number_of(connection, "http://r/a")
        assert browse.read_last_change(connection, number) == second
        assert [uri for _, uri in browse.list_describing_documents(connection, number, 0, 9)] == [
            "http://d/1",
            "http://d/2",
        ]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("name", "kind"), [("size", ValueKind.NUMBER), ("title", ValueKind.TEXT)])
def test_instances_are_walked_in_order_with_any_page_size(
    filled: Mdp, name: str, kind: ValueKind, descending: bool
) -> None:
    sizes = [3, 1, 20, 3, 100]
    said = " ".join(f"<http://r/{n}> a :Wheel ; :size {size} ; :title '{size}' ." for n, size in enumerate(sizes))
    filled.put({"http://d/1": said + "<http://r/x> :size 2 ; :title '2' .", "http://d/2": said})
    with filled.engine.connect() as connection:
        classes = browse.find_resource_ids(connection, [V + "Wheel"])

        def page(after: tuple[str, int] | None) -> list[tuple[int, str]]:
            return browse.list_by_property(connection, V + name, kind, classes, descending, after, 2)

        def key(row: tuple[int, str]) -> tuple[str, int]:
            return row[1].partition(":")[2], row[0]

        walked = [after.partition(":")[2] for _, after in through(page, None, key, 2)]
    if kind is ValueKind.NUMBER:
        expected = [str(size) for size in sorted(sizes, reverse=descending)]
    else:
        expected = sorted(map(str, sizes), reverse=descending)
    assert walked == expected


# The instances of a class


def wished(mdp: Mdp, *wish: Any) -> list[str]:
    """Return the URIs of all pages."""
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        with mdp.engine.connect() as connection:
            page = find_instances(connection, SchemaCache(), InstanceQuery(*wish, after=after))
        found += [uri for _, uri in page.instances]
        after = page.next
    return found


@pytest.fixture
def wheels(filled: Mdp) -> Mdp:
    """More than two pages of instances; every seventh is large."""
    said = " ".join(f"<http://r/{n:03}> a :Wheel ; :size {n % 7} ; :title '{n % 5}' ." for n in range(120))
    filled.put_one("http://d/1", said + " <http://r/bare> a :Wheel .")
    return filled


def schema_of(mdp: Mdp) -> Any:
    with mdp.engine.connect() as connection:
        return mdp.schemas.now(connection).schema


@pytest.mark.parametrize("class_", ["Thing", "Wheel"])
def test_instances_are_paged_without_duplicates(wheels: Mdp, class_: str) -> None:
    found = wished(wheels, V + class_)
    assert len(found) == len(set(found)) == 121


def test_a_filter_finds_the_same_resources_as_a_rule(wheels: Mdp) -> None:
    schema = schema_of(wheels)
    rule = filter_rule(schema, V + "Thing", V + "size", ">=", "6")
    assert wished(wheels, V + "Thing", rule) == [f"http://r/{n:03}" for n in range(120) if n % 7 == 6]
    rule = filter_rule(schema, V + "Wheel", V + "size", ">=", "1")
    assert set(wished(wheels, V + "Wheel", rule)) == {f"http://r/{n:03}" for n in range(120) if n % 7 >= 1}
    quoted = filter_rule(schema, V + "Wheel", V + "title", "contains", "' or true or '")
    assert wished(wheels, V + "Wheel", quoted) == []


@pytest.mark.parametrize("by_index", [False, True])
def test_the_order_by_a_property_is_the_same_with_and_without_the_index(
    wheels: Mdp, by_index: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_index:
        monkeypatch.setattr(browse, "MAX_ROWS_COUNTED", 5)
        monkeypatch.setattr(browse, "MIN_ROWS_COUNTED", 5)
    found = wished(wheels, V + "Wheel", None, V + "size", True)
    sizes = [int(uri[-3:]) % 7 for uri in found if uri != "http://r/bare"]
    assert sizes == sorted(sizes, reverse=True) and len(set(found)) == len(found)
    # An index contains only resources with a value.
    assert len(found) == (120 if by_index else 121)
    if not by_index:
        assert found[-1] == "http://r/bare"
        assert wished(wheels, V + "Wheel", None, BY_URI) == sorted(found)


def test_filter_and_order_can_be_combined(wheels: Mdp) -> None:
    rule = filter_rule(schema_of(wheels), V + "Wheel", V + "size", "<", "3")
    found = wished(wheels, V + "Wheel", rule, V + "title", True)
    assert [int(uri[-3:]) % 5 for uri in found] == sorted([n % 5 for n in range(120) if n % 7 < 3], reverse=True)


def test_too_many_instances_are_not_sorted(wheels: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.inspect.browse.MAX_SORTED_INSTANCES", 100)
    with pytest.raises(TooCostly, match="more than 100"):
        wished(wheels, V + "Wheel", None, BY_URI)


def test_an_invalid_filter_is_refused_with_a_message(wheels: Mdp) -> None:
    schema = schema_of(wheels)
    with pytest.raises(InvalidRule):
        wished(wheels, V + "Wheel", filter_rule(schema, V + "Wheel", V + "size", ">", "many"))
    with pytest.raises(BadRequest, match="absolute URI"):
        filter_rule(schema, V + "Wheel", V + "has", "=", "x")
    with pytest.raises(BadRequest, match="no property"):
        filter_rule(schema, V + "Wheel", V + "unheard", "=", "x")
    for after in ("x", "-1", "1:x:y"):
        with wheels.engine.connect() as connection, pytest.raises(BadRequest, match="previous page"):
            find_instances(connection, wheels.schemas, InstanceQuery(V + "Wheel", after=after))


def test_columns_are_the_most_informative_properties_and_long_cells_are_cut(wheels: Mdp) -> None:
    wheels.put_one("http://d/2", f"<http://r/000> :has <http://r/001> ; :note '{'x' * 1000}' .")
    with wheels.engine.connect() as connection:
        found = find_instances(connection, wheels.schemas, InstanceQuery(V + "Wheel"))
    assert [one.iri for one in found.columns] == [V + "title", V + "size", V + "note", V + "has"]
    number = next(number for number, uri in found.instances if uri == "http://r/000")
    assert found.cells[number, V + "has"] == [Term.uri("http://r/001")]
    assert len(found.cells[number, V + "note"][0].value) == browse.MAX_CELL_CHARACTERS


def test_a_cycle_of_subclasses_is_shown_completely(mdp: Mdp) -> None:
    mdp.put_schema(":A rdfs:subClassOf :B . :B rdfs:subClassOf :A . :C rdfs:subClassOf :A, :D . :D a rdfs:Class .")
    tree = class_tree(schema_of(mdp))
    assert sorted(branch.iri for branch in tree) == [V + "A", V + "B", V + "C", V + "D"]
    assert set(next(branch for branch in tree if branch.iri == V + "C").above) >= {V + "D"}


def test_rdfs_resource_can_be_browsed_as_a_class(wheels: Mdp) -> None:
    assert len(wished(wheels, RDFS_RESOURCE)) == 121
    assert browsable_properties(schema_of(wheels), RDFS_RESOURCE) == []
