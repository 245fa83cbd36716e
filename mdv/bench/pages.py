"""What pages cost on a large store: how long the server takes, what a browser fetches, and when it shows something.

Where Playwright and a Chromium are there, a browser is asked, too; otherwise the server's part alone is measured.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from mdv.bench.catalogue import BASE, NAMES
from mdv.system import System

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

ROUNDS = 5


def addresses(number: int, lmr: str) -> dict[str, str]:
    """The pages that are measured, on a generated catalogue: `number` is that of a document in its midst."""
    document, book = quote(f"{BASE}documents/{number:08}.rdf", safe=""), quote(f"{BASE}books/{number}", safe="")
    person, class_ = quote(f"{BASE}people/1", safe=""), quote(f"{NAMES}Book", safe="")
    title = quote(f"{NAMES}title", safe="")
    return {
        "overview": "/",
        "register": "/register",
        "documents": "/documents",
        "documents, from the midst": f"/documents?after={document}",
        "documents, by prefix": f"/documents?prefix={document[:-8]}",
        "a document": f"/document?uri={document}",
        "classes": "/browse",
        "instances": f"/browse/instances?class={class_}",
        "instances, filtered": f"/browse/instances?class={class_}&property={title}&op=contains&value=word00007",
        "instances, sorted": f"/browse/instances?class={class_}&sort={title}",
        "a resource": f"/resource?uri={book}",
        "a resource that many refer to": f"/resource?uri={person}",
        "things like this": f"/like?uri={book}",
        "LMRs": "/lmrs",
        "an LMR": f"/lmrs/{quote(lmr)}",
        "explain": f"/lmrs/{quote(lmr)}/explain?uri={book}",
        "jobs": "/jobs",
    }


@dataclass(frozen=True, slots=True)
class Cost:
    """A page: the median of the server's time, its size, and with a browser what was fetched in all, in how many
    requests, and how soon something was to be seen."""

    name: str
    address: str
    status: int
    server_ms: float
    bytes: int
    requests: int | None = None
    fetched_bytes: int | None = None
    paint_ms: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(system: System, pages: dict[str, str]) -> Iterator[Cost]:
    """Look at each page some times."""
    with httpx.Client(base_url=system.url, timeout=60) as client, _browser(system) as browser:
        client.post("/sign-in", data={"secret": system.token})
        for name, address in pages.items():
            yield _measure(client, browser, system, name, address)


def _measure(client: httpx.Client, browser: BrowserContext | None, system: System, name: str, address: str) -> Cost:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        answer = client.get(address)
        times.append(1000 * (time.perf_counter() - began))
    seen = _look(browser, system.url + address) if browser is not None else (None, None, None)
    return Cost(name, address, answer.status_code, round(statistics.median(times), 1), len(answer.content), *seen)


def _look(browser: BrowserContext, url: str) -> tuple[int, int, float]:
    """Requests, bytes and the first paint, with nothing kept from before; the median paint."""
    paints, requests, fetched = [], 0, 0
    signed_in = browser.storage_state()
    for _ in range(ROUNDS):
        fresh = browser.browser.new_context(storage_state=signed_in) if browser.browser else browser
        page = fresh.new_page()
        page.goto(url, wait_until="load")
        found = page.evaluate(
            """() => new Promise((done) => setTimeout(() => {
                const parts = performance.getEntriesByType("resource").filter((part) => part.initiatorType !== "other");
                const whole = performance.getEntriesByType("navigation")[0];
                const paint = performance.getEntriesByName("first-contentful-paint")[0];
                done([1 + parts.length, whole.transferSize + parts.reduce((sum, part) => sum + part.transferSize, 0),
                      paint ? paint.startTime : 0]);
            }, 200))"""
        )
        requests, fetched = max(requests, int(found[0])), max(fetched, int(found[1]))
        paints.append(float(found[2]))
        fresh.close()
    return requests, fetched, round(statistics.median(paints), 1)


@contextmanager
def _browser(system: System) -> Iterator[BrowserContext | None]:
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        yield None
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        page.goto(f"{system.url}/sign-in")
        page.fill("[name=secret]", system.token)
        page.click("button.main")
        page.wait_for_url(f"{system.url}/")
        page.close()
        yield context
        browser.close()
