"""A Spark session: local or on a cluster, quiet, and gone without a trace when it ends."""

from __future__ import annotations

import locale
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdv.batch import warm
from mdv.batch.java import find_java, java_home
from mdv.batch.packages import FOLDER, SAME_PYTHON, last_words, send
from mdv.errors import BadCommand, Unavailable

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_MASTER = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn")
_PATH = "spark.executorEnv.PYTHONPATH"

FAILURES = 8
"""How often a task may fail. Spark's own number is 4, and 1 for a local master; a run of hours outlives more."""

OUT_OF_MEMORY = 52
"""With which Spark's Java ends when it has none left."""

PATIENCE = 30.0
"""Seconds that Java has for its farewell."""

SETTINGS = {
    "spark.app.name": "mdv batch",
    # How much of the input a Python worker holds at once. The default of 64 MiB, held by every worker in Java, in Arrow
    # and as objects, is more than a small machine has.
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    # A task of seconds: small enough to be lost and done again, and to show progress. A document is some kilobytes; at
    # Spark's cost of 4 MiB for opening a file a task would have four of them.
    "spark.sql.files.maxPartitionBytes": "16m",
    "spark.sql.files.openCostInBytes": "64k",
    # After a shuffle tasks are as large as when reading.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
    "spark.task.maxFailures": str(FAILURES),
    # A file that is gone when its turn comes stops no other.
    "spark.sql.files.ignoreMissingFiles": "true",
    # Spark looks at each path given in a task of its own, 10,000 at most: for paths by the thousand that took minutes.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    # A time means the same wherever the driver runs.
    "spark.sql.session.timeZone": "UTC",
    # Nothing is written there; the default would be a folder where the driver runs.
    "spark.sql.warehouse.dir": (Path(tempfile.gettempdir()) / "spark-warehouse").as_uri(),
    # PySpark warns in each worker that pandas is new; of pandas nothing is used here.
    "spark.executorEnv.PYTHONWARNINGS": "ignore::FutureWarning",
}

AT_LAUNCH = {
    # There is a bar of our own; Spark's launcher shows its own if nothing is said.
    "spark.ui.showConsoleProgress": "false",
}

