"""The scripts and styles that the pages of the web UI refer to, and which of them an installation lacks.

Uses the standard library alone: the package build runs it before anything is installed.
"""

from __future__ import annotations

import re
from pathlib import Path

_REFERENCE = re.compile(r"url_for\(\s*'static',\s*filename='([^']+)'")


def static_files(web: Path) -> list[str]:
    """The static files that the templates of the package `web` refer to, relative to its folder `static`."""
    templates = (web / "templates").rglob("*.html")
    return sorted({name for template in templates for name in _REFERENCE.findall(template.read_text("utf-8"))})


def missing_static_files(web: Path) -> list[str]:
    """Those that do not exist, or are empty."""

    def is_there(name: str) -> bool:
        path = web / "static" / name
        return path.is_file() and path.stat().st_size > 0

    return [name for name in static_files(web) if not is_there(name)]
