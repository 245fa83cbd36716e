"""Kinds: what a file's name says it is: a document, an archive of documents, a dump, or none of them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import IO, Any

from mdv.errors import NotWellFormed, TooLarge
from mdv.rdf.syntax import SYNTAXES, Syntax, syntax_of_name

SUFFIXES = sorted(suffix for syntax in SYNTAXES for suffix in syntax.suffixes)

_PACKING = r"(\.(gz|bz2|xz))?"
DOCUMENT = rf"(?i)({'|'.join(map(re.escape, SUFFIXES))}){_PACKING}$"
ARCHIVE = r"(?i)\.(tar|tar\.(gz|bz2|xz)|tgz|tbz2|txz|zip)$"
DUMP = rf"(?i)\.(nt|nq){_PACKING}$"
"""Regular expressions for the end of a path, the same in Python and in Spark. N-Triples may be either: without --syntax
they are a dump."""

Opener = Callable[[IO[bytes]], IO[bytes]]
UNPACKERS: dict[str, Opener] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}  # type: ignore[dict-item]

DAMAGE: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error, lzma.LZMAError)
"""What unpackers say of a packed file that is cut short or damaged."""


def without_packing(name: str) -> tuple[str, Opener | None]:
    """A name without .gz, .bz2 or .xz, and how that is unpacked.

    >>> without_packing("doc.rdf.gz")[0], without_packing("doc.rdf")
    ('doc.rdf', ('doc.rdf', None))
    """
    path = PurePosixPath(name)
    opener = UNPACKERS.get(path.suffix.lower())
    return (name[: -len(path.suffix)], opener) if opener else (name, None)


def syntax_of_file(name: str, said: str | None) -> Syntax:
    """The syntax that was said, or that of the file's suffix.

    >>> syntax_of_file("books/pg84.RDF.gz", None).label
    'RDF/XML'
    """
    return syntax_of_name(said or without_packing(name)[0])


def unpack(stream: IO[bytes], opener: Opener, max_bytes: int) -> bytes:
    """A packed document. No more of it is unpacked than a document may have."""
    try:
        with opener(stream) as unpacked:
            content = unpacked.read(max_bytes + 1)
    except DAMAGE as error:
        raise NotWellFormed(f"The file cannot be unpacked: {words(error)}.") from None
    if len(content) > max_bytes:
        raise TooLarge(f"The document has more than {max_bytes:,} bytes, which is the limit. Split it into several.")
    return content


def words(error: Any) -> str:
    """What an error of a library says, as the end of a sentence."""
    return (str(error) or type(error).__name__).rstrip(".")
