"""`mdv serve`, `mdv worker` and `mdv migrate`: the parts of a system on their own, told by the environment."""

from __future__ import annotations

import os
from typing import NoReturn

import click

from mdv.cli.frame import Verb
from mdv.cli.output import say
from mdv.cli.programs import web_program, worker_program
from mdv.config import SETTINGS, Config
from mdv.errors import BadRequest


@click.command(cls=Verb, example="MDV_DATABASE_URL=… MDV_REDIS_URL=… mdv serve --host 0.0.0.0 --workers 4")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
def serve(host: str, port: int, workers: int) -> None:
    """Run the web server alone, for production."""
    become(web_program(host, port, workers), "database_url", "redis_url")


@click.command(cls=Verb, example="MDV_DATABASE_URL=… MDV_REDIS_URL=… mdv worker --concurrency 4")
@click.option("--concurrency", type=click.IntRange(min=1), default=2, show_default=True, help="Processes.")
def worker(concurrency: int) -> None:
    """Run a worker alone, for production."""
    become(worker_program(concurrency), "database_url", "redis_url")


@click.command(cls=Verb, example="MDV_DATABASE_URL=postgresql://mdv@db/mdv mdv migrate")
@click.option("--restored", is_flag=True, help="The database was restored from a backup: LMRs take a snapshot."
              " A database that was restored to another place is noticed without this.")  # fmt: skip
def migrate(restored: bool) -> None:
    """Bring the database of MDV_DATABASE_URL to this version's tables."""
    _check_settings("database_url")
    anew = bring_up_to_date(Config.from_environment().database_url, restored)
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


def _check_settings(*names: str) -> None:
    config = Config.from_environment()
    for name in names:
        if not getattr(config, name):
            setting = SETTINGS[name]
            raise BadRequest(
                f"{setting.variable} is not set: {setting.help}. (`mdv up` starts a whole system without any setting.)"
            )


def become(argv: list[str], *needed: str) -> NoReturn:
    """Go on as that program: its signals, its exit code."""
    _check_settings(*needed)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    os.chdir("/")
    os.execvp(argv[0], argv)  # noqa: S606
