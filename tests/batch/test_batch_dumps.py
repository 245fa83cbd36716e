"""Dumps of N-Triples and N-Quads: how statements are assigned to documents, and which lines are refused."""

from __future__ import annotations

import bz2
import gzip
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, Quad, RdfFormat, Triple

from mdv.batch.dump_lines import parse_line
from mdv.batch.dumps import count_documents, dump_documents
from mdv.errors import BadCommand
from mdv.model import Statement
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.gate import gate
from mdv.rdf.parse import is_absolute_iri, parse
from mdv.rdf.syntax import N_TRIPLES

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

MAX_BYTES = 1 << 20
P = "<http://v/p>"


def read(spark: SparkSession, *paths: Path, by: str | None = None, max_bytes: int = MAX_BYTES) -> list[Row]:
    return dump_documents(spark, [str(path) for path in paths], by, max_bytes).collect()


def write(path: Path, *lines: str) -> Path:
    path.write_bytes("".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape"))
    return path


def texts(rows: Iterable[Row]) -> dict[str, list[str]]:
    return {row.uri: row.content.decode().splitlines() for row in rows if row.problem is None}


def reasons(rows: Iterable[Row]) -> dict[str | None, str]:
    return {row.uri: json.loads(row.problem)["detail"] for row in rows if row.problem is not None}


def named(uri: str, content: bytes) -> set[Statement]:
    """Return the statements registered for a text, blank nodes by their stored names."""
    return set(name_blank_nodes(parse(gate(content, N_TRIPLES), uri)).statements)


class TestLines:
    tokens = st.sampled_from(
        ["<http://a/d#x>", "<http://a/\\u00e9>", "<http://g/é>", "<a>", "<http://a b>", "<http://a/%>", "<x:>",
         "_:b", "_:b.c", "_:é1", "_:b-", '"a"', '"a # <http://x> _:z ."', '"\\"\\n\\u00e9"@en-GB', '"1"^^<http://d/t>',
         '"\\q"', '"\\ud800"', '"a"@', '"a"@en--ltr', '"', "'a'", ".", ".", ".", ". # so", "#", "^^",
         "<<( <http://a/s> <http://a/p> _:o )>>", '"\0"', "\udcff"]
    )  # fmt: skip
    gaps = st.sampled_from([" ", "\t", "", "  ", "\u00a0"])

    @pytest.mark.full
    @given(st.lists(st.tuples(tokens, gaps), min_size=3, max_size=6).map(lambda parts: "".join(map("".join, parts))))
    @settings(max_examples=2000, deadline=None)
    def test_a_line_is_a_statement_exactly_if_the_parser_accepts_it(self, line: str) -> None:
        try:
            wanted = [*pyoxigraph.parse(line.encode("utf-8", "surrogateescape"), format=RdfFormat.N_QUADS)]
        except (SyntaxError, ValueError):
            wanted = None
        said = parse_line(line, "f_", None)
        if wanted == []:
            assert said is None
            return
        assert said is not None
        document, node, other, text, problem = said
        if wanted is None:
            assert problem or not is_absolute_iri(document or "") or not is_read(text)
            return
        quad = wanted[0]
        if isinstance(quad.object, Triple) or isinstance(quad.graph_name, BlankNode):
            assert problem
            return
        assert problem is None
        (triple,) = pyoxigraph.parse(text, format=RdfFormat.N_TRIPLES)
        assert triple.triple == Triple(marked(quad.subject), quad.predicate, marked(quad.object))
        blanks = [value.value for value in (triple.subject, triple.object) if isinstance(value, BlankNode)]
        assert [one for one in (node, other) if one] == blanks
        assert document == document_of(quad)

    def test_comments_and_empty_lines_are_skipped(self) -> None:
        assert [parse_line(line, "", None) for line in ("", "  \t", "# so", " # <http://a> .")] == [None] * 4

    @pytest.mark.parametrize(
        ("line", "document"),
        [
            ('<http://a/d#x> <http://v/p> "\\q" .', "http://a/d"),
            ('<http://a/d#x> <http://v/p> "\\q" <http://a/g> .', "http://a/g"),
            ("<http://a/d#x> <http://v /p> <http://a/o> .", "http://a/d"),
            ("<http://a/d#x> <http://v/p> <http://a/o", "http://a/d"),
            ('_:b <http://v/p> "\\q" .', None),
            ("PK\x03\x04", None),
        ],
    )
    def test_a_broken_line_refuses_the_document_that_it_seems_to_belong_to(
        self, line: str, document: str | None
    ) -> None:
        said = parse_line(line, "", None)
        assert said is not None
        assert said[0] == document
        assert said[4] is not None and "not-well-formed" in said[4]


def is_read(text: str) -> bool:
    try:
        return bool([*pyoxigraph.parse(text.encode("utf-8", "surrogateescape"), format=RdfFormat.N_TRIPLES)])
    except SyntaxError:
        return False


def marked(term: Any) -> Any:
    return BlankNode("f_" + term.value) if isinstance(term, BlankNode) else term


def document_of(quad: Quad) -> str | None:
    if not isinstance(quad.graph_name, DefaultGraph):
        return quad.graph_name.value
    return quad.subject.value.partition("#")[0] if isinstance(quad.subject, NamedNode) else None


@pytest.fixture
def lines_far_apart(spark: SparkSession) -> Iterator[None]:
    """Read three lines at a time, as if related lines were far apart in a large dump."""
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "3")
    yield
    spark.conf.set(setting, before)


