"""`mdv batch` without Spark: when it is chosen, and that a run survives kills and Ctrl-C as on Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mdv.batch import choose_way as choice
from mdv.batch.choose_way import BatchInput, choose_way
from mdv.batch.document_naming import Naming
from mdv.batch.local_preparation import order_documents
from mdv.batch.local_source import LocalSource, _walk, find_local_files
from mdv.batch.prepare_partition import InputDocument
from mdv.cli import cli
from mdv.cli.errors import run_for_exit_code
from mdv.db.state import lock_state
from mdv.errors import BadCommand
from mdv.mdp.eca.change_rules import EcaDraft, add_rules
from tests.support.archives import make_archive
from tests.support.catalogues import BASE, FLAWED, RULES, SCHEMA, catalogue, write
from tests.support.command import Ran
from tests.support.eventually import eventually
from tests.support.listed_documents import register_one_by_one
from tests.support.mdp import Mdp
from tests.support.mdp_content import assert_alike
from tests.support.whole_system import MDV, environment


def given(*paths: object, needs_spark: tuple[str, ...] = (), **more: str) -> BatchInput:
    naming = Naming("http://a/") if "manifest" not in more else Naming(manifest=more["manifest"])
    texts = tuple(str(path) for path in paths)
    return BatchInput(texts, naming, more.get("syntax"), more.get("by"), more.get("rejects"), 1 << 25, needs_spark)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write({"a.ttl": b"x" * 1000, "b.rdf": b"y" * 500}, tmp_path / "small")


def test_a_small_input_on_this_machine_is_read_without_spark(small: Path) -> None:
    for path in (small, small / "a.ttl", f"{small}/*.rdf", small.as_uri()):
        assert isinstance(choose_way(given(path)).source, LocalSource)
    assert choose_way(given(small)).reason == "2 files, 0.0 MB"


def test_an_input_over_a_limit_is_prepared_on_spark(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "MAX_LOCAL_FILES", 2)
    monkeypatch.setattr(choice, "MAX_LOCAL_BYTES", 1500)
    assert choose_way(given(small)).source is not None
    (small / "b.rdf").write_bytes(b"y" * 501)
    assert choose_way(given(small)) == (None, "about 0 MB, more than 0 MB")
    (small / "c.rdf").touch()
    assert choose_way(given(small)) == (None, "more than 2 files")


def test_an_archive_counts_with_the_size_of_its_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make_archive(tmp_path / "x.tar.xz", {f"{n}.ttl": b"x" for n in range(9)})
    monkeypatch.setattr(choice, "MAX_LOCAL_BYTES", choice.ARCHIVE_EXPANSION_FACTOR * file.stat().st_size)
    assert choose_way(given(file)).source is not None
    monkeypatch.setattr(choice, "MAX_LOCAL_BYTES", choice.MAX_LOCAL_BYTES - 1)
    assert choose_way(given(file)).source is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"needs_spark": ("--master was given",)}, "--master was given"),
        ({"rejects": "s3a://bucket/rejects"}, "a path is not on this machine"),
        ({"manifest": "names.csv"}, "--manifest is read by Spark"),
    ],
)
def test_what_only_spark_can_do_is_done_by_spark(small: Path, options: dict[str, str], reason: str) -> None:
    assert choose_way(given(small, **options)) == (None, reason)


def test_dumps_urls_and_spark_submit_need_spark(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_way(given("hdfs://host/x")).reason == "a path is not on this machine"
    (small / "dump.nq").touch()
    assert choose_way(given(small)).reason == "dumps are split into documents by Spark"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert choose_way(given(small / "a.ttl")).reason == "started by spark-submit"


def test_by_is_refused_for_documents(small: Path) -> None:
    with pytest.raises(BadCommand, match="--by applies to dumps"):
        choose_way(given(small, by="x"))


# The command

FILES = catalogue(400)
"""More than the first transaction of a run takes."""


class Command:
    """The command on the database of an MDP, without a server."""

    def __init__(self, mdp: Mdp, folder: Path, output: pytest.CaptureFixture[str]) -> None:
        self.mdp, self.folder, self.output = mdp, folder, output
        url = mdp.engine.url.render_as_string(hide_password=False).replace("+psycopg", "")
        self.environment = environment(MDV_DATABASE_URL=url)
        mdp.put_schema(SCHEMA)
        mdp.subscribe(mdp.create_lmr("reader"), *RULES)

    def start(self, *arguments: object, **more: str) -> subprocess.Popen[str]:
        argv = [str(MDV), "batch", *map(str, arguments), "--uri-base", BASE, "--json"]
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, env=self.environment | more, stdout=pipe, stderr=pipe, text=True)

    def run(self, *arguments: object) -> Ran:
        """Run the command in this process."""
        argv = ["batch", *map(str, arguments), "--uri-base", BASE, "--json"]
        self.output.readouterr()
        code = run_for_exit_code(lambda: cli.main(argv, standalone_mode=False))
        return Ran(code, *self.output.readouterr())


@pytest.fixture
def command(mdp: Mdp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    made = Command(mdp, tmp_path, capfd)
    monkeypatch.setenv("MDV_DATABASE_URL", made.environment["MDV_DATABASE_URL"])
    return made


@pytest.mark.full
def test_a_killed_run_continues(command: Command, other: Mdp) -> None:
    folder = write(FILES, command.folder / "documents")
    other.subscribe(other.create_lmr("reader"), *RULES)
    process = command.start(folder, MDV_DIE_AT="before the commit:2")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, errors
    done = command.mdp.one("select count(*) from documents")
    assert 0 < done < len(FILES)
    ran = command.run(folder)
    found = json.loads(ran.out)
    assert (ran.code, found["registered"], found["unchanged"]) == (0, len(FILES) - done, done), ran.err
    register_one_by_one(other, FILES)
    assert_alike(command.mdp.engine, other.engine)


def test_ctrl_c_stops_a_run_without_an_error(command: Command) -> None:
    folder = write(FILES, command.folder / "documents")
    with command.mdp.engine.begin() as connection:
        lock_state(connection)  # nothing can be promoted
        process = command.start(folder)
        eventually(lambda: command.mdp.one("select count(*) from batch_chunks") > 0)
        process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors.strip()) == (130, "", "")
    assert command.run(folder).code == 0
    assert command.mdp.one("select count(*) from documents") == len(FILES)


def test_refused_documents_decide_the_exit_code_and_are_stored(command: Command) -> None:
    flawed = {name: text.encode() for name, text in FLAWED.items()}
    folder, rejects = write(catalogue(4) | flawed, command.folder / "documents"), command.folder / "rejects"
    ran = command.run(folder)
    assert (ran.code, json.loads(ran.out)["refused"], ran.err) == (1, len(FLAWED), "")
    ran = command.run(folder, "--rejects", rejects)
    found = json.loads(ran.out)
    assert (ran.code, found["unchanged"], found["rejects"]) == (0, 4, str(rejects))
    assert {row["document"] for row in pq.read_table(rejects).to_pylist()} == {BASE + name for name in FLAWED}
    assert command.run(folder / "00000.rdf", "--rejects", rejects).code == 0
    assert pq.read_table(rejects).to_pylist() == [], "each run replaces the rejects of the last"


def test_the_last_document_of_an_archive_counts(command: Command) -> None:
    one = make_archive(command.folder / "1.tar.gz", catalogue(6))
    two = make_archive(command.folder / "2.zip", catalogue(6, edition=2))
    found = json.loads(command.run(one, two).out)
    assert (found["registered"], found["duplicates"], found["documents"]) == (6, 6, 6)
    assert command.mdp.one("select count(*) from filter_data where value like 'note % of edition 2'") > 0
    again = json.loads(command.run(two).out)
    assert (again["unchanged"], again["statements"]) == (6, 0)


def test_a_dry_run_changes_nothing(command: Command) -> None:
    folder = write(catalogue(6), command.folder / "documents")
    found = json.loads(command.run(folder, "--dry-run").out)
    assert (found["registered"], found["dry_run"]) == (6, True)
    assert command.mdp.one("select count(*) from documents") == 0


def test_documents_trigger_rules_unless_the_run_says_no(command: Command) -> None:
    with command.mdp.engine.begin() as connection:
        text = "ON INSERT resource() AS INSTANCE OF Book IF TRUE DO INSERT (resource(http://r/last), next, $delta)"
        add_rules(connection, EcaDraft(text), command.mdp.provider)
    marked = "select count(*) from documents where uri = 'urn:mdv:eca:main'"
    assert command.run(write(catalogue(6), command.folder / "quiet"), "--no-eca").code == 0
    assert command.mdp.one(marked) == 0
    agents = "select distinct agent from document_versions"
    assert command.mdp.rows(agents) == [("eca=off",)]
    command.run(write({"00007.rdf": catalogue(10)["00009.rdf"]}, command.folder / "loud"))
    assert command.mdp.one(marked) == 1


def test_no_session_is_started(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.batch.session.open_session", None)
    folder = write(catalogue(2), command.folder / "documents")
    assert json.loads(command.run(folder).out)["registered"] == 2
    assert command.run(folder, "--spark").code == 1, "with --spark, the session is opened"


# Hostile folders


@pytest.mark.parametrize(
    "links", [{"l": "."}, {"l": ".", "m": "."}, {"deep/l": "../.."}, {"p/x": "../q", "q/y": "../p"}]
)
def test_a_link_to_a_folder_that_contains_it_is_refused(small: Path, links: dict[str, str]) -> None:
    """Its documents would be found many times, under different URIs, or the search would not end."""
    for name, target in links.items():
        for folder in (small / name).parent, small / "q":
            folder.mkdir(exist_ok=True)
        (small / name).symlink_to(target)
    with pytest.raises(BadCommand, match="which contains it"):
        choose_way(given(small / "p" if "p/x" in links else small))


def test_a_link_to_another_folder_is_followed(small: Path, tmp_path: Path) -> None:
    (small / "more").symlink_to(write({"c.ttl": b"z"}, tmp_path / "more"))
    assert choose_way(given(small)).reason == "3 files, 0.0 MB"


@contextmanager
def unprivileged() -> Iterator[None]:
    """Permissions of files do not hold for root."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_folder_that_cannot_be_read_is_not_left_out_silently(small: Path) -> None:
    write({"c.ttl": b"z"}, small / "secret")
    (small / "secret").chmod(0)
    for above in (small, *small.parents):
        above.chmod(0o755)
        if above.name.startswith("pytest-of-"):
            break
    try:
        with unprivileged(), pytest.raises(BadCommand, match="secret cannot be read: Permission denied"):
            list(_walk(small))
    finally:
        (small / "secret").chmod(0o755)


