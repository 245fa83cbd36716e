"""The manifest of a backup: what its files contain, and their checksums. It is written last, so that a folder with a
manifest is complete."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from mdv.errors import BadCommand
from mdv.private_file import write_private_file

FORMAT = 1
MANIFEST_FILE = "manifest.json"
TABLES_FOLDER = "tables"
LOCAL_FILE = "local-documents.json.gz"
MAX_MANIFEST_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A file of a backup, by its path in the folder: how many rows or documents it has, its size and its digest."""

    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BackupTable:
    """A table in a backup."""

    name: str
    columns: tuple[str, ...]
    file: BackupFile


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """`revision`: that of the tables. `position`: of the last transaction. `sequences`: their last values. `local`: the
    documents of the LMR of `mdv up`; None if they are not part of the backup."""

    version: str
    revision: str
    position: int
    created_at: str
    tables: tuple[BackupTable, ...]
    sequences: dict[str, int]
    local: BackupFile | None

    @property
    def files(self) -> Iterator[BackupFile]:
        yield from (table.file for table in self.tables)
        if self.local is not None:
            yield self.local

    @property
    def rows(self) -> int:
        return sum(table.file.rows for table in self.tables)

    def write(self, folder: Path) -> None:
        content = {"format": FORMAT, **asdict(self)}
        write_private_file(
            folder / MANIFEST_FILE, json.dumps({**content, "sha256": _digest(content)}, indent=1, ensure_ascii=False)
        )


def read_manifest(folder: Path) -> BackupManifest:
    """Return the manifest of the backup in `folder`."""
    if not folder.is_dir():
        raise BadCommand(f"There is no folder {folder}. Name a folder that `mdv backup` has written.")
    path = folder / MANIFEST_FILE
    try:
        check_regular(folder, MANIFEST_FILE)
        with path.open("rb") as stream:
            content = json.loads(stream.read(MAX_MANIFEST_BYTES))
    except FileNotFoundError:
        raise BadCommand(
            f"{folder} is not a complete backup: it has no {MANIFEST_FILE}. Name a folder of `mdv backup`; if"
            " that was interrupted, delete the folder and back up again."
        ) from None
    except (ValueError, RecursionError):
        raise damaged_file_error(folder, MANIFEST_FILE, "it is not JSON") from None
    digest = content.pop("sha256", None) if isinstance(content, dict) else None
    if digest is None or "format" not in content:
        raise BadCommand(f"{path} is not the manifest of a backup. Name a folder of `mdv backup`.")
    if content["format"] != FORMAT:
        raise BadCommand(
            f"The backup has format {content['format']}; this MDV reads format {FORMAT}. It was made by MDV"
            f" {content.get('version', '?')}: restore it with that version or a newer one."
        )
    if digest != _digest(content):
        raise damaged_file_error(folder, MANIFEST_FILE, "its checksum is wrong")
    try:
        return _manifest_of(content)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise damaged_file_error(folder, MANIFEST_FILE, "it describes no backup") from None


def _manifest_of(content: dict[str, Any]) -> BackupManifest:
    """Return the manifest with this content. Raise an error if something is missing or of another type."""
    tables = tuple(
        BackupTable(
            table["name"],
            tuple(_typed(column, str) for column in table["columns"]),
            _file_of(table["file"], table_path(table["name"])),
        )
        for table in content["tables"]
    )
    if not all(table.name.isidentifier() for table in tables):
        raise ValueError
    return BackupManifest(
        version=_typed(content["version"], str),
        revision=_typed(content["revision"], str),
        position=_typed(content["position"], int),
        created_at=_typed(content["created_at"], str),
        tables=tables,
        sequences={name: _typed(value, int) for name, value in content["sequences"].items()},
        local=_file_of(content["local"], LOCAL_FILE) if content["local"] else None,
    )


def _file_of(content: dict[str, Any], path: str) -> BackupFile:
    """Return a file, which must have the name that backups give it: no path leads out of the folder."""
    file = BackupFile(**content)
    if file.path != path:
        raise ValueError
    for number in (file.rows, file.bytes):
        _typed(number, int)
    return file


def _typed(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError
    return value


def table_path(name: str) -> str:
    """Return the path of the file of a table."""
    return f"{TABLES_FOLDER}/{name}.copy.gz"


def check_regular(folder: Path, path: str) -> None:
    """Raise an error if this is a FIFO or a device, whose content may have no end."""
    if not stat.S_ISREG((folder / path).stat().st_mode):
        raise damaged_file_error(folder, path, "it is not a file")


def check_files(folder: Path, manifest: BackupManifest) -> Iterator[int]:
    """Check that all files are as they were written. Yield the bytes that were read."""
    for file in manifest.files:
        path = folder / file.path
        try:
            check_regular(folder, file.path)
            size = path.stat().st_size
        except FileNotFoundError:
            raise damaged_file_error(folder, file.path, "it is missing") from None
        if size != file.bytes:
            raise damaged_file_error(folder, file.path, f"it has {size:,} bytes instead of {file.bytes:,}")
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
                yield len(chunk)
        if digest.hexdigest() != file.sha256:
            raise damaged_file_error(folder, file.path, "its checksum is wrong")


def damaged_file_error(folder: Path, path: str, reason: str) -> BadCommand:
    return BadCommand(
        f"The backup is damaged: {folder / path}: {reason}. Nothing was changed. Use another copy of the backup."
    )


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
