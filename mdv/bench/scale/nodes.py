"""Documents whose shape can be chosen: nodes with values, tags, and references to other nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from mdv.bench.scale.store import Text

NAMESPACE = "http://mdv.example/scale#"
TURTLE = "text/turtle"

SCHEMA = f"""@prefix : <{NAMESPACE}> .
@prefix mdv: <urn:mdv:schema#> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
<> mdv:world mdv:closed .
:Node a rdfs:Class .
:value a rdf:Property ; rdfs:domain :Node ; rdfs:range xsd:integer .
:tag a rdf:Property ; rdfs:domain :Node ; rdfs:range xsd:string ; mdv:setValued true .
:next a rdf:Property ; rdfs:domain :Node ; rdfs:range :Node .
""".encode()


def node_uri(document: str, node: int) -> str:
    return f"{document_uri(document)}#n{node}"


def document_uri(document: str) -> str:
    return f"http://mdv.example/nodes/{document}"


def tagged(document: str, node: str, tags: Iterable[str]) -> Text:
    """A document that gives a node tags."""
    said = ", ".join(f'"{tag}"' for tag in tags)
    return _turtle(document, [f"<{node}> a :Node ; :tag {said} ."])


def valued(document: str, value: int) -> Text:
    """A node with a value."""
    return _turtle(document, [f"<{node_uri(document, 0)}> a :Node ; :value {value} ."])


def referring(document: str, nodes: int, target: str) -> Text:
    """That many nodes which refer to another document's."""
    return _turtle(document, [f"<{node_uri(document, n)}> a :Node ; :next <{target}> ." for n in range(nodes)])


def chain(document: str, steps: int, value: int) -> Text:
    """That many nodes, of which each refers to the next; the last has a value. From the first that is as many steps."""
    uris = [node_uri(document, n) for n in range(steps)]
    links = [f"<{one}> a :Node ; :next <{other}> ." for one, other in pairwise(uris)]
    return _turtle(document, [*links, f"<{uris[-1]}> a :Node ; :value {value} ."])


def path_rule(steps: int, compared: str) -> str:
    """A rule over a path of that many steps, the last of which is to the value.

    >>> path_rule(3, "= 7")
    'search Node n register n where n.next.next.value = 7'
    """
    return f"search Node n register n where {'.'.join(['n', *['next'] * (steps - 1), 'value'])} {compared}"


def tag_rule(tag: str) -> str:
    return f"search Node n register n where n.tag? = '{tag}'"


def _turtle(document: str, lines: Sequence[str]) -> Text:
    return document_uri(document), "\n".join([f"@prefix : <{NAMESPACE}> .", *lines, ""]).encode()
