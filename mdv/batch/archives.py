"""Archives: the documents of a .tar or .zip, one after the other, whatever the archive's maker had in mind."""

from __future__ import annotations

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

from mdv.batch.kinds import ARCHIVE, DOCUMENT, DUMP
from mdv.batch.unpack import DAMAGE, UNPACKERS, unpack, without_packing, words
from mdv.errors import MdvError, NotWellFormed, Refused
from mdv.rdf.gate import refuse_large

MOST_TIMES, LEAST_BYTES = 1000, 1 << 30
"""An archive may unpack to so many times its size, and to a GiB in any case."""
MOST_HEADER = 1 << 16
"""Bytes that a member's name and attributes may take."""
_CHUNK = 1 << 20

_DAMAGE: tuple[type[Exception], ...] = (
    *DAMAGE, tarfile.TarError, zipfile.BadZipFile, struct.error, ValueError, LookupError, RuntimeError,
)  # fmt: skip
"""What the libraries say of an archive that is none, or is cut short or damaged."""


@dataclass(frozen=True, slots=True)
class Share:
    """The part of an archive that one task reads.

    Every task goes through the whole archive and takes each n-th member: unpacking costs little beside what is done
    with a document, so it can be done several times at once.
    """

    part: int = 0
    parts: int = 1

    def has(self, number: int) -> bool:
        return number % self.parts == self.part


class Member(NamedTuple):
    """A document of an archive, or why it is none; without a name, why the archive itself cannot be read on."""

    number: int
    name: str | None
    content: bytes | None
    error: MdvError | None


class _Entry(NamedTuple):
    """What an archive says of a member: its name, its size, what keeps it from being read, and how it is read."""

    name: str
    size: int
    obstacle: str | None
    open: Callable[[], IO[bytes]]


def read_archive(file: Path, share: Share, max_bytes: int, contents: bool = True) -> Iterator[Member]:
    """The documents of an archive that are in `share`; their names alone without `contents`.

    One at a time is in memory, and no more of it than a document may have.
    """
    is_zip = file.suffix.lower() == ".zip"
    number = -1
    try:
        for number, entry in enumerate(_entries_of_zip(file) if is_zip else _entries_of_tar(file)):
            if not share.has(number) or (name := _name(entry.name)) is None:
                continue
            try:
                yield Member(number, name, _content(entry, name, max_bytes, contents), None)
            except MdvError as error:
                yield Member(number, name, None, error)
            except _DAMAGE as error:
                yield Member(number, name, None, NotWellFormed(f"This member cannot be read: {_say(error)}."))
                if not is_zip:  # with it all that follows is lost
                    raise
    except _DAMAGE as error:
        reason = f"The archive cannot be read to its end: {_say(error)}. What comes before that is registered."
        if share.part == 0:
            yield Member(number + 1, None, None, NotWellFormed(reason))


def _say(error: Exception) -> str:
    """What is wrong with the archive. A disk that fails is not the archive's fault: then the task is to fail."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error
    return words(error)


def _name(written: str) -> str | None:
    """The path of a member that is to be looked at: no hidden one, and none of those that are no RDF.

    >>> _name("./2014//pg42.rdf"), _name("/etc/x.ttl"), _name("README.txt"), _name("__MACOSX/._x.rdf")
    ('2014/pg42.rdf', 'etc/x.ttl', None, None)
    """
    steps = [step for step in written.split("/") if step not in ("", ".")]
    hidden = any((step.startswith(".") and step != "..") or step == "__MACOSX" for step in steps)
    name = "/".join(steps)
    return name if not hidden and any(re.search(kind, name) for kind in (DOCUMENT, ARCHIVE, DUMP)) else None


def _content(entry: _Entry, name: str, max_bytes: int, contents: bool) -> bytes | None:
    if ".." in name.split("/"):
        raise Refused("Its path leads out of the archive (..), so it has no name. Pack it again.")
    if re.search(ARCHIVE, name):
        raise Refused("It is an archive within an archive, which is not read. Unpack the outer one.")
    if not re.search(DOCUMENT, name):
        raise Refused("It is a dump within an archive, which is not read. Unpack the archive.")
    if entry.obstacle:
        raise Refused(entry.obstacle)
    refuse_large(entry.size, max_bytes)
    if not contents:
        return None
    with entry.open() as stream:
        content = stream.read(max_bytes + 1)
    refuse_large(len(content), max_bytes)
    opener = without_packing(name)[1]
    return unpack(content, opener, max_bytes) if opener else content


# Zip


def _entries_of_zip(file: Path) -> Iterator[_Entry]:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            mode = member.external_attr >> 16
            if not member.is_dir() and (stat.S_IFMT(mode) in (0, stat.S_IFREG)):
                yield _Entry(member.filename, member.file_size, _obstacle(member), partial(archive.open, member))


def _obstacle(member: zipfile.ZipInfo) -> str | None:
    if member.flag_bits & 0x1:
        return "It is encrypted. Pack it without a password."
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"It is packed with method {member.compress_type}, which is not read. Pack it with deflate."
    return None


# Tar


class _Header(tarfile.TarInfo):
    """A header that must be whole, and no larger than headers are: Python's own would fill the memory with it."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:  # of which tarfile makes a quiet end
            raise tarfile.ReadError(f"{words(error)} at byte {tar.offset:,}") from None

    def _proc_member(self, tar: tarfile.TarFile) -> Any:
        if self.size < 0 or (self.type in _HEADERS and self.size > MOST_HEADER):
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        if self.type == tarfile.XGLTYPE:
            tar.pax_headers = {}  # else they add up
        return super()._proc_member(tar)  # type: ignore[misc]

    def _proc_sparse(self, *_: Any) -> Any:
        raise tarfile.ReadError(f"{self.name} is a sparse file, which is not read")

    _proc_gnusparse_10 = _proc_sparse


_HEADERS = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
)  # fmt: skip


def _entries_of_tar(file: Path) -> Iterator[_Entry]:
    opener = UNPACKERS.get(re.sub(r"^\.t(?=gz|bz2|xz)", ".", file.suffix.lower()))
    with file.open("rb") as raw:
        if opener is None:
            with tarfile.open(fileobj=raw, mode="r:", tarinfo=_Header) as archive:
                yield from _walk(archive)
            return
        stream = _Bounded(opener(raw), max(LEAST_BYTES, MOST_TIMES * file.stat().st_size))
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header, bufsize=_CHUNK) as archive:  # type: ignore[call-overload]
            yield from _walk(archive)
        while stream.read(_CHUNK):  # whether all is well is said at the end
            pass


def _walk(archive: tarfile.TarFile) -> Iterator[_Entry]:
    while (member := archive.next()) is not None:
        archive.members = []  # type: ignore[attr-defined]  # it would remember them all
        if member.isreg() or member.islnk():
            link = "It is a link to another member; links are not followed." if member.islnk() else None
            yield _Entry(member.name, member.size, link, partial(_open, archive, member))


def _open(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    stream = archive.extractfile(member)
    assert stream is not None  # it is a regular file
    return stream


class _Bounded:
    """A stream that may not go on for ever."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream = stream
        self._most = most
        self._read = 0

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._read += len(data)
        if self._read > self._most:
            raise tarfile.ReadError(f"it unpacks to more than {self._most:,} bytes")
        return data