class TestDocuments:
    def test_the_document_is_the_graph_or_else_the_subject(self, spark: SparkSession, tmp_path: Path) -> None:
        dump = write(
            tmp_path / "a dump.nq",
            "\ufeff# a comment",
            f'<http://a/d#x> {P} "1" .\r',
            f'\t<http://a/d#y>{P}"#2 <http://x> ."@en<http://a/g>.  # so\r',
            "",
            f'<http://a/d#x> {P} "1" .',
            f"<http://a/d> {P} <http://a/d#x> .",
        )
        rows = read(spark, dump)
        assert texts(rows) == {
            "http://a/d": [f'<http://a/d#x> {P} "1" .', f"<http://a/d> {P} <http://a/d#x> ."],
            "http://a/g": [f'<http://a/d#y>{P}"#2 <http://x> ."@en .'],
        }
        assert {(row.source, row.media_type, row.rank) for row in rows} == {(str(dump), "application/n-triples", "")}

    def test_compressed_dumps_are_read_and_blank_node_labels_are_local_to_a_file(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        (tmp_path / "a.nt.gz").write_bytes(gzip.compress(f'<http://a/d> {P} _:b .\n_:b {P} "1" .'.encode()))
        (tmp_path / "b.nq.bz2").write_bytes(
            bz2.compress(f'<http://a/d> {P} _:b .\n_:b {P} "2" <http://a/d> .\n'.encode())
        )
        (row,) = read(spark, tmp_path / "a.nt.gz", tmp_path / "b.nq.bz2")
        assert row.source == str(tmp_path / "a.nt.gz")
        both = f'<http://a/d> {P} _:x .\n<http://a/d> {P} _:y .\n_:x {P} "1" .\n_:y {P} "2" .'
        assert named("http://a/d", row.content) == named("http://a/d", both.encode())

    def test_a_pattern_extracts_the_document_from_the_subject(self, spark: SparkSession, tmp_path: Path) -> None:
        dump = write(
            tmp_path / "a.nt",
            f'<http://a/books/7/title> {P} "1" .',
            f'<http://a/books/7> {P} "2" .',
            f'<http://a/people/7> {P} "3" .',
        )
        rows = read(spark, dump, by=r"http://a/books/\d+")
        first, second = f'<http://a/books/7/title> {P} "1" .', f'<http://a/books/7> {P} "2" .'
        assert texts(rows) == {"http://a/books/7": [first, second]}
        assert reasons(rows) == {
            None: "The dump has an error: the subject http://a/people/7 does not match --by http://a/books/\\d+"
            f', in `<http://a/people/7> {P} "3" .`.'
        }
        assert set(texts(read(spark, dump, by="(http://a/)[a-z]+"))) == {"http://a/"}
        with pytest.raises(BadCommand, match=r"--by .* is not a regular expression"):
            read(spark, dump, by="(")

    def test_invalid_documents_are_refused_with_a_reason_and_the_others_are_read(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        dump = write(
            tmp_path / "a.nq",
            f'<http://a/good> {P} "1" .',
            f'<http://a/torn> {P} "1" .',
            f'<http://a/torn> {P} "\\q" .',
            f'<http://a/torn> {P} "\udcff" .',
            f'<http://a/large> {P} "{"x" * 3000}" .',
            *(f'<http://a/long> {P} "{number:0100}" .' for number in range(20)),
            f'<http://a/x> {P} "1" <http://a/g#f> .',
            f'_:alone {P} "1" .',
            f"_:u {P} _:v .",
            f"_:v {P} _:u .",
            f'_:s {P} "1" <http://a/one> .',
            f"_:t {P} _:s .",
            f"<http://a/two#x> {P} _:t .",
            f'<http://a/x> {P} "1" _:g .',
            "\udcff\udcfe\0\x01",
        )
        rows = read(spark, dump, max_bytes=2000)
        assert set(texts(rows)) == {"http://a/good"}
        by_uri = reasons(row for row in rows if row.uri is not None)
        assert by_uri.pop("http://a/torn") == "The document has 2 errors."
        assert "more than 2,000 bytes, the limit" in by_uri.pop("http://a/large")
        assert by_uri == {
            "http://a/long": "The document has 2,680 bytes; the limit is 2,000. Split it into several documents.",
            "http://a/g#f": "'http://a/g#f' has a fragment (#…). "
            "The URI of a document has none; those of its resources do.",
            "http://a/one": "The document has an error: "
            "the blank node _:s is also in the document http://a/two, but must be in one document only.",
            "http://a/two": "The document has an error: "
            "the blank node _:t is also in the document http://a/one, but must be in one document only.",
        }
        assert all(row.content is None and row.source == str(dump) for row in rows if row.problem is not None)
        assert sorted(json.loads(row.problem)["errors"][0]["message"] for row in rows if row.uri is None) == [
            "a line is not N-Triples or N-Quads: byte 0xff is not UTF-8, in `??␀\x01`",
            f'the blank node _:alone is not linked to any document, in `_:alone {P} "1" .`',
            f"the blank node _:u is not linked to any document, in `_:u {P} _:v .`",
            f"the blank node _:v is not linked to any document, in `_:v {P} _:u .`",
            "the graph _:g is a blank node, so it cannot name a document, in `" + f'<http://a/x> {P} "1" .`',
        ]

    @pytest.mark.usefixtures("lines_far_apart")
    def test_a_long_list_belongs_to_the_document_that_refers_to_its_head(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        links = [f"_:n{number} <http://v/next> _:n{number + 1} ." for number in range(100)]
        random.Random(1).shuffle(links)
        (row,) = read(spark, write(tmp_path / "a.nt", f"<http://a/d> {P} _:n0 .", *links))
        assert row.uri == "http://a/d"
        assert len(row.content.splitlines()) == 101

    def test_the_number_of_documents_is_estimated(self, spark: SparkSession, tmp_path: Path) -> None:
        dump = write(tmp_path / "a.nt", *(f'<http://a/{number // 2}#x> {P} "{number}" .' for number in range(1000)))
        assert 450 < count_documents(spark, [str(dump)], None, MAX_BYTES) < 550


class TestDatasets:
    """Random small datasets, each in its own file, read in one run and compared with a naive oracle."""

    @pytest.mark.usefixtures("lines_far_apart")
    def test_documents_contain_the_statements_of_the_dataset(self, spark: SparkSession, tmp_path: Path) -> None:
        chance = random.Random(1)
        worlds = [world(chance, number) for number in range(100)]
        for number, quads in enumerate(worlds):
            write(tmp_path / f"{number}.nq", *lines_of(quads, chance))
        found: dict[int, dict[str, bytes | None]] = defaultdict(dict)
        alone: dict[int, set[str]] = defaultdict(set)
        for row in read(spark, tmp_path):
            number = int(re.fullmatch(r".*/(\d+)\.nq", row.source)[1])  # type: ignore[index]
            if row.uri is None:
                alone[number].add(row.problem)
            else:
                assert row.uri not in found[number], "each document occurs once"
                found[number][row.uri] = row.content
        refused = 0
        for number, quads in enumerate(worlds):
            documents, lines_alone = oracle(quads)
            assert len(alone[number]) == lines_alone
            assert {uri: content and named(uri, content) for uri, content in found[number].items()} == {
                uri: triples and named(uri, serialised(triples)) for uri, triples in documents.items()
            }
            refused += sum(triples is None for triples in documents.values())
        assert refused > 5


def world(chance: random.Random, number: int) -> set[Quad]:
    documents = [f"http://w{number}/{name}" for name in "abc"[: chance.randint(1, 3)]]
    blanks = [BlankNode(f"b{label}") for label in range(chance.randint(0, 5))]
    names = [NamedNode(document + end) for document in documents for end in ("", "#x")]
    values = [
        Literal('a "quoted" # <http://x> .\n\\'),
        Literal("é\u2028\x85", language="en"),
        Literal("1", datatype=NamedNode("http://d/t")),
    ]
    graphs = [DefaultGraph()] * 6 + [NamedNode(chance.choice(documents)), BlankNode("g")][: chance.choice([0, 1, 1, 2])]
    return {
        Quad(
            chance.choice(names + 2 * blanks),
            NamedNode(f"http://v/p{chance.randint(0, 2)}"),
            chance.choice(names + 2 * blanks + values),
            chance.choice(graphs),
        )
        for _ in range(chance.randint(1, 9))
    }


def lines_of(quads: set[Quad], chance: random.Random) -> list[str]:
    lines = [
        pyoxigraph.serialize([quad], format=RdfFormat.N_QUADS).decode().rstrip("\n") for quad in sorted(quads, key=str)
    ]
    lines += chance.choices([*lines, "", "# a comment"], k=3)
    chance.shuffle(lines)
    return [chance.choice(["", " ", "\t"]) + line + chance.choice(["", "\r", " # so"]) for line in lines]


def serialised(triples: set[Triple]) -> bytes:
    return pyoxigraph.serialize(triples, format=RdfFormat.N_TRIPLES)


def oracle(quads: set[Quad]) -> tuple[dict[str, set[Triple] | None], int]:
    """Return the documents (None: refused) and the number of lines refused on their own."""
    nameless = {quad for quad in quads if isinstance(quad.graph_name, BlankNode)}
    waiting = quads - nameless
    documents: dict[str, set[Triple] | None] = {}
    alone = {str(quad) for quad in nameless}
    while waiting:
        part, nodes = {waiting.pop()}, set[BlankNode]()
        while True:
            nodes |= {term for quad in part for term in (quad.subject, quad.object) if isinstance(term, BlankNode)}
            linked = {quad for quad in waiting if {quad.subject, quad.object} & nodes}
            if not linked:
                break
            part |= linked
            waiting -= linked
        homes = {document for quad in part if (document := document_of(quad)) is not None}
        if not homes:
            alone |= {str(quad) for quad in part}
        for home in homes:
            before = documents.setdefault(home, set())
            documents[home] = None if len(homes) > 1 or before is None else before | {quad.triple for quad in part}
    return documents, len(alone)
