"""Batch runs leave the same state as single registrations, exactly once, also with concurrent changes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mdv.batch.local_preparation import LocalPreparation
from mdv.batch.run import BatchOptions, BatchSummary, Preparation, run_batch
from mdv.batch.spark_preparation import SparkPreparation
from mdv.db.state import lock_state
from mdv.errors import BadCommand
from mdv.inspect.activity import read_activity
from mdv.inspect.sql.batch_runs import ListedRun, list_run_documents
from mdv.mdp.put_schema import put_schema
from mdv.mdp.schemas import read_schema_document
from tests.support.catalogues import BASE, FLAWED, NAMES, RULES, SCHEMA, catalogue, rdf_xml
from tests.support.costly_rule import EXPLOSIVE
from tests.support.costly_rule import SCHEMA as COSTLY_SCHEMA
from tests.support.eventually import eventually
from tests.support.listed_documents import Listed, ListedLocally, register_one_by_one
from tests.support.mdp import Mdp
from tests.support.mdp_content import assert_alike, content_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = 1 << 25


class Batches:
    """Runs against one MDP, on Spark or, without a session, in this process."""

    def __init__(self, spark: SparkSession | None, mdp: Mdp, rejects: Path) -> None:
        self.spark, self.mdp, self.rejects = spark, mdp, rejects

    def preparation(self, files: Any, partitions: int = 2) -> Preparation:
        if self.spark is None:
            return LocalPreparation(ListedLocally(files, BASE))
        return SparkPreparation(self.spark, Listed(self.spark, files, BASE, partitions))

    def run(
        self,
        files: Any,
        dry_run: bool = False,
        partitions: int = 2,
        watch: Any = lambda progress: None,
        **order: Any,
    ) -> BatchSummary:
        url = self.mdp.engine.url.render_as_string(hide_password=False).replace("+psycopg", "")
        given = BatchOptions("a test", MOST, str(self.rejects), dry_run, **order)
        return run_batch(self.preparation(files, partitions), self.mdp.engine, url, given, watch)

    def rejected(self) -> dict[str, Any]:
        return {row["document"]: row for row in pq.read_table(self.rejects).to_pylist()}


@pytest.fixture(params=["in this process", pytest.param("on Spark", marks=pytest.mark.full)])
def batches(request: pytest.FixtureRequest, mdp: Mdp, tmp_path: Path) -> Batches:
    spark = request.getfixturevalue("spark") if request.param == "on Spark" else None
    mdp.put_schema(SCHEMA)
    return Batches(spark, mdp, tmp_path / "rejects")


def subscribed(mdp: Mdp) -> None:
    mdp.subscribe(mdp.create_lmr("reader"), *RULES)


def test_a_run_and_a_second_edition_leave_the_same_state_as_single_registrations(batches: Batches, other: Mdp) -> None:
    for mdp in (batches.mdp, other):
        subscribed(mdp)
    first, second = catalogue(120), catalogue(130, edition=2)
    found = batches.run(first)
    assert (found.registered, found.changed, found.unchanged, found.refused) == (120, 0, 0, 0)
    register_one_by_one(other, first)
    assert_alike(batches.mdp.engine, other.engine)
    found = batches.run(second, partitions=3)
    assert (found.registered, found.changed, found.unchanged, found.refused) == (10, 60, 60, 0)
    assert found.statements > 0 and found.bytes == sum(map(len, second.values()))
    register_one_by_one(other, second)
    assert_alike(batches.mdp.engine, other.engine)


def test_a_run_is_listed_as_one_activity_with_its_documents(batches: Batches) -> None:
    flawed = {name: text.encode() for name, text in FLAWED.items()}
    batches.run(catalogue(30))
    batches.run(catalogue(40, edition=2) | flawed)
    batches.run(catalogue(5), dry_run=True)
    with batches.mdp.engine.connect() as connection:
        second, first = read_activity(connection, 10)
        assert isinstance(first, ListedRun) and isinstance(second, ListedRun)
        assert (first.documents, second.documents, second.unchanged, second.refused) == (30, 25, 15, len(FLAWED))
        assert (second.state, second.what, second.finished) == ("done", "a test", 40 + len(FLAWED))
        pages = [list_run_documents(connection, second.id, 0, 20)]
        pages.append(list_run_documents(connection, second.id, pages[0][-1].id, 20))
    assert [len(page) for page in pages] == [20, 5]
    assert sorted(document.version for page in pages for document in page) == [1] * 10 + [2] * 15


def test_a_rule_over_the_time_limit_of_the_run_is_suspended(batches: Batches) -> None:
    batches.mdp.put_schema(COSTLY_SCHEMA)
    (rule,) = batches.mdp.subscribe(batches.mdp.create_lmr("reader"), EXPLOSIVE)
    head = "@prefix : <http://v/> .\n"
    files = {f"{n}.ttl": f"{head}<#n> a :N ; :txt 'same' ; :num {n} ; :other -1 .".encode() for n in range(120)}
    found = batches.run(files, rule_seconds=0.1)
    assert (found.registered, found.refused) == (120, 0)
    assert batches.mdp.rows("select rule_id, seconds from suspended_rules") == [(rule.id, 0.1)]


def test_repeating_a_run_changes_and_parses_nothing(batches: Batches) -> None:
    subscribed(batches.mdp)
    files = catalogue(40)
    batches.run(files)
    before = content_of(batches.mdp.engine), batches.mdp.one("select position from mdp_state")
    found = batches.run(files)
    assert (found.unchanged, found.statements, found.transactions) == (40, 0, 0)
    assert (content_of(batches.mdp.engine), batches.mdp.one("select position from mdp_state")) == before


def test_a_registered_text_is_parsed_again_after_its_document_has_changed(batches: Batches) -> None:
    files = catalogue(4)
    batches.run(files)
    batches.mdp.put({BASE + "00000.rdf": None, BASE + "00001.rdf": f"<{BASE}book/1> a <{NAMES}Book> ."})
    found = batches.run(files)
    assert (found.registered, found.changed, found.unchanged) == (1, 1, 2)


def test_documents_registered_by_other_means_are_parsed_once_and_then_known(batches: Batches) -> None:
    files = catalogue(8)
    register_one_by_one(batches.mdp, files)
    first, second = batches.run(files), batches.run(files)
    assert (first.unchanged, second.unchanged) == (8, 8)
    assert first.statements > 0 and second.statements == 0


def test_flawed_documents_are_rejected_with_reasons_and_the_others_are_registered(batches: Batches) -> None:
    flawed = {name: text.encode() for name, text in FLAWED.items()}
    found = batches.run(catalogue(10) | flawed)
    assert (found.registered, found.refused) == (10, len(FLAWED))
    rows = batches.rejected()
    assert rows.keys() == {BASE + name for name in FLAWED}
    untrue = rows[BASE + "untrue.rdf"]
    assert untrue["type"] == "invalid-document" and untrue["line"] == 4 and untrue["source"] == "untrue.rdf"
    assert "many" in untrue["reason"] and untrue["flaws"][0]["line"] == 4
    assert "empty" in rows[BASE + "empty.ttl"]["reason"]
    assert {example["source"] for example in found.examples} == set(FLAWED)
    again = batches.run({"broken.rdf": rdf_xml(3).encode()})
    assert (again.registered, again.refused, batches.rejected()) == (1, 0, {})


def test_the_last_of_several_documents_with_one_uri_counts_and_the_others_are_reported(batches: Batches) -> None:
    pairs = [("a.rdf", rdf_xml(1).encode()), ("b.rdf", rdf_xml(2).encode()), ("a.rdf", b"<nonsense"),
             ("a.rdf", rdf_xml(1, edition=2).encode())]  # fmt: skip
    found = batches.run(pairs, partitions=4)
    assert (found.registered, found.refused, found.duplicates, found.documents) == (2, 0, 2, 2)
    assert batches.mdp.rows("select uri, version from documents order by uri") == [
        (BASE + "a.rdf", 1),
        (BASE + "b.rdf", 1),
    ]
    assert batches.mdp.one("select count(*) from filter_data where value = 'note 1 of edition 2'") == 1


@pytest.mark.parametrize("partitions", [1, 4])
def test_if_the_last_of_several_documents_is_refused_the_previous_one_counts(
    batches: Batches, other: Mdp, partitions: int
) -> None:
    pairs = [("a.rdf", rdf_xml(1).encode()), ("a.rdf", rdf_xml(1, edition=2).encode()), ("a.rdf", b"<nonsense"),
             ("a.rdf", FLAWED["untrue.rdf"].encode()), ("b.rdf", b"<nonsense"), ("b.rdf", b"<nonsense"),
             ("c.rdf", rdf_xml(3).encode())]  # fmt: skip
    found = batches.run(pairs, partitions=partitions)
    assert (found.registered, found.refused, found.duplicates, found.documents) == (2, 4, 1, 6)
    register_one_by_one(other, {"a.rdf": rdf_xml(1, edition=2).encode(), "c.rdf": rdf_xml(3).encode()})
    assert_alike(batches.mdp.engine, other.engine)
    again = batches.run(pairs, partitions=partitions)
    assert (again.unchanged, again.refused, again.duplicates) == (2, 4, 1)


def test_a_dry_run_reports_counts_and_changes_nothing(batches: Batches) -> None:
    batches.run(catalogue(8))
    before = content_of(batches.mdp.engine)
    found = batches.run(catalogue(10, edition=2) | {"broken.rdf": b"<rdf:RDF"}, dry_run=True)
    assert (found.registered, found.changed, found.unchanged, found.refused, found.dry_run) == (2, 4, 4, 1, True)
    assert content_of(batches.mdp.engine) == before
    assert batches.mdp.one("select count(*) from batch_runs") == 1, "a dry run stores nothing"


def test_a_document_that_fails_with_a_database_error_is_rejected_alone(batches: Batches) -> None:
    batches.mdp.run(
        "create function refuse() returns trigger language plpgsql as $$ begin"
        " if new.uri like '%00003%' then raise 'not this one'; end if; return new; end $$"
    )
    batches.mdp.run("create trigger refuse before insert on documents for each row execute function refuse()")
    found = batches.run(catalogue(10))
    assert (found.registered, found.refused) == (9, 1)
    (row,) = batches.rejected().values()
    assert row["document"] == BASE + "00003.jsonld" and "not this one" in row["reason"]
    assert found.examples[0]["source"] == "00003.jsonld"


def test_documents_are_validated_again_if_the_schema_changes_during_a_run(batches: Batches) -> None:
    mdp = batches.mdp
    other_schema = (mdp.PREFIXES + SCHEMA.replace("b:pages a rdf:Property", "b:sheets a rdf:Property")).encode()
    holding = threading.Event()

    def narrow() -> None:
        """Hold the lock until everything is staged."""
        with mdp.engine.begin() as connection:
            lock_state(connection)
            holding.set()
            eventually(lambda: mdp.one("select coalesce(sum(prepared), 0) from batch_partitions") == 12)
            document = read_schema_document(other_schema, "text/turtle")
            put_schema(connection, document, mdp.provider)

    def begin(progress: object) -> None:
        if progress is None:
            thread.start()
            assert holding.wait(60)

    thread = threading.Thread(target=narrow)
    found = batches.run(catalogue(12), watch=begin)
    thread.join()
    assert (found.registered, found.refused) == (0, 12)
    assert len(batches.rejected()) == 12 and len(found.examples) == 12
    assert all(row["type"] == "invalid-document" for row in batches.rejected().values())


def test_a_folder_with_other_content_is_not_used_for_rejects(batches: Batches) -> None:
    batches.rejects.mkdir()
    (batches.rejects / "thesis.txt").write_text("mine")
    with pytest.raises(BadCommand, match=r"thesis\.txt"):
        batches.run(catalogue(1))
    assert (batches.rejects / "thesis.txt").read_text() == "mine"
    assert batches.mdp.one("select count(*) from documents") == 0


def test_a_foreign_table_is_not_used_for_rejects(batches: Batches) -> None:
    batches.rejects.mkdir()
    pq.write_table(pa.table({"id": range(5)}), batches.rejects / "part-0.parquet")
    with pytest.raises(BadCommand, match="a table of id"):
        batches.run(catalogue(1))
    assert pq.read_table(batches.rejects).num_rows == 5


def test_a_document_with_several_flaws_is_reported_with_the_first(batches: Batches) -> None:
    text = rdf_xml(1).replace("<b:pages>48<", "<b:pages>many<").replace("b:title>", "b:titel>")
    batches.run({"a.rdf": text.encode()})
    (row,) = batches.rejected().values()
    assert len(row["flaws"]) == 2 and "has 2 errors. The first: line 3" in row["reason"]
