"""A database restored from a backup gets a new epoch."""

from __future__ import annotations

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import Engine

from mdv.db.engine import make_engine
from mdv.db.epoch import update_epoch
from mdv.embedded import Postgres
from mdv.errors import MustRefetch
from tests.support.mdp import Mdp


def life(engine: Engine) -> object:
    with engine.connect() as connection:
        return connection.execute(sqlalchemy.text("select epoch from mdp_state")).scalar_one()


def settled(engine: Engine, **options: bool) -> bool:
    with engine.begin() as connection:
        return update_epoch(connection, **options)


def test_a_database_that_stays_in_place_keeps_its_epoch(engine: Engine) -> None:
    before = life(engine)
    assert not settled(engine)
    assert not settled(engine)
    assert life(engine) == before


def test_a_database_declared_restored_gets_a_new_epoch(engine: Engine) -> None:
    settled(engine)
    before = life(engine)
    assert settled(engine, restored=True)
    assert life(engine) != before
    assert not settled(engine)


def test_a_copy_elsewhere_is_noticed_and_old_cursors_must_refetch(mdp: Mdp, postgres: Postgres) -> None:
    mdp.put_schema("<> mdv:world mdv:open .")
    settled(mdp.engine)
    lmr = mdp.create_lmr("far")
    cursor = mdp.feed(lmr).cursor
    mdp.engine.dispose()
    name = str(mdp.engine.url.database)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"create database restored_{name} template {name}")
        url = sqlalchemy.make_url(postgres.url).set(database=f"restored_{name}")
        copy = make_engine(url.render_as_string(hide_password=False))
        try:
            assert settled(copy)
            restored = type(mdp)(copy)
            with pytest.raises(MustRefetch):
                restored.feed(lmr, cursor)
            assert restored.feed(lmr).snapshot
        finally:
            copy.dispose()
            connection.execute(f"drop database restored_{name} with (force)")
    assert mdp.feed(lmr, cursor).up_to_date
