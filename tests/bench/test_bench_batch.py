"""`mdv bench batch` at tiny sizes: the form of its results, detection of errors, and cleanup."""

from __future__ import annotations

import json
import re
import tarfile
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from mdv.bench.batch import DRIVER_STAGES, EXECUTOR_STAGES, BatchMeasurement, RegistrationRate, _summary_in
from mdv.bench.catalogue import MAX_DOWNLOADS, SCHEMA, STATEMENTS, CatalogueGenerator, existing_catalogue
from mdv.cli import cli
from mdv.cli.errors import run_for_exit_code
from mdv.errors import BadRequest, MdvError
from mdv.mdp.register import prepare
from mdv.mdp.schemas import build_schema, read_schema_document
from tests.support.whole_system import at_work_in


def bench(*arguments: object) -> int:
    line = ["bench", *map(str, arguments)]
    return run_for_exit_code(lambda: cli.main(line, prog_name="mdv", standalone_mode=False))


def test_a_catalogue_is_registered_compared_with_http_and_copy_and_checked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("mdv.bench.batch.QUIET_SECONDS", 1.0)
    monkeypatch.delenv("MDV_URL", raising=False)
    figures = tmp_path / "figures.json"
    line = ("batch", "--documents", 150, "--rules", 20, "--http", 10, "--interactive", 4, "--json", figures)
    assert bench(*line) == 0, capfd.readouterr().err
    shown = capfd.readouterr().out
    found = json.loads(figures.read_text("utf-8"))
    (result,), (run,) = found["results"], found["runs"]
    assert found["machine"]["cores"] >= 1 and run["problems"] == []
    assert result["ours_us"] > 0 and result["floor_us"] > 0 and result["rules"] == 20
    assert result["peers"].keys() == {"HTTP, one by one", "HTTP, 8 clients"}
    (batch,) = run["batches"]
    assert (batch["summary"]["registered"], batch["summary"]["statements"]) == (150, 150 * STATEMENTS)
    assert batch["seconds"] > batch["summary"]["seconds"] > 0 and batch["beside"]["count"] >= 4 <= run["quiet"]["count"]
    assert batch["memory"].keys() >= {"driver", "Java", "executors", "Postgres", "web", "worker", "LMR", "all"}
    assert batch["processor"]["all"] > batch["processor"]["executors"] > 0
    assert batch["memory"]["all"] > batch["memory"]["Java"] > batch["memory"]["driver"] > 0
    assert run["again"]["summary"]["unchanged"] == 150 and run["again"]["summary"]["registered"] == 0
    assert [(way["name"], way["documents"]) for way in run["ways"]] == [
        ("HTTP, one by one", 10), ("HTTP, 8 clients", 10), ("mdv batch 1", 150),
        ("mdv batch 1, with the start of Spark", 150), ("the last batch again", 150), ("bare COPY", 150),
    ]  # fmt: skip
    (stages,) = run["stages"]
    assert all(stages[name] > 0 for name in ("prepare", "stage", "take", "store", "filter", "publish", "end"))
    assert sum(stages[name] for name in DRIVER_STAGES) == pytest.approx(batch["summary"]["seconds"], abs=0.1)
    assert re.search(r"^mdv batch 1\t[\d,.]+\t[\d,]+\t150\t", shown, re.MULTILINE)
    assert re.search(r"^filter\t[\d.]+ s, \d+ %$", shown, re.MULTILINE)
    assert re.search(r"^batch 1\t\d+\t[\d.,]+\t", shown, re.MULTILINE)
    assert not at_work_in(tmp_path) and [path.name for path in tmp_path.iterdir()] == ["figures.json"]


@pytest.mark.parametrize("line", ["--documents 0", "--sizes 5,x", "--http 1", "--interactive 0", "--folder ."])
def test_invalid_arguments_are_refused_before_anything_starts(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("batch", *line.split()) == 2
    assert "Error:" in capsys.readouterr().err


def test_documents_are_reproducible_valid_and_have_fifty_statements() -> None:
    said = read_schema_document(SCHEMA, "text/turtle")
    schema = build_schema(1, said.statements, dict(said.prefixes))
    documents = [CatalogueGenerator(200).document(number) for number in range(200)]
    assert documents == [CatalogueGenerator(200).document(number) for number in range(200)]
    items = [prepare(uri, text, "application/rdf+xml", schema) for uri, text in documents]
    assert {len(item.hashes) for item in items} == {STATEMENTS}
    people = Counter(uri for item in items for uri in item.uris if "/people/" in uri)
    assert len(people) == 10 and people.most_common()[-1][1] > 10


def test_few_of_many_rules_match_a_document() -> None:
    for rules in (400, 4000, 100_000):
        made = list(CatalogueGenerator(1000).rules(rules))
        assert len(set(made)) == rules
        above = [int(rule.rpartition("> ")[2]) for rule in made if " > " in rule]
        assert 0.9 < sum(1 - least / MAX_DOWNLOADS for least in above) < 1.1, "one threshold matches on average"


def test_a_large_catalogue_is_written_as_one_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.bench.catalogue.MAX_DOCUMENT_FILES", 2)
    told: list[str] = []
    assert CatalogueGenerator(2).write(tmp_path, told.append).is_dir()
    with tarfile.open(CatalogueGenerator(3).write(tmp_path, told.append)) as archive:
        assert archive.getnames() == ["00000000.rdf", "00000001.rdf", "00000002.rdf"]


def test_the_texts_of_a_given_catalogue_are_sent_over_http_under_other_uris(tmp_path: Path) -> None:
    (tmp_path / "a.rdf").write_bytes(b"1")
    (tmp_path / "b.rdf").write_bytes(b"2")
    found = existing_catalogue((tmp_path,), "http://x.example/{stem}", SCHEMA, ("search Book b register b",))
    others = list(islice(found.others, 5))
    assert [text for _, text in others] == [b"1", b"2", b"1", b"2", b"1"] and len(dict(others)) == 5
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadRequest, match="nothing to send over HTTP"):
        next(existing_catalogue((tmp_path / "empty",), "http://x.example/{stem}", SCHEMA, ()).others)


def test_the_stages_of_a_batch_add_up_to_its_time() -> None:
    told = {"prepare": 3.0, "take": 1.0, "store": 1.0, "filter": 2.0, "publish": 0.5, "answer": 4.0, "end": 1.0}
    stages = BatchMeasurement({"seconds": 10.0, "stages": told}, 12.0, {}, {}, None, 0.0).stages
    assert (stages["rest of answer"], stages["other"]) == (0.5, 4.0)
    assert stages.keys() == {*EXECUTOR_STAGES, *DRIVER_STAGES}
    assert RegistrationRate("x", 10, 500, 2.0).us == 200_000


def test_a_batch_without_a_final_summary_is_a_failure(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('Spark: odd\n{"documents": 1}\n')
    assert _summary_in(log, "exit code 1") == {"documents": 1}
    log.write_text("Spark could not be started.\n")
    with pytest.raises(MdvError, match=r"ended with exit code 1(.|\n)*could not be started"):
        _summary_in(log, "exit code 1")
