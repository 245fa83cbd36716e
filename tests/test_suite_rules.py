"""The rules of the test suite: no asserted timing, one place for helpers, no imports between tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time"}
"""Clocks that measure durations. `time.time` is not included: timestamps are compared with timestamps, as data."""


@cache
def modules() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(TESTS.rglob("*.py"))}


def reads_clock(node: ast.AST) -> bool:
    return any(
        isinstance(inner, ast.Attribute | ast.Name)
        and (inner.attr if isinstance(inner, ast.Attribute) else inner.id) in CLOCKS
        for inner in ast.walk(node)
    )


def timing_asserts(module: ast.Module) -> Iterator[int]:
    """Return the lines of asserts about a clock, or about a variable that was computed from one."""
    if not reads_clock(module):
        return
    timed: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if reads_clock(node.value):
                timed |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    for node in ast.walk(module):
        if isinstance(node, ast.Assert):
            names = {name.id for name in ast.walk(node.test) if isinstance(name, ast.Name)}
            if reads_clock(node.test) or names & timed:
                yield node.lineno


def imported(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def test_no_duration_is_asserted() -> None:
    """Assert order, counts or state instead; measurements belong to `mdv bench`."""
    assert not [f"{path}:{line}" for path, module in modules().items() for line in timing_asserts(module)]


@pytest.mark.parametrize(
    "text",
    [
        "assert time.monotonic() - began < 3",
        "began = perf_counter()\nassert 0.2 < perf_counter() - began",
        "took = time.perf_counter() - began\nassert took < 3",
        "slowest = max(slowest, time.process_time() - began)\nassert slowest < 1",
    ],
)
def test_asserted_durations_are_found(text: str) -> None:
    assert list(timing_asserts(ast.parse(text)))


def test_helpers_are_only_in_the_support_package() -> None:
    others = [
        path.relative_to(TESTS)
        for path in modules()
        if path.parent != TESTS / "support"
        and not re.fullmatch(r"test_\w+\.py|conftest\.py", path.name)
        and path != TESTS / "__init__.py"
    ]
    assert not others, f"move {others} to tests/support"


def test_tests_import_helpers_only_from_the_support_package() -> None:
    for path, module in modules().items():
        for name in imported(module):
            first, *rest = name.split(".")
            is_ours = first in ("tests", "conftest", "") or first.startswith("test_")
            assert not is_ours or (first == "tests" and rest[0] == "support"), f"{path} imports {name}"


def test_no_test_changes_sys_path() -> None:
    for path, module in modules().items():
        for node in ast.walk(module):
            if isinstance(node, ast.Attribute) and node.attr == "path" and isinstance(node.value, ast.Name):
                assert node.value.id != "sys", f"{path}:{node.lineno}"


def test_there_is_one_polling_helper_and_it_is_not_asserted() -> None:
    for path, module in modules().items():
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef) and node.name in ("eventually", "wait_until"):
                assert path == TESTS / "support" / "eventually.py", f"{path}:{node.lineno}"
            if isinstance(node, ast.Assert) and isinstance(node.test, ast.Call):
                assert ast.unparse(node.test.func) != "eventually", f"{path}:{node.lineno}: it raises; do not assert it"
