"""The database of the system that the caller means: for what takes no token and no running server."""

from __future__ import annotations

import os
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
        if system.pid is not None and not _runs(system.pid):
            raise system.not_running from error
        whose = "that MDV_DATABASE_URL names" if system.pid is None else f"of the MDV at {system.url}"
        raise Unavailable(f"The database {whose} does not answer; `mdv doctor` says why.") from error
    finally:
        engine.dispose()


def _runs(pid: int) -> bool:
    """Whether there is such a process, anybody's."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
