"""Read the documents of .tar and .zip archives one at a time, in bounded memory, even from malicious archives."""

from __future__ import annotations

import errno
import re
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from mdv.batch.decompress import DAMAGED_FILE_ERRORS, DECOMPRESSORS, decompress, error_text, split_compression_suffix
from mdv.batch.file_types import ARCHIVE_PATTERN, DOCUMENT_PATTERN, DUMP_PATTERN
from mdv.errors import MdvError, NotWellFormed, Refused
from mdv.rdf.gate import refuse_too_large

MAX_EXPANSION_FACTOR, MIN_SIZE_LIMIT_BYTES = 1000, 1 << 30
"""Limit of the unpacked size: this many times the packed size, but at least 1 GiB."""
MAX_HEADER_BYTES = 1 << 16
"""Maximum size of a member's name and attributes, in bytes."""
_CHUNK = 1 << 20

_DAMAGED_ARCHIVE_ERRORS: tuple[type[Exception], ...] = (
    *DAMAGED_FILE_ERRORS, tarfile.TarError, zipfile.BadZipFile, struct.error, ValueError, LookupError, RuntimeError,
)  # fmt: skip
"""Exceptions that the libraries raise for a file that is not an archive, is truncated or is damaged."""


@dataclass(frozen=True, slots=True)
class ArchiveShare:
    """The part of an archive that one task reads.

    Every task reads the whole archive and processes each n-th member. Unpacking is cheap compared with the processing
    of a document, so several tasks may repeat it.
    """

    part: int = 0
    parts: int = 1

    def has(self, number: int) -> bool:
        return number % self.parts == self.part


class ArchiveMember(NamedTuple):
    """A document of an archive, or the error that refuses it. Without a name, the error concerns the archive itself."""

    number: int
    name: str | None
    content: bytes | None
    error: MdvError | None


class _Entry(NamedTuple):
    """A member as the archive describes it. `obstacle` is the reason why it cannot be read, if any."""

    name: str
    size: int
    obstacle: str | None
    open: Callable[[], IO[bytes]]


def read_archive(file: Path, share: ArchiveShare, max_bytes: int, contents: bool = True) -> Iterator[ArchiveMember]:
    """Yield the documents of an archive that belong to `share`; without `contents`, only their names.

    Only one document is in memory at a time, and never more of it than the size limit allows.
    """
    is_zip = file.suffix.lower() == ".zip"
    number = -1
    try:
        for number, entry in enumerate(_entries_of_zip(file) if is_zip else _entries_of_tar(file)):
            if not share.has(number) or (name := _normalized_name(entry.name)) is None:
                continue
            try:
                yield ArchiveMember(number, name, _content(entry, name, max_bytes, contents), None)
            except MdvError as error:
                yield ArchiveMember(number, name, None, error)
            except _DAMAGED_ARCHIVE_ERRORS as error:
                yield ArchiveMember(
                    number, name, None, NotWellFormed(f"This member cannot be read: {_damage_text(error)}.")
                )
                if not is_zip:  # the rest of the archive cannot be read either
                    raise
    except _DAMAGED_ARCHIVE_ERRORS as error:
        damage = _damage_text(error)
        reason = f"The archive cannot be read to its end: {damage}. The documents before that point are registered."
        if share.part == 0:
            yield ArchiveMember(number + 1, None, None, NotWellFormed(reason))


def _damage_text(error: Exception) -> str:
    """Return the text of an error that was caused by a damaged archive. Raise errors of the disk again, so that the
    task fails. EINVAL is no error of the disk: a damaged ZIP names a position before the beginning of the file."""
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
        raise error
    return error_text(error)


def _normalized_name(written: str) -> str | None:
    """Return the normalized path of a member, or None if the member is hidden or is not RDF.

    >>> [_normalized_name(path) for path in ("./2014//pg42.rdf", "/etc/x.ttl", "README.txt", "__MACOSX/._x.rdf")]
    ['2014/pg42.rdf', 'etc/x.ttl', None, None]
    """
    steps = [step for step in written.split("/") if step not in ("", ".")]
    hidden = any((step.startswith(".") and step != "..") or step == "__MACOSX" for step in steps)
    name = "/".join(steps)
    return (
        name
        if not hidden and any(re.search(kind, name) for kind in (DOCUMENT_PATTERN, ARCHIVE_PATTERN, DUMP_PATTERN))
        else None
    )


