"""The page after an unexpected error: it shows the request ID, under which the log has the error."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.failing_app import SECRET
from tests.support.server import ROOT


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """The answers of an application that fails."""
    argv = [sys.executable, "-m", "tests.support.failing_app"]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=ROOT,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_an_unexpected_error_is_a_page_with_the_request_id(told: dict[str, Any]) -> None:
    answer = told["page"]
    assert answer["status"] == 500 and answer["headers"]["Content-Type"].startswith("text/html")
    assert "Internal error" in answer["text"] and "<code>find-me</code>" in answer["text"]
    assert SECRET not in answer["text"] and 'class="brand"' in answer["text"]
    assert "nonce-" in answer["headers"]["Content-Security-Policy"]


def test_an_error_in_a_page_fragment_is_a_fragment(told: dict[str, Any]) -> None:
    answer = told["part"]
    assert answer["status"] == 500 and answer["headers"]["X-Part"] == "yes"
    assert "find-me" in answer["text"] and "<html" not in answer["text"]


def test_a_database_outage_is_shown_on_a_page_even_if_the_session_is_unknown(told: dict[str, Any]) -> None:
    answer = told["away"]
    assert answer["status"] == 503 and answer["headers"]["Content-Type"].startswith("text/html")
    assert "The database is unavailable" in answer["text"] and answer["headers"]["Retry-After"] == "2"
