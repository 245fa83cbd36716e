"""Reading documents from files, folders, globs and archives."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mdv.batch.choose_way import BatchInput, choose_way
from mdv.batch.document_naming import Naming
from mdv.batch.file_source import FileSource, find_files
from mdv.batch.local_source import LocalSource
from mdv.errors import BadCommand
from tests.support.archives import make_archive
from tests.support.gutenberg import GUTENBERG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT = 32 << 20
BASE = Naming(base="http://a/")


def write(folder: Path, *names: str, content: bytes | None = None) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() if content is None else content)
    return folder


@pytest.fixture(params=["in this process", pytest.param("on Spark", marks=pytest.mark.full)])
def way(request: pytest.FixtureRequest) -> SparkSession | None:
    """A Spark session, or None to read without Spark."""
    return request.getfixturevalue("spark") if request.param == "on Spark" else None


class LocalRows:
    """Documents that are read without Spark, with the methods of a data frame that the tests use."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = list(rows)

    def collect(self) -> list[Any]:
        return self._rows


class LocalFiles:
    """Files that are read without Spark, with the methods of a `FileSource` that the tests use."""

    def __init__(self, source: LocalSource) -> None:
        self.source = source

    def documents(self) -> LocalRows:
        return LocalRows(self.source.documents())

    def listing(self) -> LocalRows:
        ranks = [document.rank for document in self.source.documents()]
        return LocalRows((*found, rank) for found, rank in zip(self.source.listing(), ranks, strict=True))

    def count(self) -> int:
        return len(list(self.source.listing()))


def find(
    spark: SparkSession | None, *paths: object, naming: Naming = BASE, syntax: str | None = None, limit: int = LIMIT
) -> FileSource | LocalFiles:
    texts = [str(path) for path in paths]
    if spark is not None:
        return find_files(spark, texts, naming, syntax, limit)
    chosen = choose_way(BatchInput(texts, naming, syntax, None, None, limit, ()))
    assert chosen.source is not None, chosen.reason
    return LocalFiles(chosen.source)


def rows(inputs: FileSource | LocalFiles) -> list[Any]:
    """Return the documents in rank order, after checking that their attributes agree."""
    documents = sorted(inputs.documents().collect(), key=lambda row: row.rank.encode())
    listed = sorted(map(tuple, inputs.listing().collect()), key=lambda row: row[2].encode())
    assert listed == [(row.source, row.uri, row.rank) for row in documents]
    assert inputs.count() == len(documents)
    assert all((row.content is None) == (row.problem is not None) for row in documents)
    return documents


def details(found: list[Any]) -> dict[str, Any]:
    return {row.source: json.loads(row.problem)["detail"] for row in found if row.problem is not None}


def test_a_folder_gives_its_documents_in_order(way: SparkSession | None, tmp_path: Path) -> None:
    names = ["a b.ttl", "c/é.rdf", "c/[1] {x}*?.jsonld", "d/p%20q.XML"]
    write(tmp_path, *names, "README.txt", ".hidden.rdf", ".git/x.rdf", "_temporary/x.rdf", "c/x.rdf~")
    write(tmp_path, "packed.ttl.gz", content=gzip.compress(b"packed.ttl.gz"))
    found = rows(find(way, tmp_path))
    assert [bytes(row.content).decode() for row in found] == sorted([*names, "packed.ttl.gz"])
    assert [(row.source, row.uri, row.media_type) for row in found] == [
        (f"{tmp_path}/a b.ttl", "http://a/a%20b.ttl", "text/turtle"),
        (f"{tmp_path}/c/[1] {{x}}*?.jsonld", "http://a/c/%5B1%5D%20%7Bx%7D%2A%3F.jsonld", "application/ld+json"),
        (f"{tmp_path}/c/é.rdf", "http://a/c/%C3%A9.rdf", "application/rdf+xml"),
        (f"{tmp_path}/d/p%20q.XML", "http://a/d/p%2520q.XML", "application/rdf+xml"),
        (f"{tmp_path}/packed.ttl.gz", "http://a/packed.ttl.gz", "text/turtle"),
    ]


