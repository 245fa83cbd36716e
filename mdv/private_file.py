"""Write private files atomically."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_private_file(path: Path, text: str, folder: Path | None = None, owner: tuple[int, int] | None = None) -> None:
    """Write a file with mode 0600 atomically.

    `folder` is where the temporary file is written, by default next to `path`. `owner` is the uid and gid of the file.
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
