"""Decompress .gz, .bz2 and .xz files in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import IO, Any

from mdv.errors import NotWellFormed, TooLarge

MAX_DECOMPRESSOR_MEMORY_BYTES = 256 << 20
"""Maximum memory of a decompressor. Files of `xz -9` need less."""
_CHUNK = 1 << 20

DAMAGED_FILE_ERRORS: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error, lzma.LZMAError)
"""Exceptions that decompressors raise for a truncated or damaged file."""


class _Xz(io.RawIOBase):
    """A decompressed .xz file with a memory limit. The file states how much memory it needs, and lzma.open has no
    limit."""

    def __init__(self, compressed: IO[bytes]) -> None:
        self._compressed = compressed
        self._unpacker = lzma.LZMADecompressor(memlimit=MAX_DECOMPRESSOR_MEMORY_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data:
            compressed = b""
            if self._unpacker.eof:  # another stream may follow, with zeros in between
                compressed = self._unpacker.unused_data.lstrip(b"\0") or self._compressed.read(_CHUNK).lstrip(b"\0")
                if not compressed:
                    return 0
                self._unpacker = lzma.LZMADecompressor(memlimit=MAX_DECOMPRESSOR_MEMORY_BYTES)
            elif self._unpacker.needs_input and not (compressed := self._compressed.read(_CHUNK)):
                raise EOFError("it ends before its end mark")
            data = self._unpacker.decompress(compressed, len(buffer))
        buffer[: len(data)] = data
        return len(data)


Decompressor = Callable[[IO[bytes]], IO[bytes]]

DECOMPRESSORS: dict[str, Decompressor] = {
    ".gz": lambda compressed: gzip.GzipFile(fileobj=compressed),  # type: ignore[dict-item,return-value]
    ".bz2": bz2.BZ2File,
    ".xz": lambda compressed: io.BufferedReader(_Xz(compressed), _CHUNK),
}


def split_compression_suffix(name: str) -> tuple[str, Decompressor | None]:
    """Return a name without .gz, .bz2 or .xz, and the decompressor for that suffix.

    >>> split_compression_suffix("doc.rdf.gz")[0], split_compression_suffix("doc.rdf")
    ('doc.rdf', ('doc.rdf', None))
    """
    before, dot, suffix = name.rpartition(".")
    opener = DECOMPRESSORS.get(dot + suffix.lower())
    return (before, opener) if opener else (name, None)


def decompress(compressed: bytes, opener: Decompressor, max_bytes: int) -> bytes:
    """Return a decompressed document. Decompression stops at the size limit."""
    try:
        with opener(io.BytesIO(compressed)) as stream:
            content = stream.read(max_bytes + 1)
    except DAMAGED_FILE_ERRORS as error:
        raise NotWellFormed(
            f"The file cannot be decompressed: {error_text(error)}. Check that it was transferred completely."
        ) from None
    if len(content) > max_bytes:
        raise TooLarge(
            f"The document has more than {max_bytes:,} bytes, which is the limit. Split it into several documents."
        )
    return content


def error_text(error: object) -> str:
    """Return the message of a library's error without its final period."""
    return (str(error) or type(error).__name__).rstrip(".")
