"""`mdv migrate`: forward, back by number, and never below the first revision."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest


@pytest.fixture
def revision(database_url: str, monkeypatch: pytest.MonkeyPatch, mdv: Callable) -> Callable[[], str]:
    """Return the revision of the environment's database."""
    monkeypatch.setenv("MDV_DATABASE_URL", database_url)

    def read() -> str:
        with psycopg.connect(database_url) as connection:
            row = connection.execute("select version_num from alembic_version").fetchone()
        assert row is not None
        return str(row[0])

    return read


def test_a_database_is_migrated_back_and_forward_again(revision: Callable[[], str], mdv: Callable) -> None:
    newest = revision()
    ran = mdv("migrate", "--back-to", "0003", "--yes")
    assert (ran.code, revision()) == (0, "0003"), ran.err
    assert "start the matching version of MDV" in ran.out
    assert mdv("migrate").code == 0
    assert revision() == newest


@pytest.mark.parametrize("where", ["base", "9999", "-1", "head"])
def test_an_invalid_revision_is_refused(where: str, revision: Callable[[], str], mdv: Callable) -> None:
    newest = revision()
    ran = mdv("migrate", f"--back-to={where}", "--yes")
    assert ran.code == 1 and where in ran.err
    assert revision() == newest


def test_migrating_back_needs_confirmation(revision: Callable[[], str], mdv: Callable) -> None:
    newest = revision()
    assert mdv("migrate", "--back-to", "0003").code == 2
    assert revision() == newest
