"""A whole system with the demo data, and a real browser."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ViewportSize, expect, sync_playwright

from mdv.client import Client
from tests.support.browser_visit import CHROMIUM, Visit
from tests.support.whole_system import Up

expect.set_options(timeout=60_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests if there is no browser."""
    if CHROMIUM is None:
        reason = "No Chromium: install Debian's package chromium (`apt-get install chromium`), or set $CHROMIUM."
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser per module; it runs its own event loop in this process."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    system = Up(tmp_path_factory.mktemp("browser") / "data", demo=True).start()
    yield system
    assert system.end(signal.SIGTERM) == 0


@pytest.fixture(scope="module")
def mdp(up: Up) -> Iterator[Client]:
    with Client(up.system) as client:
        yield client


@pytest.fixture(scope="module")
def new_visit(browser: Browser, up: Up) -> Callable[..., Visit]:
    """Makes signed-in visits, each in a context of its own. The browser signs in once; contexts copy the cookie."""
    states: dict[str, Any] = {}

    def make(home: str = up.system.url, scheme: Any = "light", width: int = 1280, **options: Any) -> Visit:
        if home not in states:
            with browser.new_context() as first:
                Visit(first, up, home).sign_in()
                states[home] = first.storage_state()
        size = ViewportSize(width=width, height=800)
        context = browser.new_context(color_scheme=scheme, viewport=size, storage_state=states[home], **options)
        return Visit(context, up, home)

    return make


@pytest.fixture(scope="module")
def visits(new_visit: Callable[..., Visit]) -> Iterator[Callable[..., Visit]]:
    """Returns signed-in visits that start at an empty page. Tests that want the same kind of browser share a context
    with its HTTP cache. The pages store nothing in a browser but the cookie of the session."""
    opened: dict[Any, Visit] = {}

    def visit(home: str, *size: Any, **options: Any) -> Visit:
        key = (home, *size, *options.items())
        if key not in opened:
            opened[key] = new_visit(home, *size, **options)
        return opened[key].start_again()

    yield visit
    for shared in opened.values():
        shared.close()


THEMES = [("light", 1280), ("dark", 360)]
"""A desktop with the light theme and a telephone with the dark theme."""


DEVICES = pytest.fixture(params=THEMES, ids=["wide and light", "narrow and dark"])


@DEVICES
def visit(request: pytest.FixtureRequest, visits: Callable[..., Visit], up: Up) -> Visit:
    """Signed in at the MDP, with each theme."""
    return visits(up.system.url, *request.param)


@DEVICES
def guest(request: pytest.FixtureRequest, new_visit: Callable[..., Visit], up: Up) -> Iterator[Visit]:
    """Not signed in at the MDP, with each theme."""
    with new_visit(up.system.url, *request.param) as visit:
        visit.page.context.clear_cookies()
        yield visit


@pytest.fixture
def desk(visits: Callable[..., Visit], up: Up) -> Visit:
    """Signed in at the MDP, on a desktop."""
    return visits(up.system.url, *THEMES[0])


@pytest.fixture
def plain(visits: Callable[..., Visit], up: Up) -> Visit:
    """Signed in at the MDP, without JavaScript."""
    return visits(up.system.url, *THEMES[0], java_script_enabled=False)


@DEVICES
def own(request: pytest.FixtureRequest, visits: Callable[..., Visit], up: Up) -> Visit:
    """Signed in at the LMR, with each theme."""
    return visits(up.system.lmr_url, *request.param)


@pytest.fixture
def own_desk(visits: Callable[..., Visit], up: Up) -> Visit:
    """Signed in at the LMR, on a desktop."""
    return visits(up.system.lmr_url, *THEMES[0])
