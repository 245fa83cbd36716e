"""The commands, against a running system."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from mdv.embedded import Postgres
from tests.support.whole_system import MDV, SCHEMA, Up, environment

DEMO = SCHEMA.parent
DOC = "http://mdv.example/doc.rdf"


@pytest.fixture
def on(running: Up, mdv: Callable) -> Callable:
    """A command on the running system, which has the paper's schema."""

    def run(*arguments: object) -> object:
        return mdv("--data", running.folder, *arguments)

    assert run("schema", "put", SCHEMA).code == 0
    return run


@pytest.fixture
def figure_1(on: Callable) -> str:
    ran = on("register", DEMO / "doc.rdf", "--uri", DOC)
    assert ran.code == 0, ran.err
    return DOC


def provider(port: object) -> str:
    return f'<#h> a <http://mdv.example/schema#CycleProvider> ; <http://mdv.example/schema#serverPort> "{port}" .'


def test_the_atoms_of_figure_1_are_those_of_figure_4(on: Callable, figure_1: str) -> None:
    ran = on("atoms", figure_1, "--short")
    assert ran.code == 0
    assert set(ran.out.splitlines()) == {
        "doc.rdf#host\tCycleProvider\trdf#subject\tdoc.rdf#host",
        "doc.rdf#host\tCycleProvider\tserverHost\tpirates.uni-passau.de",
        "doc.rdf#host\tCycleProvider\tserverPort\t5874",
        "doc.rdf#host\tCycleProvider\tserverInformation\tdoc.rdf#info",
        "doc.rdf#info\tServerInformation\trdf#subject\tdoc.rdf#info",
        "doc.rdf#info\tServerInformation\tmemory\t92",
        "doc.rdf#info\tServerInformation\tcpu\t600",
    }
    long = on("atoms", figure_1, "--json", "--limit", 2)
    assert len(json.loads(long.out)["items"]) == 2 and json.loads(long.out)["more"]


def test_register_prints_the_changes_and_the_version(on: Callable, tmp_path: Path) -> None:
    uri, file = "http://mdv.example/cli/one", tmp_path / "one.ttl"
    file.write_text(provider(1))
    ran = on("register", file, "--uri", uri)
    assert ran.out == (
        f"{uri} is at version 1.\n"
        "1 registered, 0 changed, 0 unchanged, 0 refused; resources: 1 inserted, 0 updated, 0 deleted, 0 unchanged.\n"
    )
    assert "0 registered, 0 changed, 1 unchanged" in on("register", file, "--uri", uri).out
    file.write_text(provider(2))
    dry = on("register", file, "--uri", uri, "--dry-run")
    assert dry.code == 0 and dry.out.startswith("Dry run, nothing was changed: 0 registered, 1 changed")
    stale = on("register", file, "--uri", uri, "--if-match", 7)
    assert stale.code == 1 and "Precondition failed" in stale.err
    answer = json.loads(on("register", file, "--uri", uri, "--if-match", 1, "--json").out)
    assert answer["documents"][0]["version"] == 2
    assert answer["summary"]["changed"] == 1 and answer["refused"] == []
    history = on("documents", "history", uri)
    assert [line.split("\t")[0] for line in history.out.splitlines()] == ["2", "1"]
    assert '"1"' in on("export", uri, "--version", 1, "--syntax", "ntriples").out


