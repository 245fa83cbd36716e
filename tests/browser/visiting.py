"""A visit: somebody who looks at pages, in a browser that tells of everything that goes wrong in it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from playwright.sync_api import BrowserContext, Page
from systems import Up

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
AXE = Path(__file__).parents[2] / "web" / "assets" / "node_modules" / "axe-core" / "axe.min.js"


class Visit:
    """Somebody who looks at pages, in a browser that tells of everything that goes wrong in it."""

    def __init__(self, context: BrowserContext, up: Up, home: str | None = None) -> None:
        self.page: Page = context.new_page()
        self.home = home or up.system.url
        self.token = up.system.token
        self.troubles: list[str] = []
        self.page.on("pageerror", lambda error: self.troubles.append(f"script failed: {error}"))
        self.page.on("console", lambda said: self._hear(said.type, said.text))
        self.page.on("request", lambda asked: self._see(asked.url))

    def _hear(self, kind: str, words: str) -> None:
        # That a refusal has a status of its own is told, too.
        if kind in ("error", "warning") and "the server responded with a status of 4" not in words:
            self.troubles.append(f"console: {words}")

    def _see(self, url: str) -> None:
        if not url.startswith((self.home, "data:", "blob:")):
            self.troubles.append(f"asked another host: {url}")

    def sign_in(self) -> Visit:
        self.page.goto(f"{self.home}/sign-in")
        self.page.locator("[name=secret]").fill(self.token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.home}/")
        return self

    def to(self, path: str) -> Page:
        self.page.goto(self.home + path)
        return self.page

    def check(self) -> None:
        """What axe finds, and whether the page is wider than the window."""
        self.page.evaluate(AXE.read_text("utf-8"))  # not as a tag, which the page's policy forbids
        found = self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        serious = [
            f"{flaw['id']}: {flaw['help']} {[node['html'][:200] for node in flaw['nodes'][:3]]}"
            for flaw in found["violations"]
            if flaw["impact"] in ("serious", "critical", "moderate")
        ]
        assert not serious, f"{self.page.url}: {serious}"
        wide = self.page.evaluate("() => [document.documentElement.scrollWidth, window.innerWidth]")
        assert wide[0] <= wide[1], f"{self.page.url} is {wide[0]} wide in a window of {wide[1]}"
        assert not self.troubles, f"{self.page.url}: {self.troubles}"
