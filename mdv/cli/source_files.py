"""Find the files that a command line names, and the URI of each."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from mdv.errors import BadRequest
from mdv.rdf.syntax import SYNTAXES, Syntax, syntax_of_name
from mdv.uris import join_uri

STDIN = Path("-")
SUFFIXES = frozenset(suffix for syntax in SYNTAXES for suffix in syntax.suffixes)


class SourceFile(NamedTuple):
    """A file to read: its path (`-` is standard input), and its path relative to the argument that named it."""

    path: Path
    relative: str

    def read(self) -> bytes:
        return sys.stdin.buffer.read() if self.path == STDIN else self.path.read_bytes()

    def syntax(self, name: str | None) -> Syntax:
        """Return the syntax called `name`, or the one of the file suffix."""
        return syntax_of_name(name or self.path.name)

    def uri(self, base: str) -> str:
        """Return the URI of the file below `base`.

        >>> SourceFile(Path("books/a b.ttl"), "a b.ttl").uri("http://example.org/")
        'http://example.org/a%20b.ttl'
        """
        return join_uri(base, self.relative)

    def exported_uri(self) -> str:
        """Return the URI that is encoded in the name of an exported file.

        >>> SourceFile(Path("b/http%3A%2F%2Fa%2Fdoc.rdf.ttl"), "http%3A%2F%2Fa%2Fdoc.rdf.ttl").exported_uri()
        'http://a/doc.rdf'
        """
        return unquote(self.path.stem)


def find_sources(given: Iterable[Path]) -> list[SourceFile]:
    """Return the given files, and the files with a known suffix in the given folders, without duplicates."""
    sources: dict[SourceFile, None] = {}
    for path in given:
        if path.is_dir():
            found = [SourceFile(file, file.relative_to(path).as_posix()) for file in _files_below(path)]
            if not found:
                raise BadRequest(f"No file in {path} has an RDF suffix: {', '.join(sorted(SUFFIXES))}.")
            sources |= dict.fromkeys(found)
        else:
            sources[SourceFile(path, path.name)] = None
    return list(sources)


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the files in a fixed order, without hidden files and without folders behind links."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                yield Path(parent) / name