def test_edit_changes_single_statements(on: Callable, tmp_path: Path) -> None:
    uri, file = "http://mdv.example/cli/edited", tmp_path / "one.ttl"
    file.write_text(provider(1))
    on("register", file, "--uri", uri)
    assert on("documents", "edit", uri).code == 2
    port = ["--add", "<#host> :serverPort '5874'"]
    tried = on("documents", "edit", uri, *port, "--dry-run")
    assert tried.out == f"{uri} would be at version 2; resources: 1 inserted.\n"
    assert on("documents", "edit", uri, *port).out == f"{uri} is at version 2; resources: 1 inserted.\n"
    stale = on("documents", "edit", uri, "--remove", port[1], "--if-match", 1)
    assert stale.code == 1 and "Precondition failed" in stale.err
    absent = on("documents", "edit", uri, "--remove", "<#host> :serverPort 5874 .")
    assert absent.code == 0 and "is at version 2, without a visible change" in absent.out
    both = on(
        "documents", "edit", uri, "--remove", port[1], "--add", "<#host> :serverPort '1' ; :serverHost 'h'", "--json"
    )
    assert json.loads(both.out)["version"] == 3
    rows = [line.split("\t") for line in on("documents", "history", uri).out.splitlines()]
    assert [(row[0], *row[2:]) for row in rows] == [
        ("3", "update", "token admin", "1 updated"),
        ("2", "update", "token admin", "1 inserted"),
        ("1", "registration", "token admin", "1 inserted"),
    ]
    again = on("documents", "edit", uri, "--add", "<#host> :serverPort '1'")
    assert "Some document contains the added statements already." in again.out
    texts = {
        "<#host> x:y 1": "is not a statement",
        "<#host> :serverPort [ ]": "contains a blank node",
        "": "it is empty",
        "# nothing": "it is empty",
        "<#host> :serverPort": "its value is missing",
        "<#host> :serverPort '80": "it ends too early",
    }
    for text, words in texts.items():
        refused = on("documents", "edit", uri, "--add", text)
        assert refused.code == 1 and words in refused.err, refused.err
    assert "is not an absolute URI" in on("documents", "edit", "one.ttl", *port).err
    every = on("export", uri, "--syntax", "ntriples").out.replace("\n", " ")
    tried = on("documents", "edit", uri, "--remove", every, "--dry-run")
    assert tried.out.endswith("It would have no statements, so it would be deleted.\n")
    assert on("documents", "edit", uri, "--remove", every).out.endswith("It has no statements, so it is deleted.\n")


@pytest.mark.parametrize("typo", ["CycleProvidr", "Cycle"])
def test_an_unknown_class_of_a_document_gets_a_suggestion(on: Callable, tmp_path: Path, typo: str) -> None:
    (tmp_path / "typo.ttl").write_text(provider(1).replace("#CycleProvider", f"#{typo}"))
    ran = on("register", tmp_path / "typo.ttl", "--uri", "http://mdv.example/cli/typo")
    assert ran.code == 1 and f"the class {typo} is not declared (did you mean CycleProvider?" in ran.err, ran.err


