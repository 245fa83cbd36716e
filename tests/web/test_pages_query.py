"""The query page: results and their order, errors with their places, counts, downloads, saved queries, rules."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import rdflib
from sqlalchemy import text as text_of

from mdv.db.engine import make_engine
from mdv.errors import Conflict
from mdv.mdp.saved_queries import save_query as save_text
from mdv.rules.parse import parse
from tests.support import local_http
from tests.support.page_visitor import Page, Visitor
from tests.support.server import Api, Server, turtle

_numbers = itertools.count(1)
SCRIPT = "<script>alert(1)</script>"
FORMULA = "=HYPERLINK(1+1)"
NOTES = [FORMULA, "+1 day", "- five", "@SUM(1)", "-5", SCRIPT, "a=b", " \t=1"]


@pytest.fixture
def host(api: Api, doc: str) -> str:
    """Sixty providers under a unique host: ports 1 to 3, and one with notes and no port."""
    lines = [f"<#p{n:02}> a ex:CycleProvider ; ex:serverHost '{doc}' ; ex:serverPort {1 + n % 3} ." for n in range(59)]
    notes = ", ".join(f"'''{note}'''" for note in NOTES)
    lines.append(f"<#last> a ex:CycleProvider ; ex:serverHost '{doc}' ; ex:note {notes}, 'mot'@fr .")
    lines.append("<#last> ex:knows <javascript:alert(1)> .")
    assert api.put(doc, turtle(*lines)).status_code == 201
    return doc


def about(host: str, rest: str) -> str:
    return f"search CycleProvider c where c.serverHost = '{host}' {rest}"


def name_of_one() -> str:
    return f"question {next(_numbers)}"


def asked_at(link: str) -> str:
    """Return the query of a link."""
    return parse_qs(urlsplit(link).query)["q"][0]


def cells(page: Page) -> list[list[str]]:
    return [[" ".join(cell.text_content().split()) for cell in row.xpath("./td")]
            for row in page.tree.xpath("//table[not(contains(@class,'counts'))]/tbody/tr")]  # fmt: skip


def bars(page: Page) -> list[tuple[str, int, float | None]]:
    """Return the bars of the chart: value, count, length."""
    found = []
    for row in page.tree.xpath("//table[contains(@class,'counts')]/tbody/tr"):
        count = int(row.xpath("string(./td[1]/data/@value)"))
        drawn = row.xpath(".//rect/@width")
        found.append((" ".join(row.xpath("string(./th)").split()), count, float(drawn[0]) if drawn else None))
    return found


# Answers


def test_an_empty_query_is_reported(visitor: Visitor, host: str) -> None:
    assert "The query was empty" in visitor.get("/query", q=" ").words
    assert "The query was empty" not in visitor.get("/query").words


def test_without_a_query_a_working_example_is_shown(visitor: Visitor, host: str) -> None:
    page = visitor.get("/query")
    assert page.status == 200
    example = page.tree.xpath("string(//textarea[@name='q'])")
    assert example.startswith("search ex:CycleProvider c\nreturn c, c.ex:serverHost")
    answer = visitor.get("/query", q=example.replace("\n", "\r\n"))
    assert answer.status == 200
    assert cells(answer)


def test_rows_are_shown_as_a_table_fifty_per_page(visitor: Visitor, host: str) -> None:
    page = visitor.get("/query", q=about(host, "return c, c.serverPort order by c.serverPort, c"))
    assert [" ".join(head.split()) for head in page.tree.xpath("//thead/tr/th//bdi/text()")] == ["c", "c.serverPort"]
    assert len(cells(page)) == 50
    assert cells(page)[0] == [f"{host}#p00", "1"]
    assert "60 rows" in page.words
    assert re.search(r"60 rows in \d\.\d{3} s", page.words)
    (more,) = page.tree.xpath("//a[@rel='next']/@href")
    second = visitor.get(str(more))
    assert len(cells(second)) == 10
    assert cells(second)[-1] == [f"{host}#last", "none"]
    assert not second.tree.xpath("//a[@rel='next']")
    assert "Rows 51 to 60 of 60" in second.words


def test_values_are_shown_as_text_and_links_stay_local(visitor: Visitor, host: str) -> None:
    page = visitor.get("/query", q=about(host, "return c.note?, c.knows?"))
    shown = {row[0] for row in cells(page)}
    assert {SCRIPT, FORMULA, "mot fr"} <= shown
    assert "<script>alert" not in page.answer.text
    links = page.tree.xpath("//main//a/@href")
    assert links and not [link for link in links if not str(link).startswith("/")]
    assert any("javascript%3A" in str(link) or "javascript:" in str(link) for link in links)


def test_a_column_head_orders_by_it_and_reverses_the_order(visitor: Visitor, host: str) -> None:
    page = visitor.get("/query", q=about(host, "return c, c.serverPort limit 40"))
    (by_port,) = page.tree.xpath("//th[contains(., 'serverPort')]/a/@href")
    assert asked_at(by_port).endswith("return c, c.serverPort order by c.serverPort limit 40")
    up = visitor.get(str(by_port))
    assert up.tree.xpath("//th[@aria-sort='ascending']//bdi/text()") == ["c.serverPort"]
    assert {row[1] for row in cells(up)[:20]} == {"1"}
    (other,) = up.tree.xpath("//th[contains(., 'serverPort')]/a/@href")
    down = visitor.get(str(other))
    assert down.tree.xpath("//th[@aria-sort='descending']//bdi/text()") == ["c.serverPort"]
    assert {row[1] for row in cells(down)[:18]} == {"3"}
    (back,) = down.tree.xpath("//th[contains(., 'serverPort')]/a/@href")
    assert asked_at(back) == asked_at(str(by_port))


def test_truncated_results_are_reported(visitor: Visitor, host: str) -> None:
    page = visitor.get("/query", q=about(host, "return c limit 7"))
    assert len(cells(page)) == 7
    assert "There are more rows than the query’s limit." in page.words
    assert "There are more rows" not in visitor.get("/query", q=about(host, "return c limit 60")).words
    pairs = (
        f"search CycleProvider c, CycleProvider d where c.serverHost = '{host}' and d.serverHost = '{host}' return c, d"
    )
    page = visitor.get("/query", q=pairs)
    assert "1,000 rows" in page.words and "There are more rows." in page.words
    assert "of the first 1,000 rows" in page.words


def test_a_rule_returns_resources_in_pages(visitor: Visitor, host: str) -> None:
    text = f"search CycleProvider c register c where c.serverHost = '{host}'"
    page = visitor.get("/query", q=text)
    assert cells(page)[0] == [f"{host}#last", "CycleProvider"]
    assert len(cells(page)) == 50
    (more,) = page.tree.xpath("//a[@rel='next']/@href")
    second = visitor.get(str(more))
    assert [row[0] for row in cells(second)] == [f"{host}#p{n}" for n in range(49, 59)]
    assert visitor.get("/query", q=text, after="nowhere").status == 400


def test_an_empty_result_is_reported(visitor: Visitor, host: str) -> None:
    page = visitor.get("/query", q=about(host, "and c.serverPort = 77 return c"))
    assert "No results." in page.words


@pytest.mark.parametrize("after", ["x", "-1", "9" * 30, "١"])
def test_an_invalid_page_number_is_refused(visitor: Visitor, host: str, after: str) -> None:
    page = visitor.get("/query", q=about(host, "return c"), after=after)
    assert page.status == 400
    assert "rows to skip" in page.alert()


# Errors


def test_an_error_is_shown_with_its_place(visitor: Visitor) -> None:
    page = visitor.get("/query", q="search CycleProvider c\nwhere c.serverPrt = 1\nreturn c")
    assert page.status == 422
    assert "line 2, column 9: unknown property 'serverPrt' (did you mean serverPort" in page.alert()
    (told,) = page.tree.xpath("//*[@data-errors-for='query']/@data-errors")
    assert '"line": 2' in told and '"column": 9' in told
    assert page.tree.xpath("string(//textarea)") == "search CycleProvider c\nwhere c.serverPrt = 1\nreturn c"


def test_a_hostile_query_is_shown_as_text(visitor: Visitor) -> None:
    page = visitor.get("/query", q=f"search CycleProvider c where c.serverHost = '{SCRIPT}' retrun \"'</textarea>")
    assert page.status == 422
    assert "<script>alert" not in page.answer.text
    assert page.tree.xpath("string(//textarea)").endswith("\"'</textarea>")


def look(visitor: Visitor, text: str) -> Page:
    return visitor.post("/query/look", q=text)


def test_while_typing_errors_are_shown_and_valid_queries_are_counted(visitor: Visitor, host: str) -> None:
    bad = look(visitor, "search CycleProvider c\r\nwhere c.serverPort = 'x' return c")
    assert bad.status == 200
    assert bad.answer.headers["X-Part"] == "yes"
    assert "line 2, column" in bad.words
    assert '"line": 2' in bad.tree.xpath("string(//@data-errors)")
    fine = look(visitor, about(host, "return c.serverPort, c"))
    assert "The query is valid. 60 resources match c now." in fine.words
    assert fine.tree.xpath("string(//@data-errors)") == "[]"
    rule = look(visitor, f"search CycleProvider c register c where c.serverHost = '{host}' and c.serverPort = 3")
    assert "This is a rule" in rule.words and "19 resources match c" in rule.words
    assert look(visitor, " ").words == ""
    long = about(host, "and c.serverHost != '" + "ü" * 2000 + "' return c")
    assert "too long for a URL" in look(visitor, long).words


def test_typed_queries_are_checked_only_with_a_valid_csrf_token(
    visitor: Visitor, new_visitor: Callable[..., Visitor]
) -> None:
    assert visitor.post("/query/look", csrf="wrong", q="search").status == 403
    assert new_visitor().post("/query/look", q="search").status == 401
    assert new_visitor().get("/query", q="search CycleProvider c return c").path.startswith("/sign-in")
    assert new_visitor().get("/query/export", q="search CycleProvider c return c").path.startswith("/sign-in")


def test_with_public_reading_anyone_may_query(small: Server) -> None:
    page = local_http.get(small.url + "/query", params={"q": "search rdfs:Resource r return r"})
    assert page.status_code == 200 and "No results." in page.text
    assert "hx-post" not in page.text, "a form without a CSRF token would be refused"
    assert local_http.get(small.url + "/query").status_code == 200
    saved = local_http.get(small.url + "/query/saved")
    assert saved.status_code == 200 and "There are no saved queries" in saved.text


def test_a_token_limited_to_prefixes_cannot_change_saved_queries(
    visitor: Visitor, new_visitor: Callable[..., Visitor], make_token: Callable[..., tuple[str, int]], host: str
) -> None:
    name, text = name_of_one(), about(host, "return c")
    number = visitor.post("/query/save", q=text, name=name).path.rpartition("=")[2]
    limited = new_visitor(make_token("admin", ["http://own.example/"])[0])
    for path in ("/query/save", f"/query/saved/{number}/rename", f"/query/saved/{number}/delete"):
        assert limited.post(path, q=text, name=name_of_one(), replace=number).status == 403, path
    assert "/query/save" not in limited.get("/query", q=text).forms()
    assert limited.get(f"/query/saved/{number}").forms() == []
    assert not [link for link in limited.get("/query/saved").links() if link.endswith("/delete")]
    assert limited.get("/query", saved=number).status == 200


# Counts


def test_counts_are_shown_as_a_chart_and_as_numbers(visitor: Visitor, host: str) -> None:
    page = visitor.get("/query", q=about(host, "return c, c.serverPort"))
    assert bars(page) == [("1", 20, 100.0), ("2", 20, 100.0), ("3", 19, 95.0), ("none", 1, 5.0)]
    assert not page.tree.xpath("//main//*[@style]")
    chosen = visitor.get("/query", q=about(host, "return c, c.serverPort"), chart="0")
    assert len(bars(chosen)) == 21
    assert bars(chosen)[0] == (f"{host}#last", 1, 100.0)
    assert bars(chosen)[-1] == ("40 other values", 40, None)
    assert chosen.tree.xpath("//select[@name='chart']/option[@selected]/@value") == ["0"]
    assert bars(visitor.get("/query", q=about(host, "return c, c.serverPort"), chart="none")) == []


def test_values_are_counted_without_datatype_and_language(visitor: Visitor, api: Api, doc: str) -> None:
    notes = "'5', 5, '5'@de, 'x'@de, 'x', '7'"
    assert api.put(doc, turtle(f"<#p> a ex:CycleProvider ; ex:serverHost '{doc}' ; ex:note {notes} .")).is_success
    asked = f"search CycleProvider c where c.serverHost = '{doc}' return c, c.note?"
    for page in (visitor.get("/query", q=asked), visitor.get("/query", q=asked, chart="1")):
        assert page.status == 200, page.words
        assert bars(page) == [("5", 3, 100.0), ("x", 2, 66.67), ("7", 1, 33.33)]


def test_columns_without_information_have_no_chart(visitor: Visitor, host: str) -> None:
    page = visitor.get("/query", q=about(host, "return c, c.serverHost"))
    assert bars(page) == []
    assert "Choose a column to show its chart" in page.words
    assert bars(visitor.get("/query", q=about(host, "return c, c.serverHost limit 9"))) == [], "each occurs once"
    assert bars(visitor.get("/query", q=about(host, "return c, c.serverHost"), chart="7")) == []


def test_the_choice_of_the_chart_is_kept_in_links(visitor: Visitor, host: str) -> None:
    page = visitor.get("/query", q=about(host, "return c, c.serverPort"), chart="0")
    links = page.tree.xpath("//thead//a/@href | //a[@rel='next']/@href")
    assert [parse_qs(urlsplit(str(link)).query)["chart"] for link in links] == [["0"]] * 3


# Downloads


def export(visitor: Visitor, text: str, kind: str) -> httpx2.Response:
    page = visitor.get("/query", q=text)
    links = {
        parse_qs(urlsplit(str(link)).query)["as"][0]: str(link) for link in page.tree.xpath("//a[@download]/@href")
    }
    answer = visitor.http.get(links[kind])
    assert answer.status_code == 200
    return answer


def test_rows_are_downloaded_as_csv_without_formula_injection(visitor: Visitor, api: Api, host: str) -> None:
    text = about(host, "return c.note?, c")
    answer = export(visitor, text, "csv")
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert answer.headers["Content-Disposition"] == "attachment; filename=answer.csv"
    head, *rows = csv.reader(io.StringIO(answer.text, newline=""))
    assert head == ["c.note?", "c"]
    assert {row[0] for row in rows} == {
        "'" + FORMULA, "'+1 day", "'- five", "'@SUM(1)", "-5", SCRIPT, "a=b", "' \t=1", "mot", "",
    }  # fmt: skip
    exact = api.http.post("/api/v1/query", json={"query": text}, headers={"Accept": "text/csv"})
    assert {*NOTES, "mot", ""} == {row[0] for row in list(csv.reader(io.StringIO(exact.text, newline="")))[1:]}


def test_rows_are_downloaded_as_json_equal_to_the_api(visitor: Visitor, api: Api, host: str) -> None:
    text = about(host, "return c.note?, c.knows?, c limit 9")
    answer = export(visitor, text, "json")
    assert answer.headers["Content-Disposition"] == "attachment; filename=answer.json"
    assert answer.json() == api.http.post("/api/v1/query", json={"query": text}).json()


@pytest.mark.parametrize(
    ("kind", "format", "suffix"),
    [("turtle", "turtle", "ttl"), ("rdfxml", "xml", "rdf"), ("ntriples", "nt", "nt"), ("jsonld", "json-ld", "jsonld")],
)
def test_the_result_of_a_rule_is_downloaded_as_rdf(
    visitor: Visitor, host: str, kind: str, format: str, suffix: str
) -> None:
    text = f"search CycleProvider c register c where c.serverHost = '{host}' and c.serverPort > 0"
    answer = export(visitor, text, kind)
    assert answer.headers["Content-Disposition"] == f"attachment; filename=answer.{suffix}"
    graph = rdflib.Graph().parse(data=answer.content, format=format)
    assert len(set(graph.subjects())) == 59


def test_invalid_downloads_are_refused(visitor: Visitor, host: str) -> None:
    rows = about(host, "return c")
    assert visitor.get("/query/export", q=rows, **{"as": "turtle"}).status == 400
    assert visitor.get("/query/export", q=rows, **{"as": "exe"}).status == 400
    assert visitor.get("/query/export", q=rows).status == 400
    flawed = visitor.get("/query/export", q="search nothing", **{"as": "csv"})
    assert flawed.status == 422 and "Content-Disposition" not in flawed.answer.headers
    assert len(visitor.get("/query", q=rows).tree.xpath("//a[@download]")) == 2


# Saved queries


def save(visitor: Visitor, name: str, text: str, **more: Any) -> Page:
    return visitor.post("/query/save", name=name, q=text, **more)


def number_of(page: Page) -> str:
    return parse_qs(urlsplit(page.path).query)["saved"][0]


def test_a_saved_query_can_be_found_and_opened_by_all_users(visitor: Visitor, viewer: Visitor, host: str) -> None:
    name, text = f"{SCRIPT} {name_of_one()}", about(host, "return c, c.serverPort\nlimit 3")
    page = save(visitor, f" {name} ", text.replace("\n", "\r\n"))
    assert page.status == 200 and len(cells(page)) == 3
    assert page.tree.xpath("string(//textarea)") == text
    assert f"{name} saved by admin" in page.words
    assert "<script>alert" not in page.answer.text
    seen = viewer.get("/query/saved")
    while not (row := [row for row in seen.rows() if row[0] == name]):
        (more,) = seen.tree.xpath("//a[@rel='next']/@href")
        seen = viewer.get(str(more))
    assert row[0][1] == " ".join(text.split())
    assert len(row[0]) == 3, "a viewer cannot change it"
    opened = viewer.get("/query", saved=number_of(page))
    assert len(cells(opened)) == 3 and not opened.tree.xpath("//form[contains(@action, 'save')]")


def test_replacing_a_saved_query_needs_confirmation(visitor: Visitor, host: str) -> None:
    name, first, second = name_of_one(), about(host, "return c"), about(host, "return c.serverPort")
    number = number_of(save(visitor, name, first))
    assert number_of(save(visitor, name, first)) == number, "the same again changes nothing"
    asked = save(visitor, name, second)
    assert (asked.status, asked.title) == (409, "Replace a saved query?")
    assert first in asked.words and second in asked.words
    assert visitor.get(f"/query/saved/{number}").tree.xpath("string(//pre)") == first
    replaced = save(visitor, name, second, replace=number)
    assert number_of(replaced) == number
    assert visitor.get(f"/query/saved/{number}").tree.xpath("string(//pre)") == second


def test_a_saved_query_is_renamed_unless_the_name_is_taken(visitor: Visitor, host: str) -> None:
    one, other, new = name_of_one(), name_of_one(), name_of_one()
    number = number_of(save(visitor, one, about(host, "return c")))
    save(visitor, other, about(host, "return c"))
    taken = visitor.post(f"/query/saved/{number}/rename", name=other)
    assert taken.status == 409 and "already" in taken.alert()
    assert visitor.post(f"/query/saved/{number}/rename", name="a\nb").status == 400
    done = visitor.post(f"/query/saved/{number}/rename", name=new)
    assert done.status == 200 and done.title.startswith(new)
    assert visitor.post("/query/saved/999999999/rename", name=name_of_one()).status == 404


def test_deleting_a_saved_query_needs_confirmation(visitor: Visitor, host: str) -> None:
    number = number_of(save(visitor, name_of_one(), about(host, "return c")))
    asked = visitor.get(f"/query/saved/{number}/delete")
    assert asked.title == "Delete this saved query?"
    assert visitor.get("/query", saved=number).status == 200
    assert visitor.post(f"/query/saved/{number}/delete").path == "/query/saved"
    assert visitor.get("/query", saved=number).status == 404
    assert visitor.get(f"/query/saved/{number}").status == 404
    assert visitor.get("/query", saved="x").status == 404
    assert visitor.get("/query", saved="9" * 40).status == 404


@pytest.mark.parametrize("name", ["", "  ", "n" * 101, "a\tb", "a\u202eb"])
def test_an_unreadable_name_is_refused(visitor: Visitor, host: str, name: str) -> None:
    page = save(visitor, name, about(host, "return c"))
    assert page.status == 400 and "1 to 100 printable characters" in page.alert()
    assert page.tree.xpath("string(//textarea)") == about(host, "return c"), "the text is not lost"


def test_an_invalid_query_is_not_saved(visitor: Visitor) -> None:
    page = save(visitor, name_of_one(), "search CycleProvider")
    assert page.status == 422 and "expected a variable" in page.alert()
    assert save(visitor, name_of_one(), "search C c return c " + " " * 9000).status == 422
    too_long = save(visitor, name_of_one(), "search C c where c.p = '" + "ü" * 2000 + "' return c")
    assert too_long.status == 400 and "too long for a URL" in too_long.alert()


def test_at_most_a_thousand_queries_are_saved(system_database: str) -> None:
    engine = make_engine(system_database)
    with engine.connect() as connection:
        many = "select 'many ' || n, 'search C c return c', 'me' from generate_series(1, 1000) n"
        connection.execute(text_of(f"insert into saved_queries (name, text, saved_by) {many}"))
        with pytest.raises(Conflict, match="Delete some first"):
            save_text(connection, name_of_one(), "search C c return c", "me")
        assert save_text(connection, "many 7", "search C c return c limit 1", "you")
        connection.rollback()
    engine.dispose()


def test_a_viewer_cannot_change_saved_queries(visitor: Visitor, viewer: Visitor, host: str) -> None:
    number = number_of(save(visitor, name_of_one(), about(host, "return c")))
    assert save(viewer, name_of_one(), about(host, "return c")).status == 403
    assert viewer.post(f"/query/saved/{number}/rename", name=name_of_one()).status == 403
    assert viewer.get(f"/query/saved/{number}/delete").status == 403
    assert viewer.post(f"/query/saved/{number}/delete").status == 403
    assert "/query/save" not in viewer.get("/query", q=about(host, "return c")).forms()
    assert visitor.get("/query", saved=number).status == 200


def test_changes_of_saved_queries_need_a_csrf_token(visitor: Visitor, host: str) -> None:
    number = number_of(save(visitor, name_of_one(), about(host, "return c")))
    assert save(visitor, name_of_one(), about(host, "return c"), csrf="wrong").status == 403
    assert visitor.post(f"/query/saved/{number}/rename", csrf="wrong", name="x").status == 403
    assert visitor.post(f"/query/saved/{number}/delete", csrf="wrong").status == 403
    assert visitor.get("/query", saved=number).status == 200


# Rules


def test_a_query_is_converted_to_a_rule_in_one_step(visitor: Visitor, host: str) -> None:
    page = visitor.get("/query", q=about(host, "return c.serverPort, c order by c limit 3"))
    (made,) = [link for link in page.links() if link.startswith("/rules?")]
    rule = parse_qs(urlsplit(made).query)["rule"][0]
    assert rule == f"search CycleProvider c register c where c.serverHost = '{host}'"
    assert parse(rule).register.text == "c"


def test_each_of_several_variables_can_be_registered(visitor: Visitor, host: str) -> None:
    text = "search CycleProvider c, ServerInformation s where c.serverInformation = s return s, c"
    page = visitor.get("/query", q=text)
    made = [parse_qs(urlsplit(link).query)["rule"][0] for link in page.links() if link.startswith("/rules?")]
    assert [parse(rule).register.text for rule in made] == ["s", "c"]
    rule = visitor.get("/query", q=made[0])
    assert made[0] in [parse_qs(urlsplit(link).query)["rule"][0] for link in rule.links() if link.startswith("/rules?")]
