"""Arguments: what the paths of a command line mean in the file systems that Spark reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from mdv.batch.unpack import words
from mdv.errors import BadCommand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_WILD = re.compile(r"[*?\[\]{}\\]")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The paths that were given: what Spark is to read, and where a file lies below them."""

    paths: tuple[str, ...]
    """As Spark's readers take them: wild only where a glob is meant."""
    named: Mapping[str, int]
    """The files and folders named, and the number of the argument that names each."""
    globs: tuple[tuple[int, tuple[str, ...]], ...]
    """The globs with their numbers, each as the regular expressions of its steps from folder to folder."""
    files: tuple[str, ...]
    """Of what is named the files: these are meant whatever their suffixes."""

    def place(self, path: str) -> tuple[int, str]:
        """The number of the argument through which a file was found, and the file's path below it.

        >>> Arguments((), {"file:/books": 0}, ((1, ("file:", ".*")),), ()).place("file:/books/2014/pg42.rdf")
        (0, '2014/pg42.rdf')
        >>> Arguments((), {}, ((1, ("file:", "bo.*", r".*\\.rdf")),), ()).place("file:/books/pg42.rdf")
        (1, 'pg42.rdf')
        """
        above, below = path, ""
        while above:
            if above in self.named:
                return self.named[above], below or _last(path)
            above, _, step = above.rpartition("/")
            below = f"{step}/{below}" if below else step
        steps = path.split("/")
        for number, glob in self.globs:
            if len(steps) >= len(glob) and all(map(_fits, glob, steps)):
                return number, "/".join(steps[len(glob) :]) or _last(path)
        return 0, _last(path)  # found behind a name that the file system itself makes another of


def _last(path: str) -> str:
    return path.rpartition("/")[2]


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def _fits(pattern: str, step: str) -> bool:
    return _expression(pattern).fullmatch(step) is not None


def escaped(path: str) -> str:
    """A path that is meant as it stands, for readers that take globs.

    >>> escaped("file:/a[1].rdf")
    'file:/a\\\\[1\\\\].rdf'
    """
    return _WILD.sub(r"\\\g<0>", path)


def find_arguments(spark: SparkSession, given: Sequence[str], below: str | None = None) -> Arguments:
    """Look up what was given: files, folders and globs, of this machine or by the URL of any file system.

    With `below`, a folder, all of it lies there and is named as if only the folder had been given.
    """
    if not given:
        raise BadCommand("Say what to register: files, folders, globs or archives.")
    paths: dict[str, None] = {}
    named: dict[str, int] = {}
    globs: list[tuple[int, tuple[str, ...]]] = []
    files: list[str] = []
    for number, path in enumerate(given):
        try:
            found = _find(spark, path)
            if found is None:
                pattern = _pattern(spark, path)
                paths[pattern] = None
                globs += [(number, steps) for steps in _steps(spark, pattern)]
                continue
        except Py4JJavaError as error:
            raise BadCommand(f"{path} cannot be read: {words(error.java_exception.getMessage())}.") from None
        url, is_file = found
        paths[escaped(url)] = None
        named.setdefault(url.rstrip("/"), number)
        if is_file:
            _refuse_hidden(path)
            files.append(url)
    if below is not None:
        named, globs = dict.fromkeys(find_arguments(spark, [below]).named, 0), []
    return Arguments(tuple(paths), named, tuple(globs), tuple(files))


def _refuse_hidden(path: str) -> None:
    if path.rpartition("/")[2].startswith((".", "_")):
        raise BadCommand(f"{path} is hidden from Spark, as all whose names begin with . or _ are: rename it.")


def _local(path: str) -> str | None:
    """The path on this machine; None for that of another file system.

    >>> _local("/a/b"), _local("file:///a/b"), _local("file:/a/b"), _local("hdfs://host/a/b")
    ('/a/b', '/a/b', '/a/b', None)
    """
    return re.sub(r"^file:(//)?(?=/)", "", path) if path.startswith("file:") or not _SCHEME.match(path) else None


def _find(spark: SparkSession, path: str) -> tuple[str, bool] | None:
    """The URL of a file or folder that is there, and whether it is a file."""
    local = _local(path)
    if local is not None:
        real = Path(local).resolve()
        return (f"file:{real}", real.is_file()) if real.exists() else None
    target = _hadoop(spark).Path(path)
    files = _files(spark, target)
    if not files.exists(target):
        return None
    status = files.getFileStatus(target)
    return str(status.getPath().toString()), bool(status.isFile())


def _pattern(spark: SparkSession, path: str) -> str:
    """A glob as a URL."""
    if not _WILD.search(path):
        raise BadCommand(f"There is no file or folder {path}.")
    local = _local(path)
    target = _hadoop(spark).Path(path if local is None else f"file:{Path(local).absolute()}")
    files = _files(spark, target)
    if not files.globStatus(target):
        raise BadCommand(f"Nothing matches {path}.")
    return str(files.makeQualified(target).toString())


def _steps(spark: SparkSession, pattern: str) -> list[tuple[str, ...]]:
    """The regular expressions of a glob's steps; several times where braces go beyond one step."""
    hadoop = _hadoop(spark)
    return [
        tuple(str(hadoop.GlobPattern(step).compiled().pattern()) for step in str(glob).split("/"))
        for glob in hadoop.GlobExpander.expand(pattern)
    ]


def _files(spark: SparkSession, target: Any) -> Any:
    return target.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())


def _hadoop(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
