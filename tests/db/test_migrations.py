"""Migrations: forward, back to nothing and forward again, also over a filled store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy
from sqlalchemy import Connection, Engine, text

from mdv.db.engine import make_engine
from mdv.db.migrate import differences, is_migrated, migrate, unmigrate
from mdv.db.tables import metadata
from mdv.errors import SystemNotFound

if TYPE_CHECKING:
    from conftest import Mdp


def tables(engine: Engine) -> set[str]:
    inspector = sqlalchemy.inspect(engine)
    return {*inspector.get_table_names(), *inspector.get_view_names()} - {"alembic_version"}


def test_a_migrated_database_has_the_tables_of_the_code(connection: Connection) -> None:
    assert differences(connection) == []
    assert is_migrated(connection)


def test_a_missing_column_is_noticed(connection: Connection) -> None:
    connection.execute(text("alter table tokens drop column revoked_at"))
    assert len(differences(connection)) == 1


def test_down_to_base_leaves_nothing_and_up_again_leaves_no_difference(engine: Engine) -> None:
    before = tables(engine)
    assert before == {*metadata.tables, "filter_data_view", "filter_rules_view", "statement_log"}
    unmigrate(engine, "base")
    assert tables(engine) == set()
    with engine.connect() as connection:
        assert not is_migrated(connection)
    migrate(engine)
    assert tables(engine) == before
    with engine.connect() as connection:
        assert differences(connection) == []


def test_migrating_twice_changes_nothing(engine: Engine) -> None:
    with engine.connect() as connection:
        epoch = connection.execute(text("select epoch from mdp_state")).scalar_one()
    migrate(engine)
    with engine.connect() as connection:
        assert connection.execute(text("select epoch from mdp_state")).scalar_one() == epoch


def test_a_filled_store_can_be_taken_down_and_built_anew(mdp: Mdp) -> None:
    mdp.put_schema("<> mdv:world mdv:open .")
    mdp.put({"http://d/1": "<#a> :p 'one' .", "http://d/2": "<#b> :p 'two' ."})
    mdp.put({"http://d/1": "<#a> :p 'three' .", "http://d/2": None})
    unmigrate(mdp.engine, "base")
    migrate(mdp.engine)
    fresh = type(mdp)(mdp.engine)
    fresh.put_schema("<> mdv:world mdv:open .")
    assert fresh.put_one("http://d/1", "<#a> :p 'one' .").position == 2
    assert fresh.one("select count(*) from statement_log") == 1


def test_an_engine_without_a_database_says_what_to_do() -> None:
    with pytest.raises(SystemNotFound, match="MDV_DATABASE_URL"):
        make_engine("")


def test_a_filled_store_goes_a_version_back_and_on_again(mdp: Mdp) -> None:
    mdp.put_schema("<> mdv:world mdv:open . :C a rdfs:Class . :n rdfs:range xsd:integer .")
    mdp.put_one("http://d/1", "<#a> a :C ; :n 1 .")
    mdp.put_one("http://d/1", "<#a> a :C ; :n 2 .")
    mdp.add_rules(["search C c register c where c.n = 3"])
    unmigrate(mdp.engine, "0001")
    migrate(mdp.engine)
    # Rules came with 0002: they are gone, and what was stored is there.
    assert mdp.one("select count(*) from rules") == 0
    again = type(mdp)(mdp.engine)
    (rule,) = again.add_rules(["search C c register c where c.n = 2"])
    assert again.results_of(rule.id) == {"http://d/1#a"}
    again.put_one("http://d/1", "<#a> a :C ; :n 3 .")
    assert [(uri, matched) for _, uri, matched in again.changes()] == [("http://d/1#a", False)]
