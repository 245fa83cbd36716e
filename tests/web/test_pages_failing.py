"""What a page says when something fails that nobody foresaw: a page, with the name under which the log has it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from failing import SECRET


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """The answers of an application that fails."""
    script = Path(__file__).with_name("failing.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_an_unforeseen_failure_is_a_page_with_the_name_of_the_request(told: dict[str, Any]) -> None:
    answer = told["page"]
    assert answer["status"] == 500 and answer["headers"]["Content-Type"].startswith("text/html")
    assert "Something failed inside MDV" in answer["text"] and "<code>find-me</code>" in answer["text"]
    assert SECRET not in answer["text"] and 'class="brand"' in answer["text"]
    assert "nonce-" in answer["headers"]["Content-Security-Policy"]


def test_a_part_of_a_page_that_fails_is_a_part(told: dict[str, Any]) -> None:
    answer = told["part"]
    assert answer["status"] == 500 and answer["headers"]["X-Part"] == "yes"
    assert "find-me" in answer["text"] and "<html" not in answer["text"]


def test_a_page_says_that_the_database_is_away_though_nobody_knows_who_asks(told: dict[str, Any]) -> None:
    answer = told["away"]
    assert answer["status"] == 503 and answer["headers"]["Content-Type"].startswith("text/html")
    assert "The database does not answer" in answer["text"] and answer["headers"]["Retry-After"] == "2"
