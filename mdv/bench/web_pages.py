"""Measure the web pages on a large store: server time, the bytes and requests of a browser, and the first paint.

If Playwright and Chromium are installed, a browser is used too. Otherwise only the server is measured.
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

from mdv.bench.catalogue import BASE, NAMESPACE
from mdv.http_client import HttpClient
from mdv.system import System

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

ROUNDS = 5


def page_paths(number: int, lmr: str) -> dict[str, str]:
    """Return the measured pages of a generated catalogue. `number` is that of a document in the middle."""
    document, book = quote(f"{BASE}documents/{number:08}.rdf", safe=""), quote(f"{BASE}books/{number}", safe="")
    person, class_ = quote(f"{BASE}people/1", safe=""), quote(f"{NAMESPACE}Book", safe="")
    title = quote(f"{NAMESPACE}title", safe="")
    return {
        "overview": "/",
        "register": "/register",
        "documents": "/documents",
        "documents, from the middle": f"/documents?after={document}",
        "documents, by prefix": f"/documents?prefix={document[:-8]}",
        "a document": f"/document?uri={document}",
        "classes": "/browse",
        "instances": f"/browse/instances?class={class_}",
        "instances, filtered": f"/browse/instances?class={class_}&property={title}&op=contains&value=word00007",
        "instances, sorted": f"/browse/instances?class={class_}&sort={title}",
        "a resource": f"/resource?uri={book}",
        "a resource with many referrers": f"/resource?uri={person}",
        "similar resources": f"/like?uri={book}",
        "LMRs": "/lmrs",
        "an LMR": f"/lmrs/{quote(lmr)}",
        "explain": f"/lmrs/{quote(lmr)}/explain?uri={book}",
        "jobs": "/jobs",
    }


@dataclass(frozen=True, slots=True)
class PageCost:
    """The cost of a page: median server time and size; with a browser also the number of requests, the total bytes, and
    the time until the first paint."""

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


def measure_pages(system: System, pages: dict[str, str]) -> Iterator[PageCost]:
    """Measure each page several times."""
    with HttpClient(base_url=system.url, timeout=60) as client, _browser(system) as browser:
        client.post("/sign-in", data={"secret": system.token})
        for name, address in pages.items():
            yield _measure(client, browser, system, name, address)


def _measure(client: HttpClient, browser: BrowserContext | None, system: System, name: str, address: str) -> PageCost:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        answer = client.get(address)
        times.append(1000 * (time.perf_counter() - began))
    browser_costs = _measure_in_browser(browser, system.url + address) if browser is not None else (None, None, None)
    return PageCost(
        name, address, answer.status_code, round(statistics.median(times), 1), len(answer.content), *browser_costs
    )


def _measure_in_browser(browser: BrowserContext, url: str) -> tuple[int, int, float]:
    """Return the requests, the bytes and the median first paint, without a cache."""
    paints, requests, fetched = [], 0, 0
    signed_in = browser.storage_state()
    for _ in range(ROUNDS):
        context = browser.browser.new_context(storage_state=signed_in) if browser.browser else browser
        page = context.new_page()
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
        context.close()
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
