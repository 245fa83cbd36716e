"""Open routes, and that all others need a token: every route of an MDP and of an LMR is requested."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lmr_server import start_lmr_server
from tests.support.local_http import local_client
from tests.support.server import ROOT, Server, environment, stopping

pytestmark = pytest.mark.full

OPEN = {"/openapi.json", "/docs", "/healthz", "/readyz", "/metrics"}
NEEDED_TO_SIGN_IN = {"/sign-in", "/static/<path:filename>"}
"""The form, and static files: styles and scripts."""
NEEDS_A_CODE = {
    ("POST", "/api/v1/backbone/members"): {"name": "m9", "url": "http://127.0.0.1:9", "key": "", "life": "x"},
    ("POST", "/api/v1/federation/links"): {"name": "m9", "key": ""},
}
"""An MDP that joins has no token there, but the code of an invitation. These bodies have none."""
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def lmr(folder: Path) -> Iterator[Server]:
    process = start_lmr_server(folder, NOWHERE, "a-token", f"sqlite:///{folder}/open-routes.db", ready=False)
    with stopping(process):
        yield process


MAP = """
import json
from mdv.config import Config
from {module} import {create}
app = {create}(Config.from_environment())
print(json.dumps([(rule.rule, sorted(rule.methods - {{"OPTIONS", "HEAD"}})) for rule in app.url_map.iter_rules()]))
"""


def routes(kind: str, folder: Path) -> dict[str, set[str]]:
    """Every route of an application, with its methods."""
    module, create = ("web.app", "create_app") if kind == "mdp" else ("web.lmr.app", "create_lmr_app")
    settings = {"MDV_URL": NOWHERE, "MDV_LMR_TOKEN": "a-token", "MDV_LMR_STORE": f"sqlite:///{folder}/map-{kind}.db"}
    env = environment("postgresql://x", "redis://x", **settings)
    argv = [sys.executable, "-c", MAP.format(module=module, create=create)]
    done = subprocess.run(argv, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    found: dict[str, set[str]] = {}
    for rule, methods in json.loads(done.stdout.splitlines()[-1]):
        found.setdefault(rule, set()).update(methods)
    return found


def path_for(rule: str) -> str:
    return "/".join("1" if part.startswith("<") else part for part in rule.split("/"))


@pytest.mark.parametrize("kind", ["mdp", "lmr"])
def test_every_route_except_the_open_ones_needs_a_token(
    kind: str, request: pytest.FixtureRequest, folder: Path
) -> None:
    server: Server = request.getfixturevalue("server" if kind == "mdp" else "lmr")
    found = routes(kind, folder)
    assert set(found) >= OPEN | {"/sign-in", "/api/v1/status", "/api/v1/query", "/"}
    with local_client(base_url=server.url, timeout=60) as stranger:
        for path in OPEN:
            assert stranger.get(path).status_code in ((200, 503) if path == "/readyz" else (200,)), path
        for rule, methods in found.items():
            if rule in OPEN | NEEDED_TO_SIGN_IN:
                continue
            for method in methods:
                body = NEEDS_A_CODE.get((method, rule))
                answer = stranger.request(method, path_for(rule), json=body)
                if rule.startswith("/api/") or method != "GET":
                    assert answer.status_code == 401, (method, rule)
                else:
                    assert answer.status_code == 303, (method, rule)
                    assert answer.headers["Location"].startswith("/sign-in"), rule