def test_arguments_keep_their_order_and_name_the_files_below_them(way: SparkSession | None, tmp_path: Path) -> None:
    write(tmp_path, "z/sub/1.rdf", "a/2.rdf", "g/x1/3.ttl", "g/x2/deep/4.rdf", "g/y/5.rdf", "[odd]*.dat", "a/6.txt")
    found = rows(find(way, tmp_path / "z", tmp_path / "a/*", tmp_path / "g/{x[12],nothing}", tmp_path / "[odd]*.dat"))
    names = ("sub/1.rdf", "2.rdf", "3.ttl", "deep/4.rdf", "%5Bodd%5D%2A.dat")
    assert [row.uri for row in found] == [f"http://a/{name}" for name in names]
    assert details(found).keys() == {f"{tmp_path}/[odd]*.dat"}
    (odd,) = rows(find(way, tmp_path / "[odd]*.dat", syntax="turtle"))
    assert (odd.media_type, odd.problem) == ("text/turtle", None)


def test_without_a_base_documents_have_the_uris_of_their_files(
    way: SparkSession | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "real/a b.rdf")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    (found,) = rows(find(way, "link", naming=Naming()))
    assert found.uri == (tmp_path / "real" / "a b.rdf").as_uri()


def test_files_below_a_folder_can_be_given_one_by_one(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "b/2.rdf", "a/1.rdf")
    files = [f"{tmp_path}/b/2.rdf", f"file:{tmp_path}/a/1.rdf"]
    found = rows(find_files(spark, files, BASE, None, LIMIT, below=f"file:{tmp_path}"))
    assert [row.uri for row in found] == ["http://a/a/1.rdf", "http://a/b/2.rdf"]


def test_files_that_are_too_large_or_not_rdf_are_not_opened(spark: SparkSession, tmp_path: Path) -> None:
    """Spark cannot read a file of 3 GiB; opening it would fail the test."""
    write(tmp_path, "small.rdf", "large.rdf", "large.bin", "large.zip", "edge.rdf")
    for name, size in (("large.rdf", 3 << 30), ("large.bin", 3 << 30), ("large.zip", 3 << 30), ("edge.rdf", 1000)):
        os.truncate(tmp_path / name, size)
    found = rows(find(spark, tmp_path, limit=1000))
    assert {row.source: row.uri for row in found if row.problem is None} == {
        f"{tmp_path}/edge.rdf": "http://a/edge.rdf",
        f"{tmp_path}/small.rdf": "http://a/small.rdf",
    }
    told = details(found)
    assert told[f"{tmp_path}/large.rdf"] == (
        "The document has 3,221,225,472 bytes; the limit is 1,000. Split it into several documents."
    )
    assert "cannot be read to its end" in told[f"{tmp_path}/large.zip"]
    assert next(row.uri for row in found if row.source.endswith("large.rdf")) == "http://a/large.rdf"


def test_archives_among_files_are_read(way: SparkSession | None, tmp_path: Path) -> None:
    write(tmp_path, "b.rdf")
    make_archive(tmp_path / "a.tar.xz", {"2014/pg1.rdf": b"one", "README.md": b"", "x.zip": b""})
    make_archive(tmp_path / "c.zip", {"pg2.ttl": b"two", "../pg3.rdf": b"three"})
    found = rows(find(way, tmp_path, naming=Naming()))
    assert [(row.source.removeprefix(f"{tmp_path}/"), row.content) for row in found] == [
        ("a.tar.xz!/2014/pg1.rdf", b"one"), ("a.tar.xz!/x.zip", None), ("b.rdf", b"b.rdf"), ("c.zip!/pg2.ttl", b"two"),
        ("c.zip!/../pg3.rdf", None),
    ]  # fmt: skip
    assert found[0].uri == f"{tmp_path.as_uri()}/a.tar.xz!/2014/pg1.rdf"
    assert len(details(found)) == 2


def test_an_archive_of_many_members_is_read_by_several_tasks(spark: SparkSession, tmp_path: Path) -> None:
    members = {f"pg{n}.rdf": os.urandom(2000) for n in range(300)}
    inputs = find(spark, make_archive(tmp_path / "books.tar.gz", members))
    found = rows(inputs)
    assert len(inputs.archive_tasks) == 4
    assert [(row.uri, row.content) for row in found] == [(f"http://a/{name}", text) for name, text in members.items()]


