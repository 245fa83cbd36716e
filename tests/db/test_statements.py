"""The named statements of db/sql."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mdv
from mdv.db import statements as room
from mdv.db.statements import statements

FILES = sorted(path.stem for path in (Path(room.__file__).parent / "sql").glob("*.sql"))
CODE = "".join(path.read_text("utf-8") for path in Path(mdv.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("file", FILES)
def test_every_named_statement_is_used(file: str) -> None:
    if f'statements("{file}").values()' in CODE or f'for name in statements("{file}")' in CODE:
        return
    unused = [name for name in statements(file) if f'"{name}"' not in CODE]
    assert not unused


@pytest.mark.parametrize("file", FILES)
def test_a_statement_is_one_statement_that_psql_can_run(file: str) -> None:
    for name, body in statements(file).items():
        code = re.sub(r"--.*", "", body).strip()
        assert code.count(";") == 1, name
        assert code.endswith(";"), name
