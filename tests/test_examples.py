"""The examples in docstrings of web and workers; those of mdv are collected by pytest itself."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STARTED = {"web.wsgi", "web.lmr.wsgi", "web.worker", "web.lmr.worker"}
"""Modules that gunicorn imports: they start to serve, or apply the gevent patches."""

MODULES = sorted(
    name
    for room in ("web", "workers")
    for path in (ROOT / room).rglob("*.py")
    if (name := ".".join(path.relative_to(ROOT).with_suffix("").parts)) not in STARTED and ">>>" in path.read_text()
)


@pytest.mark.parametrize("name", MODULES)
def test_doctest_examples_pass(name: str) -> None:
    tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried.attempted and not tried.failed
