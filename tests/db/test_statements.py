"""The named statements of db/sql."""

from __future__ import annotations

import re

from mdv.db import store
from mdv.db.statements import statements


def test_every_statement_of_a_run_is_named_once_and_used() -> None:
    sql = statements("register")
    assert set(sql) == {*store._TEMPORARY, *store._RUN, "pin_plans"}


def test_a_statement_is_one_statement_that_psql_can_run() -> None:
    for name, body in statements("register").items():
        code = re.sub(r"--.*", "", body).strip()
        assert code.count(";") == 1, name
        assert code.endswith(";"), name


def test_temporary_tables_are_empty_at_the_end_of_their_transaction() -> None:
    sql = statements("register")
    assert all("on commit delete rows" in sql[name] for name in store._TEMPORARY)
