"""What executors of a cluster need of MDV, as one archive: of their own they bring a Python, with nothing in it."""

from __future__ import annotations

import hashlib
import re
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import mdv
from mdv.errors import BadCommand

if TYPE_CHECKING:
    from pyspark import SparkContext

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

FOLDER = "mdv-packages"
"""What an executor unpacks the archive as, beside its own files."""

SAME_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
"""The Python that executors need: packages are for one minor version."""

_LEFT_OUT_FOLDERS = {"__pycache__", "include", "tests"}
_LEFT_OUT_NAMES = ("*.c", "*.h", "*.pxd", "*.pxi", "*.pyi", "*.pyx", "*_flight*")
"""What one compiles against, tests, and a way over the network (Arrow Flight) that is not used."""

_COMPRESSION = 1
"""The quickest: the archive is made anew for each run that is not given one."""


def pack(target: Path) -> None:
    """Write the archive, a `.tar.gz`, for executors on this kind of machine with this minor version of Python."""
    with tarfile.open(target, "w:gz", compresslevel=_COMPRESSION, dereference=True) as archive:
        for source, name in _files():
            archive.add(source, name, recursive=False, filter=_anonymous)


def send(context: SparkContext, packages: Path | None = None) -> None:
    """Send the archive to the executors, and see that it works there: later it would fail in the midst of something.

    It is made anew where none is given, and where who submits has not sent one already.
    """
    from pyspark import SparkFiles

    conf = context.getConf()
    submitted = f"#{FOLDER}" in f"{conf.get('spark.archives', '')},{conf.get('spark.yarn.dist.archives', '')}"
    made_earlier = submitted or packages is not None
    if not submitted:
        if packages is None:
            # In a folder that Spark removes even if this process is killed.
            packages = Path(SparkFiles.getRootDirectory()) / "packed" / f"{FOLDER}.tar.gz"
            packages.parent.mkdir()
            pack(packages)
        context.addArchive(f"{packages.absolute().as_uri()}#{FOLDER}")
    if _try_out(context) != fingerprint() and made_earlier:
        raise BadCommand(
            "The executors were sent the packages of another MDV than this: make them anew, with "
            "`python -m mdv.batch.packages FILE`."
        )


def _try_out(context: SparkContext) -> str:
    """The fingerprint of the MDV that an executor has."""
    wanted = f"They need {SAME_PYTHON} on the same kind of machine as here; PYSPARK_PYTHON says where it is."
    try:
        return context.parallelize([0], 1).map(_fingerprint_there).first()
    except Exception as error:
        said = str(error)
        if "PYTHON_VERSION_MISMATCH" in said:
            raise BadCommand(f"{context.pythonExec}, on the executors, is of another version. {wanted}") from error
        if "Cannot run program" in said:
            raise BadCommand(f"The executors have no {context.pythonExec}. {wanted}") from error
        raise BadCommand(f"MDV does not run in the executors: {last_words(error)}. {wanted}") from error


def last_words(error: Exception) -> str:
    """What went wrong, of an error of Spark, without the way that led there.

    >>> last_words(Exception("An error occurred while calling o1.\\n: java.io.IOException: no room\\n\\tat X.java:1"))
    'java.io.IOException: no room'
    >>> last_words(Exception("An exception was thrown:\\nTraceback:\\n  File x\\nImportError: no mdv"))
    'ImportError: no mdv'
    """
    java = re.search(r"^: (.+)$", str(error), re.MULTILINE)
    return java[1] if java else [line for line in str(error).splitlines() if line.strip()][-1]


def _fingerprint_there(_: int) -> str:
    """In an executor: which MDV this is, if what the work begins with can be imported."""
    import mdv.mdp.register  # noqa: F401

    return fingerprint()


def fingerprint() -> str:
    """Of this MDV's own files: equal in a driver and in executors that have the same."""
    digest = hashlib.blake2b(digest_size=16)
    for source, name in _own_files():
        digest.update(f"{name}\n".encode() + hashlib.blake2b(source.read_bytes()).digest())
    return digest.hexdigest()


def _files() -> Iterator[tuple[Path, str]]:
    """Every file, and its name in the archive."""
    yield from _own_files()
    for package in sorted(_closure()):
        for name in distribution(package).files or ():
            if ".." not in name.parts and _is_wanted(name):  # programs lie outside
                yield Path(str(name.locate())), str(name)


def _own_files() -> Iterator[tuple[Path, str]]:
    home = Path(mdv.__file__).parent
    for source in sorted(home.rglob("*")):
        name = PurePosixPath(source.relative_to(home.parent).as_posix())
        if source.is_file() and _is_wanted(name):
            yield source, str(name)


def _closure() -> set[str]:
    """The names of all needed distributions."""
    from packaging.requirements import Requirement  # executors, who import this module as well, have it not

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
