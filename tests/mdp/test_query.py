"""Queries: `return`, `order by`, `limit`, and rules asked as queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from mdv.errors import BadRequest, InvalidRule, TooCostly
from mdv.mdp import query as queries
from mdv.mdp.query import Resources, Rows, run_query
from mdv.model import XSD, Term

if TYPE_CHECKING:
    from conftest import Mdp

R = "http://r/"
SCHEMA = """
:Book a rdfs:Class . :Novel rdfs:subClassOf :Book . :Agent a rdfs:Class .
:pages rdfs:range xsd:integer . :born rdfs:range xsd:date . :name rdfs:range xsd:string . :free rdfs:range xsd:boolean .
:rating rdfs:range xsd:double ; mdv:setValued true .
:tag rdfs:range rdfs:Literal ; mdv:setValued true . :author rdfs:range :Agent . :sequel rdfs:range :Book .
:source a rdf:Property .
"""
BOOKS = """
<http://r/b1> a :Book ; :pages 100 ; :name 'one' ; :author <http://r/jane> ; :tag 'x', 'y'@en .
<http://r/b2> a :Novel ; :pages 20 ; :name 'two' ; :author <http://r/jane> ; :free true .
<http://r/b3> a :Book ; :name 'ten' ; :author <http://r/nobody> ; :source '5'^^xsd:integer ; :rating 'NaN', '1.5' .
<http://r/jane> a :Agent ; :name 'Jane' ; :born '1775-12-16' .
<http://r/mary> a :Agent ; :name 'Mary' ; :born '1797-08-30' .
"""


@pytest.fixture
def books(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    mdp.put({"http://d/1": BOOKS})
    return mdp


def ask(mdp: Mdp, query: str, **options: object) -> Rows | Resources:
    with mdp.engine.connect() as connection:
        return run_query(connection, query, mdp.schemas, **options)


def told(mdp: Mdp, query: str, **options: object) -> list[list[str | None]]:
    """The values alone, those of resources by their last part."""
    answer = ask(mdp, query, **options)
    assert isinstance(answer, Rows)
    return [[term and term.value.removeprefix(R) for term in row] for row in answer.rows]


# -- rows


def test_a_query_gives_columns_as_written_and_rows_of_terms(books: Mdp) -> None:
    answer = ask(books, "search Book b where b.pages = 100 return b, b.  pages,b.tag?")
    assert answer == Rows(
        ("b", "b.pages", "b.tag?"),
        [
            (Term.uri(R + "b1"), Term.literal("100", datatype=XSD + "integer"), Term.literal("x")),
            (Term.uri(R + "b1"), Term.literal("100", datatype=XSD + "integer"), Term.literal("y", lang="en")),
        ],
        False,
    )


def test_what_is_missing_loses_no_row(books: Mdp) -> None:
    assert told(books, "search Book b return b, b.pages, b.author.name") == [
        ["b1", "100", "Jane"],
        ["b2", "20", "Jane"],
        ["b3", None, None],
    ]


def test_every_searched_variable_counts_whether_it_is_returned_or_not(books: Mdp) -> None:
    assert told(books, "search Book b, Agent a where b.author = a return a") == [["jane"], ["jane"]]
    assert told(books, "search Agent a where a.name = 'Jane' return a, a") == [["jane", "jane"]]


def test_two_values_by_two_documents_are_two_rows_and_equal_ones_are_one(books: Mdp) -> None:
    books.put({"http://d/2": "<http://r/b1> a :Book ; :pages 7 ; :name 'one' ."})
    assert told(books, "search Book b where b.name = 'one' return b.name, b.pages") == [["one", "100"], ["one", "7"]]


def test_returned_paths_mean_the_same_resource_where_they_begin_alike(books: Mdp) -> None:
    books.put({"http://d/2": "<http://r/b1> :author <http://r/mary> ."})
    alike = "search Book b where b.name = 'one' return b.author, b.author.name"
    assert told(books, alike) == [["jane", "Jane"], ["mary", "Mary"]]


def test_a_returned_path_means_the_resource_that_where_speaks_of(books: Mdp) -> None:
    books.put({"http://d/2": "<http://r/b1> :author <http://r/mary> ."})
    asked = "search Book b where b.author.name = 'Mary' return b, b.author, b.author.born"
    assert told(books, asked) == [["b1", "mary", "1797-08-30"]]
    either = "search Book b where b.author.name = 'Mary' or b.pages = 20 return b, b.author.born"
    assert told(books, either) == [["b1", "1797-08-30"], ["b2", "1775-12-16"]]


def test_all_values_are_shown_and_a_path_goes_on_from_instances_of_the_range_alone(books: Mdp) -> None:
    books.put({"http://d/2": "<http://r/b1> :author <http://r/b2> ."})
    shown = "search Book b where b.name = 'one' return b.author, b.author.name"
    assert told(books, shown) == [["b2", None], ["jane", "Jane"]]
    assert told(books, "search Book b where b.name = 'one' return b.author.name") == [["Jane"]]


def test_each_any_is_its_own_choice(books: Mdp) -> None:
    assert len(told(books, "search Book b where b.name = 'one' return b.tag?, b.tag?")) == 4


def test_or_puts_its_sides_together_and_gives_no_row_twice(books: Mdp) -> None:
    either = "search Book b where b.pages > 50 or b.name contains 'o' return b"
    assert told(books, either) == [["b1"], ["b2"]]


def test_variables_may_be_joined_in_any_way(books: Mdp) -> None:
    assert told(books, "search Book a, Book b where a.pages > b.pages return a, b") == [["b1", "b2"]]
    assert told(books, "search Book a, Novel b where a = b return a, b.name") == [["b2", "two"]]
    assert len(told(books, "search Book a, Agent b return a, b")) == 6


# -- order and limit


def test_numbers_are_ordered_as_numbers_and_what_is_missing_comes_last(books: Mdp) -> None:
    assert told(books, "search Book b return b order by b.pages") == [["b2"], ["b1"], ["b3"]]
    assert told(books, "search Book b return b order by b.pages desc") == [["b1"], ["b2"], ["b3"]]


def test_instants_truths_and_texts_are_ordered_as_what_they_are(books: Mdp) -> None:
    books.put({"http://d/2": "<http://r/old> a :Agent ; :name 'Zoë' ; :born '-0100-01-01' . "
                             "<http://r/new> a :Agent ; :name 'ada' ; :born '1800-01-01+14:00' ."})  # fmt: skip
    assert told(books, "search Agent a return a order by a.born") == [["old"], ["jane"], ["mary"], ["new"]]
    assert told(books, "search Agent a return a.name order by a.name") == [["Jane"], ["Mary"], ["Zoë"], ["ada"]]
    assert told(books, "search Book b return b order by b.free, b desc") == [["b2"], ["b3"], ["b1"]]


def test_a_path_with_several_values_orders_by_its_least_and_makes_no_rows(books: Mdp) -> None:
    books.put({"http://d/2": "<http://r/b1> :rating 3, 9 . <http://r/b2> :rating 4 ."})
    assert told(books, "search Book b return b order by b.rating?") == [["b3"], ["b1"], ["b2"]]
    assert told(books, "search Book b return b order by b.rating? desc") == [["b1"], ["b2"], ["b3"]]


def test_limits_cut_and_say_so(books: Mdp) -> None:
    two = ask(books, "search Book b return b limit 2")
    assert isinstance(two, Rows) and len(two.rows) == 2 and two.truncated
    assert not ask(books, "search Book b return b limit 3").truncated  # type: ignore[union-attr]
    assert len(told(books, "search Book b return b limit 3", limit=1)) == 1
    assert len(told(books, "search Book b return b limit 1", limit=3)) == 1


# -- rules as queries


def test_a_rule_gives_the_resources_that_it_would_register_by_uri(books: Mdp) -> None:
    first = ask(books, "search Book b register b", limit=2)
    assert first == Resources([(R + "b1", ["http://v/Book"]), (R + "b2", ["http://v/Novel"])], R + "b2", [])
    rest = ask(books, "search Book b register b", limit=2, after=R + "b2")
    assert rest == Resources([(R + "b3", ["http://v/Book"])], None, [])


def test_a_rule_gives_the_statements_too_where_they_are_wanted(books: Mdp) -> None:
    found = ask(books, "search Agent a register a where a.name = 'Mary'", with_statements=True)
    assert isinstance(found, Resources)
    assert {s.property for s in found.statements} >= {"http://v/name", "http://v/born"}
    assert {s.subject for s in found.statements} == {R + "mary"}


# -- what cannot be meant


@pytest.mark.parametrize(
    ("query", "said", "marked"),
    [
        ("search Book b return b.nme", "unknown property 'nme' (did you mean name?)", "nme"),
        ("search Book b return b order by c", "unknown variable 'c'", "c"),
        ("search Bok b return b", "unknown class 'Bok'", "Bok"),
        ("search Book b return b.tag", "is set-valued and needs the any operator", "tag"),
        ("search Book b return b.name.pages", "leads to no resource", "name"),
        ("search Book b return b limit 10001", "a limit is a number from 1 to 10,000", "10001"),
        ("search Book b return b limit 0", "a limit is a number from 1 to 10,000", "0"),
        ("search Book b return " + ", ".join(["b"] * 33), "returns more than 32 paths", "b"),
        ("search Book b return b order by " + ", ".join(["b"] * 9), "is ordered by more than 8 paths", "b"),
        ("search Book b return b where b.pages = 1", "found 'where'", "where"),
        ("search Book b where b.pages < 'x' return b", "they do not compare", "'x'"),
        ("search Book b return b\0", "a NUL character", None),
        ("search Book b return b\ud800", "half a surrogate pair", None),
        ("search Book b return b" + " " * 9000, "longer than 8,192 bytes", None),
        ("", "expected 'search'", None),
        ("search Book b where " + " and ".join([f"(b.pages = {n} or b.pages = 0)" for n in range(6)])
         + " return " + ", ".join(["b.sequel.sequel.name"] * 3), "steps in its 64 conjunctions", "Book b"),
        ("search Book b register b where " + " and ".join([f"(b.sequel.sequel.sequel.sequel.sequel.pages = {n}"
         f" or b.sequel.sequel.sequel.sequel.author.name != '{n}')" for n in range(6)]),
         "steps in its 64 conjunctions", "Book b"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(books: Mdp, query: str, said: str, marked: str | None) -> None:
    with pytest.raises(InvalidRule) as caught:
        ask(books, query)
    assert said in str(caught.value)
    assert caught.value.detail.startswith("The query has a flaw at line 1, column ")
    if marked is not None:
        *_, source, carets = caught.value.detail.split("\n")
        start = carets.index("^")
        assert source[start : start + carets.count("^")] == marked


def test_rows_have_no_pages_and_a_page_has_a_size(books: Mdp) -> None:
    with pytest.raises(BadRequest, match="order by"):
        ask(books, "search Book b return b", after=R)
    with pytest.raises(BadRequest, match="at most 1,000"):
        ask(books, "search Book b register b", limit=1001)


def test_a_query_that_takes_too_long_is_given_up(books: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MAX_SECONDS", 1)
    books.run("insert into resources select 1000 + n, 'http://many/' || n from generate_series(1, 3000) n")
    books.run(
        "insert into filter_data select 1, 1000 + n, f.target_id, n, f.position, f.property_id, null, true"
        " from generate_series(1, 3000) n, (select * from filter_data where target_id is not null limit 1) f"
    )
    every = ", ".join(f"rdfs:Resource {name}" for name in "abcd")
    with pytest.raises(TooCostly, match="took longer"):
        ask(books, f"search {every} return a")
    assert told(books, "search Agent a return a") == [["jane"], ["mary"]]


def test_an_answer_has_room_for_so_much_and_tells_that_there_is_more(
    books: Mdp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_CHARACTERS", 25)
    answer = ask(books, "search Book b return b")
    assert isinstance(answer, Rows) and len(answer.rows) == 2 and answer.truncated
    monkeypatch.setattr(queries, "MAX_CHARACTERS", 1)
    assert len(told(books, "search Book b return b")) == 1


def test_a_query_changes_nothing(books: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    def mischief(connection: object, *_: object) -> object:
        connection.execute(text("delete from filter_data"))  # type: ignore[attr-defined]

    monkeypatch.setattr(queries, "_rows", mischief)
    with pytest.raises(DBAPIError) as caught:
        ask(books, "search Book b return b")
    assert isinstance(caught.value.orig, psycopg.errors.ReadOnlySqlTransaction)