@pytest.mark.skipif(not GUTENBERG.exists(), reason="the Gutenberg catalogue is not available")
def test_the_gutenberg_catalogue_is_named_by_a_pattern(spark: SparkSession) -> None:
    naming = Naming(pattern="http://www.gutenberg.org/cache/epub/{1}/pg{1}.rdf")
    documents = find(spark, GUTENBERG / "gutenberg-2014.tar.xz", naming=naming).documents()
    assert documents.where("problem is null").select("uri").distinct().count() == 958
    (book,) = documents.where("uri = 'http://www.gutenberg.org/cache/epub/107/pg107.rdf'").collect()
    assert book.source.endswith("gutenberg-2014.tar.xz!/2014/pg107.rdf")
    assert b"Far from the Madding Crowd" in book.content


def test_a_path_that_does_not_match_the_pattern_is_refused_and_the_others_are_read(
    way: SparkSession | None, tmp_path: Path
) -> None:
    write(tmp_path, "pg1.rdf", "index.rdf")
    found = rows(find(way, tmp_path, naming=Naming(pattern="http://a/{1}")))
    assert [row.uri for row in found] == [None, "http://a/1"]
    assert "'index.rdf' has no value for {1} of --uri 'http://a/{1}'" in details(found)[f"{tmp_path}/index.rdf"]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_manifest_names_documents_by_path(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    books = write(tmp_path / "books", "a,1.rdf", "sub/b.rdf", "c.rdf", "d.rdf", "e.dat.xml")
    make_archive(books / "x.zip", {"in/f.rdf": b"f"})
    table = [
        ("a,1.rdf", "http://m/a", None), ("sub/b.rdf", "http://m/b#1", None), (f"{books}/c.rdf", "http://m/c", None),
        ("e.dat.xml", "http://m/e", "text/turtle"), ("in/f.rdf", "http://m/f", None), ("gone.rdf", "http://m/g", None),
    ]  # fmt: skip
    manifest = tmp_path / f"names.{kind}"
    if kind == "jsonl":
        lines = [json.dumps(dict(zip(("path", "uri", "media_type"), row, strict=True))) for row in table]
    else:
        lines = ["\ufeffPath, URI , media_type"] + [
            ",".join(f'"{value}"' if value else "" for value in row) for row in table
        ]
    manifest.write_text("\n".join(lines), "utf-8")
    found = rows(find(spark, books, naming=Naming(manifest=str(manifest))))
    named = {row.source.removeprefix(f"{books}/"): (row.uri, row.media_type) for row in found}
    xml = "application/rdf+xml"
    assert named == {
        "a,1.rdf": ("http://m/a", xml), "c.rdf": ("http://m/c", xml), "d.rdf": (None, xml),
        "e.dat.xml": ("http://m/e", "text/turtle"), "sub/b.rdf": (None, xml), "x.zip!/in/f.rdf": ("http://m/f", xml),
    }  # fmt: skip
    assert details(found)[f"{books}/d.rdf"] == f"{books}/d.rdf is not in the manifest. Add a line for it."
    assert "has a fragment" in details(found)[f"{books}/sub/b.rdf"]


def test_dumps_are_distinguished_from_documents(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "a[1].nt", "b.nq.gz", "c.NT.bz2", "README.md")
    inputs = find(spark, tmp_path)
    assert inputs.dumps == tuple(f"file:{tmp_path}/{name}" for name in (r"a\[1\].nt", "b.nq.gz", "c.NT.bz2"))
    assert spark.read.text(list(inputs.dumps[:1])).head() == ("a[1].nt",)
    (document,) = rows(find(spark, tmp_path / "a[1].nt", syntax="ntriples"))
    assert (document.media_type, document.content) == ("application/n-triples", b"a[1].nt")


def test_any_file_system_that_spark_supports_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    """viewfs: is a Hadoop file system. Here it shows a folder under another name, as on a cluster."""
    spark.sparkContext._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.test.link./books", tmp_path.as_uri())
    write(tmp_path, "a b.rdf", "sub/c.ttl")
    make_archive(tmp_path / "sub/v 100%.tar.gz", {"2014/pg1.rdf": b"one"})
    (tmp_path / "names.tsv").write_text("path\turi\na b.rdf\thttp://m/a\n2014/pg1.rdf\thttp://m/1\n", "utf-8")
    found = rows(find(spark, "viewfs://test/books", naming=Naming()))
    assert [(row.uri, row.content) for row in found] == [
        ("viewfs://test/books/a%20b.rdf", b"a b.rdf"),
        ("viewfs://test/books/sub/c.ttl", b"sub/c.ttl"),
        ("viewfs://test/books/sub/v%20100%25.tar.gz!/2014/pg1.rdf", b"one"),
    ]
    by_manifest = Naming(manifest="viewfs://test/books/names.tsv")
    found = rows(find(spark, "viewfs://test/books/s*", "viewfs://test/books/a b.rdf", naming=by_manifest))
    assert [row.uri for row in found] == [None, "http://m/1", "http://m/a"]


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["{}/gone"], "There is no file or folder {}/gone."),
        (["{}/*.owl"], "Nothing matches {}/*.owl."),
        (["{}/empty"], "No file in {}/empty has a suffix of RDF: "),
        (["{}/_hidden.rdf"], "{}/_hidden.rdf is hidden: Spark ignores"),
    ],
)
def test_invalid_paths_are_reported_in_a_sentence(
    way: SparkSession | None, tmp_path: Path, paths: list[str], words: str
) -> None:
    write(tmp_path, "a.rdf", "_hidden.rdf", "empty/README.txt")
    with pytest.raises(BadCommand) as refused:
        find(way, *(path.format(tmp_path) for path in paths))
    assert refused.value.detail.startswith(words.replace("{}", str(tmp_path)))


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["nosuch://host/x"], 'nosuch://host/x cannot be read: No FileSystem for scheme "nosuch".'),
        (["{}/a.rdf", "{}/d.nt"], "The input mixes dumps (file:{}/d.nt) and documents (file:{}/a.rdf)"),
        (["{}/d.nt.xz"], "Spark cannot read dumps compressed as .xz, such as file:{}/d.nt.xz."),
        ([], "No input was given"),
    ],
)
def test_paths_that_only_spark_can_read_are_reported_in_a_sentence(
    spark: SparkSession, tmp_path: Path, paths: list[str], words: str
) -> None:
    write(tmp_path, "a.rdf", "d.nt", "d.nt.xz")
    with pytest.raises(BadCommand) as refused:
        find(spark, *(path.format(tmp_path) for path in paths))
    assert refused.value.detail.startswith(words.replace("{}", str(tmp_path)))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("names.csv", "path,name\na,b\n", "has no column uri"),
        ("names.txt", "", "one of .csv, .tsv, .json"),
        (None, "", "There is no file or folder"),
    ],
)
def test_an_unreadable_manifest_is_reported_in_a_sentence(
    spark: SparkSession, tmp_path: Path, name: str | None, text: str, words: str
) -> None:
    write(tmp_path, "a.rdf")
    manifest = tmp_path / (name or "gone.csv")
    if name:
        manifest.write_text(text, "utf-8")
    with pytest.raises(BadCommand, match=words):
        find(spark, tmp_path / "a.rdf", naming=Naming(manifest=str(manifest)))


