"""`mdv serve`, `mdv worker` and `mdv migrate`: the parts of a system on their own, told by the environment."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import NoReturn

import click

from mdv.cli.frame import Verb
from mdv.cli.lmr import ask
from mdv.cli.output import say
from mdv.cli.programs import web_program, worker_program
from mdv.config import SETTINGS, Config
from mdv.errors import BadCommand

FIGURES = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder in which the processes of a program keep their figures (`mdv.figures`)."""


@click.command(cls=Verb, example="MDV_DATABASE_URL=… MDV_REDIS_URL=… mdv serve --host 0.0.0.0 --workers 4")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
def serve(host: str, port: int, workers: int) -> None:
    """Run the web server alone, for production."""
    become(web_program(host, port, workers), "database_url", "redis_url")


@click.command(cls=Verb, example="MDV_DATABASE_URL=… MDV_REDIS_URL=… mdv worker --concurrency 4")
@click.option("--concurrency", type=click.IntRange(min=1), default=2, show_default=True, help="Processes.")
@click.option("--check", is_flag=True, help="Start none: succeed if a worker on this machine was heard of lately.")
def worker(concurrency: int, check: bool) -> None:
    """Run a worker alone, for production."""
    if check:
        _check_settings("redis_url")
        _check_worker(Config.from_environment().redis_url)
    else:
        become(worker_program(concurrency), "database_url", "redis_url")


def _check_worker(redis_url: str) -> None:
    import socket

    import redis

    from mdv.errors import Unavailable
    from mdv.mdp.status import workers_heard

    with redis.Redis.from_url(redis_url, socket_connect_timeout=2, socket_timeout=2) as client:
        heard = workers_heard(client, socket.gethostname())
    if heard is None:
        raise Unavailable("Redis does not answer, so no worker can be heard of.")
    if not heard:
        raise Unavailable("No worker on this machine was heard of lately.")
    say(f"Heard of: {', '.join(worker.name for worker in heard)}.")


@click.command(cls=Verb, example="MDV_DATABASE_URL=postgresql://mdv@db/mdv mdv migrate")
@click.option("--restored", is_flag=True, help="The database was restored from a backup: LMRs take a snapshot."
              " A database that was restored to another place is noticed without this.")  # fmt: skip
@click.option("--back-to", metavar="REVISION", help="Go back to the tables of an earlier version, such as 0003, before"
              " that version is started again. What they cannot hold is lost.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask before going back; needed where there is no terminal.")
def migrate(restored: bool, back_to: str | None, yes: bool) -> None:
    """Bring the database of MDV_DATABASE_URL to this version's tables."""
    _check_settings("database_url")
    url = Config.from_environment().database_url
    if back_to is not None:
        ask(f"take the database back to the tables of {back_to}, which cannot hold all that later ones do", yes)
        take_back(url, back_to)
        say(f"The database has the tables of {back_to}: start the version of MDV that goes with them.")
        return
    anew = bring_up_to_date(url, restored)
    say("The database is up to date." + (" It begins another life: every LMR takes a snapshot." if anew else ""))


def bring_up_to_date(database_url: str, restored: bool = False) -> bool:
    """Run the migrations that are missing; whether the database was restored from a backup."""
    from alembic.util import CommandError
    from sqlalchemy.exc import OperationalError

    from mdv.db.engine import make_engine
    from mdv.db.home import settle
    from mdv.db.migrate import migrate as run_migrations
    from mdv.errors import MdvError, Unavailable

    engine = make_engine(database_url)
    try:
        run_migrations(engine)
        with engine.begin() as connection:
            return settle(connection, restored)
    except OperationalError as error:
        raise Unavailable("The database does not answer: is MDV_DATABASE_URL right?") from error
    except CommandError as error:
        raise MdvError(f"The database was last used by another version of MDV: {error}.") from error
    finally:
        engine.dispose()


def take_back(database_url: str, revision: str) -> None:
    """Undo the migrations after `revision`."""
    from alembic.util import CommandError
    from sqlalchemy.exc import OperationalError

    from mdv.db.engine import make_engine
    from mdv.db.migrate import unmigrate
    from mdv.errors import Unavailable

    if not revision.isdecimal():  # `base` would remove every table
        raise BadCommand(f"{revision!r} is not a revision, such as 0003.")
    engine = make_engine(database_url)
    try:
        unmigrate(engine, revision)
    except OperationalError as error:
        raise Unavailable("The database does not answer: is MDV_DATABASE_URL right?") from error
    except CommandError as error:
        raise BadCommand(f"The database cannot go back to {revision}: {error}.") from error
    finally:
        engine.dispose()


def _check_settings(*names: str) -> None:
    config = Config.from_environment()
    for name in names:
        if not getattr(config, name):
            setting = SETTINGS[name]
            raise BadCommand(
                f"{setting.variable} is not set: {setting.help}. (`mdv up` starts a whole system without any setting.)"
            )


def become(argv: list[str], *needed: str) -> NoReturn:
    """Go on as that program: its signals, its exit code."""
    _check_settings(*needed)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    os.environ.setdefault(FIGURES, str(_figures_folder()))
    os.chdir("/")
    os.execvp(argv[0], argv)  # noqa: S606


def _figures_folder() -> Path:
    """Where the program that this process becomes keeps its figures; what programs that have ended left is removed."""
    kept = Path(tempfile.gettempdir()) / f"mdv-figures-{os.getuid()}"
    try:
        kept.mkdir(mode=0o700, exist_ok=True)
        is_ours = not kept.is_symlink() and kept.stat().st_uid == os.getuid()
    except FileExistsError:  # a file, or a link that leads nowhere
        is_ours = False
    if not is_ours:
        return Path(tempfile.mkdtemp(prefix="mdv-figures-"))  # somebody else was here first
    for folder in kept.iterdir():
        if not Path(f"/proc/{folder.name}").exists() or folder.name == str(os.getpid()):
            shutil.rmtree(folder, ignore_errors=True)
    own = kept / str(os.getpid())
    own.mkdir()
    return own
