"""Build one archive of everything that the executors of a cluster need from MDV. They provide a bare Python only."""

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

EXECUTOR_REQUIREMENTS = (
    "lark",
    "lxml",
    "prometheus-client",
    "psycopg[binary]",
    "pyarrow",
    "pyoxigraph",
    "sqlalchemy",
    "structlog",
)
"""Packages that the code in executors imports. Their dependencies are added. Spark provides PySpark."""

ARCHIVE_FOLDER = "mdv-packages"
"""The folder into which an executor unpacks the archive, next to its own files."""

EXECUTOR_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
"""The Python executable that executors need. Binary packages are for one minor version."""

_EXCLUDED_FOLDERS = {"__pycache__", "include", "tests"}
_EXCLUDED_PATTERNS = ("*.c", "*.h", "*.pxd", "*.pxi", "*.pyi", "*.pyx", "*_flight*")
"""Left out: headers and sources for compilation, tests, and Arrow Flight."""

_COMPRESSION = 1
"""The fastest level, since runs without a given archive build one each time."""


def build_archive(target: Path) -> None:
    """Write the archive, a `.tar.gz`, for executors on this kind of machine with this minor version of Python."""
    with tarfile.open(target, "w:gz", compresslevel=_COMPRESSION, dereference=True) as archive:
        for source, name in _files():
            archive.add(source, name, recursive=False, filter=_without_owner)


def send_to_executors(context: SparkContext, packages: Path | None = None) -> None:
    """Send the archive to the executors, and check that it works there, so that errors occur early.

    It is built if none is given and the submitter has not sent one already.
    """
    from pyspark import SparkFiles

    conf = context.getConf()
    submitted = f"#{ARCHIVE_FOLDER}" in f"{conf.get('spark.archives', '')},{conf.get('spark.yarn.dist.archives', '')}"
    built_earlier = submitted or packages is not None
    if not submitted:
        if packages is None:
            # Spark removes this folder even if this process is killed.
            packages = Path(SparkFiles.getRootDirectory()) / "packed" / f"{ARCHIVE_FOLDER}.tar.gz"
            packages.parent.mkdir()
            build_archive(packages)
        context.addArchive(f"{packages.absolute().as_uri()}#{ARCHIVE_FOLDER}")
    if _test_executor(context) != code_fingerprint() and built_earlier:
        raise BadCommand(
            "The executors have the packages of another version of MDV. Build them again with "
            "`python -m mdv.batch.executor_packages FILE`."
        )


def _test_executor(context: SparkContext) -> str:
    """Return the fingerprint of the MDV on an executor."""
    wanted = (
        f"Executors need {EXECUTOR_PYTHON} on the same kind of machine as the driver. Set PYSPARK_PYTHON to its path."
    )
    try:
        return context.parallelize([0], 1).map(_executor_fingerprint).first()
    except Exception as error:
        message = str(error)
        if "PYTHON_VERSION_MISMATCH" in message:
            raise BadCommand(f"{context.pythonExec} on the executors has another version. {wanted}") from error
        if "Cannot run program" in message:
            raise BadCommand(f"The executors have no {context.pythonExec}. {wanted}") from error
        raise BadCommand(f"MDV does not run in the executors: {spark_error_message(error)}. {wanted}") from error


def spark_error_message(error: Exception) -> str:
    """Return the message of a Spark error without its stack trace.

    >>> spark_error_message(Exception("An error occurred in o1.\\n: java.io.IOException: no room\\n\\tat X.java:1"))
    'java.io.IOException: no room'
    >>> spark_error_message(Exception("An exception was thrown:\\nTraceback:\\n  File x\\nImportError: no mdv"))
    'ImportError: no mdv'
    """
    java = re.search(r"^: (.+)$", str(error), re.MULTILINE)
    return java[1] if java else [line for line in str(error).splitlines() if line.strip()][-1]


def _executor_fingerprint(_: int) -> str:
    """Return the fingerprint of MDV in an executor, if the modules that it needs can be imported."""
    import mdv.mdp.register  # noqa: F401

    return code_fingerprint()


def code_fingerprint() -> str:
    """Return a digest of MDV's own files. It is equal if the driver and the executors have the same code."""
    digest = hashlib.blake2b(digest_size=16)
    for source, name in _own_files():
        digest.update(f"{name}\n".encode() + hashlib.blake2b(source.read_bytes()).digest())
    return digest.hexdigest()


def _files() -> Iterator[tuple[Path, str]]:
    """Yield every file, and its name in the archive."""
    yield from _own_files()
    for package in sorted(_required_distributions()):
        for name in distribution(package).files or ():
            if ".." not in name.parts and _is_included(name):  # executables are outside of the package folder
                yield Path(str(name.locate())), str(name)


def _own_files() -> Iterator[tuple[Path, str]]:
    home = Path(mdv.__file__).parent
    for source in sorted(home.rglob("*")):
        name = PurePosixPath(source.relative_to(home.parent).as_posix())
        if source.is_file() and _is_included(name):
            yield source, str(name)


def _required_distributions() -> set[str]:
    """Return the names of all required distributions."""
    from packaging.requirements import Requirement  # not available in executors, which also import this module

    found: set[str] = set()
    todo = [Requirement(name) for name in EXECUTOR_REQUIREMENTS]
    while todo:
        requirement = todo.pop()
        try:
            wanted = distribution(requirement.name).requires or []
        except PackageNotFoundError as error:
            raise BadCommand(
                f"The package {requirement.name} for the executors is not installed. Run pip install 'mdv[batch]'."
            ) from error
        found.add(requirement.name.lower())
        for needed in map(Requirement, wanted):
            extras = requirement.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                todo += [needed] if needed.name.lower() not in found else []
    return found


def _is_included(name: PurePosixPath) -> bool:
    return not _EXCLUDED_FOLDERS & set(name.parts) and not any(name.match(pattern) for pattern in _EXCLUDED_PATTERNS)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the owner of a file, which does not exist on other machines."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    """`python -m mdv.batch.executor_packages FILE` builds the archive once for many runs."""
    if len(sys.argv) != 2:
        raise SystemExit("No file was given. Usage: python -m mdv.batch.executor_packages FILE.tar.gz")
    target = Path(sys.argv[1])
    build_archive(target)
    sys.stdout.write(f"{target}: {target.stat().st_size / 1e6:.0f} MB\n")


if __name__ == "__main__":
    main()
