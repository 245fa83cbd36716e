"""Catalogues to register in batches: one that is generated, or one that is given.

A generated document describes a book in fifty statements: the book itself, ten files of it, and its author, whom about
twenty documents share. The rule base is of four kinds, by turns: a shelf that is equal, a title that contains a word,
downloads above a threshold, and a join over the author. A document matches two or three rules of a thousand.
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
NAMES = f"{BASE}schema#"
STATEMENTS = 50
FILES = 10
WORDS = 1000
MOST_DOWNLOADS = 10**9
MOST_FILES = 20_000
"""Documents that are written as files; more go into one archive, so that the file system is not what is measured."""
TOLD_EVERY = 10_000

Say = Callable[[str], None]

SCHEMA = f"""\
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> . @prefix mdv: <urn:mdv:schema#> . @prefix c: <{NAMES}> .
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
    """What is registered."""

    runs: tuple[tuple[str, ...], ...]
    """What `mdv batch` is given, run after run."""
    schema: bytes
    rules: tuple[str, ...]
    """Of an LMR that nobody runs."""
    followed: tuple[str, ...]
    """The rules of LMRs that run."""
    others: Iterator[tuple[str, bytes]] = field(repr=False)
    """Documents of the same kind that are none of these, without end, for HTTP."""
    documents: int | None = None
    """How many there are, where that is known."""


@dataclass(frozen=True, slots=True)
class Generated:
    """A catalogue of so many documents, the same each time."""

    documents: int
    seed: int = 2002

    def document(self, number: int) -> tuple[str, bytes]:
        """Its URI and text; numbers beyond the last give more of the same kind."""
        random = Random(f"{self.seed}/{number}")
        author = random.randrange(max(1, self.documents // 20))
        words = " ".join(f"word{random.randrange(WORDS):05}" for _ in range(4))
        files = [f"files/{number}.{place}" for place in range(FILES)]
        named = "".join(f'<c:file rdf:resource="{file}"/>\n' for file in files)
        described = "".join(
            f'<c:File rdf:about="{file}"><c:size>{random.randrange(10**6)}</c:size>'
            f"<c:format>format/{place}</c:format></c:File>\n"
            for place, file in enumerate(files)
        )
        text = f"""<?xml version="1.0" encoding="utf-8"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:c="{NAMES}" xml:base="{BASE}">
<c:Book rdf:about="books/{number}">
<c:title>Book {number}: {words}</c:title>
<c:shelf>shelf {random.randrange(max(1, self.documents // 10))}</c:shelf>
<c:language>{random.choice(("en", "de", "fr", "fi"))}</c:language>
<c:pages>{random.randrange(10, 1000)}</c:pages>
<c:downloads>{random.randrange(MOST_DOWNLOADS)}</c:downloads>
<c:author rdf:resource="people/{author}"/>
{named}</c:Book>
<c:Person rdf:about="people/{author}"><c:name>Author {author}</c:name><c:born>{1500 + author % 500}</c:born></c:Person>
{described}</rdf:RDF>
"""
        return f"{BASE}documents/{number:08}.rdf", text.encode()

    def rules(self, number: int) -> Iterator[str]:
        """A rule base, for an LMR that nobody runs."""
        thresholds = max(1, number // 4)
        for place in range(number):
            kind, turn = place % 4, place // 4
            # As many of the thresholds as there are, a book exceeds one of them on the average.
            above = MOST_DOWNLOADS - 2 * MOST_DOWNLOADS * (turn + 1) // thresholds**2
            where = (f"b.shelf = 'shelf {turn}'", f"b.title contains 'word{turn:05}'", f"b.downloads > {above}",
                     f"b.author.name = 'Author {turn}'")[kind]  # fmt: skip
            yield f"search Book b register b where {where}"

    def write(self, folder: Path, say: Say) -> Path:
        """Put the documents there, as files or as one archive; where they are."""
        if self.documents <= MOST_FILES:
            place = folder / "catalogue"
            place.mkdir()
            for name, text in self._files(say):
                (place / name).write_bytes(text)
            return place
        place = folder / "catalogue.tar"
        with tarfile.open(place, "w") as archive:
            for name, text in self._files(say):
                member = tarfile.TarInfo(name)
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text))
        return place

    def _files(self, say: Say) -> Iterator[tuple[str, bytes]]:
        for number in range(self.documents):
            uri, text = self.document(number)
            yield uri.rpartition("/")[2], text
            if (number + 1) % TOLD_EVERY == 0:
                say(f"  {number + 1:,} of {self.documents:,} documents written")


FOLLOWED = f"search Book b register b where b.downloads >= {MOST_DOWNLOADS * 9 // 10}"
"""A tenth of all books, for LMRs that run."""


def generate(documents: int, rules: int, folder: Path, say: Say) -> Catalogue:
    """A generated catalogue, written to a folder."""
    say(f"Writing {documents:,} documents.")
    made = Generated(documents)
    line = (str(made.write(folder, say)), "--uri-base", f"{BASE}documents/")
    others = map(made.document, count(documents))
    return Catalogue((line,), SCHEMA, tuple(made.rules(rules)), (FOLLOWED,), others, documents)


def given(paths: tuple[Path, ...], uri: str, schema: bytes, rules: tuple[str, ...]) -> Catalogue:
    """A catalogue that somebody has: folders or archives, each registered by a run of its own, one after the other.

    What goes over HTTP are the same texts under other URIs.
    """
    runs = tuple((str(path), "--uri", uri) for path in paths)
    return Catalogue(runs, schema, (), rules, _again(paths[0]))


def _again(path: Path) -> Iterator[tuple[str, bytes]]:
    for turn in count():
        number = -1
        for number, text in enumerate(_texts(path)):
            yield f"{BASE}others/{turn}/{number}.rdf", text
        if number < 0:
            raise BadRequest(f"No .rdf is in {path}: there is nothing to send over HTTP beside the batch.")


def _texts(path: Path) -> Iterator[bytes]:
    if path.is_dir():
        yield from (file.read_bytes() for file in sorted(path.rglob("*.rdf")))
        return
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".rdf") and (file := archive.extractfile(member)):
                yield file.read()
