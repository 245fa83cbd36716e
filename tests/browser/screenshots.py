"""`make screenshots`: every page of a small library, light and dark, wide and narrow, to be looked at.

All of them go to build/screenshots; those of the README to docs/pictures.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tests" / "cli"), str(ROOT / "tests" / "browser")]

from playwright.sync_api import Browser, sync_playwright  # noqa: E402
from systems import Up  # noqa: E402
from visiting import CHROMIUM, Visit  # noqa: E402

from mdv.bench.catalogue import BASE, NAMES, SCHEMA, Generated  # noqa: E402
from mdv.client import Client  # noqa: E402

BOOK, DOCUMENT = f"{BASE}books/7", f"{BASE}documents/00000007.rdf"
RULES = (
    "search Book b register b where b.downloads > 500000000",
    "search Book b register b where b.author.name = 'Author 3'",
)


def _quoted(uri: str) -> str:
    return uri.replace("#", "%23")


PAGES = {
    "overview": "/",
    "register": f"/register?uri={DOCUMENT}",
    "documents": "/documents",
    "document": f"/document?uri={DOCUMENT}",
    "difference": f"/document/difference?uri={DOCUMENT}&from=1&to=2",
    "delete": f"/document/delete?uri={DOCUMENT}",
    "browse": "/browse",
    "instances": f"/browse/instances?class={_quoted(NAMES)}Book",
    "resource": f"/resource?uri={BOOK}",
    "like": f"/like?uri={BOOK}",
    "lmrs": "/lmrs",
    "lmr": "/lmrs/local",
    "explain": f"/lmrs/local/explain?uri={BOOK}",
    "jobs": "/jobs",
}
IN_THE_README = {"resource": "light", "explain": "dark"}


def fill(mdp: Client, lmr: Client) -> None:
    """A library of some hundred books."""
    mdp.put_schema(SCHEMA, "text/turtle")
    made = Generated(400)
    for number in range(120):
        uri, text = made.document(number)
        mdp.register(uri, text, "application/rdf+xml")
    for rule in RULES:
        lmr.change("POST", "/subscriptions", {"rule": rule}, seconds=60)
    uri, text = made.document(7)
    mdp.register(uri, text.replace(b"word", b"volume"), "application/rdf+xml")
    mdp.change("POST", "/lmrs", {"name": "reading room"})


def look(browser: Browser, up: Up, folder: Path) -> None:
    for scheme in ("light", "dark"):
        for width in (1280, 360):
            context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
            visit = Visit(context, up).sign_in()
            for name, path in PAGES.items():
                page = visit.to(path)
                page.wait_for_timeout(500)
                page.screenshot(path=folder / f"{name}-{scheme}-{width}.png", full_page=True)
                if IN_THE_README.get(name) == scheme and width == 1280:
                    page.screenshot(path=ROOT / "docs" / "pictures" / f"{name}.png")
            assert not visit.troubles, visit.troubles
            context.close()


def main() -> None:
    folder = ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    (ROOT / "docs" / "pictures").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mdv-screenshots-") as data:
        up = Up(Path(data) / "data").start()
        try:
            with Client(up.system) as mdp, Client(up.lmr_system) as lmr:
                fill(mdp, lmr)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                look(browser, up, folder)
                browser.close()
        finally:
            up.end(signal.SIGTERM)
    print(f"{len(list(folder.glob('*.png')))} pictures in {folder.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
