"""A faster start: the classes that Spark loads, read once and kept for Java in one file (class data sharing).

With it a session starts in half the time. The file is made by `python -m mdv.batch.warm`, which `mdv batch` starts in
the background, on a terminal, after its first run. It fits one Java and one PySpark; for others it is made anew. Where
it is missing, or does not fit after all, Java reads its classes as ever.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from mdv.batch.java import Java, find_java

_SILENT = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"
_ROOM = 400 * 2**20

_into: Path | None = None
"""Where the Java that is about to start is to write the file, if it is."""


def options(java: Java) -> str:
    """Options for a Java that is about to start: to use the file, or to write it."""
    if _into is not None:
        return f"-XX:ArchiveClassesAtExit={_into} -Xlog:disable"
    file = kept(java)
    return f"-XX:SharedArchiveFile={file} {_SILENT}" if file.is_file() else ""


def kept(java: Java) -> Path:
    """Where the file for a Java is, or will be."""
    import pyspark

    place = Path(pyspark.__file__).parent
    key = f"{java.program.resolve()} {java.program.resolve().stat().st_mtime_ns} {place} {pyspark.__version__}"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "mdv" / f"spark-{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}.jsa"


def is_wanted(java: Java) -> bool:
    """Whether the file is missing, and there is room for it."""
    try:
        file = kept(java)
        if file.exists():
            return False
        file.parent.mkdir(parents=True, exist_ok=True)
        room = os.statvfs(file.parent)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize > _ROOM and os.access(file.parent, os.W_OK)


def start_in_background() -> None:
    """Make the file, while nobody waits for it."""
    if is_wanted(find_java()):
        subprocess.Popen(
            ["nice", "-n", "19", sys.executable, "-m", "mdv.batch.warm"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            cwd=tempfile.gettempdir(),
        )  # fmt: skip


def make() -> None:
    """Run what every batch runs, and keep the classes that this took."""
    global _into
    java = find_java()
    if not is_wanted(java):
        return
    file = kept(java)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=file.parent) as folder:
        new = Path(folder) / "classes.jsa"
        _into = new
        _work(Path(folder))
        if new.is_file():
            new.replace(file)


def _work(folder: Path) -> None:
    from pyspark.sql import functions as f

    from mdv.batch import session

    session.PATIENCE = 300.0  # the file is written when Java ends
    (folder / "a.rdf").write_bytes(b"<a/>")
    with session.session("local[1]") as spark:
        files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(str(folder))
        seen = files.filter(f.col("_metadata.file_path").rlike("rdf$")).select("path", "length", "content")
        same = seen.mapInArrow(lambda batches: batches, "path string, length long, content binary")
        same.groupBy("path").agg(f.count("*"), f.max("length")).collect()
        same.select("path").repartition("path").sortWithinPartitions("path").write.parquet(str(folder / "rejects"))
        same.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    # Not under the name of a script: sessions ask the module of the other name.
    from mdv.batch import warm

    warm.make()
