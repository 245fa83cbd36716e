"""The inference engine `engine:owlrl`: OWL 2 RL by the package owlrl. It needs `pip install 'mdv-server[owl]'`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import rdflib

from mdv.model import Statement, Term


def infer(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Yield the statements of the OWL 2 RL closure, without axioms about OWL and its datatypes themselves."""
    from owlrl import DeductiveClosure, OWLRL_Semantics  # only here: it is not always installed

    graph = rdflib.Graph()
    for subject, name, term in statements:
        graph.add((rdflib.URIRef(subject), rdflib.URIRef(name), _node(term)))
    DeductiveClosure(OWLRL_Semantics).expand(graph)
    for one, prop, value in graph:
        if isinstance(one, rdflib.URIRef) and isinstance(prop, rdflib.URIRef) and not isinstance(value, rdflib.BNode):
            yield Statement(str(one), str(prop), _term(value))


def _node(term: Term) -> rdflib.URIRef | rdflib.Literal:
    if term.is_uri:
        return rdflib.URIRef(term.value)
    datatype = None if term.datatype is None else rdflib.URIRef(term.datatype)
    return rdflib.Literal(term.value, lang=term.lang, datatype=datatype, normalize=False)


def _term(node: rdflib.term.Node) -> Term:
    if isinstance(node, rdflib.Literal):
        return Term.literal(str(node), node.language, None if node.datatype is None else str(node.datatype))
    return Term.uri(str(node))
