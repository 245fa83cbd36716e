"""Read files, folders, globs and archives of this machine without Spark. The documents are those that Spark reads.

The rules of Hadoop's file systems hold: hidden names are skipped, `*` does not match a slash, braces are alternatives.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from mdv.batch.archives import ArchiveShare
from mdv.batch.document_naming import Naming
from mdv.batch.file_source import ArchiveTask, FileReader, read_archive_rows, row_of_file
from mdv.batch.file_types import ARCHIVE_PATTERN, DOCUMENT_PATTERN, DUMP_PATTERN
from mdv.batch.input_paths import (
    InputPaths,
    has_glob,
    local_path,
    missing_path_error,
    no_match_error,
    refuse_hidden,
)
from mdv.batch.local_preparation import ListedDocument
from mdv.batch.prepare_partition import InputDocument
from mdv.errors import BadCommand

_URL = "file:"


class LocalFile(NamedTuple):
    """A file: its path as a URL in Spark's form, and its size."""

    path: str
    size: int

    @property
    def name(self) -> Path:
        return Path(self.path.removeprefix(_URL))


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files that the arguments name: documents, archives, and dumps, in Spark's order of paths."""

    arguments: InputPaths
    documents: tuple[LocalFile, ...]
    archives: tuple[LocalFile, ...]
    dumps: tuple[LocalFile, ...]

    @property
    def count(self) -> int:
        return len(self.documents) + len(self.archives) + len(self.dumps)

    @property
    def bytes(self) -> int:
        return sum(file.size for file in (*self.documents, *self.archives, *self.dumps))


def find_local_files(arguments: Sequence[str], syntax: str | None, most: int) -> FoundFiles | None:
    """Return the files that the arguments name; None if these are more than `most`, or not on this machine."""
    named: dict[str, int] = {}
    globs: list[tuple[int, tuple[str, ...]]] = []
    files: dict[str, LocalFile] = {}
    given: list[str] = []
    for number, argument in enumerate(arguments):
        local = local_path(argument)
        if local is None:
            return None
        if Path(local).exists():
            real = Path(local).resolve()
            found = [real]
            named.setdefault(f"{_URL}{real}".rstrip("/"), number)
            if real.is_file():
                refuse_hidden(argument)
                given.append(f"{_URL}{real}")
        else:
            patterns = glob_patterns(argument, local)
            globs += [(number, (_URL, *pattern[1:])) for pattern in patterns]
            found = sorted({path for pattern in patterns for path in _matching(pattern)})
            if not found:
                raise no_match_error(argument)
        for path in found:
            for file in _walk(path):
                files.setdefault(file.path, file)
                if len(files) > most:
                    return None
    return _by_type(InputPaths((), named, tuple(globs), tuple(given)), list(files.values()), syntax)


def _by_type(arguments: InputPaths, files: list[LocalFile], syntax: str | None) -> FoundFiles:
    documents, archives, dumps = [], [], []
    for file in files:
        if syntax is None and re.search(DUMP_PATTERN, file.path):
            dumps.append(file)
        elif re.search(ARCHIVE_PATTERN, file.path):
            archives.append(file)
        elif re.search(DOCUMENT_PATTERN, file.path) or file.path in arguments.files:
            documents.append(file)
    return FoundFiles(arguments, tuple(documents), tuple(archives), tuple(dumps))


def _walk(path: Path) -> Iterator[LocalFile]:
    """Yield the files in a folder and those below it. Hidden ones are skipped."""
    if path.is_file():
        if not _is_hidden(path.name):
            yield from _file(path)
        return
    for folder, folders, names in os.walk(path, onerror=_refuse_unreadable, followlinks=True):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        for name in folders:
            _refuse_loop(path, Path(folder, name))
        for name in sorted(names):
            if not _is_hidden(name):
                yield from _file(Path(folder, name))


def _file(path: Path) -> Iterator[LocalFile]:
    """Yield the file unless it is a FIFO, a device or a broken link, or was deleted in the meantime."""
    with suppress(FileNotFoundError):
        if path.is_file():
            yield LocalFile(f"{_URL}{path}", path.stat().st_size)


def _refuse_unreadable(error: OSError) -> None:
    """Raise an error for a folder that cannot be listed, so that its documents are not left out silently."""
    if not isinstance(error, FileNotFoundError):
        raise BadCommand(f"{error.filename} cannot be read: {error.strerror}. Check its permissions.") from None


