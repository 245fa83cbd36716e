"""Archives with given members."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path


def make_archive(file: Path, members: Mapping[str, bytes]) -> Path:
    if file.suffix == ".zip":
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return file
    kind = file.suffix.removeprefix(".").replace("tgz", "gz").replace("tar", "")
    with tarfile.open(file, f"w:{kind}") as archive:
        for name, content in members.items():
            add(archive, name, content)
    return file


def add(
    archive: tarfile.TarFile, name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> None:
    header = tarfile.TarInfo(name)
    header.size, header.type, header.linkname = len(content), kind, link
    archive.addfile(header, io.BytesIO(content))
