"""`mdv backup` and `mdv restore`: the whole MDP in a folder."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mdv.cli.command import ExampleCommand, data_folder, data_option, json_option
from mdv.cli.output import escape_controls, print_line, write_json
from mdv.errors import MdvError, SystemNotFound, Unavailable
from mdv.system import LmrSystem, System, find_database

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mdv.backup.local_documents import LocalDocumentText
    from mdv.backup.manifest import BackupManifest
    from mdv.backup.restore_backup import ByteCallback
    from mdv.backup.write_backup import RowCallback
    from mdv.client import Client

SYNC_SECONDS = 120.0
"""How long to wait until the LMR has the restored state."""

_folder = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))


@click.command(cls=ExampleCommand, example="mdv backup backups/monday")
@_folder
@json_option
@data_option
def backup(folder: Path, as_json: bool) -> None:
    """Back up everything into DIR, an empty or new folder, while the system runs.

    The backup is the state at one position: documents with their history, schema, rules, LMRs with their tokens and
    subscriptions, users, tokens, webhooks, saved queries and waiting changes. With the LMR of `mdv up`, also its local
    documents. DIR contains hashes of tokens, so only its owner can read it.
    """
    from mdv.backup.local_documents import read_local_documents
    from mdv.backup.write_backup import write_backup

    began = time.monotonic()
    system = find_database(data_folder())
    local: list[LocalDocumentText] | None = None
    if system.lmr_url:
        with _lmr(system) as lmr:
            try:
                local = read_local_documents(lmr)
            except MdvError as error:
                _warn(f"The local documents of the LMR at {system.lmr_url} are left out: {error.detail}")
    with _database(system) as engine, _row_progress("Backing up") as report:
        manifest = write_backup(engine, folder, local, report)
    if as_json:
        write_json({"folder": str(folder), **_summary(manifest, began)})
        return
    print_line(f"Backed up to {folder}: {_counts(manifest)}, in {time.monotonic() - began:.1f} s.")
    if local is None:
        print_line("Local documents of LMRs are not part of it: back up the store of each LMR that has some.")


@click.command(cls=ExampleCommand, example="mdv restore backups/monday")
@_folder
@click.option("--replace", is_flag=True, help="Replace a database that is not empty. All that it contains is lost.")
@json_option
@data_option
def restore(folder: Path, replace: bool, as_json: bool) -> None:
    """Restore a backup of `mdv backup` into an empty database, or with --replace into any.

    The files are checked first. All is restored in one transaction: if the command is interrupted, nothing has changed.
    A backup of an older version is migrated. Web servers and workers that are running start again; changes wait
    meanwhile. LMRs keep serving their caches, and take a snapshot.
    """
    from mdv.backup.local_documents import replace_local_documents
    from mdv.backup.restore_backup import read_backup, read_local_file, restore_backup

    began = time.monotonic()
    system = find_database(data_folder())
    with _database(system) as engine:
        with _byte_progress("Checking") as checked:
            manifest = read_backup(engine, folder, replace, checked)
        local = read_local_file(folder, manifest)
        before = _lmr_epoch(system) if local is not None else None
        with _row_progress("Restoring") as restored:
            restore_backup(engine, folder, manifest, replace, restored, _lmr_token(system))
    left_out = None
    if local and not system.lmr_url:
        left_out = f"The {len(local):,} local documents are not restored: this system has no LMR of `mdv up`."
    elif local is not None:
        with _lmr(system) as lmr:
            try:
                _wait_for_snapshot(lmr, before)
                replace_local_documents(lmr, local)
            except MdvError as error:
                left_out = (
                    "The database is restored, but not all local documents of the LMR:"
                    f" {error.detail} Restore again with --replace."
                )
    if as_json:
        write_json({"folder": str(folder), **_summary(manifest, began)})
    else:
        print_line(f"Restored {folder}: {_counts(manifest)}, in {time.monotonic() - began:.1f} s.")
        print_line("The database has a new epoch: every LMR takes a snapshot. Tokens are those of the backup.")
    if left_out is not None:
        raise Unavailable(left_out)


def _summary(manifest: BackupManifest, began: float) -> dict[str, Any]:
    rows = {table.name: table.file.rows for table in manifest.tables}
    return {
        "position": manifest.position,
        "revision": manifest.revision,
        "version": manifest.version,
        "created_at": manifest.created_at,
        "documents": rows.get("documents", 0),
        "rows": manifest.rows,
        "bytes": sum(file.bytes for file in manifest.files),
        "local_documents": None if manifest.local is None else manifest.local.rows,
        "seconds": round(time.monotonic() - began, 3),
    }


def _counts(manifest: BackupManifest) -> str:
    found = _summary(manifest, 0)
    local = "" if found["local_documents"] is None else f", {found['local_documents']:,} local documents of the LMR"
    return (
        f"position {found['position']:,}, {found['documents']:,} documents, {found['rows']:,} rows{local},"
        f" {found['bytes'] / 1e6:,.1f} MB"
    )


@contextmanager
def _database(system: System) -> Iterator[Engine]:
    import psycopg
    from sqlalchemy.exc import OperationalError

    from mdv.db.engine import make_engine

    engine = make_engine(system.database_url, connect_args={"connect_timeout": 10})
    try:
        yield engine
    except (OperationalError, psycopg.OperationalError) as error:
        reason = (str(getattr(error, "orig", None) or error).strip().splitlines() or ["no reason given"])[0]
        raise Unavailable(f"The database (from {system.source}) failed: {reason}. Nothing was changed.") from error
    finally:
        engine.dispose()


@contextmanager
def _lmr(system: System) -> Iterator[Client]:
    from mdv.client import Client

    with Client(LmrSystem(system.lmr_url, system.token, source=system.source)) as lmr:
        yield lmr


def _lmr_token(system: System) -> str | None:
    """Return the token that the LMR of a running `mdv up` uses."""
    if not system.lmr_url:
        return None
    path = Path(system.source).parent / "lmr.token"
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError as error:
        raise SystemNotFound(f"{path} cannot be read ({error.strerror}). Nothing was changed.") from None


def _lmr_epoch(system: System) -> str | None:
    """Return the epoch in the cursor of the LMR; None if it has none or does not answer."""
    with suppress(MdvError), _lmr(system) as lmr:
        return _epoch_of(lmr.get("/status"))
    return None


def _epoch_of(status: dict[str, Any]) -> str | None:
    return status["cursor"].partition("-")[0] if status["cursor"] else None


def _wait_for_snapshot(lmr: Client, before: str | None) -> None:
    """Wait until the LMR has the restored state: its schema decides which local documents are valid."""
    deadline = time.monotonic() + SYNC_SECONDS
    while time.monotonic() < deadline:
        with suppress(Unavailable):
            status = lmr.get("/status")
            if status["up_to_date"] and _epoch_of(status) not in (before, None):
                return
        time.sleep(0.2)
    raise Unavailable("The LMR does not have the restored state yet.")


def _warn(message: str) -> None:
    click.echo(escape_controls(f"mdv: {message}"), err=True)


# Progress


@contextmanager
def _row_progress(title: str) -> Iterator[RowCallback]:
    """Show the rows that are done, with a bar on a terminal."""
    with _bar(title) as advance:
        last, finished = "", 0
        current = 0

        def show(table: str, rows: int, total: int) -> None:
            nonlocal last, finished, current
            if table != last:
                last, finished, current = table, finished + current, 0
            current = rows
            advance(f"{title}: {table}", finished + rows, max(total, finished + rows))

        yield show


@contextmanager
def _byte_progress(title: str) -> Iterator[ByteCallback]:
    with _bar(title) as advance:
        yield lambda done, total: advance(title, done, total)


@contextmanager
def _bar(title: str) -> Iterator[Any]:
    if not sys.stderr.isatty():
        yield lambda description, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Bar(*columns, console=Console(stderr=True, highlight=False)) as bar:
        task = bar.add_task(title, total=None)
        yield lambda description, done, total: bar.update(task, description=description, completed=done, total=total)
