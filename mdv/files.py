"""Files that are private, and written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_private(path: Path, text: str, folder: Path | None = None, owner: tuple[int, int] | None = None) -> None:
    """Write a file of mode 0600, whole or not at all.

    `folder` is where it grows before it takes its place; `owner`, a user and a group, who it is given to.
    """
    descriptor, name = tempfile.mkstemp(prefix=".new-", dir=folder or path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
