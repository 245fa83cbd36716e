"""Class data sharing: keep the classes that Spark loads in one file, so that the JVM starts faster.

A session then starts in half the time. The file is built by `python -m mdv.batch.jvm_cds`. On a terminal, `mdv batch`
starts that in the background after its first run. The file is valid for one Java and one PySpark version; for others,
it is built again. Without a valid file, the JVM loads its classes as usual.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from mdv.batch.java import Java, find_java

_QUIET_OPTIONS = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr -Xlog:cds*=off:stderr"
"""Ignore an unusable file. Java 25 reports it as an error, although it continues without it."""
_REQUIRED_DISK_BYTES = 400 * 2**20

_output_file: Path | None = None
"""The file that the next JVM is to write, if any."""


def jvm_options(java: Java) -> str:
    """Return the options for a new JVM, to use the file or to write it."""
    if _output_file is not None:
        return f"-XX:ArchiveClassesAtExit={_output_file} -Xlog:disable"
    file = archive_path(java)
    return f"-XX:SharedArchiveFile={file} {_QUIET_OPTIONS}" if file.is_file() else ""


def archive_path(java: Java) -> Path:
    """Return the path of the file for a Java, whether it exists or not."""
    import pyspark

    package_folder = Path(pyspark.__file__).parent
    key = f"{java.program.resolve()} {java.program.resolve().stat().st_mtime_ns} {package_folder} {pyspark.__version__}"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "mdv" / f"spark-{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}.jsa"


def should_build(java: Java) -> bool:
    """True if the file is missing and there is enough disk space for it."""
    try:
        file = archive_path(java)
        if file.exists():
            return False
        file.parent.mkdir(parents=True, exist_ok=True)
        disk = os.statvfs(file.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize > _REQUIRED_DISK_BYTES and os.access(file.parent, os.W_OK)


def build_in_background() -> None:
    """Build the file in a background process."""
    if should_build(find_java()):
        subprocess.Popen(
            ["nice", "-n", "19", sys.executable, "-m", "mdv.batch.jvm_cds"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            cwd=tempfile.gettempdir(),
        )  # fmt: skip


def build() -> None:
    """Run the steps of a typical batch, and keep the classes that were loaded."""
    global _output_file
    java = find_java()
    if not should_build(java):
        return
    file = archive_path(java)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=file.parent) as folder:
        new = Path(folder) / "classes.jsa"
        _output_file = new
        _run_sample_batch(Path(folder))
        if new.is_file():
            new.replace(file)


def _run_sample_batch(folder: Path) -> None:
    from pyspark.sql import functions as f

    from mdv.batch import session

    session.JVM_EXIT_TIMEOUT_SECONDS = 300.0  # the JVM writes the file at its exit
    (folder / "a.rdf").write_bytes(b"<a/>")
    with session.spark_session("local[1]") as spark:
        files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(str(folder))
        seen = files.filter(f.col("_metadata.file_path").rlike("rdf$")).select("path", "length", "content")
        same = seen.mapInArrow(lambda batches: batches, "path string, length long, content binary")
        same.groupBy("path").agg(f.count("*"), f.max("length")).collect()
        same.select("path").repartition("path").sortWithinPartitions("path").write.parquet(str(folder / "rejects"))
        same.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    # Not as __main__: sessions use the module by its own name.
    from mdv.batch import jvm_cds

    jvm_cds.build()
