"""Restore a backup in one transaction: a killed restore changes nothing."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import Connection, Engine

import mdv
from mdv.backup.local_documents import LocalDocumentText
from mdv.backup.manifest import BackupFile, BackupManifest, BackupTable, check_files, damaged_file_error, read_manifest
from mdv.backup.write_backup import RowCallback
from mdv.db.epoch import update_epoch
from mdv.db.lmrs import accept_lmr_token, create_lmr, find_lmr
from mdv.db.migrate import is_migrated
from mdv.db.table_copies import (
    OWN_LMR,
    CopiedTable,
    analyze,
    begin_restore,
    copy_in,
    create_tables,
    expect_tables,
    find_content,
    foreign_tables,
    is_known_revision,
    list_tables,
    migrate_to_head,
    read_revision,
    set_sequences,
    without_indexes,
)
from mdv.errors import BadCommand, Conflict
from mdv.failpoints import hit_failpoint

_CHUNK_BYTES = 1 << 20

ByteCallback = Callable[[int, int], object]
"""Receives the number of bytes that were checked, and that of all bytes."""


def read_backup(engine: Engine, folder: Path, replace: bool, report: ByteCallback) -> BackupManifest:
    """Check everything that can be checked before the database is changed. Return the manifest of the backup."""
    manifest = read_manifest(folder)
    with engine.connect() as connection:
        if not is_known_revision(connection, manifest.revision):
            raise BadCommand(
                f"The backup was made by MDV {manifest.version}, whose tables have revision {manifest.revision}. This"
                f" MDV, {mdv.__version__}, does not know that revision: restore with the newer version."
            )
        _check_target(connection, replace)
    total, done = sum(file.bytes for file in manifest.files), 0
    for size in check_files(folder, manifest):
        done += size
        report(done, total)
    return manifest


def restore_backup(
    engine: Engine,
    folder: Path,
    manifest: BackupManifest,
    replace: bool,
    report: RowCallback,
    lmr_token: str | None = None,
) -> None:
    """Replace the content of the database by that of a backup, in one transaction, and give it a new epoch.

    With `lmr_token`, the LMR of `mdv up` keeps this token. It is created if the backup does not have it.
    """
    with _row_errors(), engine.begin() as connection:
        begin_restore(connection)
        _check_target(connection, replace)
        create_tables(connection, manifest.revision)
        expect_tables([_copied(table) for table in manifest.tables], list_tables(connection))
        with without_indexes(connection):
            for table in manifest.tables:
                copy_in(connection, _copied(table), _checked_blocks(folder, manifest, table, report))
                hit_failpoint("after a table")
        set_sequences(connection, manifest.sequences)
        migrate_to_head(connection)
        update_epoch(connection, restored=True)
        if lmr_token is not None:
            lmr = find_lmr(connection, OWN_LMR) or create_lmr(connection, OWN_LMR)[0]
            accept_lmr_token(connection, lmr, lmr_token)
        hit_failpoint("before the commit")
    analyze(engine)


def read_local_file(folder: Path, manifest: BackupManifest) -> list[LocalDocumentText] | None:
    """Return the local documents of the backup; None if it has none of an LMR."""
    if manifest.local is None:
        return None
    lines = b"".join(_unpack(folder, manifest.local)).splitlines()
    try:
        return [LocalDocumentText(**json.loads(line)) for line in lines]
    except (ValueError, TypeError):
        raise damaged_file_error(folder, manifest.local.path, "it does not contain documents") from None


def _check_target(connection: Connection, replace: bool) -> None:
    """Raise an error if the database must not be replaced."""
    foreign = foreign_tables(connection)
    if foreign:
        raise Conflict(
            f"The database contains the table {foreign[0]}, which is not MDV's. Restore into a database of its own."
        )
    if read_revision(connection) is None:
        return
    if not is_migrated(connection):
        raise Conflict(
            "The database has the tables of another version of MDV. Run `mdv migrate`, or restore into an empty"
            " database."
        )
    content = find_content(connection)
    if content is not None and not replace:
        raise Conflict(
            f"The database is not empty: it has {content}. Restore into an empty one, or give --replace:"
            " then all that it contains is lost."
        )


@contextmanager
def _row_errors() -> Iterator[None]:
    """Translate errors of the database about the content of a backup."""
    try:
        yield
    except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BadCommand(f"The backup is not consistent: {reason}. Nothing was changed. Use another backup.") from error


def _copied(table: BackupTable) -> CopiedTable:
    return CopiedTable(table.name, table.columns)


def _checked_blocks(folder: Path, manifest: BackupManifest, table: BackupTable, report: RowCallback) -> Iterator[bytes]:
    """Yield the rows of a table."""
    rows = 0
    for block in _unpack(folder, table.file):
        rows += block.count(b"\n")
        yield block
        report(table.name, rows, manifest.rows)


def _unpack(folder: Path, file: BackupFile) -> Iterator[bytes]:
    """Yield the rows of a file. Raise an error if they are not as many as the manifest says: then the file was changed
    meanwhile."""
    rows = 0
    try:
        with gzip.open(folder / file.path, "rb") as stream:
            while rows <= file.rows and (block := stream.read(_CHUNK_BYTES)):
                rows += block.count(b"\n")
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise damaged_file_error(folder, file.path, "it cannot be unpacked") from None
    if rows != file.rows:
        raise damaged_file_error(folder, file.path, f"it has {rows:,} rows instead of {file.rows:,}")
