"""Catalogues for batches, generated or existing.

A generated document describes a book in fifty statements: the book itself, ten files, and its author, whom about twenty
documents share. The rules have four types, in turn: equal to a shelf, contains a word in the title, downloads above a
threshold, and a join with the author. A document matches two or three of a thousand rules.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

from mdv.errors import BadRequest

BASE = "http://catalogue.example/"
NAMESPACE = f"{BASE}schema#"
STATEMENTS = 50
FILES_PER_BOOK = 10
VOCABULARY_SIZE = 1000
MAX_DOWNLOADS = 10**9
MAX_DOCUMENT_FILES = 20_000
"""Up to this number, documents are written as files. More of them are written to one archive, so that the file system
is not measured."""
PROGRESS_DOCUMENTS = 10_000

PrintProgress = Callable[[str], None]

SCHEMA = f"""\
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> . @prefix mdv: <urn:mdv:schema#> . @prefix c: <{NAMESPACE}> .
c:Book a rdfs:Class . c:Person a rdfs:Class . c:File a rdfs:Class .
c:title a rdf:Property ; rdfs:domain c:Book ; rdfs:range xsd:string .
c:shelf a rdf:Property ; rdfs:domain c:Book ; rdfs:range xsd:string .
c:language a rdf:Property ; rdfs:domain c:Book ; rdfs:range xsd:string .
c:pages a rdf:Property ; rdfs:domain c:Book ; rdfs:range xsd:integer .
c:downloads a rdf:Property ; rdfs:domain c:Book ; rdfs:range xsd:integer .
c:author a rdf:Property ; rdfs:domain c:Book ; rdfs:range c:Person ; mdv:reference mdv:strong .
c:file a rdf:Property ; rdfs:domain c:Book ; rdfs:range c:File ; mdv:setValued true .
c:name a rdf:Property ; rdfs:domain c:Person ; rdfs:range xsd:string .
c:born a rdf:Property ; rdfs:domain c:Person ; rdfs:range xsd:integer .
c:size a rdf:Property ; rdfs:domain c:File ; rdfs:range xsd:integer .
c:format a rdf:Property ; rdfs:domain c:File ; rdfs:range xsd:string .
""".encode()


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The documents and rules of a measurement."""

    runs: tuple[tuple[str, ...], ...]
    """The arguments of `mdv batch`, for each run."""
    schema: bytes
    rules: tuple[str, ...]
    """Rules of an LMR that is not running."""
    followed: tuple[str, ...]
    """Rules of the running LMRs."""
    others: Iterator[tuple[str, bytes]] = field(repr=False)
    """An endless sequence of other documents of the same kind, for HTTP."""
    documents: int | None = None
    """The number of documents, if known."""