LOCAL_SETTINGS = {
    # Executors of a cluster are sent no pandas.
    "spark.python.daemon.module": "mdv.batch.daemon",
    # Nobody else has to reach a session that begins and ends on this machine.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}

LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of the driver's Java. It moves bytes, and Python does the work: to compile it thoroughly would take half a
minute from two cores, and give nothing back."""

QUIET = """\
# What ends a run is raised, and told by MDV; what is tried again is nobody's concern.
rootLogger.level = off
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = Spark: %m%n%ex{short}
# Otherwise it sets the level of all others to its own.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = off
# It says when a cluster gives no executors, which would otherwise look like work that does not get on.
logger.scheduler.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.scheduler.level = warn
logger.scheduler.filter.starved.type = RegexFilter
logger.scheduler.filter.starved.regex = .*has not accepted any resources.*
logger.scheduler.filter.starved.onMatch = accept
logger.scheduler.filter.starved.onMismatch = deny
"""


@contextmanager
def session(
    master: str | None = None, options: Mapping[str, str] | None = None, packages: Path | None = None
) -> Iterator[SparkSession]:
    """A Spark session for a block. See `open_session`."""
    spark = open_session(master, options, packages)
    try:
        yield spark
    except Exception as error:
        if close_session(spark) == OUT_OF_MEMORY:
            raise Unavailable(
                "Java has no memory left: is a line of a dump very long? --conf spark.driver.memory=4g gives it more."
            ) from error
        raise
    except BaseException:
        close_session(spark)
        raise
    close_session(spark)


def open_session(
    master: str | None = None, options: Mapping[str, str] | None = None, packages: Path | None = None
) -> SparkSession:
    """A Spark session on `master`: by default where spark-submit says, otherwise on all cores of this machine.

    `options` are settings of Spark. They go before those of this module, and so do those of spark-submit and of
    spark-defaults.conf. `packages` is a file of `packages.pack` for the executors of a cluster, made anew if None.
    """
    _need_pyspark()
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    given = dict(options or {}) | ({"spark.master": retrying(master)} if master else {})
    conf = _start_java(given)
    conf.setMaster(retrying(conf.get("spark.master") or "local[*]"))
    local = is_local(conf.get("spark.master") or "")
    for name, value in (SETTINGS | (LOCAL_SETTINGS if local else {})).items():
        conf.setIfMissing(name, value)
    if not local:
        conf.set(_PATH, ":".join(filter(None, (FOLDER, conf.get(_PATH)))))
    with _environment({"PYSPARK_PYTHON": conf.get("spark.pyspark.python", sys.executable if local else SAME_PYTHON)}):
        spark = _connect(conf)
    if not local:
        try:
            send(spark.sparkContext, packages)
        except BaseException:
            close_session(spark)
            raise
    return spark


def close_session(spark: SparkSession) -> int | None:
    """End the session and its Java, and wait until they are gone, with all their temporary folders; how Java ended."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    try:
        spark.stop()
    except (Py4JError, OSError):  # Java has ended by itself, and may answer no more
        SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None
    java: subprocess.Popen[bytes] | None = gateway.proc
    if java is None:  # it belongs to spark-submit, which ends it
        return None
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    assert java.stdin is not None
    java.stdin.close()  # the sign to go
    try:
        java.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()
    SparkContext._gateway = SparkContext._jvm = None
    return java.returncode


def is_local(master: str) -> bool:
    """Whether everything runs in one process of Java on this machine.

    >>> [is_local(master) for master in ("local", "local[2]", "local[*,4]", "local-cluster[2,1,1024]", "yarn")]
    [True, True, True, False, False]
    """
    return master == "local" or master.startswith("local[")


def retrying(master: str) -> str:
    """A local master that tries a failed task again; any other as it is.

    >>> [retrying(master) for master in ("local", "local[2]", "local[*]", "local[2,1]", "spark://host:7077")]
    ['local[1,8]', 'local[2,8]', 'local[*,8]', 'local[2,1]', 'spark://host:7077']
    """
    if not _MASTER.fullmatch(master):
        raise BadCommand(f"{master} is no master of Spark: say local[2], spark://HOST:PORT, k8s://URL or yarn.")
    if master == "local":
        return f"local[1,{FAILURES}]"
    return re.sub(r"^local\[([^,]+)\]$", rf"local[\1,{FAILURES}]", master)


def _need_pyspark() -> None:
    if not all(find_spec(name) for name in ("pyspark", "pyarrow", "pandas")):
        raise BadCommand("`mdv batch` needs Spark, which is not installed: pip install 'mdv[batch]'.")


def _connect(conf: SparkConf) -> SparkSession:
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as error:
        silent = "stopped SparkContext" in str(error)  # it is told that by the thread that gave up waiting
        why = "nobody answers there" if silent else last_words(error)
        raise BadCommand(f"Spark does not run on {conf.get('spark.master')}: {why}.") from error


def _start_java(given: dict[str, str]) -> SparkConf:
    """Start Java, or find that of spark-submit; the configuration that it knows from its files, and what is given."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError

    with ExitStack() as launch:
        if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkContext._gateway is None:
            launch.enter_context(_launching())
        try:
            SparkContext._ensure_initialized(
                conf=SparkConf(loadDefaults=False).setAll(list((AT_LAUNCH | given).items()))
            )
        except PySparkRuntimeError as error:
            raise BadCommand("Spark could not be started. What it says about that is above.") from error
    return SparkConf().setAll(list(given.items()))


@contextmanager
def _launching() -> Iterator[None]:
    """The surroundings that Java is started in. It reads its files at the start, so they can go as soon as it runs."""
    java = find_java()
    with (
        java_home(java) as home,
        _environment(
            {
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                # In local mode all tasks share this: what Java itself needs, and some large documents for each core.
                "SPARK_DRIVER_MEMORY": f"{1024 + 256 * (os.cpu_count() or 1)}m",
            }
        ),
    ):
        options = f"{LIGHT} {warm.options(java)}".strip()
        if os.environ.get("MDV_DEBUG") != "1":
            (home / "log4j2.properties").write_text(QUIET, "utf-8")
            options += f" -Dlog4j2.configurationFile={(home / 'log4j2.properties').as_uri()}"
        options += f" {os.environ.get('SPARK_SUBMIT_OPTS', '')}"  # the last of two that contradict each other counts
        changed = {"JAVA_HOME": str(home), "SPARK_SUBMIT_OPTS": options.strip()}
        if "utf" not in locale.getencoding().lower() or os.environ.get("LC_ALL") in ("C", "POSIX"):
            changed["LC_ALL"] = "C.UTF-8"  # else Java would see no file whose name is not ASCII
        with _environment(changed, instead=True):
            yield


@contextmanager
def _environment(values: Mapping[str, str], instead: bool = False) -> Iterator[None]:
    """Variables for a block; one that is set already stays, unless the new value is to stand instead."""
    before = {name: os.environ.get(name) for name in values}
    for name, value in values.items():
        if instead or before[name] is None:
            os.environ[name] = value
    try:
        yield
    finally:
        for name, old in before.items():
            os.environ.pop(name, None)
            if old is not None:
                os.environ[name] = old
