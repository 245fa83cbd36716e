"""Resolve the paths of a command line in the file systems that Spark can read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from mdv.batch.decompress import error_text
from mdv.errors import BadCommand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_GLOB_CHARACTERS = re.compile(r"[*?\[\]{}\\]")


@dataclass(frozen=True, slots=True)
class InputPaths:
    """The resolved paths: what Spark reads, and the location of each file relative to the given paths."""

    paths: tuple[str, ...]
    """Paths for Spark's readers. Special characters are escaped unless a glob is meant."""
    named: Mapping[str, int]
    """The given files and folders, each with the index of its argument."""
    globs: tuple[tuple[int, tuple[str, ...]], ...]
    """The globs with the indexes of their arguments; each glob is a list of regular expressions, one for each path
    step."""
    files: tuple[str, ...]
    """The given paths that are files. They are read with any suffix."""

    def place(self, path: str) -> tuple[int, str]:
        """Return the index of the argument that found a file, and the file's path relative to that argument.

        >>> InputPaths((), {"file:/books": 0}, ((1, ("file:", ".*")),), ()).place("file:/books/2014/pg42.rdf")
        (0, '2014/pg42.rdf')
        >>> InputPaths((), {}, ((1, ("file:", "bo.*", r".*\\.rdf")),), ()).place("file:/books/pg42.rdf")
        (1, 'pg42.rdf')
        """
        above, below = path, ""
        while above:
            if above in self.named:
                return self.named[above], below or _file_name(path)
            above, _, step = above.rpartition("/")
            below = f"{step}/{below}" if below else step
        steps = path.split("/")
        for number, glob in self.globs:
            if len(steps) >= len(glob) and all(map(_step_matches, glob, steps)):
                return number, "/".join(steps[len(glob) :]) or _file_name(path)
        return 0, _file_name(path)  # the file system itself changed the name


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def _step_matches(pattern: str, step: str) -> bool:
    return _expression(pattern).fullmatch(step) is not None


def escape_glob(path: str) -> str:
    """Escape the special characters of a path for readers that accept globs.

    >>> escape_glob("file:/a[1].rdf")
    'file:/a\\\\[1\\\\].rdf'
    """
    return _GLOB_CHARACTERS.sub(r"\\\g<0>", path)


def find_input_paths(spark: SparkSession, arguments: Sequence[str], below: str | None = None) -> InputPaths:
    """Resolve files, folders and globs, on this machine or by the URL of any file system.

    With `below`, a folder, all paths are inside it, and names are relative to it.
    """
    if not arguments:
        raise BadCommand("No input was given. Name files, folders, globs or archives to register.")
    paths: dict[str, None] = {}
    named: dict[str, int] = {}
    globs: list[tuple[int, tuple[str, ...]]] = []
    files: list[str] = []
    for number, path in enumerate(arguments):
        try:
            found = _find_existing(spark, path)
            if found is None:
                pattern = _glob_url(spark, path)
                paths[pattern] = None
                globs += [(number, steps) for steps in _glob_expressions(spark, pattern)]
                continue
        except Py4JJavaError as error:
            raise BadCommand(f"{path} cannot be read: {error_text(error.java_exception.getMessage())}.") from None
        url, is_file = found
        paths[escape_glob(url)] = None
        named.setdefault(url.rstrip("/"), number)
        if is_file:
            refuse_hidden(path)
            files.append(url)
    if below is not None:
        named, globs = dict.fromkeys(find_input_paths(spark, [below]).named, 0), []
    return InputPaths(tuple(paths), named, tuple(globs), tuple(files))


def refuse_hidden(path: str) -> None:
    if path.rpartition("/")[2].startswith((".", "_")):
        raise BadCommand(f"{path} is hidden: Spark ignores files whose names begin with . or _. Rename it.")


def local_path(path: str) -> str | None:
    """Return the path on this machine, or None for a path of another file system.

    >>> [local_path(path) for path in ("/a/b", "file:///a/b", "file:/a/b", "hdfs://host/a/b")]
    ['/a/b', '/a/b', '/a/b', None]
    """
    return re.sub(r"^file:(//)?(?=/)", "", path) if path.startswith("file:") or not _SCHEME.match(path) else None


def missing_path_error(path: str) -> BadCommand:
    return BadCommand(f"There is no file or folder {path}. Check the path.")


def no_match_error(path: str) -> BadCommand:
    return BadCommand(f"Nothing matches {path}. Check the pattern.")


def has_glob(path: str) -> bool:
    return _GLOB_CHARACTERS.search(path) is not None


def _find_existing(spark: SparkSession, path: str) -> tuple[str, bool] | None:
    """Return the URL of an existing file or folder, and whether it is a file."""
    local = local_path(path)
    if local is not None:
        real = Path(local).resolve()
        return (f"file:{real}", real.is_file()) if real.exists() else None
    target = _hadoop(spark).Path(path)
    files = _file_system(spark, target)
    if not files.exists(target):
        return None
    status = files.getFileStatus(target)
    return str(status.getPath().toString()), bool(status.isFile())


def _glob_url(spark: SparkSession, path: str) -> str:
    """Return a glob as a URL."""
    if not has_glob(path):
        raise missing_path_error(path)
    local = local_path(path)
    target = _hadoop(spark).Path(path if local is None else f"file:{Path(local).absolute()}")
    files = _file_system(spark, target)
    if not files.globStatus(target):
        raise no_match_error(path)
    return str(files.makeQualified(target).toString())


def _glob_expressions(spark: SparkSession, pattern: str) -> list[tuple[str, ...]]:
    """Return the regular expressions of a glob's path steps, several lists if braces span more than one step."""
    hadoop = _hadoop(spark)
    return [
        tuple(str(hadoop.GlobPattern(step).compiled().pattern()) for step in str(glob).split("/"))
        for glob in hadoop.GlobExpander.expand(pattern)
    ]


def _file_system(spark: SparkSession, target: Any) -> Any:
    return target.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())


def _hadoop(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
