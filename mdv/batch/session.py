"""Open a Spark session, local or on a cluster. It logs little, and leaves no files behind when it ends."""

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

from mdv.batch import jvm_cds
from mdv.batch.executor_packages import ARCHIVE_FOLDER, EXECUTOR_PYTHON, send_to_executors, spark_error_message
from mdv.batch.java import find_java, java_home
from mdv.errors import BadCommand, Unavailable

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_MASTER = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn")
_PYTHON_PATH_SETTING = "spark.executorEnv.PYTHONPATH"

MAX_TASK_FAILURES = 8
"""How often a task may fail. Spark's defaults are 4, and 1 for a local master; runs of several hours need more."""

JVM_OUT_OF_MEMORY_EXIT_CODE = 52
"""Exit code of Spark's JVM when it is out of memory."""

JVM_EXIT_TIMEOUT_SECONDS = 30.0
"""How long to wait for the JVM to exit."""

SPARK_SETTINGS = {
    "spark.app.name": "mdv batch",
    # Size of the input that a Python worker holds at once. Every worker holds it in Java, in Arrow and as objects, so
    # the default of 64 MiB needs more memory than small machines have.
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    # Tasks should take seconds: short enough to be repeated, and to show progress. Documents have a few kilobytes. With
    # Spark's default cost of 4 MiB for opening a file, a task would have only four of them.
    "spark.sql.files.maxPartitionBytes": "16m",
    "spark.sql.files.openCostInBytes": "64k",
    # Tasks after a shuffle have the same size.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
    "spark.task.maxFailures": str(MAX_TASK_FAILURES),
    # Skip a file that was deleted in the meantime.
    "spark.sql.files.ignoreMissingFiles": "true",
    # Spark lists each given path in a task of its own, up to 10,000 tasks. For thousands of paths, that took minutes.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    # Times do not depend on the location of the driver.
    "spark.sql.session.timeZone": "UTC",
    # Nothing is written there. The default would be a folder in the working directory.
    "spark.sql.warehouse.dir": (Path(tempfile.gettempdir()) / "spark-warehouse").as_uri(),
    # PySpark warns in each worker about the pandas version, but pandas is not used here.
    "spark.executorEnv.PYTHONWARNINGS": "ignore::FutureWarning",
}

LAUNCH_SETTINGS = {
    # MDV has its own progress bar. Spark's launcher shows one by default.
    "spark.ui.showConsoleProgress": "false",
}

