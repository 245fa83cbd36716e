"""What the pages for browsing read: bounded, paged by keys, and unharmed by what documents say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection

from mdv.db import browse
from mdv.db.browse import Bounded
from mdv.db.why import Evidence
from mdv.errors import BadRequest, InvalidRule, TooCostly
from mdv.mdp.browse import BY_URI, Wish, choices, class_tree, filter_rule, find_instances
from mdv.mdp.schemas import Schemas
from mdv.model import RDFS_RESOURCE, Term
from mdv.rdf.values import Kind

if TYPE_CHECKING:
    from conftest import Mdp

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
    found = Evidence(connection).number(uri)
    assert found is not None
    return found


def through(page: Callable[[Any], Sequence[Any]], start: Any, key: Callable[[Any], Any], size: int) -> list[Any]:
    """All items of a list, page by page."""
    items: list[Any] = []
    after = start
    while found := page(after):
        assert len(found) <= size
        items += found
        after = key(found[-1])
    return items


def test_a_class_counts_its_subclasses_instances_once(filled: Mdp) -> None:
    filled.put(
        {
            "http://d/1": "<http://r/a> a :Wheel, :Part . <http://r/b> a :Thing .",
            "http://d/2": "<http://r/a> a :Wheel .",
        }
    )
    groups = [[V + "Thing", V + "Part", V + "Wheel"], [V + "Wheel"], [V + "Other"], [V + "Unheard"]]
    with filled.engine.connect() as connection:
        counted = browse.count_instances(connection, groups)
    assert counted == [Bounded(2, False), Bounded(1, False), Bounded(0, False), Bounded(0, False)]


def test_a_large_class_is_counted_up_to_a_bound(filled: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "MOST_LOOKED_AT", 5)
    monkeypatch.setattr(browse, "LEAST_LOOKED_AT", 5)
    filled.put_one("http://d/1", " ".join(f"<http://r/{n}> a :Thing ; :knows <http://r/x> ." for n in range(7)))
    with filled.engine.connect() as connection:
        assert browse.count_instances(connection, [[V + "Thing"]]) == [Bounded(5, True)]
        assert browse.count_referrers(connection, number_of(connection, "http://r/x")) == Bounded(5, True)


def test_uris_are_found_by_how_they_begin_and_paged(filled: Mdp) -> None:
    filled.put_one(
        "http://d/1",
        "<http://r/a> :note '1' ; :knows <http://r/ab> . <http://r/a%25b> :note '1' . <http://s> :note '1' .",
    )
    with filled.engine.connect() as connection:
        assert browse.find_resources(connection, "http://r/a", "", 9) == [
            ("http://r/a", True), ("http://r/a%25b", True), ("http://r/ab", False)
        ]  # fmt: skip
        assert browse.find_resources(connection, "http://r/a", "http://r/a", 1) == [("http://r/a%25b", True)]
        assert browse.find_resources(connection, "http://r/a%", "", 9) == [("http://r/a%25b", True)]
        assert browse.find_resources(connection, "HTTP", "", 9) == []


def test_literals_are_paged_each_once_and_long_ones_cut(filled: Mdp) -> None:
    long = "ä" * 500_000
    notes = ", ".join(f"'{n}'" for n in range(7))
    said = f"<http://r/a> :note {notes}, '''<script>alert(1)</script>''', 'عربي'@ar ; :title '{long}' ."
    filled.put({"http://d/1": said, "http://d/2": f"<http://r/a> :note {notes} ."})
    with filled.engine.connect() as connection:
        number = number_of(connection, "http://r/a")
        found = through(
            lambda after: browse.literals(connection, number, after, 3),
            ("", 0),
            lambda one: (one.property, one.hash),
            3,
        )
        texts = {one.text: one for one in found}
        assert len(found) == len(texts) == 10
        assert texts["عربي"].lang == "ar" and texts["<script>alert(1)</script>"].whole
        (cut,) = [one for one in found if not one.whole]
        assert cut.text == long[: browse.CHARACTERS] and cut.bytes == 1_000_000
        assert browse.whole_value(connection, number, cut.property, cut.hash) == long
        assert browse.whole_value(connection, number, V + "note", cut.hash) is None


def test_references_and_referrers_are_paged_each_once(filled: Mdp) -> None:
    targets = ", ".join(f"<http://r/{n}>" for n in range(5))
    said = (
        f"<http://r/a> a :Thing ; :knows {targets}, <javascript:alert(1)> ; :has <http://r/0> . <http://r/0> :note 'x'."
    )
    filled.put({"http://d/1": said, "http://d/2": said})
    with filled.engine.connect() as connection:
        number = number_of(connection, "http://r/a")
        found = through(
            lambda after: browse.references(connection, number, after, 2), ("", 0), lambda one: one.after, 2
        )
        assert len(found) == 7 and (found[0].property, found[0].uri, found[0].described) == (
            V + "has",
            "http://r/0",
            True,
        )
        assert [one.described for one in found if one.uri == "javascript:alert(1)"] == [False]
        assert browse.count_references(connection, number) == Bounded(7, False)
        target = number_of(connection, "http://r/0")
        came = through(lambda after: browse.referrers(connection, target, after, 1), (0, 0), lambda one: one.after, 1)
        assert sorted((one.property, one.uri) for one in came) == [
            (V + "has", "http://r/a"),
            (V + "knows", "http://r/a"),
        ]


def test_holders_tell_what_a_rule_selects_from_what_a_reference_reaches(filled: Mdp) -> None:
    lmrs = [filled.create_lmr(name) for name in ("one", "two")]
    filled.subscribe(lmrs[0], "search Thing t register t where t.title = 'it'")
    filled.subscribe(lmrs[1], "search Part p register p")
    filled.put_one("http://d/1", "<http://r/a> a :Thing ; :title 'it' ; :has <http://r/p> . <http://r/p> a :Part .")
    with filled.engine.connect() as connection:
        held = browse.holders(connection, number_of(connection, "http://r/p"), 0, 9)
        assert [(one.name, one.selected) for one in held] == [("one", False), ("two", True)]
        assert browse.holders(connection, number_of(connection, "http://r/p"), held[0].id, 9) == held[1:]


def test_a_change_is_dated_by_what_shows(filled: Mdp) -> None:
    filled.put_one("http://d/1", "<http://r/a> :note '1', '2' .")
    filled.put_one("http://d/1", "<http://r/a> :note '1' .")
    filled.put_one("http://d/2", "<http://r/a> :note '1' .")
    (second,) = [at for (at,) in filled.rows("select at from transactions order by position desc offset 1 limit 1")]
    with filled.engine.connect() as connection:
        number = number_of(connection, "http://r/a")
        assert browse.changed_at(connection, number) == second
        assert [uri for _, uri in browse.describing(connection, number, 0, 9)] == ["http://d/1", "http://d/2"]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("name", "kind"), [("size", Kind.NUMBER), ("title", Kind.TEXT)])
def test_a_walk_is_in_order_whatever_its_pages(filled: Mdp, name: str, kind: Kind, descending: bool) -> None:
    sizes = [3, 1, 20, 3, 100]
    said = " ".join(f"<http://r/{n}> a :Wheel ; :size {size} ; :title '{size}' ." for n, size in enumerate(sizes))
    filled.put({"http://d/1": said + "<http://r/x> :size 2 ; :title '2' .", "http://d/2": said})
    with filled.engine.connect() as connection:
        classes = browse.numbers_of(connection, [V + "Wheel"])

        def page(after: tuple[str, int] | None) -> list[tuple[int, str]]:
            return browse.walk(connection, V + name, kind, classes, descending, after, 2)

        def key(row: tuple[int, str]) -> tuple[str, int]:
            return row[1].partition(":")[2], row[0]

        walked = [after.partition(":")[2] for _, after in through(page, None, key, 2)]
    if kind is Kind.NUMBER:
        expected = [str(size) for size in sorted(sizes, reverse=descending)]
    else:
        expected = sorted(map(str, sizes), reverse=descending)
    assert walked == expected


# The instances of a class


def wished(mdp: Mdp, *wish: Any) -> list[str]:
    """The URIs of all pages."""
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        with mdp.engine.connect() as connection:
            page = find_instances(connection, Schemas(), Wish(*wish, after=after))
        found += [uri for _, uri in page.instances]
        after = page.next
    return found


@pytest.fixture
def wheels(filled: Mdp) -> Mdp:
    """More than two pages of them; every seventh is large."""
    said = " ".join(f"<http://r/{n:03}> a :Wheel ; :size {n % 7} ; :title '{n % 5}' ." for n in range(120))
    filled.put_one("http://d/1", said + " <http://r/bare> a :Wheel .")
    return filled


def schema_of(mdp: Mdp) -> Any:
    with mdp.engine.connect() as connection:
        return mdp.schemas.now(connection).schema


@pytest.mark.parametrize("class_", ["Thing", "Wheel"])
def test_instances_are_paged_each_once(wheels: Mdp, class_: str) -> None:
    found = wished(wheels, V + class_)
    assert len(found) == len(set(found)) == 121


def test_a_filter_finds_what_a_rule_would(wheels: Mdp) -> None:
    schema = schema_of(wheels)
    rule = filter_rule(schema, V + "Thing", V + "size", ">=", "6")
    assert wished(wheels, V + "Thing", rule) == [f"http://r/{n:03}" for n in range(120) if n % 7 == 6]
    rule = filter_rule(schema, V + "Wheel", V + "size", ">=", "1")
    assert set(wished(wheels, V + "Wheel", rule)) == {f"http://r/{n:03}" for n in range(120) if n % 7 >= 1}
    quoted = filter_rule(schema, V + "Wheel", V + "title", "contains", "' or true or '")
    assert wished(wheels, V + "Wheel", quoted) == []


@pytest.mark.parametrize("by_index", [False, True])
def test_an_order_is_that_of_the_property_whichever_way_it_is_found(
    wheels: Mdp, by_index: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_index:
        monkeypatch.setattr(browse, "MOST_LOOKED_AT", 5)
        monkeypatch.setattr(browse, "LEAST_LOOKED_AT", 5)
    found = wished(wheels, V + "Wheel", None, V + "size", True)
    sizes = [int(uri[-3:]) % 7 for uri in found if uri != "http://r/bare"]
    assert sizes == sorted(sizes, reverse=True) and len(set(found)) == len(found)
    # An index has only what has a value.
    assert len(found) == (120 if by_index else 121)
    if not by_index:
        assert found[-1] == "http://r/bare"
        assert wished(wheels, V + "Wheel", None, BY_URI) == sorted(found)


def test_a_filter_and_an_order_go_together(wheels: Mdp) -> None:
    rule = filter_rule(schema_of(wheels), V + "Wheel", V + "size", "<", "3")
    found = wished(wheels, V + "Wheel", rule, V + "title", True)
    assert [int(uri[-3:]) % 5 for uri in found] == sorted([n % 5 for n in range(120) if n % 7 < 3], reverse=True)


def test_too_many_are_not_sorted(wheels: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.mdp.browse.MOST_SORTED", 100)
    with pytest.raises(TooCostly, match="more than 100"):
        wished(wheels, V + "Wheel", None, BY_URI)


def test_a_wrong_filter_is_told_in_words(wheels: Mdp) -> None:
    schema = schema_of(wheels)
    with pytest.raises(InvalidRule):
        wished(wheels, V + "Wheel", filter_rule(schema, V + "Wheel", V + "size", ">", "many"))
    with pytest.raises(BadRequest, match="whole URI"):
        filter_rule(schema, V + "Wheel", V + "has", "=", "x")
    with pytest.raises(BadRequest, match="no property"):
        filter_rule(schema, V + "Wheel", V + "unheard", "=", "x")
    for after in ("x", "-1", "1:x:y"):
        with wheels.engine.connect() as connection, pytest.raises(BadRequest, match="page before"):
            find_instances(connection, wheels.schemas, Wish(V + "Wheel", after=after))


def test_cells_hold_what_is_most_telling(wheels: Mdp) -> None:
    wheels.put_one("http://d/2", f"<http://r/000> :has <http://r/001> ; :note '{'x' * 1000}' .")
    with wheels.engine.connect() as connection:
        found = find_instances(connection, wheels.schemas, Wish(V + "Wheel"))
    assert [one.iri for one in found.columns] == [V + "title", V + "size", V + "note", V + "has"]
    number = next(number for number, uri in found.instances if uri == "http://r/000")
    assert found.cells[number, V + "has"] == [Term.uri("http://r/001")]
    assert len(found.cells[number, V + "note"][0].value) == browse.CELL_CHARACTERS


def test_classes_below_each_other_are_all_shown(mdp: Mdp) -> None:
    mdp.put_schema(":A rdfs:subClassOf :B . :B rdfs:subClassOf :A . :C rdfs:subClassOf :A, :D . :D a rdfs:Class .")
    tree = class_tree(schema_of(mdp))
    assert sorted(branch.iri for branch in tree) == [V + "A", V + "B", V + "C", V + "D"]
    assert set(next(branch for branch in tree if branch.iri == V + "C").above) >= {V + "D"}


def test_everything_is_a_class_too(wheels: Mdp) -> None:
    assert len(wished(wheels, RDFS_RESOURCE)) == 121
    assert choices(schema_of(wheels), RDFS_RESOURCE) == []
