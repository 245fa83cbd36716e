"""Queries: `return`, `order by`, `limit`, and rules asked as queries."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from mdv.db.query import time_limited_read
from mdv.errors import BadRequest, InvalidRule, TooCostly
from mdv.inspect import query as queries
from mdv.inspect.query import QueryRows, ResourcePage, run_query
from mdv.model import XSD, Term
from tests.support.mdp import Mdp
from tests.support.sent_sql import executed

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


def ask(mdp: Mdp, query: str, **options: object) -> QueryRows | ResourcePage:
    with mdp.engine.connect() as connection:
        return run_query(connection, query, mdp.schemas, **options)


def told(mdp: Mdp, query: str, **options: object) -> list[list[str | None]]:
    """Return the values only, resources by the last part of their URI."""
    answer = ask(mdp, query, **options)
    assert isinstance(answer, QueryRows)
    return [[term and term.value.removeprefix(R) for term in row] for row in answer.rows]


# -- rows


def test_a_query_gives_columns_as_written_and_rows_of_terms(books: Mdp) -> None:
    answer = ask(books, "search Book b where b.pages = 100 return b, b.  pages,b.tag?")
    assert answer == QueryRows(
        ("b", "b.pages", "b.tag?"),
        [
            (Term.uri(R + "b1"), Term.literal("100", datatype=XSD + "integer"), Term.literal("x")),
            (Term.uri(R + "b1"), Term.literal("100", datatype=XSD + "integer"), Term.literal("y", lang="en")),
        ],
        False,
    )


def test_missing_values_drop_no_row(books: Mdp) -> None:
    assert told(books, "search Book b return b, b.pages, b.author.name") == [
        ["b1", "100", "Jane"],
        ["b2", "20", "Jane"],
        ["b3", None, None],
    ]


def test_every_searched_variable_multiplies_rows_even_if_not_returned(books: Mdp) -> None:
    assert told(books, "search Book b, Agent a where b.author = a return a") == [["jane"], ["jane"]]
    assert told(books, "search Agent a where a.name = 'Jane' return a, a") == [["jane", "jane"]]


def test_two_values_of_two_documents_give_two_rows_and_equal_ones_give_one(books: Mdp) -> None:
    books.put({"http://d/2": "<http://r/b1> a :Book ; :pages 7 ; :name 'one' ."})
    assert told(books, "search Book b where b.name = 'one' return b.name, b.pages") == [["one", "100"], ["one", "7"]]


def test_returned_paths_with_a_common_prefix_mean_the_same_resource(books: Mdp) -> None:
    books.put({"http://d/2": "<http://r/b1> :author <http://r/mary> ."})
    alike = "search Book b where b.name = 'one' return b.author, b.author.name"
    assert told(books, alike) == [["jane", "Jane"], ["mary", "Mary"]]


def test_a_returned_path_means_the_resource_constrained_in_where(books: Mdp) -> None:
    books.put({"http://d/2": "<http://r/b1> :author <http://r/mary> ."})
    asked = "search Book b where b.author.name = 'Mary' return b, b.author, b.author.born"
    assert told(books, asked) == [["b1", "mary", "1797-08-30"]]
    either = "search Book b where b.author.name = 'Mary' or b.pages = 20 return b, b.author.born"
    assert told(books, either) == [["b1", "1797-08-30"], ["b2", "1775-12-16"]]


def test_all_values_are_returned_and_paths_continue_only_from_instances_of_the_range(books: Mdp) -> None:
    books.put({"http://d/2": "<http://r/b1> :author <http://r/b2> ."})
    shown = "search Book b where b.name = 'one' return b.author, b.author.name"
    assert told(books, shown) == [["b2", None], ["jane", "Jane"]]
    assert told(books, "search Book b where b.name = 'one' return b.author.name") == [["Jane"]]


def test_each_any_is_chosen_independently(books: Mdp) -> None:
    assert len(told(books, "search Book b where b.name = 'one' return b.tag?, b.tag?")) == 4


def test_or_unites_its_sides_without_duplicate_rows(books: Mdp) -> None:
    either = "search Book b where b.pages > 50 or b.name contains 'o' return b"
    assert told(books, either) == [["b1"], ["b2"]]


def test_variables_may_be_joined_in_any_way(books: Mdp) -> None:
    assert told(books, "search Book a, Book b where a.pages > b.pages return a, b") == [["b1", "b2"]]
    assert told(books, "search Book a, Novel b where a = b return a, b.name") == [["b2", "two"]]
    assert len(told(books, "search Book a, Agent b return a, b")) == 6


# -- order and limit


def test_numbers_are_ordered_numerically_and_missing_values_come_last(books: Mdp) -> None:
    assert told(books, "search Book b return b order by b.pages") == [["b2"], ["b1"], ["b3"]]
    assert told(books, "search Book b return b order by b.pages desc") == [["b1"], ["b2"], ["b3"]]


def test_instants_booleans_and_texts_are_ordered_by_their_type(books: Mdp) -> None:
    books.put({"http://d/2": "<http://r/old> a :Agent ; :name 'Zoë' ; :born '-0100-01-01' . "
                             "<http://r/new> a :Agent ; :name 'ada' ; :born '1800-01-01+14:00' ."})  # fmt: skip
    assert told(books, "search Agent a return a order by a.born") == [["old"], ["jane"], ["mary"], ["new"]]
    assert told(books, "search Agent a return a.name order by a.name") == [["Jane"], ["Mary"], ["Zoë"], ["ada"]]
    assert told(books, "search Book b return b order by b.free, b desc") == [["b2"], ["b3"], ["b1"]]


def test_a_path_with_several_values_orders_by_its_least_and_adds_no_rows(books: Mdp) -> None:
    books.put({"http://d/2": "<http://r/b1> :rating 3, 9 . <http://r/b2> :rating 4 ."})
    assert told(books, "search Book b return b order by b.rating?") == [["b3"], ["b1"], ["b2"]]
    assert told(books, "search Book b return b order by b.rating? desc") == [["b1"], ["b2"], ["b3"]]


def test_limits_truncate_and_set_the_flag(books: Mdp) -> None:
    two = ask(books, "search Book b return b limit 2")
    assert isinstance(two, QueryRows) and len(two.rows) == 2 and two.truncated
    assert not ask(books, "search Book b return b limit 3").truncated  # type: ignore[union-attr]
    assert len(told(books, "search Book b return b limit 3", limit=1)) == 1
    assert len(told(books, "search Book b return b limit 1", limit=3)) == 1


# -- rules as queries


def test_a_rule_returns_the_resources_it_would_register_ordered_by_uri(books: Mdp) -> None:
    first = ask(books, "search Book b register b", limit=2)
    assert first == ResourcePage([(R + "b1", ["http://v/Book"]), (R + "b2", ["http://v/Novel"])], R + "b2", [])
    rest = ask(books, "search Book b register b", limit=2, after=R + "b2")
    assert rest == ResourcePage([(R + "b3", ["http://v/Book"])], None, [])


def test_a_rule_returns_statements_on_request(books: Mdp) -> None:
    found = ask(books, "search Agent a register a where a.name = 'Mary'", with_statements=True)
    assert isinstance(found, ResourcePage)
    assert {s.property for s in found.statements} >= {"http://v/name", "http://v/born"}
    assert {s.subject for s in found.statements} == {R + "mary"}


# -- errors


@pytest.mark.parametrize(
    ("query", "said", "marked"),
    [
        ("search Book b return b.nme", "unknown property 'nme' (did you mean name?)", "nme"),
        ("search Book b return b order by c", "unknown variable 'c'", "c"),
        ("search Bok b return b", "unknown class 'Bok'", "Bok"),
        ("search Book b return b.tag", "is set-valued and needs the any operator", "tag"),
        ("search Book b return b.name.pages", "has no resources as values", "name"),
        ("search Book b return b limit 10001", "a limit must be from 1 to 10,000", "10001"),
        ("search Book b return b limit 0", "a limit must be from 1 to 10,000", "0"),
        ("search Book b return " + ", ".join(["b"] * 33), "returns more than 32 paths", "b"),
        ("search Book b return b order by " + ", ".join(["b"] * 9), "is ordered by more than 8 paths", "b"),
        ("search Book b return b where b.pages = 1", "found 'where'", "where"),
        ("search Book b where b.pages < 'x' return b", "they cannot be compared", "'x'"),
        ("search Book b return b\0", "a NUL character", None),
        ("search Book b return b\ud800", "an unpaired surrogate", None),
        ("search Book b return b" + " " * 9000, "longer than 8,192 bytes", None),
        ("", "expected 'search'", None),
        ("search Book b where " + " and ".join([f"(b.pages = {n} or b.pages = 0)" for n in range(6)])
         + " return " + ", ".join(["b.sequel.sequel.name"] * 3), "steps in its 64 conjunctions", "Book b"),
        ("search Book b register b where " + " and ".join([f"(b.sequel.sequel.sequel.sequel.sequel.pages = {n}"
         f" or b.sequel.sequel.sequel.sequel.author.name != '{n}')" for n in range(6)]),
         "steps in its 64 conjunctions", "Book b"),
    ],
)  # fmt: skip
def test_errors_are_reported_with_their_place(books: Mdp, query: str, said: str, marked: str | None) -> None:
    with pytest.raises(InvalidRule) as caught:
        ask(books, query)
    assert said in str(caught.value)
    assert caught.value.detail.startswith("The query has an error at line 1, column ")
    if marked is not None:
        *_, source, carets = caught.value.detail.split("\n")
        start = carets.index("^")
        assert source[start : start + carets.count("^")] == marked


def test_rows_have_no_pages_and_page_sizes_are_limited(books: Mdp) -> None:
    with pytest.raises(BadRequest, match="order by"):
        ask(books, "search Book b return b", after=R)
    with pytest.raises(BadRequest, match="at most 1,000"):
        ask(books, "search Book b register b", limit=1001)


def test_a_query_whose_compilation_exceeds_the_time_limit_is_not_run(
    books: Mdp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_SECONDS", 0.5)

    def slow(work: Callable[..., Any], /, *values: object) -> Any:
        compiled = work(*values)
        time.sleep(0.6)
        return compiled

    with executed(monkeypatch) as sent:
        for query in ("search Book b return b", "search Book b register b"):
            with pytest.raises(TooCostly, match="timed out after"):
                ask(books, query, apart=slow)
    assert not [statement for statement in sent if "rdf" in statement or "filter_data" in statement]


def test_the_sql_statements_of_a_read_share_one_time_limit(books: Mdp) -> None:
    """A cursor is planned by one SQL statement and read by others; they share one time limit."""
    with (
        books.engine.connect() as connection,
        pytest.raises(TooCostly, match="what it says"),
        time_limited_read(connection, 1, "what it says") as limit,
    ):
        connection.execute(text("select pg_sleep(0.7)"))
        limit.renew()
        connection.execute(text("select pg_sleep(0.7)"))


def test_rows_are_fetched_within_the_remaining_time(books: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.db.query.FETCH_SIZE", 1)
    with executed(monkeypatch) as sent:
        assert len(told(books, "search Book b return b")) == 3
    renewed = [statement for statement in sent if "statement_timeout" in statement]
    assert len(renewed) >= 5, "for the whole, the plan, and each of three fetches"


def test_a_page_of_resources_with_very_many_statements_is_refused(books: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MAX_STATEMENTS_PER_PAGE", 12)
    assert isinstance(ask(books, "search Book b register b"), ResourcePage)
    with pytest.raises(TooCostly, match="have more than"):
        ask(books, "search Book b register b", with_statements=True)
    some = ask(books, "search Book b register b", with_statements=True, limit=1)
    assert isinstance(some, ResourcePage)
    assert len(some.statements) == 6


def test_a_query_over_the_time_limit_is_cancelled(books: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MAX_SECONDS", 1)
    books.run("insert into resources select 1000 + n, 'http://many/' || n from generate_series(1, 3000) n")
    books.run(
        "insert into filter_data select 1, 1000 + n, f.target_id, n, f.position, f.property_id, null, true"
        " from generate_series(1, 3000) n, (select * from filter_data where target_id is not null limit 1) f"
    )
    every = ", ".join(f"rdfs:Resource {name}" for name in "abcd")
    with pytest.raises(TooCostly, match="timed out after"):
        ask(books, f"search {every} return a")
    monkeypatch.setattr(queries, "MAX_SECONDS", 60)
    assert told(books, "search Agent a return a") == [["jane"], ["mary"]]


def test_the_size_of_a_result_is_limited_and_truncation_is_flagged(books: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MAX_RESULT_CHARACTERS", 25)
    answer = ask(books, "search Book b return b")
    assert isinstance(answer, QueryRows) and len(answer.rows) == 2 and answer.truncated
    monkeypatch.setattr(queries, "MAX_RESULT_CHARACTERS", 1)
    assert len(told(books, "search Book b return b")) == 1


def test_a_query_runs_in_a_read_only_transaction(books: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    def mischief(connection: object, *_: object) -> object:
        connection.execute(text("delete from filter_data"))  # type: ignore[attr-defined]

    monkeypatch.setattr(queries, "_rows", mischief)
    with pytest.raises(DBAPIError) as caught:
        ask(books, "search Book b return b")
    assert isinstance(caught.value.orig, psycopg.errors.ReadOnlySqlTransaction)
