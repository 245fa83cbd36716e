"""Write a backup: all tables in one snapshot of the database, each as a compressed file."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, cast

from sqlalchemy import Engine

import mdv
from mdv.backup.local_documents import LocalDocumentText
from mdv.backup.manifest import (
    LOCAL_FILE,
    MANIFEST_FILE,
    TABLES_FOLDER,
    BackupFile,
    BackupManifest,
    BackupTable,
    table_path,
)
from mdv.db.table_copies import (
    consistent_snapshot,
    copy_out,
    estimate_rows,
    list_tables,
    read_position,
    read_revision,
    read_sequences,
)
from mdv.errors import BadCommand, SystemNotFound
from mdv.failpoints import hit_failpoint

GZIP_LEVEL = 1
"""The fastest level. Higher ones take several times longer, and save a tenth of the space."""
_BLOCK_BYTES = 1 << 20

RowCallback = Callable[[str, int, int], object]
"""Receives the name of a table, the number of its rows that are done, and the estimated number of all rows."""


def write_backup(
    engine: Engine, folder: Path, local: list[LocalDocumentText] | None, report: RowCallback
) -> BackupManifest:
    """Write a backup of the database into `folder`, which must be empty or new. `local`: the documents of the LMR of
    `mdv up`. On failure, the folder is emptied again."""
    with _private_folder(folder), consistent_snapshot(engine) as connection:
        revision = read_revision(connection)
        if revision is None:
            raise SystemNotFound("The database has no tables of MDV: run `mdv migrate`, or check MDV_DATABASE_URL.")
        total = estimate_rows(connection)
        tables = []
        for table in list_tables(connection):
            file = _write_file(
                folder, table_path(table.name), copy_out(connection, table),
                lambda rows, name=table.name: report(name, rows, total),  # type: ignore[misc]
            )  # fmt: skip
            tables.append(BackupTable(table.name, table.columns, file))
        manifest = BackupManifest(
            version=mdv.__version__,
            revision=revision,
            position=read_position(connection),
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            tables=tuple(tables),
            sequences=read_sequences(connection),
            local=None if local is None else _write_local(folder, local),
        )
        hit_failpoint("before the manifest")
        manifest.write(folder)
    return manifest


@contextmanager
def _private_folder(folder: Path) -> Iterator[None]:
    """Make the folder, readable by its owner only. If the block fails, remove what it has written."""
    if folder.exists() and not folder.is_dir():
        raise BadCommand(f"{folder} is a file. Name a folder that is empty or does not exist.")
    existed = folder.is_dir()
    if existed and any(folder.iterdir()):
        what = "contains a backup" if (folder / MANIFEST_FILE).exists() else "is not empty"
        raise BadCommand(f"{folder} {what}. A backup needs a folder of its own: name an empty or new one.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    tables = folder / TABLES_FOLDER
    tables.mkdir(mode=0o700)
    try:
        yield
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:  # as for a full disk
            error.filename = str(folder)
        if not existed:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            shutil.rmtree(tables, ignore_errors=True)
            (folder / LOCAL_FILE).unlink(missing_ok=True)
        raise


def _write_file(
    folder: Path, path: str, blocks: Iterable[bytes], report: Callable[[int], object] = lambda rows: None
) -> BackupFile:
    """Write a compressed file. Its rows are lines: COPY escapes the line breaks in values."""
    rows = 0
    with (
        _PrivateFile(folder / path) as raw,
        gzip.GzipFile("", "wb", GZIP_LEVEL, cast("IO[bytes]", raw), mtime=0) as stream,
    ):
        for block in _join(blocks):
            rows += block.count(b"\n")
            stream.write(block)
            report(rows)
    return BackupFile(path, rows, raw.size, raw.digest.hexdigest())


def _write_local(folder: Path, local: list[LocalDocumentText]) -> BackupFile:
    lines = (json.dumps(document._asdict(), ensure_ascii=False).encode() + b"\n" for document in local)
    return _write_file(folder, LOCAL_FILE, lines)


def _join(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Join small blocks: a COPY yields row by row."""
    pending: list[bytes] = []
    size = 0
    for block in blocks:
        pending.append(block)
        size += len(block)
        if size >= _BLOCK_BYTES:
            yield b"".join(pending)
            pending, size = [], 0
    yield b"".join(pending)


@dataclass(slots=True)
class _PrivateFile:
    """A new file with mode 0600 that is synced when it is closed. It counts and digests what is written."""

    path: Path
    size: int = 0
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    _descriptor: int = -1

    def __enter__(self) -> _PrivateFile:
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        self.digest.update(view)
        self.size += len(view)
        written = 0
        while written < len(view):
            written += os.write(self._descriptor, view[written:])
        return written
