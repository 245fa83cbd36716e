"""A manifest that was not written by `mdv backup` is refused, and opens nothing outside the folder."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mdv.backup.manifest import BackupFile, BackupManifest, BackupTable, _digest, check_files, read_manifest
from mdv.backup.restore_backup import read_local_file
from mdv.errors import BadCommand

ROWS = gzip.compress(b"1\n2\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A backup of one table and no local documents."""
    made = tmp_path / "backup"
    (made / "tables").mkdir(parents=True)
    (made / "tables" / "users.copy.gz").write_bytes(ROWS)
    file = BackupFile("tables/users.copy.gz", 2, len(ROWS), hashlib.sha256(ROWS).hexdigest())
    tables = (BackupTable("users", ("name",), file),)
    BackupManifest("1", "0001", 7, "2031-01-31", tables, {"users_id_seq": 3}, None).write(made)
    return made


def forge(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest, and make its checksum right."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    del content["sha256"]
    change(content)
    path.write_text(json.dumps(content | {"sha256": _digest(content)}))


def test_a_manifest_is_read_as_it_was_written(folder: Path) -> None:
    forge(folder, lambda content: None)
    found = read_manifest(folder)
    assert (found.rows, found.sequences, sum(check_files(folder, found))) == (2, {"users_id_seq": 3}, len(ROWS))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["tables"][0]["file"].update(path="../../etc/passwd"),
        lambda m: m["tables"][0]["file"].update(path="/dev/zero"),
        lambda m: (m["tables"][0].update(name="../x"), m["tables"][0]["file"].update(path="tables/../x.copy.gz")),
        lambda m: m.update(local={"path": "../x", "rows": 0, "bytes": 0, "sha256": ""}),
        lambda m: m["tables"][0]["file"].update(bytes=None),
        lambda m: m["tables"][0]["file"].update(more=1),
        lambda m: m["tables"][0].update(columns=[None]),
        lambda m: m["tables"][0].update(columns="name", name=["users"]),
        lambda m: m["tables"].append("users"),
        lambda m: m.update(tables=None),
        lambda m: m.update(sequences=[1]),
        lambda m: m.update(sequences={"users_id_seq": "1); drop table users"}),
        lambda m: m.update(revision=None),
        lambda m: m.pop("position"),
    ],
)
def test_a_manifest_with_another_content_is_refused(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    forge(folder, change)
    with pytest.raises(BadCommand, match="it describes no backup"):
        read_manifest(folder)


def test_a_deeply_nested_manifest_is_refused(folder: Path) -> None:
    (folder / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(BadCommand, match="it is not JSON"):
        read_manifest(folder)


@pytest.mark.parametrize("replace", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_file_without_an_end_is_not_read(folder: Path, replace: Callable[[Path], object]) -> None:
    forge(folder, lambda content: content["tables"][0]["file"].update(bytes=0))
    manifest = read_manifest(folder)
    for path in ("tables/users.copy.gz", "manifest.json"):
        (folder / path).unlink()
        replace(folder / path)
    with pytest.raises(BadCommand, match="it is not a file"):
        list(check_files(folder, manifest))
    with pytest.raises(BadCommand, match="it is not a file"):
        read_manifest(folder)


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        (gzip.compress(b"[1]\n"), "does not contain documents"),
        (gzip.compress(b"{}\n"), "does not contain documents"),
        (gzip.compress(b"\xff\n"), "does not contain documents"),
        (gzip.compress(b"{}\n" * 2), "2 rows instead of 1"),
        (gzip.compress(b"[1]\n")[:-4], "cannot be unpacked"),
        (b"[1]\n", "cannot be unpacked"),
    ],
    ids=["array", "object", "bytes", "more rows", "truncated", "not packed"],
)
def test_local_documents_that_are_none_are_refused(folder: Path, packed: bytes, words: str) -> None:
    (folder / "local-documents.json.gz").write_bytes(packed)
    file = {"path": "local-documents.json.gz", "rows": 1, "bytes": len(packed), "sha256": ""}
    forge(folder, lambda content: content.update(local=file))
    with pytest.raises(BadCommand, match=words):
        read_local_file(folder, read_manifest(folder))
