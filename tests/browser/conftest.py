"""A whole system with the demo, and a real browser that looks at it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("cli",)]

from systems import Up
from visiting import CHROMIUM, Visit

from mdv.client import Client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one module of tests: as long as it is there, a loop of its own runs in this process."""
    if CHROMIUM is None:
        pytest.fail("There is no Chromium: install Debian's package chromium, or say in $CHROMIUM where one is.")
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


@pytest.fixture(params=[("light", 1280), ("dark", 360)], ids=["wide and light", "narrow and dark"])
def visit(request: pytest.FixtureRequest, browser: Browser, up: Up) -> Iterator[Visit]:
    """Signed in, once at a desk by day and once on a telephone by night."""
    scheme, width = request.param
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    yield Visit(context, up).sign_in()
    context.close()


@pytest.fixture
def desk(browser: Browser, up: Up) -> Iterator[Visit]:
    """Signed in, at a desk."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    yield Visit(context, up).sign_in()
    context.close()


@pytest.fixture
def plain(browser: Browser, up: Up) -> Iterator[Visit]:
    """Signed in, without any script."""
    context = browser.new_context(java_script_enabled=False)
    yield Visit(context, up).sign_in()
    context.close()