def _content(entry: _Entry, name: str, max_bytes: int, contents: bool) -> bytes | None:
    if ".." in name.split("/"):
        raise Refused(
            "Its path leads out of the archive (..), so it has no name. Create the archive without such paths."
        )
    if re.search(ARCHIVE_PATTERN, name):
        raise Refused("It is an archive inside an archive, which is not supported. Unpack the outer archive first.")
    if not re.search(DOCUMENT_PATTERN, name):
        raise Refused("It is a dump inside an archive, which is not supported. Unpack the archive first.")
    if entry.obstacle:
        raise Refused(entry.obstacle)
    refuse_too_large(entry.size, max_bytes)
    if not contents:
        return None
    with entry.open() as stream:
        content = stream.read(max_bytes + 1)
    refuse_too_large(len(content), max_bytes)
    opener = split_compression_suffix(name)[1]
    return decompress(content, opener, max_bytes) if opener else content


# Zip


def _entries_of_zip(file: Path) -> Iterator[_Entry]:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            mode = member.external_attr >> 16
            if not member.is_dir() and (stat.S_IFMT(mode) in (0, stat.S_IFREG)):
                yield _Entry(member.filename, member.file_size, _obstacle(member), partial(archive.open, member))


def _obstacle(member: zipfile.ZipInfo) -> str | None:
    if member.flag_bits & 0x1:
        return "It is encrypted. Create the archive without a password."
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"It uses compression method {member.compress_type}, which is not supported. Use deflate."
    return None


# Tar


class _Header(tarfile.TarInfo):
    """A tar header with a limited size. Python's own class ignores broken headers and reads headers of any size into
    memory."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:  # tarfile would silently end the archive here
            raise tarfile.ReadError(f"{error_text(error)} at byte {tar.offset:,}") from None

    def _proc_member(self, tar: tarfile.TarFile) -> Any:
        if self.size < 0 or (self.type in _HEADER_TYPES and self.size > MAX_HEADER_BYTES):
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        if self.type == tarfile.XGLTYPE:
            tar.pax_headers = {}  # otherwise they accumulate
        return super()._proc_member(tar)  # type: ignore[misc]

    def _proc_sparse(self, *_: Any) -> Any:
        raise tarfile.ReadError(f"{self.name} is a sparse file, which is not supported")

    _proc_gnusparse_10 = _proc_sparse


_HEADER_TYPES = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
)  # fmt: skip


def _entries_of_tar(file: Path) -> Iterator[_Entry]:
    opener = DECOMPRESSORS.get(re.sub(r"^\.t(?=gz|bz2|xz)", ".", file.suffix.lower()))
    with file.open("rb") as raw:
        if opener is None:
            with tarfile.open(fileobj=raw, mode="r:", tarinfo=_Header) as archive:
                yield from _walk(archive)
            return
        stream = _Bounded(opener(raw), max(MIN_SIZE_LIMIT_BYTES, MAX_EXPANSION_FACTOR * file.stat().st_size))
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header, bufsize=_CHUNK) as archive:  # type: ignore[call-overload]
            yield from _walk(archive)
        while stream.read(_CHUNK):  # checksums are verified at the end
            pass


def _walk(archive: tarfile.TarFile) -> Iterator[_Entry]:
    while (member := archive.next()) is not None:
        archive.members = []  # type: ignore[attr-defined]  # otherwise tarfile keeps them all
        if member.isreg() or member.islnk():
            link = "It is a link to another member. Links are not followed." if member.islnk() else None
            yield _Entry(member.name, member.size, link, partial(_open, archive, member))


def _open(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    stream = archive.extractfile(member)
    assert stream is not None  # it is a regular file
    return stream


class _Bounded:
    """A stream that fails after a maximum number of bytes."""

    def __init__(self, stream: IO[bytes], max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._bytes_read = 0

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._bytes_read += len(data)
        if self._bytes_read > self._max_bytes:
            raise tarfile.ReadError(f"it unpacks to more than {self._max_bytes:,} bytes")
        return data