def test_a_file_that_cannot_be_read_is_named(command: Command) -> None:
    folder = write(catalogue(2), command.folder / "documents")
    (folder / "x.ttl").symlink_to("/proc/self/mem")  # a regular file whose first byte cannot be read
    ran = command.run(folder)
    assert ran.code == 1
    assert f"{folder}/x.ttl cannot be read: Input/output error" in ran.err


def test_a_file_that_grows_while_it_is_read_is_refused_by_its_size(small: Path) -> None:
    found = find_local_files([str(small)], None, 10)
    assert found is not None
    (small / "a.ttl").write_bytes(b"x" * 100_000)
    row = next(LocalSource(found, Naming("http://a/"), None, 2000).documents())
    assert len(row.content or b"") == 2001, "no more than the limit is read, and the gate refuses it"


def test_a_fifo_is_not_a_document(small: Path) -> None:
    os.mkfifo(small / "c.ttl")
    assert choose_way(given(small)).reason == "2 files, 0.0 MB"


def test_a_path_that_is_not_unicode_can_be_registered(command: Command) -> None:
    folder = write(catalogue(2), command.folder / "b\udcff")
    ran = command.run(folder)
    assert (ran.code, json.loads(ran.out)["registered"]) == (0, 2), ran.err
    assert command.mdp.one("select what from batch_runs").endswith("b?")


def test_an_empty_path_is_not_the_current_folder(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write(catalogue(2), command.folder / "documents"))
    ran = command.run("")
    assert (ran.code, command.mdp.one("select count(*) from documents")) == (1, 0)
    assert "A path is empty" in ran.err


def test_documents_with_the_same_uri_take_little_memory() -> None:
    """A small archive can contain many large documents, all with one URI."""

    def documents() -> Iterator[InputDocument]:
        for number in range(48):
            yield InputDocument("x", "http://a/", None, bytes([number]) * (2 << 20), f"{number:02}", None)
        yield InputDocument("x", "http://a/", None, None, "99", "{}")
        yield InputDocument("x", "http://b/", None, b"other", "00", None)

    tracemalloc.start()
    try:
        found = [(one.uri, one.content and (one.content[0], len(one.content)))
                 for one in order_documents(documents(), {"http://a/"})]  # fmt: skip
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    last_first = [("http://a/", (number, 2 << 20)) for number in reversed(range(48))]
    assert found == [("http://b/", (ord("o"), 5)), ("http://a/", None), *last_first]
    assert peak < 48 << 20, "half of all texts"
