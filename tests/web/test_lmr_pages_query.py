"""The query page at an LMR: the same page as the MDP's, answered from the cache."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask

from mdv.config import Config
from mdv.errors import Unavailable
from mdv.lmr.cache import Cache
from mdv.lmr.mdp_client import MdpClient
from mdv.lmr.sync import Sync
from mdv.rules.parse import parse
from tests.support import local_http
from tests.support.lmr_server import Lmr, create, hosts, rule, start_lmr_server
from tests.support.local_http import local_client
from tests.support.page_visitor import Page, Visitor
from tests.support.server import Api, Server, turtle
from web.lmr.services import MAX_QUERIES, LmrServices, query_slot

pytestmark = pytest.mark.full

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def lmr(api: Api, server: Server, folder: Path) -> Iterator[Lmr]:
    """An LMR that has three of the MDP's providers, and a local one."""
    number, token = create(api, "asked-lmr")
    store = f"sqlite:///{folder / 'asked-lmr'}.db"
    found = Lmr(number, "asked-lmr", token, store, start_lmr_server(folder, server.url, token, store))
    assert api.put("http://asked.example/here", hosts("asked-here.example", 3)).status_code == 201
    assert api.put("http://asked.example/away", hosts("asked-away.example", 2)).status_code == 201
    found.subscribe(rule("asked-here.example"))
    local = turtle("<#l> a ex:CycleProvider ; ex:serverHost '=asked-here.example' ; ex:serverPort 7 .")
    assert found.put_local("http://asked.example/local", local).status_code == 201
    yield found
    found.kill()


@pytest.fixture
def visitor(lmr: Lmr) -> Iterator[Visitor]:
    """A visitor signed in with the LMR's token."""
    with local_client(base_url=lmr.url, timeout=60, follow_redirects=True) as http:
        yield Visitor(http).sign_in(lmr.token)


ASKED = "search CycleProvider c where c.serverHost contains '{}' return c.serverHost, c.serverPort, c"
HERE = ASKED.format("asked-here.example")


def hosts_in(page: Page) -> list[str]:
    return [row[0] for row in page.rows() if len(row) == 3]


def test_results_come_from_the_cache_including_local_documents(visitor: Visitor) -> None:
    page = visitor.get("/query", q=HERE + " order by c.serverPort desc")
    assert page.status == 200
    assert hosts_in(page) == ["=asked-here.example", *(f"{n}.asked-here.example" for n in (2, 1, 0))]
    assert "4 rows" in page.words
    nothing = visitor.get("/query", q=ASKED.format("asked-away.example"))
    assert "No results in this cache." in nothing.words


def test_the_example_query_works_at_the_lmr(visitor: Visitor) -> None:
    example = visitor.get("/query").tree.xpath("string(//textarea[@name='q'])")
    assert example.startswith("search ex:CycleProvider c")
    assert visitor.get("/query", q=example).status == 200


def test_a_rule_returns_resources(visitor: Visitor) -> None:
    page = visitor.get("/query", q=rule("asked-here.example"))
    assert [row[0] for row in page.rows()] == [
        *(f"http://asked.example/here#h{n}" for n in range(3)), "http://asked.example/local#l",
    ]  # fmt: skip
    assert [link for link in page.links() if link.startswith("/resource?uri=")]


def test_errors_are_shown_with_their_place(visitor: Visitor) -> None:
    page = visitor.get("/query", q="search CycleProvider c\nreturn c.serverHst")
    assert page.status == 422
    assert "line 2, column 10: unknown property 'serverHst'" in page.alert()
    typed = visitor.post("/query/look", q="search CycleProvider c\nreturn c.serverHst")
    assert typed.status == 200 and '"column": 10' in typed.tree.xpath("string(//@data-errors)")
    assert "The query is valid." in visitor.post("/query/look", q=HERE).words
    assert "This is a rule" in visitor.post("/query/look", q=rule("x")).words
    assert visitor.post("/query/look", csrf="wrong", q=HERE).status == 403


def test_results_are_downloaded(visitor: Visitor) -> None:
    table = visitor.get("/query/export", q=HERE + " order by c.serverPort desc limit 1", **{"as": "csv"}).answer
    assert table.headers["Content-Disposition"] == "attachment; filename=answer.csv"
    assert table.text.splitlines()[1].startswith("'=asked-here.example,7,")
    said = visitor.get("/query/export", q=rule("asked-here.example"), **{"as": "ntriples"}).answer
    assert said.headers["Content-Disposition"] == "attachment; filename=answer.nt"
    assert "<http://asked.example/local#l>" in said.text and "<http://asked.example/here#h2>" in said.text


def test_a_query_can_be_subscribed_and_not_saved(visitor: Visitor) -> None:
    page = visitor.get("/query", q=HERE)
    (made,) = [link for link in page.links() if link.startswith("/subscriptions?")]
    text = parse_qs(urlsplit(made).query)["rule"][0]
    assert text == "search CycleProvider c register c where c.serverHost contains 'asked-here.example'"
    assert parse(text)
    assert "Subscribe" in page.words
    assert "Save" not in page.words
    assert visitor.get("/query/saved").status == 404


def test_an_anonymous_visitor_is_asked_to_sign_in(lmr: Lmr) -> None:
    for path in ("/query", "/query/export"):
        answer = local_http.get(lmr.url + path, params={"q": HERE, "as": "csv"})
        assert answer.status_code == 303 and answer.headers["Location"].startswith("/sign-in")


def test_concurrent_queries_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    cache, mdp = Cache.open(f"sqlite:///{tmp_path}/cache.db"), MdpClient("http://127.0.0.1:9", "token")
    app = Flask("lmr", root_path=str(tmp_path))
    app.extensions["mdv"] = LmrServices(Config.from_environment({}), cache, mdp, Sync(cache, mdp))
    with app.app_context():
        with ExitStack() as stack:
            for _ in range(MAX_QUERIES):
                stack.enter_context(query_slot())
            with pytest.raises(Unavailable), query_slot():
                pass
        with query_slot():  # a query that has ended frees its slot
            pass
