"""The named statements of db/sql."""

from __future__ import annotations

import re
from pathlib import Path

from mdv.db import store
from mdv.db.statements import statements


def test_every_named_statement_is_used() -> None:
    code = Path(store.__file__).read_text("utf-8")
    assert all(f'"{name}"' in code for name in statements("register"))


def test_a_statement_is_one_statement_that_psql_can_run() -> None:
    for name, body in statements("register").items():
        code = re.sub(r"--.*", "", body).strip()
        assert code.count(";") == 1, name
        assert code.endswith(";"), name
