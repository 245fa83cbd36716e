"""A second reader: rdflib parses the same text, so that two readers would have to be wrong in the same way.

The two are compared in canonical form (RDFC-1.0), not by rdflib's own comparison, which is wrong about twins.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyoxigraph
import rdflib
from pyoxigraph import BlankNode, CanonicalizationAlgorithm, Dataset, Literal, NamedNode, Quad

from mdv.model import XSD_STRING, ParsedDocument, Statement
from mdv.rdf.gate import gate
from mdv.rdf.gated import Gated
from mdv.rdf.parse import parse
from mdv.rdf.syntax import RDF_XML, Syntax, syntax_of_name
from tests.support.gutenberg import GUTENBERG

GOLDEN = Path(__file__).parents[1] / "golden"
CORPUS = sorted((GOLDEN / "documents").iterdir())

_RDFLIB_NAMES = {"rdfxml": "xml", "turtle": "turtle", "ntriples": "nt", "jsonld": "json-ld"}


def read(body: bytes, syntax: Syntax, uri: str) -> ParsedDocument:
    return parse(gate(body, syntax), uri)


def corpus_document(path: Path) -> tuple[bytes, Syntax, str]:
    """Text, syntax and the URI under which it is registered."""
    return path.read_bytes(), syntax_of_name(path.name), f"http://mdv.example/dir/{path.name}"


def gutenberg_documents(year: str, every: int) -> Iterator[tuple[bytes, Syntax, str]]:
    """Every n-th document of a year; empty if the catalogue is not available."""
    with tarfile.open(GUTENBERG / f"gutenberg-{year}.tar.xz") as archive:
        for place, member in enumerate(archive):
            file = archive.extractfile(member)
            if file is not None and place % every == 0:
                number = Path(member.name).stem.removeprefix("pg")
                yield file.read(), RDF_XML, f"http://www.gutenberg.org/cache/epub/{number}/pg{number}.rdf"


def first_opinion(gated: Gated, uri: str) -> list[str]:
    return canonical(map(_quad, parse(gated, uri).statements))


def second_opinion(gated: Gated, uri: str) -> list[str]:
    """Return rdflib's statements, with the literals as written."""
    normalises, rdflib.NORMALIZE_LITERALS = rdflib.NORMALIZE_LITERALS, False
    try:
        graph = rdflib.Graph(bind_namespaces="none")
        graph.parse(data=gated.text, format=_RDFLIB_NAMES[gated.syntax.name], publicID=uri)
    finally:
        rdflib.NORMALIZE_LITERALS = normalises
    return canonical(Quad(_node(s), NamedNode(str(p)), _node(o)) for s, p, o in graph)


def canonical(quads: Iterable[Quad]) -> list[str]:
    dataset = Dataset(quads)
    dataset.canonicalize(CanonicalizationAlgorithm.RDFC_1_0)
    return sorted(str(quad) for quad in dataset)


def _quad(statement: Statement) -> Quad:
    subject, name, (kind, value, lang, datatype) = statement
    term: pyoxigraph.NamedNode | BlankNode | Literal
    if kind == "literal":
        term = Literal(value, language=lang) if lang else Literal(value, datatype=NamedNode(datatype or XSD_STRING))
    else:
        term = BlankNode(value[2:]) if kind == "blank" else NamedNode(value)
    return Quad(BlankNode(subject[2:]) if subject.startswith("_:") else NamedNode(subject), NamedNode(name), term)


def _node(node: rdflib.term.Node) -> NamedNode | BlankNode | Literal:
    if isinstance(node, rdflib.Literal):
        if node.language:
            return Literal(str(node), language=node.language)
        return Literal(str(node), datatype=NamedNode(str(node.datatype or XSD_STRING)))
    return BlankNode(str(node)) if isinstance(node, rdflib.BNode) else NamedNode(str(node))
