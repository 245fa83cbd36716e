"""What executors of a cluster need of MDV, as one archive: a Python of the same minor version is all they have to bring."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

import mdv
from mdv.errors import BadCommand

NEEDED = (
    "lark",
    "lxml",
    "prometheus-client",
    "psycopg[binary]",
    "pyarrow",
    "pyoxigraph",
    "sqlalchemy",
    "structlog",
)
"""What the code that runs in executors imports; what these need in turn comes by itself. Spark brings PySpark."""

_LEFT_OUT_FOLDERS = {"__pycache__", "include", "tests"}
_LEFT_OUT_NAMES = ("*.c", "*.h", "*.pxd", "*.pxi", "*.pyi", "*.pyx", "*_flight*")
"""Half of pyarrow: what one compiles against, its own tests, and ways over the network that are not gone."""

_COMPRESSION = 1
"""Twice as fast as the usual 6, for a tenth more to send."""


def pack(target: Path) -> None:
    """Write the archive, a `.tar.gz`, for executors on this kind of machine with this minor version of Python."""
    with tarfile.open(target, "w:gz", compresslevel=_COMPRESSION, dereference=True) as archive:
        for source, name in _files():
            archive.add(source, name, recursive=False, filter=_anonymous)


def _files() -> Iterator[tuple[Path, str]]:
    """Every file, and its name in the archive."""
    home = Path(mdv.__file__).parent
    for source in sorted(home.rglob("*")):
        name = PurePosixPath(source.relative_to(home.parent).as_posix())
        if source.is_file() and _is_wanted(name):
            yield source, str(name)
    for package in sorted(_closure()):
        for name in distribution(package).files or ():
            if ".." not in name.parts and _is_wanted(name):  # programs lie outside
                yield Path(str(name.locate())), str(name)


def _closure() -> set[str]:
    """The names of all needed distributions."""
    found: set[str] = set()
    todo = [Requirement(name) for name in NEEDED]
    while todo:
        requirement = todo.pop()
        try:
            wanted = distribution(requirement.name).requires or []
        except PackageNotFoundError as error:
            raise BadCommand(
                f"The package {requirement.name} for the executors is not installed: pip install 'mdv[batch]'."
            ) from error
        found.add(requirement.name.lower())
        for needed in map(Requirement, wanted):
            extras = requirement.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                todo += [needed] if needed.name.lower() not in found else []
    return found


def _is_wanted(name: PurePosixPath) -> bool:
    return not _LEFT_OUT_FOLDERS & set(name.parts) and not any(name.match(pattern) for pattern in _LEFT_OUT_NAMES)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A file without its owner, whom other machines do not know."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    """`python -m mdv.batch.packages FILE`: make the archive ahead, for many runs."""
    if len(sys.argv) != 2:
        raise SystemExit("Say where to: python -m mdv.batch.packages FILE.tar.gz")
    target = Path(sys.argv[1])
    pack(target)
    sys.stdout.write(f"{target}: {target.stat().st_size / 1e6:.0f} MB\n")


if __name__ == "__main__":
    main()
