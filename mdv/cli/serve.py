"""`mdv serve`, `mdv worker` and `mdv migrate`: the single parts of a system, configured by the environment."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import NoReturn

import click

from mdv.cli.command import ExampleCommand
from mdv.cli.lmr import confirm
from mdv.cli.output import print_line
from mdv.cli.server_commands import web_command, worker_command
from mdv.config import SETTINGS, Config
from mdv.errors import BadCommand

METRICS_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable that names the folder for the metrics of a server's processes (`mdv.metrics`)."""


@click.command(cls=ExampleCommand, example="MDV_DATABASE_URL=… MDV_REDIS_URL=… mdv serve --host 0.0.0.0 --workers 4")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Number of processes.")
def serve(host: str, port: int, workers: int) -> None:
    """Run only the web server, for production."""
    exec_server(web_command(host, port, workers), "database_url", "redis_url")


@click.command(cls=ExampleCommand, example="MDV_DATABASE_URL=… MDV_REDIS_URL=… mdv worker --concurrency 4")
@click.option("--concurrency", type=click.IntRange(min=1), default=2, show_default=True, help="Number of processes.")
@click.option("--check", is_flag=True, help="Start no worker: check that a worker on this machine is alive.")
def worker(concurrency: int, check: bool) -> None:
    """Run only a worker, for production."""
    if check:
        _check_settings("redis_url")
        _check_worker(Config.from_environment().redis_url)
    else:
        exec_server(worker_command(concurrency), "database_url", "redis_url")


def _check_worker(redis_url: str) -> None:
    import socket

    import redis

    from mdv.errors import Unavailable
    from mdv.mdp.worker_heartbeats import list_live_workers

    with redis.Redis.from_url(redis_url, socket_connect_timeout=2, socket_timeout=2) as client:
        live = list_live_workers(client, socket.gethostname())
    if live is None:
        raise Unavailable("Redis does not answer, so the workers cannot be checked.")
    if not live:
        raise Unavailable("No worker on this machine is alive.")
    print_line(f"Alive: {', '.join(worker.name for worker in live)}.")


@click.command(cls=ExampleCommand, example="MDV_DATABASE_URL=postgresql://mdv@db/mdv mdv migrate")
@click.option("--restored", is_flag=True, help="The database was restored from a backup in the same place: start a"
              " new epoch, so that LMRs take a snapshot. A restore to another place is detected without this"
              " option.")  # fmt: skip
@click.option("--back-to", metavar="REVISION", help="Downgrade to the tables of an earlier revision, for example 0003."
              " Data that these tables cannot hold is lost.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask before a downgrade. Required without a terminal.")
def migrate(restored: bool, back_to: str | None, yes: bool) -> None:
    """Upgrade the database in MDV_DATABASE_URL to the tables of this version."""
    _check_settings("database_url")
    url = Config.from_environment().database_url
    if back_to is not None:
        confirm(f"downgrade the database to revision {back_to}, and lose the data that its tables cannot hold", yes)
        downgrade_database(url, back_to)
        print_line(f"The database is at revision {back_to}: start the matching version of MDV.")
        return
    new_epoch = upgrade_database(url, restored)
    print_line(
        "The database is up to date." + (" It has a new epoch: every LMR takes a snapshot." if new_epoch else "")
    )


def upgrade_database(database_url: str, restored: bool = False) -> bool:
    """Run the missing migrations. Return True if the database was restored from a backup and has a new epoch."""
    from alembic.util import CommandError
    from sqlalchemy.exc import OperationalError

    from mdv.db.engine import make_engine
    from mdv.db.epoch import update_epoch
    from mdv.db.migrate import migrate as run_migrations
    from mdv.errors import MdvError, Unavailable

    engine = make_engine(database_url)
    try:
        run_migrations(engine)
        with engine.begin() as connection:
            return update_epoch(connection, restored)
    except OperationalError as error:
        raise Unavailable("The database does not answer: is MDV_DATABASE_URL right?") from error
    except CommandError as error:
        raise MdvError(f"The database has the tables of another version of MDV: {error}.") from error
    finally:
        engine.dispose()


def downgrade_database(database_url: str, revision: str) -> None:
    """Undo the migrations after `revision`."""
    from alembic.util import CommandError
    from sqlalchemy.exc import OperationalError

    from mdv.db.engine import make_engine
    from mdv.db.migrate import downgrade
    from mdv.errors import Unavailable

    if not revision.isdecimal():  # `base` would drop every table
        raise BadCommand(f"{revision!r} is not a revision: use one such as 0003.")
    engine = make_engine(database_url)
    try:
        downgrade(engine, revision)
    except OperationalError as error:
        raise Unavailable("The database does not answer: is MDV_DATABASE_URL right?") from error
    except CommandError as error:
        raise BadCommand(f"The database cannot be downgraded to {revision}: {error}.") from error
    finally:
        engine.dispose()


def _check_settings(*names: str) -> None:
    config = Config.from_environment()
    for name in names:
        if not getattr(config, name):
            setting = SETTINGS[name]
            raise BadCommand(
                f"{setting.variable} is not set ({setting.help}). `mdv up` starts a whole system without any setting."
            )


def exec_server(argv: list[str], *needed: str) -> NoReturn:
    """Replace this process by the server, which then gets its signals and sets its exit code."""
    _check_settings(*needed)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    os.environ.setdefault(METRICS_FOLDER_VARIABLE, str(_make_metrics_folder()))
    os.chdir("/")
    os.execvp(argv[0], argv)  # noqa: S606


def _make_metrics_folder() -> Path:
    """Create and return the folder for the metrics of this process. Folders of ended processes are removed."""
    parent = Path(tempfile.gettempdir()) / f"mdv-figures-{os.getuid()}"
    try:
        parent.mkdir(mode=0o700, exist_ok=True)
        is_ours = not parent.is_symlink() and parent.stat().st_uid == os.getuid()
    except FileExistsError:  # a file, or a dangling link
        is_ours = False
    if not is_ours:
        return Path(tempfile.mkdtemp(prefix="mdv-figures-"))  # another user made the folder
    for folder in parent.iterdir():
        if not Path(f"/proc/{folder.name}").exists() or folder.name == str(os.getpid()):
            shutil.rmtree(folder, ignore_errors=True)
    own = parent / str(os.getpid())
    own.mkdir()
    return own
