"""The house keeps its order: who imports whom, and what the documents promise."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FLOORS = [
    {"web", "mdv.submit"},
    {"workers", "mdv.cli"},
    {"mdv.batch", "mdv.bench"},
    {"mdv.mdp", "mdv.lmr"},
    {"mdv.db", "mdv.query"},
    {"mdv.rules"},
    {"mdv.rdf"},
    {"mdv.client", "mdv.feed", "mdv.webhooks"},
    {"mdv.system", "mdv.embedded"},
    {"mdv.supervise", "mdv.logs"},
    {
        "mdv.model",
        "mdv.errors",
        "mdv.config",
        "mdv.files",
        "mdv.points",
        "mdv.figures",
        "mdv.garbage",
        "mdv.uris",
    },
]
"""From the roof to the ground. A room imports from floors below its own, and from nowhere else on its own floor."""


def room_of(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] in ("web", "workers"):
        return parts[0]
    return ".".join(parts[:2]) if parts[0] == "mdv" and len(parts) > 1 else None


def floor_of(room: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names if node.module == "mdv"}
    return found


SOURCES = [path for folder in ("mdv", "web", "workers") for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_from_the_floors_below(path: Path) -> None:
    room = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
    if room is None or room == "mdv.__init__":
        return
    for module in imports_of(path):
        other = room_of(module)
        if other is not None and other != room:
            assert floor_of(other) > floor_of(room), f"{room} imports {other}, which is not below it"


def test_below_the_database_there_is_no_input_or_output() -> None:
    forbidden = {"sqlalchemy", "psycopg", "redis", "celery", "flask", "httpx", "socket", "subprocess"}
    for path in SOURCES:
        if path.relative_to(ROOT).parts[:2] in (("mdv", "rdf"), ("mdv", "rules")):
            assert not {module.split(".")[0] for module in imports_of(path)} & forbidden, path


def test_sql_is_written_only_in_its_room() -> None:
    statement = re.compile(r"\b(select\s.+\sfrom|insert into|update \w+ set|delete from)\b", re.IGNORECASE)
    for path in SOURCES:
        if path.relative_to(ROOT).parts[:2] in (("mdv", "db"), ("mdv", "embedded.py")):  # it makes the database
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not statement.search(node.value), f"{path}:{node.lineno} holds SQL"


CONSTRAINTS = ("constraints.txt", "constraints-peers.txt")


def constraints() -> list[str]:
    return [line for name in CONSTRAINTS for line in (ROOT / name).read_text("utf-8").splitlines()]


def test_constraints_pin_by_name_and_version_alone() -> None:
    for line in constraints():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), line


def test_every_dependency_is_pinned() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    pinned = {line.split("==")[0].lower() for line in constraints()}
    missing = {re.split(r"[\[<>=]", name)[0].lower() for name in wanted} - pinned
    assert not missing


def test_the_makefile_has_the_targets_of_the_readme() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"`make (\w+)", (ROOT / "README.md").read_text("utf-8")):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"the README names make {target}"


def test_every_setting_is_in_the_readme() -> None:
    from mdv.config import SETTINGS

    readme = (ROOT / "README.md").read_text("utf-8")
    assert not [setting.variable for setting in SETTINGS.values() if f"`{setting.variable}`" not in readme]


def test_make_help_lists_the_targets() -> None:
    text = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {"make up", "make test", "make check", "make install", "make bench"} <= set(re.findall(r"make \w+", text))