def _refuse_loop(top: Path, folder: Path) -> None:
    """Raise an error if a folder is a link to one that contains it: its documents would be found many times."""
    if not folder.is_symlink():
        return
    target = folder.resolve()
    above = folder.parent
    while above.resolve() != target:
        if above == top:
            return
        above = above.parent
    raise BadCommand(f"{folder} is a link to {target}, which contains it. Remove the link, or name other folders.")


def _is_hidden(name: str) -> bool:
    """True if Spark skips files of this name.

    >>> [name for name in ("a.rdf", "_a.rdf", ".a.rdf", "_year=1") if not _is_hidden(name)]
    ['a.rdf', '_year=1']
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


# Globs


def glob_patterns(argument: str, local: str) -> list[tuple[str, ...]]:
    """Return a glob as lists of regular expressions, one for each step of a path; the first step is empty."""
    if not has_glob(argument):
        raise missing_path_error(argument)
    try:
        return [
            tuple(_step_expression(step) for step in os.path.normpath(Path(glob).absolute()).split("/"))
            for glob in expand_braces(local)
        ]
    except re.error as error:
        raise BadCommand(f"{argument} is not a valid pattern: {error}. Check the brackets.") from None


def expand_braces(glob: str) -> list[str]:
    """Return the globs that alternatives in braces stand for.

    >>> expand_braces("a/{b,c/d}/*.{rdf,ttl}")
    ['a/b/*.rdf', 'a/b/*.ttl', 'a/c/d/*.rdf', 'a/c/d/*.ttl']
    """
    found = re.search(r"(?<!\\)\{([^{}]*)\}", glob)
    if found is None:
        return [glob]
    before, after = glob[: found.start()], glob[found.end() :]
    return [whole for part in found[1].split(",") for whole in expand_braces(f"{before}{part}{after}")]


def _step_expression(step: str) -> str:
    """Return the regular expression of a step of a glob.

    >>> _step_expression("pg[0-9]*.r?f"), _step_expression("[^a]")
    ('pg[0-9].*\\\\.r.f', '[^a]')
    """
    parts = re.findall(r"\\.|\[[^\]]+\]|.", step, re.DOTALL)
    return "".join(_character_expression(part) for part in parts)


def _character_expression(part: str) -> str:
    if part == "*":
        return ".*"
    if part == "?":
        return "."
    if part[0] == "[" and len(part) > 1:
        return "[" + re.sub("^!", "^", part[1:-1]).replace("\\", "\\\\") + "]"
    return re.escape(part[-1])


def _matching(pattern: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files and folders that a glob matches."""
    paths = [Path("/")]
    for step in pattern[1:]:
        expression = re.compile(step, re.DOTALL)
        paths = [
            child for path in paths if path.is_dir() for child in _children(path) if expression.fullmatch(child.name)
        ]
    yield from paths


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except PermissionError:
        return []


# Documents


@dataclass(frozen=True)
class LocalSource:
    """The documents in local files and archives."""

    found: FoundFiles
    naming: Naming
    syntax: str | None
    max_bytes: int

    @cached_property
    def _reading(self) -> FileReader:
        return FileReader(self.found.arguments, self.naming, self.syntax, self.max_bytes)

    def listing(self) -> Iterator[ListedDocument]:
        """Yield the documents without reading files. Archives are read."""
        for row in self._rows(contents=False):
            yield ListedDocument(row["source"], row["uri"])

    def documents(self) -> Iterator[InputDocument]:
        """Yield the documents."""
        for row in self._rows(contents=True):
            yield InputDocument(*(row[name] for name in InputDocument._fields))

    def _rows(self, contents: bool) -> Iterator[dict[str, Any]]:
        for file in self.found.documents:
            if not contents:
                yield self._reading.row(self._reading.place(file.path), None, None)
                continue
            try:
                yield row_of_file(self._reading, file.path, file.size, _read(file, self.max_bytes))
            except FileNotFoundError:  # deleted in the meantime
                continue
        for file in self.found.archives:
            task = ArchiveTask(file.path, ArchiveShare(), str(file.name))
            yield from read_archive_rows(self._reading, task, contents)


def _read(file: LocalFile, max_bytes: int) -> bytes | None:
    """Return the content of a file; None if it is too large."""
    if file.size > max_bytes:
        return None
    try:
        with file.name.open("rb") as stream:
            return stream.read(max_bytes + 1)  # it may have grown; the gate refuses it then
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadCommand(
            f"{file.name} cannot be read: {error.strerror}. The documents before it are registered; run the same"
            " command again to continue."
        ) from None
