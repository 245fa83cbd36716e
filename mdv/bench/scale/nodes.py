"""Documents of nodes with values, tags, and references to other nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from mdv.bench.scale.store import DocumentText

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


def tagged_node(document: str, node: str, tags: Iterable[str]) -> DocumentText:
    """Return a document that gives a node tags."""
    values = ", ".join(f'"{tag}"' for tag in tags)
    return _turtle(document, [f"<{node}> a :Node ; :tag {values} ."])


def valued_node(document: str, value: int) -> DocumentText:
    """Return a document of one node with a value."""
    return _turtle(document, [f"<{node_uri(document, 0)}> a :Node ; :value {value} ."])


def referring_nodes(document: str, nodes: int, target: str) -> DocumentText:
    """Return a document of nodes that refer to a node of another document."""
    return _turtle(document, [f"<{node_uri(document, n)}> a :Node ; :next <{target}> ." for n in range(nodes)])


def chain_of_nodes(document: str, steps: int, value: int) -> DocumentText:
    """Return a chain of nodes. Each refers to the next one, and the last one has a value."""
    uris = [node_uri(document, n) for n in range(steps)]
    links = [f"<{one}> a :Node ; :next <{other}> ." for one, other in pairwise(uris)]
    return _turtle(document, [*links, f"<{uris[-1]}> a :Node ; :value {value} ."])


def path_rule(steps: int, compared: str) -> str:
    """Return a rule over a path of a number of steps. The last step leads to the value.

    >>> path_rule(3, "= 7")
    'search Node n register n where n.next.next.value = 7'
    """
    return f"search Node n register n where {'.'.join(['n', *['next'] * (steps - 1), 'value'])} {compared}"


def tag_rule(tag: str) -> str:
    return f"search Node n register n where n.tag? = '{tag}'"


def _turtle(document: str, lines: Sequence[str]) -> DocumentText:
    return document_uri(document), "\n".join([f"@prefix : <{NAMESPACE}> .", *lines, ""]).encode()