def test_empty_files_are_refused_and_not_skipped(way: SparkSession | None, tmp_path: Path) -> None:
    for name in ("a b.ttl", "full.ttl", "readme.txt"):
        (tmp_path / name).write_text("<http://a/x> <http://a/p> 1 ." if name == "full.ttl" else "")
    inputs = find(way, tmp_path, limit=1000)
    found = {row.uri: row.content for row in inputs.documents().collect()}
    assert found == {"http://a/a%20b.ttl": b"", "http://a/full.ttl": b"<http://a/x> <http://a/p> 1 ."}
    assert inputs.count() == len(inputs.listing().collect()) == 2


def test_names_with_a_colon_and_empty_archives_are_refused_and_the_others_are_read(
    way: SparkSession | None, tmp_path: Path
) -> None:
    for name in ("a:b.ttl", "good.ttl"):
        (tmp_path / name).write_text("<http://a/x> <http://a/p> 1 .")
    (tmp_path / "empty.zip").touch()
    inputs = find(way, tmp_path, limit=1000)
    found = {row.source.rpartition("/")[2]: row.problem for row in inputs.documents().collect()}
    assert found.keys() == {"a:b.ttl", "good.ttl", "empty.zip"} and found["good.ttl"] is None
    assert "colon" in found["a:b.ttl"] and found["empty.zip"] is not None
    assert inputs.count() == 3
