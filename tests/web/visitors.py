"""Visitors of the pages: people with a browser, as far as HTTP tells."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import lxml.html
import pytest
from running import ADMIN, Server

from mdv.db.engine import make_engine
from mdv.db.people import create_user

_numbers = itertools.count(1)


@dataclass
class Page:
    """An answer, looked into."""

    answer: httpx.Response

    @property
    def status(self) -> int:
        return self.answer.status_code

    @property
    def path(self) -> str:
        """Where a visitor was led to, with what was asked there but for the words that greet them."""
        return re.sub(r"[?&]said=\w+", "", self.answer.url.raw_path.decode())

    @property
    def tree(self) -> lxml.html.HtmlElement:
        return lxml.html.fromstring(self.answer.text)

    @property
    def words(self) -> str:
        """What is to be read between the page's head and foot, spaces aside."""
        found = self.tree.xpath("//main") or [self.tree]
        return " ".join(found[0].text_content().split())

    @property
    def title(self) -> str:
        return " ".join(self.tree.xpath("string(//h1)").split())

    def links(self) -> list[str]:
        return [str(link) for link in self.tree.xpath("//main//a/@href")]

    def forms(self) -> list[str]:
        """Where the forms of the page are sent to."""
        return [str(action) for action in self.tree.xpath("//main//form/@action")]

    def rows(self) -> list[list[str]]:
        """The cells of all tables."""
        cells = [[" ".join(cell.text_content().split()) for cell in row.xpath("./td")]
                 for row in self.tree.xpath("//main//tbody/tr")]  # fmt: skip
        return [row for row in cells if row]

    def alert(self) -> str:
        """What went wrong, as a screen reader is told at once."""
        return " ".join(self.tree.xpath("string(//main//*[@role='alert'])").split())


@dataclass
class Visitor:
    """Somebody with cookies, who goes where they are led and sends forms with what the page shows."""

    http: httpx.Client

    def get(self, path: str, headers: dict[str, str] | None = None, **query: Any) -> Page:
        if query:
            return Page(self.http.get(path, params=query, headers=headers))
        return Page(self.http.get(path, headers=headers))

    def post(self, path: str, files: Any = None, csrf: str | None = None, **form: Any) -> Page:
        """Send a form; `csrf`: what it shows instead of what the page says."""
        shown = self.csrf() if csrf is None else csrf
        return Page(self.http.post(path, data={"csrf": shown, **form}, files=files))

    def csrf(self) -> str:
        """What the forms of this session show."""
        found = lxml.html.fromstring(self.http.get("/").text).xpath("//meta[@name='csrf']/@content")
        return str(found[0]) if found else ""

    def sign_in(self, secret: str, name: str = "") -> Visitor:
        answer = self.http.post("/sign-in", data={"name": name, "secret": secret})
        assert answer.status_code == 200, answer.text
        assert self.csrf(), "nobody is signed in"
        return self


@pytest.fixture
def new_visitor(server: Server) -> Iterator[Callable[..., Visitor]]:
    """Makes visitors: signed in with a token, or by name with a password; without either, nobody."""
    made: list[httpx.Client] = []

    def make(secret: str | None = None, name: str = "") -> Visitor:
        made.append(httpx.Client(base_url=server.url, timeout=60, follow_redirects=True))
        found = Visitor(made[-1])
        return found.sign_in(secret, name) if secret else found

    yield make
    for client in made:
        client.close()


@pytest.fixture
def visitor(new_visitor: Callable[..., Visitor]) -> Visitor:
    """The admin, signed in."""
    return new_visitor(ADMIN)


@pytest.fixture
def viewer(new_visitor: Callable[..., Visitor], system_database: str) -> Visitor:
    """Somebody who may look, signed in by name and password."""
    name, password = f"viewer {next(_numbers)}", "correct horse battery"
    engine = make_engine(system_database)
    with engine.begin() as connection:
        create_user(connection, name, "viewer", password)
    engine.dispose()
    return new_visitor(password, name)
