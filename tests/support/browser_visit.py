"""A visit: a user in a browser that records every error."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path
from typing import Self

from playwright.sync_api import BrowserContext, Page

from tests.support.whole_system import Up

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
AXE = Path(__file__).parents[2] / "web" / "assets" / "node_modules" / "axe-core" / "axe.min.js"
FINDINGS = """async () => (await axe.run(document, {resultTypes: ['violations']})).violations
    .filter(({impact}) => ['serious', 'critical', 'moderate'].includes(impact))
    .map(({id, help, nodes}) => `${id}: ${help} ${nodes.slice(0, 3).map(({html}) => html.slice(0, 200)).join(' ')}`)"""


@cache
def _axe() -> str:
    return AXE.read_text("utf-8")


class Visit:
    """A user in a browser that records every error."""

    def __init__(self, context: BrowserContext, up: Up, home: str | None = None) -> None:
        self._context = context
        self.page: Page = context.new_page()
        self.home = home or up.system.url
        self.token = up.system.token
        self.troubles: list[str] = []
        self.page.on("pageerror", lambda error: self.troubles.append(f"script failed: {error}"))
        self.page.on("console", lambda said: self._hear(said.type, said.text))
        self.page.on("request", lambda asked: self._see(asked.url))

    def _hear(self, kind: str, words: str) -> None:
        # The browser also reports each error status of a response.
        if kind in ("error", "warning") and "the server responded with a status of 4" not in words:
            self.troubles.append(f"console: {words}")

    def _see(self, url: str) -> None:
        if not url.startswith((self.home, "data:", "blob:")):
            self.troubles.append(f"asked another host: {url}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._context.close()

    def start_again(self) -> Self:
        """Leave the page and forget its errors."""
        self.page.goto("about:blank")
        self.troubles.clear()
        return self

    def sign_in(self) -> Self:
        self.page.goto(f"{self.home}/sign-in")
        self.page.locator("[name=secret]").fill(self.token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.home}/")
        return self

    def to(self, path: str) -> Page:
        self.page.goto(self.home + path)
        return self.page

    def check(self) -> None:
        """Check for findings of axe, and for a page wider than the window."""
        if self.page.evaluate("() => !window.axe"):
            self.page.evaluate(_axe())  # not as a tag: the page's policy forbids that
        serious = self.page.evaluate(FINDINGS)
        assert not serious, f"{self.page.url}: {serious}"
        wide = self.page.evaluate("() => [document.documentElement.scrollWidth, window.innerWidth]")
        assert wide[0] <= wide[1], f"{self.page.url} is {wide[0]} wide in a window of {wide[1]}"
        assert not self.troubles, f"{self.page.url}: {self.troubles}"
