"""Visitors of the pages: users with a browser, at the level of HTTP."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import lxml.html
import pytest

from mdv.db.engine import make_engine
from mdv.db.users import create_user
from tests.support.local_http import local_client
from tests.support.server import ADMIN, Server

_numbers = itertools.count(1)


@dataclass
class Page:
    """A parsed response."""

    answer: httpx2.Response

    @property
    def status(self) -> int:
        return self.answer.status_code

    @property
    def path(self) -> str:
        """Return the path and query of the page, without the parameter of its greeting."""
        return re.sub(r"[?&]said=\w+", "", self.answer.url.raw_path.decode())

    @property
    def tree(self) -> lxml.html.HtmlElement:
        return lxml.html.fromstring(self.answer.text)

    @property
    def words(self) -> str:
        """Return the text between the page's head and foot, spaces normalised."""
        found = self.tree.xpath("//main") or [self.tree]
        return " ".join(found[0].text_content().split())

    @property
    def title(self) -> str:
        return " ".join(self.tree.xpath("string(//h1)").split())

    def links(self) -> list[str]:
        return [str(link) for link in self.tree.xpath("//main//a/@href")]

    def forms(self) -> list[str]:
        """Return the targets of the page's forms."""
        return [str(action) for action in self.tree.xpath("//main//form/@action")]

    def form(self, action: str) -> dict[str, str]:
        """Return the fields of the form with this target, as a browser would submit it. Browsers drop a newline at the
        start of a text area."""
        (form,) = self.tree.xpath(f"//main//form[@action='{action}']")
        return {name: value.removeprefix("\n") for name, value in form.form_values() if name != "csrf"}

    def rows(self) -> list[list[str]]:
        """Return the cells of all tables."""
        cells = [[" ".join(cell.text_content().split()) for cell in row.xpath("./td")]
                 for row in self.tree.xpath("//main//tbody/tr")]  # fmt: skip
        return [row for row in cells if row]

    def alert(self) -> str:
        """Return the error message, as a screen reader announces it."""
        return " ".join(self.tree.xpath("string(//main//*[@role='alert'])").split())


@dataclass
class Visitor:
    """A client with cookies that follows redirects and submits forms with the page's CSRF token."""

    http: httpx2.Client

    def get(self, path: str, headers: dict[str, str] | None = None, **query: Any) -> Page:
        if query:
            return Page(self.http.get(path, params=query, headers=headers))
        return Page(self.http.get(path, headers=headers))

    def post(self, path: str, files: Any = None, csrf: str | None = None, **form: Any) -> Page:
        """Submit a form; `csrf` replaces the page's token."""
        shown = self.csrf() if csrf is None else csrf
        return Page(self.http.post(path, data={"csrf": shown, **form}, files=files))

    def csrf(self) -> str:
        """Return the CSRF token of this session."""
        found = lxml.html.fromstring(self.http.get("/").text).xpath("//meta[@name='csrf']/@content")
        return str(found[0]) if found else ""

    def sign_in(self, secret: str, name: str = "") -> Visitor:
        answer = self.http.post("/sign-in", data={"name": name, "secret": secret})
        assert answer.status_code == 200, answer.text
        assert self.csrf(), "not signed in"
        return self


@pytest.fixture
def new_visitor(server: Server) -> Iterator[Callable[..., Visitor]]:
    """Create visitors: signed in with a token, or by name with a password; without either, anonymous."""
    made: list[httpx2.Client] = []

    def make(secret: str | None = None, name: str = "") -> Visitor:
        made.append(local_client(base_url=server.url, timeout=60, follow_redirects=True))
        found = Visitor(made[-1])
        return found.sign_in(secret, name) if secret else found

    yield make
    for client in made:
        client.close()


@pytest.fixture
def visitor(new_visitor: Callable[..., Visitor]) -> Visitor:
    """The administrator, signed in."""
    return new_visitor(ADMIN)


@pytest.fixture
def viewer(new_visitor: Callable[..., Visitor], system_database: str) -> Visitor:
    """A viewer, signed in by name and password."""
    name, password = f"viewer {next(_numbers)}", "correct horse battery"
    engine = make_engine(system_database)
    with engine.begin() as connection:
        create_user(connection, name, "viewer", password)
    engine.dispose()
    return new_visitor(password, name)
