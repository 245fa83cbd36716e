"""Queries at an LMR, in SQLite and in Postgres: examples. `tests/model` compares random queries with the oracle."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from mdv.db import cache_read
from mdv.db.cache import writing_engine
from mdv.db.cache_tables import GLOBAL_DOCUMENT, resources
from mdv.embedded import Postgres
from mdv.errors import BadRequest, InvalidRule, TooCostly
from mdv.inspect.sql import cache as browse_cache
from mdv.lmr import query
from mdv.lmr.query import QueryRows, ResourcePage
from mdv.mdp.schemas import build_schema, read_schema_document
from mdv.model import RDF_TYPE, RDFS_RESOURCE, XSD, Statement, Term
from mdv.rdf.gate import gate
from mdv.rdf.parse import parse as parse_rdf
from mdv.rdf.schema import Schema
from mdv.rdf.stream import XML_FORBIDDEN_PATTERN
from mdv.rdf.syntax import syntax_of_media_type
from mdv.rules.parse import parse
from tests.support.loaded_cache import Cache, cache_engine

R = "http://r/"
PREFIXES = (
    "@prefix : <http://v/> . @prefix mdv: <urn:mdv:schema#> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> ."
    " @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> ."
    " @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
)
SCHEMA = """
:Book a rdfs:Class . :Novel rdfs:subClassOf :Book . :Agent a rdfs:Class . :Unused a rdfs:Class .
:pages rdfs:range xsd:integer . :born rdfs:range xsd:date . :name rdfs:range xsd:string . :free rdfs:range xsd:boolean .
:rating rdfs:range xsd:double ; mdv:setValued true .
:tag rdfs:range rdfs:Literal ; mdv:setValued true . :author rdfs:range :Agent . :sequel rdfs:range :Book .
:source a rdf:Property . :about mdv:setValued true . :unused rdfs:range xsd:string .
"""
BOOKS = """
<http://r/b1> a :Book ; :pages 92 ; :name 'one_100%' ; :author <http://r/jane> ; :tag 'x', 'y'@en .
<http://r/b1> :sequel <http://r/b2> .
<http://r/b2> a :Novel ; :pages -5 ; :name 'two' ; :author <http://r/jane> ; :free true .
<http://r/b3> a :Book ; :pages '+0092' ; :name 'ten' ; :author <http://r/nobody> ; :free false ; :rating 'NaN', '1.5' .
<http://r/b4> a :Book ; :name 'oneX100' ; :source <http://r/jane> .
<http://r/jane> a :Agent ; :name 'Jane' ; :born '1775-12-16' .
<http://r/mary> a :Agent ; :name 'Mary' ; :born '1797-08-30' .
"""


def said(turtle: str) -> list[Statement]:
    syntax, charset = syntax_of_media_type("text/turtle")
    return list(parse_rdf(gate((PREFIXES + turtle).encode(), syntax, charset), "http://d").statements)


def book_schema() -> Schema:
    document = read_schema_document((PREFIXES + SCHEMA).encode(), "text/turtle")
    return build_schema(1, document.statements, dict(document.prefixes)).schema


@pytest.fixture(params=["sqlite", "postgres"])
def cache(request: pytest.FixtureRequest, postgres: Postgres, tmp_path: Path) -> Iterator[Cache]:
    with cache_engine(request.param, postgres.url, tmp_path) as engine:
        made = Cache(engine, book_schema())
        made.load({GLOBAL_DOCUMENT: said(BOOKS)})
        yield made


def told(cache: Cache, query: str) -> list[list[str | None]]:
    """Return the values only, resources by the last part of their URI."""
    found = cache.ask(query)
    assert isinstance(found, QueryRows)
    return [[term and term.value.removeprefix(R) for term in row] for row in found.rows]


def books(cache: Cache, where: str) -> list[str | None]:
    return [row[0] for row in told(cache, f"search Book b where {where} return b")]


# -- values


def test_numbers_are_compared_exactly_in_any_notation(cache: Cache) -> None:
    assert books(cache, "b.pages = 92.0") == ["b1", "b3"]
    assert books(cache, "b.pages != 92") == ["b2"]
    assert books(cache, "b.pages < 92") == books(cache, "b.pages <= -5.0") == books(cache, "b.pages < -4.9") == ["b2"]
    assert books(cache, "b.pages > -5") == ["b1", "b3"]
    assert books(cache, "b.rating? < 10 or b.rating? > 10") == ["b3"]


def test_dates_are_compared_as_instants(cache: Cache) -> None:
    assert told(cache, "search Agent a where a.born < '1775-12-16-01:00' return a") == [["jane"]]
    assert told(cache, "search Agent a where a.born > '-0044-03-15' return a") == [["jane"], ["mary"]]
    assert told(cache, "search Agent a where a.born = '1797-08-30Z' return a") == [["mary"]]


def test_booleans_are_compared_as_booleans(cache: Cache) -> None:
    assert books(cache, "b.free = true") == ["b2"]
    assert books(cache, "b.free != true") == ["b3"]


def test_contains_matches_plain_text_and_no_pattern(cache: Cache) -> None:
    assert books(cache, "b.name contains 'one_100'") == books(cache, "b.name contains '0%'") == ["b1"]
    assert books(cache, "not b.name contains 'one'") == ["b2", "b3"]
    assert books(cache, "b.author contains 'r/no'") == ["b3"]
    assert books(cache, "b contains 'r/b4'") == ["b4"]


def test_startswith_and_endswith_match_plain_text_and_no_pattern(cache: Cache) -> None:
    assert books(cache, "b.name startswith 'one_'") == books(cache, "b.name endswith '%'") == ["b1"]
    assert books(cache, "b.name STARTSWITH 'one'") == ["b1", "b4"]
    assert books(cache, "b.name endswith '100'") == ["b4"]
    assert books(cache, "not b.name startswith 'one'") == ["b2", "b3"]
    assert books(cache, "not b.name endswith 'o' and b.pages > 0") == ["b1", "b3"]
    assert books(cache, "b.author startswith 'http://r/no'") == books(cache, "b.author endswith 'ody'") == ["b3"]
    assert books(cache, "b.source startswith 'http://r/j'") == books(cache, "b endswith 'r/b4'") == ["b4"]
    assert books(cache, "b.name startswith 'one_100%%'") == books(cache, "b.name endswith 'xtwo'") == []


@pytest.mark.parametrize("text", ["é" * 63, "é" * 64, "é" * 65, "e\u0301" * 40, "\U0010ffff" * 70, "𝄞" * 3000])
def test_a_prefix_or_suffix_is_found_whether_or_not_it_is_longer_than_an_index_key(cache: Cache, text: str) -> None:
    values = [text, text + "z", "z" + text, text[:-1]]
    cache.load(
        {GLOBAL_DOCUMENT: said(" ".join(f"<http://r/b{n}> a :Book ; :name '{v}' ." for n, v in enumerate(values)))}
    )
    constant = text[:2000]
    assert books(cache, f"b.name startswith '{constant}'") == [
        f"b{n}" for n, value in enumerate(values) if value.startswith(constant)
    ]
    assert books(cache, f"b.name endswith '{constant}'") == [
        f"b{n}" for n, value in enumerate(values) if value.endswith(constant)
    ]
    assert books(cache, f"not b.name startswith '{constant}'") == [
        f"b{n}" for n, value in enumerate(values) if not value.startswith(constant)
    ]


def test_sqlite_finds_a_prefix_by_the_index_on_values(tmp_path: Path) -> None:
    with cache_engine("sqlite", "", tmp_path) as engine:
        cache = Cache(engine, book_schema())
        cache.load({GLOBAL_DOCUMENT: said(BOOKS)})
        sent: list[tuple[str, Any]] = []
        sqlalchemy.event.listen(engine, "before_cursor_execute", lambda *call: sent.append((call[2], call[3])))
        assert books(cache, "b.name startswith 'one'") == ["b1", "b4"]
        (sql, values) = next(one for one in sent if "statements" in one[0])
        with engine.connect() as connection:
            plan = [row[-1] for row in connection.exec_driver_sql(f"explain query plan {sql}", values)]
    bounds = "(property_id=? AND <expr>>? AND <expr><?)"
    assert [step for step in plan if step.endswith(f"USING INDEX statements_value {bounds}")]


def test_long_text_is_compared_beyond_its_indexed_prefix(cache: Cache) -> None:
    long = "é" * 64
    cache.load(
        {GLOBAL_DOCUMENT: said(f"<http://r/b1> a :Book ; :name '{long}a' . <http://r/b2> a :Book ; :name '{long}b' .")}
    )
    assert books(cache, f"b.name = '{long}b'") == ["b2"]
    assert told(cache, "search Book a, Book b where a.name = b.name return a, b") == [["b1", "b1"], ["b2", "b2"]]


def test_a_value_that_may_be_a_reference_or_a_text_is_found_as_either(cache: Cache) -> None:
    cache.load(
        {GLOBAL_DOCUMENT: said("<http://r/b1> a :Book ; :source <http://r/x> . <http://r/b2> a :Book ; :source 'x' .")}
    )
    assert books(cache, "b.source = <http://r/x>") == ["b1"]
    assert books(cache, "b.source = 'x'") == ["b2"]


def test_values_have_language_and_datatype(cache: Cache) -> None:
    assert cache.ask("search Book b where b.name contains '_' return b.tag?, b.  pages") == QueryRows(
        ("b.tag?", "b.pages"),
        [
            (Term.literal("x"), Term.literal("92", datatype=XSD + "integer")),
            (Term.literal("y", lang="en"), Term.literal("92", datatype=XSD + "integer")),
        ],
        False,
    )


# -- joins, order, limit


def test_paths_and_variables_are_joined(cache: Cache) -> None:
    assert books(cache, "b.author.name = 'Jane' and b.pages > 0") == ["b1"]
    assert books(cache, "b.sequel.author.born < '1800-01-01' and b.author.name = 'Jane'") == ["b1"]
    assert told(cache, "search Book b, Agent a where b.author = a return a, b, a.born") == [
        ["jane", "b1", "1775-12-16"],
        ["jane", "b2", "1775-12-16"],
    ]
    assert told(cache, "search Book a, Novel b where a.pages > b.pages return a, b") == [["b1", "b2"], ["b3", "b2"]]
    assert len(told(cache, "search Book a, Agent b return a, b")) == 8


def test_each_any_is_chosen_independently(cache: Cache) -> None:
    assert books(cache, "b.tag? = 'x' and b.tag? = 'y'") == ["b1"]
    assert len(told(cache, "search Book b where b.pages = 92 return b, b.tag?, b.tag?")) == 5


def test_missing_values_come_last_in_either_order(cache: Cache) -> None:
    assert told(cache, "search Book b return b order by b.pages") == [["b2"], ["b1"], ["b3"], ["b4"]]
    assert told(cache, "search Book b return b order by b.pages desc") == [["b1"], ["b3"], ["b2"], ["b4"]]
    assert told(cache, "search Book b return b order by b.free, b desc") == [["b3"], ["b2"], ["b4"], ["b1"]]
    assert told(cache, "search Book b return b.author.name, b order by b.author.name desc") == [
        ["Jane", "b1"],
        ["Jane", "b2"],
        [None, "b3"],
        [None, "b4"],
    ]


def test_text_is_ordered_by_code_point(cache: Cache) -> None:
    cache.load({GLOBAL_DOCUMENT: said("".join(f"<http://r/{n}> a :Book ; :name '{name}' . " for n, name in
                                     enumerate(["é", "z", "a", "Z", "\U0001f600", "\uffee"])))})  # fmt: skip
    names = [row[0] for row in told(cache, "search Book b return b.name order by b.name")]
    assert names == ["Z", "a", "z", "é", "\uffee", "\U0001f600"]


def test_limits_truncate_and_set_the_flag(cache: Cache) -> None:
    two = cache.ask("search Book b return b order by b.pages limit 2")
    assert isinstance(two, QueryRows) and [row[0] for row in two.rows] == [Term.uri(R + "b2"), Term.uri(R + "b1")]
    assert two.truncated
    assert not cache.ask("search Book b return b limit 4").truncated  # type: ignore[union-attr]
    assert len(cache.ask("search Book b return b limit 3", limit=1).rows) == 1  # type: ignore[union-attr]


def test_a_query_may_return_the_maximum_number_of_paths(cache: Cache) -> None:
    paths = ["b", *["b.tag?"] * 2, *["b.name"] * 29]
    found = cache.ask(f"search Book b where b.pages = 92 return {', '.join(paths)}")
    assert isinstance(found, QueryRows) and len(found.columns) == 32 and len(found.rows) == 5


def test_conditions_may_follow_long_paths(cache: Cache) -> None:
    far = ".".join(["sequel"] * 7)
    chain = said("".join(f"<http://r/{n}> a :Book ; :sequel <http://r/{n + 1}> ; :name 'n{n}' . " for n in range(20)))
    cache.load({GLOBAL_DOCUMENT: chain})
    assert books(cache, f"b.{far}.name = 'n9'") == ["2"]
    four = f"search Book a, Book b, Book c, Book d where a.{far} = b and b.{far} = c and c.sequel = d"
    assert told(cache, f"{four} and d.sequel.sequel.name contains '7' return a") == [["0"]]
    assert told(cache, f"{four} return a, d") == [[str(n), str(n + 15)] for n in (0, 1, 2, 3, 4)]


def test_a_rule_of_maximum_depth_is_evaluated(cache: Cache) -> None:
    cache.load(
        {GLOBAL_DOCUMENT: said("<http://r/b1> a :Book ; :sequel <http://r/b1> ; :tag 'x' . <http://r/b2> a :Book .")}
    )
    far, names = ".".join(["sequel"] * 8), "abcdefghij"
    chain = " and ".join(f"{one}.{far} = {other}" for one, other in pairwise(names))
    star = " and ".join(f"a.{far} = {other} and {other}.tag? = 'x'" for other in names[1:])
    for where in (chain, f"{chain} and j.tag? = 'x'", star):
        rule = f"search {', '.join(f'Book {name}' for name in names)} register a where {where}"
        assert cache.ask(rule) == ResourcePage([(R + "b1", ["http://v/Book"])], None, []), where


def test_a_query_with_more_steps_than_sqlite_can_join_is_refused_with_a_message(cache: Cache) -> None:
    cache.load({GLOBAL_DOCUMENT: said("<http://r/b1> a :Book ; :about <http://r/b1> ; :tag 'x' .")})
    query = "search Book b return " + ", ".join(["b.about?.about?.tag?"] * 20)
    if cache.engine.dialect.name == "sqlite":
        with pytest.raises(TooCostly, match="Return fewer or shorter paths"):
            cache.ask(query)
    else:
        assert told(cache, query) == [["x"] * 20]


# -- local metadata


def test_local_statements_are_joined_with_global_ones(cache: Cache) -> None:
    local = said("<http://r/b3> :tag 'mine' ; :author <http://r/mary> . <http://r/own> a :Book ; :name 'own' .")
    cache.load({GLOBAL_DOCUMENT: said(BOOKS), 7: local})
    assert books(cache, "b.tag? = 'mine' and b.pages = 92 and b.author.name = 'Mary'") == ["b3"]
    assert books(cache, "b.name = 'own'") == ["own"]


def test_a_statement_made_both_locally_and_globally_is_returned_once(cache: Cache) -> None:
    cache.load({GLOBAL_DOCUMENT: said(BOOKS), 7: said(BOOKS), 8: said(BOOKS)})
    assert told(cache, "search Book b where b.pages < 0 return b, b.name, b.author.name") == [["b2", "two", "Jane"]]
    found = cache.ask("search Agent a register a where a.name = 'Mary'", with_statements=True)
    assert isinstance(found, ResourcePage)
    assert sorted(found.statements) == sorted(s for s in said(BOOKS) if s.subject == R + "mary")
    assert found.items == [(R + "mary", ["http://v/Agent"])]


# -- rules as queries


def test_a_rule_returns_its_resources_in_pages(cache: Cache) -> None:
    first = cache.ask("search Book b register b", limit=2)
    assert first == ResourcePage([(R + "b1", ["http://v/Book"]), (R + "b2", ["http://v/Novel"])], R + "b2", [])
    rest = cache.ask("search Book b register b", limit=2, after=R + "b2")
    assert rest == ResourcePage([(R + "b3", ["http://v/Book"]), (R + "b4", ["http://v/Book"])], None, [])


def test_only_resources_with_statements_are_found(cache: Cache) -> None:
    cache.load({GLOBAL_DOCUMENT: said("<http://r/b1> :author <http://r/nobody> .")})
    assert cache.ask("search rdfs:Resource r register r") == ResourcePage([(R + "b1", [RDFS_RESOURCE])], None, [])


def test_a_query_may_search_a_named_rule(cache: Cache) -> None:
    rules = {"Thick": parse("search Book b register b where b.pages > 50")}
    found = cache.ask("search Thick t where t.author.name = 'Jane' return t", named=rules.get)
    assert isinstance(found, QueryRows) and found.rows == [(Term.uri(R + "b1"),)]
    with pytest.raises(InvalidRule, match="unknown class 'Thick'"):
        cache.ask("search Thick t return t")


def test_unused_classes_and_properties_match_nothing(cache: Cache) -> None:
    assert told(cache, "search Unused u return u") == []
    assert books(cache, "b.unused = 'x'") == []
    assert told(cache, "search Book b where b.pages < 0 return b, b.unused") == [["b2", None]]


# -- bounds


def test_rows_have_no_pages_and_page_sizes_are_limited(cache: Cache) -> None:
    with pytest.raises(BadRequest, match="order by"):
        cache.ask("search Book b return b", after=R)
    with pytest.raises(BadRequest, match="at most 1,000"):
        cache.ask("search Book b register b", limit=1001)


def test_a_query_over_the_time_limit_is_cancelled(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "QUERY_TIMEOUT_SECONDS", 0.3)
    cache.load({GLOBAL_DOCUMENT: said("".join(f"<http://r/{n}> a :Agent . " for n in range(2000)))})
    every = ", ".join(f"rdfs:Resource {name}" for name in "abcd")
    with cache.engine.connect() as connection:
        with pytest.raises(TooCostly, match="timed out after"):
            query.run_query(connection, cache.schema, f"search {every} return a")
        connection.rollback()
        monkeypatch.setattr(query, "QUERY_TIMEOUT_SECONDS", 60)
        found = query.run_query(connection, cache.schema, "search Agent a return a limit 1")
        assert isinstance(found, QueryRows) and len(found.rows) == 1


def test_the_size_of_a_result_is_limited(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "MAX_RESULT_CHARACTERS", 25)
    found = cache.ask("search Book b return b")
    assert isinstance(found, QueryRows) and len(found.rows) == 2 and found.truncated


def test_a_query_sees_one_snapshot_during_concurrent_writes(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    found_names = cache_read.find_vocabulary_ids

    def meanwhile(*arguments: object) -> dict[str, int]:
        numbers = found_names(*arguments)  # type: ignore[arg-type]
        writing = threading.Thread(target=cache.load, args=({GLOBAL_DOCUMENT: []},))
        writing.start()
        writing.join()
        return numbers

    monkeypatch.setattr(cache_read, "find_vocabulary_ids", meanwhile)
    assert books(cache, "b.pages = 92") == ["b1", "b3"]
    monkeypatch.undo()
    assert books(cache, "b.pages = 92") == []


# -- reading resources


def test_resources_are_listed_in_pages_by_class_or_all(cache: Cache) -> None:
    def listed(classes: list[str] | None, size: int) -> list[str]:
        found: list[tuple[int, str, list[str]]] = []
        while page := browse_cache.list_resources(connection, classes, found[-1][0] if found else 0, size):
            found += page
        assert all(kinds == cache_read.read_classes(connection, [number])[number] for number, _, kinds in found)
        return sorted(uri.removeprefix(R) for _, uri, _ in found)

    with cache.engine.connect() as connection:
        assert listed(None, 4) == listed([RDFS_RESOURCE], 100) == ["b1", "b2", "b3", "b4", "jane", "mary"]
        assert listed(["http://v/Book", "http://v/Novel"], 1) == ["b1", "b2", "b3", "b4"]
        assert listed(["http://v/Novel"], 5) == ["b2"]
        assert listed(["http://v/Unused"], 5) == []


def test_a_resource_is_read_with_its_global_and_local_statements(cache: Cache) -> None:
    cache.load({GLOBAL_DOCUMENT: said(BOOKS), 3: said("<http://r/mary> a :Agent ; :tag 'local' .")})
    with cache.engine.connect() as connection:
        found = browse_cache.CachedStatements(R + "mary").few(connection, 100) or []
        assert sorted(s.object.value for s in found) == ["1797-08-30", "Mary", "http://v/Agent", "local"]
        assert browse_cache.CachedStatements(R + "nobody").few(connection, 100) == []
        assert browse_cache.CachedStatements("http://unknown").few(connection, 100) == []


def test_a_resource_is_read_in_chunks_in_rdf_order(cache: Cache) -> None:
    cache.load(
        {GLOBAL_DOCUMENT: said(BOOKS), 3: said("<http://r/mary> a :Agent ; :tag 'a', 'b'@en, 'b', 'c\\u0007' .")}
    )
    stored = browse_cache.CachedStatements(R + "mary")
    with cache.engine.connect() as connection:
        assert stored.few(connection, 4) is None
        every = stored.few(connection, 100)
        chunks = list(stored.chunks(connection, 2))
        found = [statement for chunk in chunks for statement in chunk]
        assert [len(chunk) for chunk in chunks[:-1]] == [2] * (len(chunks) - 1)
        assert set(found) == set(every or ())
        assert len(found) == len(set(found))
        assert found[0].property == RDF_TYPE
        assert [s.property for s in found[1:]] == sorted(s.property for s in found[1:])
        assert stored.properties(connection) == sorted({s.property for s in found})
        assert stored.find_value(connection, XML_FORBIDDEN_PATTERN) == R + "mary"
        assert browse_cache.CachedStatements(R + "jane").find_value(connection, XML_FORBIDDEN_PATTERN) is None


def test_cached_resources_are_counted_by_reason(cache: Cache) -> None:
    cache.load({GLOBAL_DOCUMENT: said(BOOKS), 3: said("<http://r/mary> :tag 'a', 'b' . <http://r/own> a :Book .")})
    with writing_engine(cache.engine).begin() as connection:
        is_here = resources.c.uri.like(R + "b_") | resources.c.uri.like(R + "jane")
        connection.execute(resources.update().where(is_here).values(present=True))
        connection.execute(resources.update().where(resources.c.uri.like(R + "b_")).values(selected=True))
    with cache.engine.connect() as connection:
        assert browse_cache.count_cache(connection) == browse_cache.CacheCounts(5, 4, 1, 2)