@dataclass(frozen=True, slots=True)
class CatalogueGenerator:
    """Generates a catalogue of a given size, always the same."""

    documents: int
    seed: int = 2002

    def document(self, number: int) -> tuple[str, bytes]:
        """Return the URI and text of a document. Numbers beyond the last give more documents of the same kind."""
        random = Random(f"{self.seed}/{number}")
        author = random.randrange(max(1, self.documents // 20))
        words = " ".join(f"word{random.randrange(VOCABULARY_SIZE):05}" for _ in range(4))
        files = [f"files/{number}.{index}" for index in range(FILES_PER_BOOK)]
        named = "".join(f'<c:file rdf:resource="{file}"/>\n' for file in files)
        described = "".join(
            f'<c:File rdf:about="{file}"><c:size>{random.randrange(10**6)}</c:size>'
            f"<c:format>format/{index}</c:format></c:File>\n"
            for index, file in enumerate(files)
        )
        text = f"""<?xml version="1.0" encoding="utf-8"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:c="{NAMESPACE}" xml:base="{BASE}">
<c:Book rdf:about="books/{number}">
<c:title>Book {number}: {words}</c:title>
<c:shelf>shelf {random.randrange(max(1, self.documents // 10))}</c:shelf>
<c:language>{random.choice(("en", "de", "fr", "fi"))}</c:language>
<c:pages>{random.randrange(10, 1000)}</c:pages>
<c:downloads>{random.randrange(MAX_DOWNLOADS)}</c:downloads>
<c:author rdf:resource="people/{author}"/>
{named}</c:Book>
<c:Person rdf:about="people/{author}"><c:name>Author {author}</c:name><c:born>{1500 + author % 500}</c:born></c:Person>
{described}</rdf:RDF>
"""
        return f"{BASE}documents/{number:08}.rdf", text.encode()

    def rules(self, number: int) -> Iterator[str]:
        """Yield a rule base for an LMR that is not running."""
        thresholds = max(1, number // 4)
        for index in range(number):
            kind, constant = index % 4, index // 4
            # With these thresholds, a book exceeds one of them on average.
            above = MAX_DOWNLOADS - 2 * MAX_DOWNLOADS * (constant + 1) // thresholds**2
            where = (f"b.shelf = 'shelf {constant}'", f"b.title contains 'word{constant:05}'", f"b.downloads > {above}",
                     f"b.author.name = 'Author {constant}'")[kind]  # fmt: skip
            yield f"search Book b register b where {where}"

    def write(self, folder: Path, print_progress: PrintProgress) -> Path:
        """Write the documents as files or as one archive. Return the path."""
        if self.documents <= MAX_DOCUMENT_FILES:
            path = folder / "catalogue"
            path.mkdir()
            for name, text in self._files(print_progress):
                (path / name).write_bytes(text)
            return path
        path = folder / "catalogue.tar"
        with tarfile.open(path, "w") as archive:
            for name, text in self._files(print_progress):
                member = tarfile.TarInfo(name)
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text))
        return path

    def _files(self, print_progress: PrintProgress) -> Iterator[tuple[str, bytes]]:
        for number in range(self.documents):
            uri, text = self.document(number)
            yield uri.rpartition("/")[2], text
            if (number + 1) % PROGRESS_DOCUMENTS == 0:
                print_progress(f"  {number + 1:,} of {self.documents:,} documents written")


FOLLOWED_RULE = f"search Book b register b where b.downloads >= {MAX_DOWNLOADS * 9 // 10}"
"""Selects a tenth of all books, for running LMRs."""


def generate_catalogue(documents: int, rules: int, folder: Path, print_progress: PrintProgress) -> Catalogue:
    """Generate a catalogue and write it to a folder."""
    print_progress(f"Writing {documents:,} documents.")
    generator = CatalogueGenerator(documents)
    arguments = (str(generator.write(folder, print_progress)), "--uri-base", f"{BASE}documents/")
    others = map(generator.document, count(documents))
    return Catalogue((arguments,), SCHEMA, tuple(generator.rules(rules)), (FOLLOWED_RULE,), others, documents)


def existing_catalogue(paths: tuple[Path, ...], uri: str, schema: bytes, rules: tuple[str, ...]) -> Catalogue:
    """Return an existing catalogue of folders or archives, each registered by its own run.

    The same texts are sent over HTTP under other URIs.
    """
    runs = tuple((str(path), "--uri", uri) for path in paths)
    return Catalogue(runs, schema, (), rules, _repeat(paths[0]))


def _repeat(path: Path) -> Iterator[tuple[str, bytes]]:
    for repetition in count():
        number = -1
        for number, text in enumerate(_texts(path)):
            yield f"{BASE}others/{repetition}/{number}.rdf", text
        if number < 0:
            raise BadRequest(f"{path} contains no .rdf file, so there is nothing to send over HTTP. Add .rdf files.")


def _texts(path: Path) -> Iterator[bytes]:
    if path.is_dir():
        yield from (file.read_bytes() for file in sorted(path.rglob("*.rdf")))
        return
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".rdf") and (file := archive.extractfile(member)):
                yield file.read()
