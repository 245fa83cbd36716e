"""A real Spark cluster on this machine: a master, two workers, and a Python without installed packages."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from mdv.batch import jvm_cds
from mdv.batch.java import find_java, java_home
from mdv.batch.session import DRIVER_JVM_OPTIONS
from mdv.supervise import has_ended, start_child, stop_process
from tests.support.eventually import eventually

SPARK_HOME = Path(pyspark.__file__).parent
SPARK_CLASS = SPARK_HOME / "bin" / "spark-class"
START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster. `environment` and `conf` are for a driver: its executors run on a bare Python."""

    url: str
    python: Path
    master: int
    workers: tuple[int, ...]
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("MDV_", "SPARK_", "PYSPARK_"))}
        return own | {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": _jvm_options(),
            "PYSPARK_PYTHON": str(self.python),
        }

    @property
    def conf(self) -> list[str]:
        """Return arguments for a driver: its executors start as fast as the rest of the cluster."""
        return ["--conf", f"spark.executor.extraJavaOptions={_jvm_options()}"]

    def executors(self) -> list[int]:
        """Return the running executor processes: children of the workers."""
        return [pid for pid in map(int, _running()) if _parent(pid) in self.workers]


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """A cluster whose workers have a core and 1 GB each; it ends with the block and with this process."""
    bare = folder / "python"
    venv.create(bare, with_pip=False, symlinks=True)
    with ExitStack() as running:
        home = running.enter_context(java_home(find_java()))
        environment = _environment(folder, home)

        def start(role: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
            log = folder / f"{role.rsplit('.', 1)[1].lower()}-{len(list(folder.glob('*.log')))}.log"
            process = start_child(
                [str(SPARK_CLASS), f"org.apache.spark.deploy.{role}", "--host", "127.0.0.1", *arguments],
                log=log,
                env=environment,
                cwd=folder,
            )
            running.callback(stop_process, process, [(signal.SIGTERM, 20.0)])
            return process, log

        master, log = start("master.Master", "--port", "0", "--webui-port", "0")
        url = _wait_for(r"Starting Spark master at (spark://\S+)", master, log)
        size = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder / "work"))
        started = [start("worker.Worker", *size, url) for _ in range(workers)]
        for worker, log in started:
            _wait_for(r"(Successfully registered with master)", worker, log)
        yield Cluster(url, bare / "bin" / "python", master.pid, tuple(worker.pid for worker, _ in started), folder)


def _jvm_options() -> str:
    """Return the options of MDV's own JVMs. They start in half the time."""
    return f"{DRIVER_JVM_OPTIONS} {jvm_cds.jvm_options(find_java())}"


def _environment(folder: Path, home: Path) -> dict[str, str]:
    scratch = folder / "scratch"
    scratch.mkdir()
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    return own | {
        "JAVA_HOME": str(home),
        "PYSPARK_DRIVER_PYTHON": sys.executable,  # finds where Spark lies
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{_jvm_options()} -Djava.io.tmpdir={scratch}",
        "SPARK_HOME": str(SPARK_HOME),
    }


def _wait_for(pattern: str, process: subprocess.Popen[bytes], log: Path) -> str:
    def found() -> re.Match[str] | None:
        text = log.read_text("utf-8", "replace")
        assert not has_ended(process), f"{log.stem} of the cluster did not start:\n{text}"
        return re.search(pattern, text)

    return eventually(found, START_SECONDS, interval=0.05, detail=lambda: log.read_text("utf-8", "replace"))[1]


def _running() -> list[str]:
    return [path.name for path in Path("/proc").glob("[0-9]*")]


def _parent(pid: int) -> int | None:
    with suppress(FileNotFoundError, ProcessLookupError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return None
