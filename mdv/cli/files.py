"""Files: which ones a command line means, and the URI under which each is registered."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from mdv.errors import BadRequest
from mdv.rdf.syntax import SYNTAXES, Syntax, syntax_of_name
from mdv.uris import below

STDIN = Path("-")
SUFFIXES = frozenset(suffix for syntax in SYNTAXES for suffix in syntax.suffixes)


class Source(NamedTuple):
    """A file to read: its path (`-` is standard input), and its name below what was given on the command line."""

    path: Path
    relative: str

    def read(self) -> bytes:
        return sys.stdin.buffer.read() if self.path == STDIN else self.path.read_bytes()

    def syntax(self, name: str | None) -> Syntax:
        """The syntax called `name`, or the one of the file's suffix."""
        return syntax_of_name(name or self.path.name)

    def uri(self, base: str | None = None) -> str:
        """The file's URI below `base`; its own, file://…, without one.

        >>> Source(Path("books/a b.ttl"), "a b.ttl").uri("http://example.org/")
        'http://example.org/a%20b.ttl'
        """
        if base is None:
            return self.path.resolve().as_uri()
        return below(base, self.relative)

    def exported_uri(self) -> str:
        """The URI that an exported file's name stands for.

        >>> Source(Path("b/http%3A%2F%2Fa%2Fdoc.rdf.ttl"), "http%3A%2F%2Fa%2Fdoc.rdf.ttl").exported_uri()
        'http://a/doc.rdf'
        """
        return unquote(self.path.stem)


def find_sources(given: Iterable[Path]) -> list[Source]:
    """The files of a command line, each once: those named, and those of a known suffix in the folders named."""
    sources: dict[Source, None] = {}
    for path in given:
        if path.is_dir():
            found = [Source(file, file.relative_to(path).as_posix()) for file in _files_below(path)]
            if not found:
                raise BadRequest(f"No file in {path} has a suffix of RDF: {', '.join(sorted(SUFFIXES))}.")
            sources |= dict.fromkeys(found)
        else:
            sources[Source(path, path.name)] = None
    return list(sources)


def _files_below(folder: Path) -> Iterator[Path]:
    """In a fixed order; what is hidden, and folders behind links, are left out."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                yield Path(parent) / name
