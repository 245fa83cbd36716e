"""The named SQL statements of the `.sql` files."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

import mdv
from mdv.db.load_sql import load_sql

FILES = [
    (path.name.removesuffix(".sql"), package)
    for package in ("mdv.db.sql", "mdv.inspect.sql")
    for path in sorted(resources.files(package).iterdir(), key=lambda path: path.name)
    if path.name.endswith(".sql")
]
CODE = "".join(path.read_text("utf-8") for path in Path(mdv.__file__).parent.rglob("*.py"))


def test_every_sql_file_is_in_a_known_package() -> None:
    assert len(FILES) == len(list(Path(mdv.__file__).parent.rglob("*.sql")))


@pytest.mark.parametrize(("file", "package"), FILES)
def test_every_named_statement_is_used(file: str, package: str) -> None:
    if f'load_sql("{file}").values()' in CODE:
        return
    unused = [name for name in load_sql(file, package) if f'"{name}"' not in CODE]
    assert not unused


@pytest.mark.parametrize(("file", "package"), FILES)
def test_a_named_statement_is_one_statement_that_psql_can_run(file: str, package: str) -> None:
    for name, body in load_sql(file, package).items():
        code = re.sub(r"--.*", "", body).strip()
        code = re.sub(r"\$\$.*?\$\$", "$$ body of a function $$", code, flags=re.DOTALL)
        assert code.count(";") == 1, name
        assert code.endswith(";"), name
