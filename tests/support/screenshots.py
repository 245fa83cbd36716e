"""`make screenshots`: every page of the demo, and lists of a larger catalogue, light and dark, wide and narrow.

All of them go to build/screenshots; those of the documentation to docs/pictures.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Browser, sync_playwright

from mdv.bench import catalogue
from mdv.client import Client
from mdv.mdp.rules.suspend import over_budget_reason
from tests.support.browser_visit import CHROMIUM, Visit
from tests.support.whole_system import Up, suspend

ROOT = Path(__file__).parents[2]
NAMESPACE = "http://mdv.example/library#"
DOCUMENT = "http://mdv.example/library/alice.ttl"
BOOK = f"{DOCUMENT}#book"
BOOK_PARAMETER = quote(BOOK)
XSD = "http://www.w3.org/2001/XMLSchema#"
ASKED = "search Book b where b.published < 1900 return b.title, b.author.name, b.published order by b.published"
ASKED_OF_MANY = (
    "search Book b where b.downloads > 100000000 return b.author.name, b.title order by b.author.name limit 200"
)
FIGURE_1 = "http://mdv.example/doc.rdf"
EITHER = (
    "search CycleProvider c\nregister c\nwhere c.serverInformation.memory > 64\n   or c.serverInformation.cpu > 500"
)
TOO_SLOW = (
    "search CycleProvider c, CycleProvider d register c where c.serverPort <= d.serverPort",
    "search CycleProvider c register c where c.serverPort = 5874",
)
MANY = [f"search CycleProvider c register c where c.serverHost contains 'host{number}.example'"
        f" and c.serverInformation.memory > {number % 7} and c.serverInformation.cpu > {number}"
        for number in range(160)]  # fmt: skip

CYCLE = (
    "RULE echo\nON INSERT (_, subject, 'databases')\nIF TRUE\nDO INSERT ($delta, subject, 'sql')",
    "RULE answer\nON INSERT (_, subject, 'sql')\nIF $delta/target(description)\nDO DELETE ($delta, subject, 'sql');"
    "\n   INSERT ($delta, subject, 'databases')",
)

_quoted = quote


@dataclass(frozen=True)
class Scene:
    """A system with content, its pages to be shot, and those of them that the documentation shows."""

    demo: bool
    fill: Callable[[Up, Client, Client], None]
    pages: Mapping[str, str]
    own_pages: Mapping[str, str]
    in_the_documentation: Mapping[str, str] = field(default_factory=dict)


def fill_library(up: Up, mdp: Client, lmr: Client) -> None:
    """The demo data, with a second version of a book."""
    fewer, more = ({"type": "literal", "value": value, "datatype": f"{XSD}integer"} for value in ("4", "5"))
    mdp.edit(DOCUMENT, [[BOOK, f"{NAMESPACE}copies", more]], [[BOOK, f"{NAMESPACE}copies", fewer]])
    lmr.get("/status", after=mdp.get("/status")["position"], wait=30)


def fill_catalogue(up: Up, mdp: Client, lmr: Client) -> None:
    """A catalogue of some hundred books."""
    mdp.put_schema(catalogue.SCHEMA, "text/turtle")
    made = catalogue.CatalogueGenerator(400)
    for number in range(120):
        mdp.register(*made.document(number), "application/rdf+xml")


def fill_many(up: Up, mdp: Client, lmr: Client) -> None:
    """The demo data with very many rules."""
    mdp.change("POST", "/lmrs", {"name": "many"})
    mdp.change("POST", "/lmrs/many/subscriptions", [{"rule": rule} for rule in MANY], seconds=60)
    lmr.get("/status")


def fill_suspended(up: Up, mdp: Client, lmr: Client) -> None:
    """The demo data; two rules of its LMR are suspended."""
    made = [lmr.change("POST", "/subscriptions", {"rule": rule}, seconds=60) for rule in TOO_SLOW]
    suspend(up, *(rule["id"] for rule in made), reason=over_budget_reason(2.0))
    lmr.get("/status", after=mdp.get("/status")["position"], wait=30)


def fill_event_rules(up: Up, mdp: Client, lmr: Client) -> None:
    """The demo data, with event rules that may trigger each other without end."""
    mdp.change("POST", "/eca/rules", {"text": "\n;;\n".join(CYCLE)})


LIBRARY = Scene(
    demo=True,
    fill=fill_library,
    pages={
        "overview": "/",
        "register": f"/register?uri={DOCUMENT}",
        "documents": "/documents",
        "document": f"/document?uri={DOCUMENT}",
        "difference": f"/document/difference?uri={DOCUMENT}&from=1&to=2",
        "delete": f"/document/delete?uri={DOCUMENT}",
        "browse": "/browse",
        "instances": f"/browse/instances?class={_quoted(NAMESPACE)}Book",
        "resource": f"/resource?uri={BOOK_PARAMETER}",
        "like": f"/like?uri={BOOK_PARAMETER}",
        "query": f"/query?q={_quoted(ASKED)}",
        "search": "/search?q=carroll",
        "schema": "/schema",
        "schema-change": "/schema/change",
        "schema-versions": "/schema/versions",
        "lmrs": "/lmrs",
        "lmr": "/lmrs/local",
        "explain": f"/lmrs/local/explain?uri={BOOK_PARAMETER}",
        "jobs": "/jobs",
        "admin": "/admin",
        "admin-users": "/admin/users",
        "admin-tokens": "/admin/tokens",
        "admin-token": "/admin/tokens/1",
        "admin-token-revoke": "/admin/tokens/1/revoke",
        "admin-webhooks": "/admin/webhooks",
        "admin-rules": "/admin/rules",
    },
    own_pages={
        "own": "/",
        "own-cache": "/cache",
        "own-instances": f"/cache/instances?class={_quoted(NAMESPACE)}Book",
        "own-resource": f"/resource?uri={BOOK_PARAMETER}",
        "own-query": f"/query?q={_quoted(ASKED)}",
        "own-search": "/search?q=carroll",
        "own-subscriptions": "/subscriptions",
        "own-local": "/local",
        "own-put": "/local/put",
    },
    in_the_documentation={"resource": "light", "explain": "dark"},
)
CATALOGUE = Scene(
    demo=False,
    fill=fill_catalogue,
    pages={
        "many-documents": "/documents",
        "many-instances": f"/browse/instances?class={_quoted(catalogue.NAMESPACE)}Book",
        "many-query": f"/query?q={_quoted(ASKED_OF_MANY)}",
    },
    own_pages={},
)
PAPER = Scene(
    demo=True,
    fill=fill_many,
    pages={
        "edit": f"/document?uri={FIGURE_1}&edit=1",
        "rules": f"/rules?rule={_quoted(EITHER)}",
        "rules-flaw": f"/rules?rule={_quoted('search CycleProvider c register c where c.serverHots = 1')}",
        "rules-registered": "/rules/registered",
        "rules-graph": "/rules/graph?lmr=many",
        "rules-atomic": "/rules/atomic/1",
        "replay": f"/rules/replay?document={FIGURE_1}&rule=2&step=2",
        "replay-all": f"/rules/replay?document={FIGURE_1}&step=1",
        "schema-paper": "/schema",
    },
    own_pages={"own-resource-paper": f"/resource?uri={FIGURE_1}%23host"},
    in_the_documentation={"replay": "light", "rules-graph": "dark"},
)


EVENT_RULES = Scene(
    demo=True,
    fill=fill_event_rules,
    pages={
        "event-rules": "/event-rules",
        "event-rules-new": "/event-rules/new",
        "event-rules-rule": "/event-rules/rule/echo",
        "event-rules-remove": "/event-rules/rule/new-user/remove",
        "event-rules-graph": "/event-rules/graph",
        "event-rules-runs": "/event-rules/runs",
        "event-rules-run": "/event-rules/runs/1?step=1",
        "event-rules-undo": "/event-rules/runs/1/compensate",
        "event-rules-log": "/event-rules/log",
        "programs": "/programs?example=example-6c",
        "programs-examples": "/programs/examples",
        "programs-processes": "/programs/processes",
        "programs-actions": "/programs/actions",
        "event-rules-resource": f"/resource?uri={_quoted('http://mdv.example/learning/anna.ttl#new-objects')}",
    },
    own_pages={},
)


SUSPENDED = Scene(
    demo=True,
    fill=fill_suspended,
    pages={
        "suspended-overview": "/",
        "suspended-lmr": "/lmrs/local",
        "suspended-subscription": "/lmrs/local/subscriptions/6",
        "suspended-explain": f"/lmrs/local/explain?uri={FIGURE_1}%23host",
        "suspended-registered": "/rules/registered",
        "suspended-rule": "/rules?id=6",
    },
    own_pages={
        "own-suspended": "/",
        "own-suspended-subscriptions": "/subscriptions",
        "own-suspended-subscription": "/subscriptions/6",
        "own-suspended-resource": f"/resource?uri={FIGURE_1}%23host",
    },
)


def look(browser: Browser, up: Up, folder: Path, scene: Scene) -> None:
    for scheme in ("light", "dark"):
        for width in (1280, 360):
            context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
            for home, pages in ((None, scene.pages), (up.system.lmr_url, scene.own_pages)):
                visit = Visit(context, up, home).sign_in()
                for name, path in pages.items():
                    page = visit.to(path)
                    page.wait_for_timeout(800)
                    page.screenshot(path=folder / f"{name}-{scheme}-{width}.png", full_page=True)
                    if scene.in_the_documentation.get(name) == scheme and width == 1280:
                        page.set_viewport_size({"width": 1280, "height": 1000})
                        page.wait_for_timeout(300)
                        page.screenshot(path=ROOT / "docs" / "pictures" / f"{name}.png")
                        page.set_viewport_size({"width": 1280, "height": 800})
                assert not visit.troubles, visit.troubles
            context.close()


def main() -> None:
    folder = ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    (ROOT / "docs" / "pictures").mkdir(exist_ok=True)
    for scene in (LIBRARY, CATALOGUE, PAPER, EVENT_RULES, SUSPENDED):
        with tempfile.TemporaryDirectory(prefix="mdv-screenshots-") as data:
            up = Up(Path(data) / "data", demo=scene.demo).start()
            try:
                with Client(up.system) as mdp, Client(up.lmr_system) as lmr:
                    scene.fill(up, mdp, lmr)
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                    look(browser, up, folder, scene)
                    browser.close()
            finally:
                up.end(signal.SIGTERM)
    print(f"{len(list(folder.glob('*.png')))} pictures in {folder.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