def test_a_folder_is_registered_below_a_base_and_bad_documents_block_no_others(on: Callable, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for number in range(9):
        (tmp_path / "sub" / f"n {number}.ttl").write_text(provider(number))
    (tmp_path / "bad.ttl").write_text(provider("no number"))
    (tmp_path / "torn.rdf").write_text("<rdf:RDF")
    (tmp_path / "README.md").write_text("not for registering")
    (tmp_path / ".hidden.ttl").write_text(provider(1))
    ran = on("register", tmp_path, "--uri-base", "http://mdv.example/many/")
    assert ran.code == 1
    assert ran.out.startswith("9 registered, 0 changed, 0 unchanged, 2 refused;")
    assert f"refused {tmp_path / 'bad.ttl'}: Document refused:" in ran.err
    assert "no number" in ran.err and "line 1" in ran.err
    assert f"refused {tmp_path / 'torn.rdf'}: The RDF/XML is not well-formed:" in ran.err
    assert "\x1b" not in ran.out + ran.err
    listed = on("documents").out
    assert "http://mdv.example/many/sub/n%208.ttl\t1\t" in listed
    assert "README" not in listed and "hidden" not in listed
    report = json.loads(on("register", tmp_path, "--uri-base", "http://mdv.example/many/", "--json").out)
    assert report["summary"]["unchanged"] == 9
    assert {Path(item["file"]).name for item in report["refused"]} == {"bad.ttl", "torn.rdf"}


def test_a_file_needs_a_uri(on: Callable, tmp_path: Path) -> None:
    file = tmp_path / "ä b.ttl"
    file.write_text(provider(1))
    ran = on("register", file)
    assert ran.code == 2 and "Documents need URIs: use --uri" in ran.err
    assert str(tmp_path) not in on("documents").out, "no path of this machine is published"


def test_two_files_for_one_uri_are_refused_before_anything_is_sent(on: Callable, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.ttl").write_text(provider(1))
    ran = on("register", tmp_path / "a", tmp_path / "b", "--uri-base", "http://mdv.example/twice/")
    assert ran.code == 1 and "have the same URI http://mdv.example/twice/x.ttl" in ran.err
    assert "twice" not in on("documents").out


def test_a_document_is_read_from_standard_input(on: Callable, running: Up) -> None:
    argv = [MDV, "register", "-", "--uri", "http://mdv.example/stdin", "--syntax", "turtle", "--data", running.folder]
    ran = subprocess.run(argv, input=provider(3), capture_output=True, text=True, env=environment(), cwd="/")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "1 registered" in ran.stdout


def test_a_file_with_an_unknown_suffix_is_refused(on: Callable, tmp_path: Path) -> None:
    file = tmp_path / "data.txt"
    file.write_text(provider(1))
    ran = on("register", file, "--uri", "http://mdv.example/txt")
    assert ran.code == 1 and "Syntax not supported" in ran.err
    assert on("register", file, "--syntax", "turtle", "--uri", "http://mdv.example/txt").code == 0


def test_documents_are_deleted(on: Callable, tmp_path: Path) -> None:
    file, uri = tmp_path / "x.ttl", "http://mdv.example/gone"
    file.write_text(provider(1))
    on("register", file, "--uri", uri)
    ran = on("delete", uri, "http://mdv.example/never", "--yes")
    assert ran.code == 1
    assert ran.out == f"Deleted {uri}: 1 resources deleted, 0 updated.\n"
    assert "http://mdv.example/never" in ran.err
    assert uri not in on("documents").out
    assert on("export", uri).code == 1


def test_a_dry_run_of_a_deletion_names_references_of_other_documents(on: Callable, tmp_path: Path) -> None:
    file, uri, other = tmp_path / "x.ttl", "http://mdv.example/referred", "http://mdv.example/refers"
    file.write_text(provider(1))
    on("register", file, "--uri", uri)
    file.write_text(f"<#h> <http://mdv.example/schema#serverInformation> <{uri}#h> .")
    on("register", file, "--uri", other)
    ran = on("delete", uri, "--dry-run")
    assert ran.out.splitlines()[1:] == [
        f"Other documents refer to resources of {uri} that only it describes:",
        f"  <{other}#h> <http://mdv.example/schema#serverInformation> <{uri}#h> in {other}",
    ]
    assert "Other documents" not in on("delete", uri, "--yes").out


def test_resources_are_listed_and_shown(on: Callable, figure_1: str) -> None:
    assert f"{DOC}#host\thttp://mdv.example/schema#CycleProvider" in on("resources").out.splitlines()
    assert f"{DOC}#info" not in on("resources", "--class", "CycleProvider").out
    one = on("resources", f"{DOC}#host")
    assert "http://mdv.example/schema#serverHost\tpirates.uni-passau.de\t" in one.out
    assert json.loads(on("resources", f"{DOC}#host", "--json").out)["documents"] == [DOC]
    assert "pirates.uni-passau.de" in on("resources", f"{DOC}#host", "--syntax", "ntriples").out
    missing = on("resources", f"{DOC}#nobody")
    assert missing.code == 1 and missing.err.startswith("mdv: Not found: ")


def test_documents_are_exported_without_those_of_mdv_itself(on: Callable, figure_1: str, tmp_path: Path) -> None:
    assert on("export", DOC).out.lstrip().startswith("<?xml")
    on("update", "-e", "INSERT (resource(http://mdv.example/x), serverHost, 'x')")
    ran = on("export", "--all", "--to", tmp_path / "out", "--syntax", "turtle")
    assert ran.code == 0
    assert (tmp_path / "out" / "http%3A%2F%2Fmdv.example%2Fdoc.rdf.ttl").exists()
    listed = on("documents").out.splitlines()
    count = len([line for line in listed if "urn:mdv:" not in line])
    assert len(list((tmp_path / "out").iterdir())) == count < len(listed) and ran.out.startswith(f"Exported {count} ")
    assert f"(urn:mdv:…) were left out: {len(listed) - count}." in ran.err
    assert on("export", "urn:mdv:updates", "--syntax", "turtle").code == 0


def test_a_schema_is_put_and_shown(on: Callable, tmp_path: Path) -> None:
    assert ", unchanged: " in on("schema", "put", SCHEMA).out
    assert "http://mdv.example/schema#" in on("schema", "show").out
    assert json.loads(on("schema", "put", SCHEMA, "--json").out)["changed"] is False
    wrong = tmp_path / "wrong.ttl"
    wrong.write_text("<a> <b> ")
    ran = on("schema", "put", wrong)
    assert ran.code == 1 and "line 1" in ran.err


def test_a_schema_dry_run_shows_the_changes(on: Callable, tmp_path: Path) -> None:
    before = on("schema", "show").out
    grown = tmp_path / "grown.ttl"
    grown.write_text(SCHEMA.read_text() + ":Moon rdfs:subClassOf :CycleProvider . :memory mdv:setValued true .")
    ran = on("schema", "put", grown, "--dry-run")
    assert ran.code == 0, ran.err
    assert "+ class Moon: superclasses CycleProvider" in ran.out.splitlines()
    assert "~ property memory: values one -> several" in ran.out.splitlines()
    assert "Dry run, nothing was changed: Schema version" in ran.out and "LMRs notified:" in ran.out
    told = json.loads(on("schema", "put", grown, "--dry-run", "--json").out)
    assert told["dry_run"] is True and told["counts"]["class"] == {"added": 1}
    same = on("schema", "put", SCHEMA, "--dry-run").out
    assert ", unchanged: " in same and "LMRs notified:" not in same
    assert on("schema", "show").out == before


def test_a_job_id_with_path_segments_is_not_found(on: Callable) -> None:
    ran = on("job", "../documents")
    assert ran.code == 1 and "Not found" in ran.err


def test_a_token_is_limited_to_its_prefixes_and_can_be_revoked(
    on: Callable, mdv: Callable, running: Up, monkeypatch, tmp_path: Path
) -> None:
    made = on("token", "create", "crawler", "--documents", "http://mdv.example/own/")
    assert made.code == 0 and made.out.startswith("mdv_")
    secret = made.out.strip()
    file = tmp_path / "x.ttl"
    file.write_text(provider(1))
    with monkeypatch.context() as patch:
        patch.setenv("MDV_URL", running.system.url)
        patch.setenv("MDV_TOKEN", secret)
        assert mdv("register", file, "--uri", "http://mdv.example/own/x").code == 0
        refused = mdv("register", file, "--uri", "http://mdv.example/other")
        assert refused.code == 1 and "Forbidden" in refused.err
        patch.setenv("MDV_TOKEN", "wrong")
        wrong = mdv("register", file, file, "--uri-base", "http://mdv.example/own/")
        assert wrong.code == 1 and wrong.err.startswith("mdv: Not signed in: The token is unknown")
        patch.delenv("MDV_TOKEN")
        assert mdv("documents").err == "mdv: Not signed in: This needs a token: set MDV_TOKEN.\n"
    (line,) = [line for line in on("token", "list").out.splitlines() if "\tcrawler\t" in line]
    assert secret not in line
    number = line.split("\t")[0]
    assert on("token", "revoke", number).code == 0
    assert on("token", "revoke", number).code == 1
    tokens = json.loads(on("token", "list", "--json").out)["items"]
    assert next(item for item in tokens if item["name"] == "crawler")["revoked_at"]


def test_lists_have_pages(on: Callable, figure_1: str) -> None:
    assert len(on("documents", "--limit", 1).out.splitlines()) == 1
    page = json.loads(on("documents", "--json", "--limit", 1).out)
    assert len(page["items"]) == 1
    assert json.loads(on("documents", "--json", "--all").out)["more"] is False


def test_a_closed_output_pipe_is_no_error(running: Up, on: Callable, figure_1: str) -> None:
    line = f"{MDV} atoms {DOC} --data {running.folder} | true"
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environment())
    assert "Traceback" not in ran.stderr and "Exception" not in ran.stderr


def test_only_a_terminal_gets_tables_and_colours(running: Up, on: Callable, figure_1: str) -> None:
    argv = [str(MDV), "documents", "--limit", "1", "--data", str(running.folder)]
    master, slave = pty.openpty()
    process = subprocess.Popen(argv, stdout=slave, stderr=slave, stdin=slave, env=environment(TERM="xterm"))
    os.close(slave)
    shown = b""
    try:
        while chunk := os.read(master, 4096):
            shown += chunk
    except OSError:  # the other end was closed
        pass
    assert process.wait(60) == 0
    assert b"document" in shown and b"version" in shown and "─".encode() in shown
    assert b"--limit N" in shown
    plain = subprocess.run(argv, capture_output=True, env=environment(FORCE_COLOR="1", TERM="xterm"), check=True)
    assert b"\x1b" not in plain.stdout + plain.stderr and plain.stdout.count(b"\t") == 2


def test_control_characters_of_documents_are_escaped_on_output(on: Callable, tmp_path: Path) -> None:
    file = tmp_path / "x.ttl"
    file.write_text(r'<#h> a <http://mdv.example/schema#CycleProvider> ;'
                    r' <http://mdv.example/schema#serverHost> "a\tb\n\u001B[31m" .')  # fmt: skip
    assert on("register", file, "--uri", "http://mdv.example/controls").code == 0
    out = on("atoms", "http://mdv.example/controls", "--short").out
    assert "controls#h\tCycleProvider\tserverHost\ta\\tb\\n\\x1b[31m" in out.splitlines()


def test_the_cli_runs_as_a_module(running: Up) -> None:
    argv = [sys.executable, "-m", "mdv.cli", "documents", "--json", "--data", str(running.folder)]
    ran = subprocess.run(argv, capture_output=True, text=True, env=environment(), cwd="/", check=True)
    assert "items" in json.loads(ran.stdout)


def test_the_database_of_the_environment_is_migrated_and_gets_tokens(
    postgres: Postgres, mdv: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("create database cli_migrate")
    url = sqlalchemy.make_url(postgres.url).set(database="cli_migrate").render_as_string(hide_password=False)
    monkeypatch.setenv("MDV_DATABASE_URL", url)
    for _ in range(2):
        ran = mdv("migrate")
        assert (ran.code, ran.out) == (0, "The database is up to date.\n"), ran.err
    made = json.loads(mdv("token", "create", "reader", "--role", "viewer", "--json").out)
    assert made["role"] == "viewer" and made["token"].startswith("mdv_")
    monkeypatch.setenv("MDV_DATABASE_URL", "postgresql://mdv@127.0.0.1:1/mdv")
    for line in (["migrate"], ["token", "list"]):
        ran = mdv(*line)
        assert ran.code == 1 and ran.err.startswith("mdv: Unavailable: The database")


def test_without_a_terminal_nothing_is_deleted_unless_confirmed_by_yes(
    on: Callable, figure_1: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    ran = on("delete", DOC)
    assert ran.code == 2 and "--yes" in ran.err
    assert DOC in on("documents", "--all").out


def test_an_export_can_be_registered_again_under_its_uris(on: Callable, figure_1: str, tmp_path: Path) -> None:
    assert on("export", DOC, "--to", tmp_path).code == 0
    ran = on("register", tmp_path, "--uri-from-name", "--json")
    assert ran.code == 0 and json.loads(ran.out)["summary"]["unchanged"] == 1, ran.out


@pytest.mark.parametrize(
    "options", [["--documents", ""], ["--resources", "not a uri"], ["--role", "viewer", "--documents", "http://x/"]]
)
def test_an_invalid_limit_creates_no_token(on: Callable, options: list[str]) -> None:
    assert on("token", "create", "nobody", *options).code == 2
    assert "nobody" not in on("token", "list").out


def test_a_flaw_without_a_line_names_its_resource(on: Callable, tmp_path: Path) -> None:
    text = "@prefix : <http://mdv.example/schema#> .\n<#a> :cpu\n 'x' .\n<#b> :cpu\n 'x' ."
    (tmp_path / "bad.ttl").write_text(text)
    ran = on("register", tmp_path / "bad.ttl", "--uri", "http://mdv.example/bad.ttl")
    assert "http://mdv.example/bad.ttl#b: cpu" in ran.err
