"""The command line: `mdv COMMAND` or `mdv GROUP COMMAND`, one file per group."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

import mdv
from mdv.cli.atoms import atoms
from mdv.cli.backup import backup, restore
from mdv.cli.batch import batch
from mdv.cli.bench import bench
from mdv.cli.command import ExampleGroup, data_option
from mdv.cli.conflicts import conflicts
from mdv.cli.doctor import doctor
from mdv.cli.documents import delete, documents
from mdv.cli.eca import eca
from mdv.cli.errors import run_for_exit_code
from mdv.cli.explain import explain
from mdv.cli.export import export
from mdv.cli.federation import federation
from mdv.cli.filter import filter_
from mdv.cli.job import job, jobs
from mdv.cli.lmr_server import lmr
from mdv.cli.peer import peer
from mdv.cli.provider_rules import rule
from mdv.cli.query import query
from mdv.cli.real import real
from mdv.cli.register import register
from mdv.cli.replicate import replicate
from mdv.cli.resources import resources
from mdv.cli.schema import schema
from mdv.cli.search import search
from mdv.cli.serve import migrate, serve, worker
from mdv.cli.settings import settings
from mdv.cli.status import status
from mdv.cli.subscribe import subscribe, subscriptions, unsubscribe
from mdv.cli.token import token
from mdv.cli.up import up
from mdv.cli.update import update
from mdv.cli.user import user
from mdv.cli.webhook import webhook
from mdv.gc_tuning import skip_final_collection


@click.group(cls=ExampleGroup, example="mdv up")
@data_option
@click.version_option(mdv.__version__, prog_name="mdv")
def cli() -> None:
    """MDV, a publish/subscribe metadata server: RDF documents with history, subscription rules, and local caches.

    A command finds its system by --data DIR (the folder of a running `mdv up`), by the environment (MDV_URL with
    MDV_TOKEN, MDV_DATABASE_URL; MDV_LMR_URL with MDV_LMR_TOKEN for an LMR), or in ./.mdv.
    """


for command in (
    up,
    schema,
    register,
    batch,
    documents,
    delete,
    update,
    resources,
    search,
    query,
    atoms,
    export,
    rule,
    real,
    filter_,
    eca,
    lmr,
    subscribe,
    subscriptions,
    unsubscribe,
    webhook,
    explain,
    peer,
    conflicts,
    federation,
    job,
    jobs,
    status,
    doctor,
    token,
    user,
    serve,
    worker,
    replicate,
    migrate,
    backup,
    restore,
    settings,
    bench,
):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: run one command and exit with its exit code."""
    skip_final_collection()
    sys.exit(run_for_exit_code(lambda: cli.main(arguments, prog_name="mdv", standalone_mode=False)))
