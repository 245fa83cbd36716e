"""The database of the system that the caller means: for what takes no token and no running server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mdv.cli.frame import data_folder

if TYPE_CHECKING:
    from sqlalchemy import Connection


@contextmanager
def database() -> Iterator[Connection]:
    """A transaction on it."""
    from sqlalchemy.exc import OperationalError

    from mdv.db.engine import make_engine
    from mdv.errors import Unavailable
    from mdv.system import find_database

    system = find_database(data_folder())
    engine = make_engine(system.database_url, connect_args={"connect_timeout": 10})
    try:
        with engine.begin() as connection:
            yield connection
    except OperationalError as error:
        if system.pid is not None:
            raise system.not_running from error
        raise Unavailable("The database that MDV_DATABASE_URL names does not answer.") from error
    finally:
        engine.dispose()