LOCAL_SETTINGS = {
    # Executors of a cluster receive no pandas.
    "spark.python.daemon.module": "mdv.batch.daemon",
    # A local session needs no access from other machines.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}

DRIVER_JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVM options of the driver. The JVM only moves bytes, and Python does the work. Full compilation would take half a
minute of two cores and gain nothing."""

LOG4J_PROPERTIES = """\
# MDV reports the errors that end a run. Retried errors are not logged.
rootLogger.level = off
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = Spark: %m%n%ex{short}
# Otherwise this logger sets the level of all others to its own.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = off
# This logger warns when a cluster provides no executors, which would otherwise look like a stalled run.
logger.scheduler.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.scheduler.level = warn
logger.scheduler.filter.starved.type = RegexFilter
logger.scheduler.filter.starved.regex = .*has not accepted any resources.*
logger.scheduler.filter.starved.onMatch = accept
logger.scheduler.filter.starved.onMismatch = deny
"""


@contextmanager
def spark_session(
    master: str | None = None, options: Mapping[str, str] | None = None, packages: Path | None = None
) -> Iterator[SparkSession]:
    """Provide a Spark session for a block. See `open_session`."""
    spark = open_session(master, options, packages)
    try:
        yield spark
    except Exception as error:
        if close_session(spark) == JVM_OUT_OF_MEMORY_EXIT_CODE:
            raise Unavailable(
                "Spark's JVM is out of memory, perhaps because of a very long line in a dump."
                " Increase its memory, for example with --conf spark.driver.memory=4g."
            ) from error
        raise
    except BaseException:
        close_session(spark)
        raise
    close_session(spark)


def open_session(
    master: str | None = None, options: Mapping[str, str] | None = None, packages: Path | None = None
) -> SparkSession:
    """Open a Spark session on `master`; by default on that of spark-submit, otherwise on all cores of this machine.

    `options` are Spark settings. They override those of this module, and so do those of spark-submit and
    spark-defaults.conf. `packages` is a file of `executor_packages.build_archive` for the executors of a cluster; if
    None, it is built.
    """
    _require_pyspark()
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    given = dict(options or {}) | ({"spark.master": with_task_retries(master)} if master else {})
    conf = _start_java(given)
    conf.setMaster(with_task_retries(conf.get("spark.master") or "local[*]"))
    local = is_local(conf.get("spark.master") or "")
    for name, value in (SPARK_SETTINGS | (LOCAL_SETTINGS if local else {})).items():
        conf.setIfMissing(name, value)
    if not local:
        conf.set(_PYTHON_PATH_SETTING, ":".join(filter(None, (ARCHIVE_FOLDER, conf.get(_PYTHON_PATH_SETTING)))))
    with _environment(
        {"PYSPARK_PYTHON": conf.get("spark.pyspark.python", sys.executable if local else EXECUTOR_PYTHON)}
    ):
        spark = _connect(conf)
    if not local:
        try:
            send_to_executors(spark.sparkContext, packages)
        except BaseException:
            close_session(spark)
            raise
    return spark


def close_session(spark: SparkSession) -> int | None:
    """End the session and its JVM, and wait until they and their temporary folders are gone. Return the JVM's exit
    code."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    try:
        spark.stop()
    except (Py4JError, OSError):  # the JVM has exited by itself and may not respond
        SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None
    java: subprocess.Popen[bytes] | None = gateway.proc
    if java is None:  # it belongs to spark-submit, which ends it
        return None
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    assert java.stdin is not None
    java.stdin.close()  # tells the JVM to exit
    try:
        java.wait(JVM_EXIT_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()
    SparkContext._gateway = SparkContext._jvm = None
    return java.returncode


def is_local(master: str) -> bool:
    """True if everything runs in one JVM on this machine.

    >>> [is_local(master) for master in ("local", "local[2]", "local[*,4]", "local-cluster[2,1,1024]", "yarn")]
    [True, True, True, False, False]
    """
    return master == "local" or master.startswith("local[")


def with_task_retries(master: str) -> str:
    """Return a local master that retries failed tasks; any other master is returned unchanged.

    >>> [with_task_retries(master) for master in ("local", "local[2]", "local[*]", "local[2,1]", "spark://host:7077")]
    ['local[1,8]', 'local[2,8]', 'local[*,8]', 'local[2,1]', 'spark://host:7077']
    """
    if not _MASTER.fullmatch(master):
        raise BadCommand(f"{master} is not a Spark master. Use local[2], spark://HOST:PORT, k8s://URL or yarn.")
    if master == "local":
        return f"local[1,{MAX_TASK_FAILURES}]"
    return re.sub(r"^local\[([^,]+)\]$", rf"local[\1,{MAX_TASK_FAILURES}]", master)


def _require_pyspark() -> None:
    if not all(find_spec(name) for name in ("pyspark", "pyarrow", "pandas")):
        raise BadCommand("`mdv batch` needs Spark, which is not installed. Run pip install 'mdv[batch]'.")


def _connect(conf: SparkConf) -> SparkSession:
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as error:
        no_response = "stopped SparkContext" in str(error)  # raised because another thread gave up waiting
        why = "the master does not respond" if no_response else spark_error_message(error)
        raise BadCommand(
            f"Spark does not run on {conf.get('spark.master')}: {why}. Check --master and the cluster."
        ) from error


def _start_java(given: dict[str, str]) -> SparkConf:
    """Start the JVM, or use that of spark-submit. Return its configuration from files, with the given settings."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError

    with ExitStack() as launch:
        if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkContext._gateway is None:
            launch.enter_context(_launch_environment())
        try:
            SparkContext._ensure_initialized(
                conf=SparkConf(loadDefaults=False).setAll(list((LAUNCH_SETTINGS | given).items()))
            )
        except PySparkRuntimeError as error:
            raise BadCommand("Spark could not be started. See its messages above.") from error
    return SparkConf().setAll(list(given.items()))


@contextmanager
def _launch_environment() -> Iterator[None]:
    """Set up the environment in which the JVM starts. It reads its files at startup, so they can be removed
    afterwards."""
    java = find_java()
    with (
        java_home(java) as home,
        _environment(
            {
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                # In local mode all tasks share this memory: the needs of the JVM itself, and some large documents for
                # each core.
                "SPARK_DRIVER_MEMORY": f"{1024 + 256 * (os.cpu_count() or 1)}m",
            }
        ),
    ):
        options = f"{DRIVER_JVM_OPTIONS} {jvm_cds.jvm_options(java)}".strip()
        if os.environ.get("MDV_DEBUG") != "1":
            (home / "log4j2.properties").write_text(LOG4J_PROPERTIES, "utf-8")
            options += f" -Dlog4j2.configurationFile={(home / 'log4j2.properties').as_uri()}"
        options += f" {os.environ.get('SPARK_SUBMIT_OPTS', '')}"  # of two contradicting options, the last one wins
        changed = {"JAVA_HOME": str(home), "SPARK_SUBMIT_OPTS": options.strip()}
        if "utf" not in locale.getencoding().lower() or os.environ.get("LC_ALL") in ("C", "POSIX"):
            changed["LC_ALL"] = "C.UTF-8"  # otherwise Java would skip files whose names are not ASCII
        with _environment(changed, override=True):
            yield


@contextmanager
def _environment(values: Mapping[str, str], override: bool = False) -> Iterator[None]:
    """Set environment variables for a block. Variables that are set already keep their value unless `override` is
    true."""
    before = {name: os.environ.get(name) for name in values}
    for name, value in values.items():
        if override or before[name] is None:
            os.environ[name] = value
    try:
        yield
    finally:
        for name, old in before.items():
            os.environ.pop(name, None)
            if old is not None:
                os.environ[name] = old
