"""Find the instantiations of `$delta` in a change, as far as that needs no path."""

from __future__ import annotations

from mdv.federation.fragment import CommittedChange
from mdv.model import RDF_TYPE, RDFS_RESOURCE, Term
from mdv.rdftl.model import AllNodes, ArcEvent, ChangeKind, Delta, Event, NamedNode, NodeEvent, NodePath, TripleNode


def deltas_of_kind(event: Event, change: CommittedChange) -> list[Delta]:
    """Return the changes of the kind and the property or class of an event, whatever its paths select."""
    inserts = event.kind is ChangeKind.INSERT
    arcs = change.inserted if inserts else change.deleted
    if isinstance(event, NodeEvent):
        if event.class_iri in (None, RDFS_RESOURCE):
            return [Delta(uri) for uri in (change.nodes_in if inserts else change.nodes_out)]
        # A change of a type that is part of an update is a change of the class all the same.
        updated = [(one.source, one.arc_name, one.new_target if inserts else one.target) for one in change.updated]
        wanted = Term.uri(event.class_iri or "")
        every = [*arcs, *updated]
        return sorted({Delta(one[0]) for one in every if one[1] == RDF_TYPE and one[2] == wanted})
    found = change.updated if event.kind is ChangeKind.UPDATE else [Delta(*arc) for arc in arcs]
    return [delta for delta in found if event.triple.arc in (None, delta.arc_name)]


def has_paths(event: Event) -> bool:
    """True if only the peer can tell what an event selects."""
    if isinstance(event, ArcEvent):
        triple = event.triple
        ends = [triple.target] if triple.new_target is None else [triple.target, triple.new_target]
        return not _is_plain(triple.source, is_source=True) or not all(_is_plain(end, is_source=False) for end in ends)
    return not _is_plain(TripleNode(event.path), is_source=True)


def _is_plain(node: TripleNode, is_source: bool) -> bool:
    if node.class_iri is not None:
        return False
    match node.value:
        case None | NodePath(NamedNode(), (), ()):
            return True
        case NodePath(AllNodes(), (), ()):
            return is_source
    return False


def plain_deltas(event: Event, change: CommittedChange) -> list[Delta]:
    """Return the instantiations of `$delta` of an event without paths."""
    found = deltas_of_kind(event, change)
    if isinstance(event, NodeEvent):
        return [delta for delta in found if _matches(TripleNode(event.path), Term.uri(delta.source))]
    triple = event.triple
    return [
        delta
        for delta in found
        if _matches(triple.source, Term.uri(delta.source))
        and _matches(triple.target, delta.target)
        and (triple.new_target is None or _matches(triple.new_target, delta.new_target))
    ]


def _matches(node: TripleNode, term: Term | None) -> bool:
    match node.value:
        case NodePath(NamedNode(uri)):
            return term == Term.uri(uri)
    return True
