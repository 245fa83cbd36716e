"""Unpack: .gz, .bz2 and .xz in bounded memory, whatever they unpack to."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import IO, Any

from mdv.errors import NotWellFormed, TooLarge

MOST_MEMORY = 256 << 20
"""Bytes that an unpacker may take: more than what `xz -9` packs asks for."""
_CHUNK = 1 << 20

DAMAGE: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error, lzma.LZMAError)
"""What unpackers say of a file that is cut short or damaged."""


class _Xz(io.RawIOBase):
    """An unpacked .xz file. It says itself how much memory it needs, and lzma.open would give it that."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._unpacker = lzma.LZMADecompressor(memlimit=MOST_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data:
            packed = b""
            if self._unpacker.eof:  # another may follow, and zeros between them
                packed = self._unpacker.unused_data.lstrip(b"\0") or self._packed.read(_CHUNK).lstrip(b"\0")
                if not packed:
                    return 0
                self._unpacker = lzma.LZMADecompressor(memlimit=MOST_MEMORY)
            elif self._unpacker.needs_input and not (packed := self._packed.read(_CHUNK)):
                raise EOFError("it ends before its end mark")
            data = self._unpacker.decompress(packed, len(buffer))
        buffer[: len(data)] = data
        return len(data)


Opener = Callable[[IO[bytes]], IO[bytes]]

UNPACKERS: dict[str, Opener] = {
    ".gz": lambda packed: gzip.GzipFile(fileobj=packed),  # type: ignore[dict-item,return-value]
    ".bz2": bz2.BZ2File,
    ".xz": lambda packed: io.BufferedReader(_Xz(packed), _CHUNK),
}


def without_packing(name: str) -> tuple[str, Opener | None]:
    """A name without .gz, .bz2 or .xz, and how that is unpacked.

    >>> without_packing("doc.rdf.gz")[0], without_packing("doc.rdf")
    ('doc.rdf', ('doc.rdf', None))
    """
    before, dot, suffix = name.rpartition(".")
    opener = UNPACKERS.get(dot + suffix.lower())
    return (before, opener) if opener else (name, None)


def unpack(packed: bytes, opener: Opener, max_bytes: int) -> bytes:
    """A packed document. No more of it is unpacked than a document may have."""
    try:
        with opener(io.BytesIO(packed)) as stream:
            content = stream.read(max_bytes + 1)
    except DAMAGE as error:
        raise NotWellFormed(f"The file cannot be unpacked: {words(error)}.") from None
    if len(content) > max_bytes:
        raise TooLarge(f"The document has more than {max_bytes:,} bytes, which is the limit. Split it into several.")
    return content


def words(error: object) -> str:
    """What an error of a library says, as the end of a sentence."""
    return (str(error) or type(error).__name__).rstrip(".")
