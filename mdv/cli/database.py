"""Direct access to the database, for commands that need no token and no running server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mdv.cli.command import data_folder

if TYPE_CHECKING:
    from sqlalchemy import Connection


@contextmanager
def database() -> Iterator[Connection]:
    """Open a transaction on the database of the system that the options or the environment name."""
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
            raise system.not_running_error from error
        which = "in MDV_DATABASE_URL" if system.pid is None else f"of the MDV at {system.url}"
        raise Unavailable(f"The database {which} does not answer; `mdv doctor` shows the reason.") from error
    finally:
        engine.dispose()


def _runs(pid: int) -> bool:
    """True if a process with this id exists, of any user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
