"""Record what a transaction of an MDP in a federation has changed: arcs, presence, resources, and a journal to undo it.

gains and losses of the transaction → arcs that came and went → numbers of arcs by schema node → CommittedChange
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeAlias

from sqlalchemy import Connection

from mdv.db.delta import EncodedStatement, StoreChange
from mdv.db.eca.lookups import decode_statements, find_held
from mdv.db.federation.fragment_reads import count_arcs, mentioned_now, stated_classes
from mdv.db.federation.record_store import write_journal
from mdv.db.federation.site_store import CHANGE, add_to_inbox, read_site
from mdv.db.vocabulary import Vocabulary
from mdv.federation.encode import encode
from mdv.federation.fragment import CommittedChange, IndexChange, ResourceClasses
from mdv.federation.relevance import schema_node
from mdv.model import RDF, RDF_TYPE, RDFS_RESOURCE, Statement
from mdv.rdf.digest import statement_hash
from mdv.rdf.schema import Schema
from mdv.rdftl.cells import MEMBERSHIP
from mdv.rdftl.events import EventKey, UpdateChange, WatchedChange, WatchIndex
from mdv.rdftl.model import ChangeKind, Delta

COLLECTIONS = frozenset(RDF + name for name in ("Bag", "Seq", "Alt"))

_EVERYTHING = WatchIndex(
    [EventKey(kind, False, None) for kind in ChangeKind]
    + [EventKey(kind, True, None) for kind in (ChangeKind.INSERT, ChangeKind.DELETE)]
)


DocumentChange: TypeAlias = tuple[str, EncodedStatement, bool]
"""A statement that a document gained (True) or lost."""


class FederatedStep(NamedTuple):
    """The transaction of a federation that a transaction of the MDP is a step of. `updates`: the pairs of an UPDATE;
    None: they are found by comparison."""

    transaction: str
    step: int = 0
    updates: frozenset[Delta] | None = None
    reacts: bool = True


def capture_change(
    connection: Connection, documents: Collection[DocumentChange], change: StoreChange, schema: Schema,
    vocabulary: Vocabulary, step: FederatedStep,
) -> CommittedChange:  # fmt: skip
    """Return what a transaction has changed, after its rows were written. Count its arcs, and write the journal."""
    _write_journal(connection, documents, change.position, step)
    gained = frozenset(decode_statements(connection, change.gains))
    lost = frozenset(decode_statements(connection, change.losses))
    update = UpdateChange(gained, lost, step.updates)
    watched = WatchedChange(update, _EVERYTHING, schema)
    touched = gained | lost
    listed = [*watched.others, *touched]
    names = vocabulary.ids({n for one in listed for n in (one.property, one.object.datatype) if n is not None})
    held, described = find_held(connection, watched.others, watched.subjects, touched, names, statement_hash)
    deltas = watched.deltas(held, described)

    def arcs(kind: ChangeKind) -> tuple[Statement, ...]:
        found = deltas.get(EventKey(kind, False, None), [])
        return tuple(Statement(one.source, one.arc_name, one.target) for one in found if one.target is not None)

    def nodes(kind: ChangeKind) -> tuple[str, ...]:
        return tuple(one.source for one in deltas.get(EventKey(kind, True, None), []))

    return CommittedChange(
        step.transaction, step.step, arcs(ChangeKind.INSERT), arcs(ChangeKind.DELETE),
        tuple(deltas.get(EventKey(ChangeKind.UPDATE, False, None), [])), nodes(ChangeKind.INSERT),
        nodes(ChangeKind.DELETE), _index_change(connection, watched.came, watched.went, schema), step.reacts,
    )  # fmt: skip


def _write_journal(
    connection: Connection, changes: Collection[DocumentChange], position: int, step: FederatedStep
) -> None:
    statements = decode_statements(connection, [key for _, key, _ in changes])
    rows = [
        (uri, None, statement) if is_added else (uri, statement, None)
        for (uri, _, is_added), statement in zip(changes, statements, strict=True)
    ]
    write_journal(connection, step.transaction, step.step, position, rows)


def _index_change(
    connection: Connection, came: Collection[Statement], went: Collection[Statement], schema: Schema
) -> IndexChange:
    counts = Counter(node for arc in came for node in nodes_of_arc(arc))
    counts.subtract(node for arc in went for node in nodes_of_arc(arc))
    grown, shrunk = count_arcs(connection, dict(counts))
    uris = {uri for arc in (*came, *went) for uri in uris_of_arc(arc)}
    if not uris:
        return IndexChange(frozenset(grown), frozenset(shrunk))
    mentioned, stated = mentioned_now(connection, uris), stated_classes(connection, uris)
    known = [ResourceClasses(uri, frozenset(closed_classes(stated.get(uri, ()), schema))) for uri in sorted(mentioned)]
    return IndexChange(frozenset(grown), frozenset(shrunk), tuple(known), frozenset(uris - mentioned))


def nodes_of_arc(arc: Statement) -> list[str]:
    """Return the schema nodes that an arc makes present."""
    found = [schema_node(arc.property), RDFS_RESOURCE]
    if arc.property == RDF_TYPE:
        found.append(arc.object.value)
        if arc.object.value in COLLECTIONS:
            found.append(MEMBERSHIP)
    return list(dict.fromkeys(found))


def uris_of_arc(arc: Statement) -> list[str]:
    return [arc.subject, arc.object.value] if arc.object.is_uri else [arc.subject]


def closed_classes(classes: Iterable[str], schema: Schema) -> set[str]:
    """Return classes with their superclasses. Membership in rdfs:Resource is no arc."""
    found = set(classes)
    for iri in classes:
        declared = schema.classes.get(iri)
        found |= {above for above in declared.superclasses if above != RDFS_RESOURCE} if declared else set()
    return found


def own_transaction(connection: Connection, position: int) -> str:
    """Return the name of a transaction of the MDP itself, unique in the federation."""
    site = read_site(connection)
    assert site is not None
    name = site.name if site.superpeer is None else f"{site.superpeer}/{site.name}"
    return f"{name}#{position}-{site.epoch[:4]}"


def queue_change(connection: Connection, change: CommittedChange) -> None:
    """Leave a change of the MDP itself to the process of the federation, with its commit."""
    add_to_inbox(connection, [(CHANGE, "", encode(change))])
