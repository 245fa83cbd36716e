"""The garbage collector: a cache holds the selected resources and what they reach over strong references, no more.

Reference counts find resources without references immediately. The members of a cycle keep each other's counts above
zero. So a resource that lost a reference and still has others is a suspect: strong references are followed from it, and
the resources found without a reference from outside are removed together. The cost depends only on what can be reached
from resources that lost a reference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from sqlalchemy import Connection

from mdv.db import cache as db
from mdv.db import cache_gc as gc
from mdv.lmr.cache import Cache
from mdv.model import is_blank


def collect(connection: Connection, lost: Collection[int], unmentioned: set[int]) -> None:
    """Remove garbage. `lost` contains at least all resources that lost a reference or arrived without one.

    Resources whose rows may be droppable afterwards are added to `unmentioned`.
    """
    doubtful: set[int] = set()
    while lost:
        doubtful.update(lost)
        dead, _ = gc.split_unselected(connection, lost)
        lost = remove_resources(connection, dead, unmentioned)
    # All targets outside of this set are known to be supported, so there is no second round.
    remove_resources(connection, find_unsupported(connection, doubtful), unmentioned)


def collect_by_full_mark(connection: Connection, unmentioned: set[int]) -> None:
    """Remove garbage by a full mark, for large changes."""
    remove_resources(connection, gc.find_unreachable(connection), unmentioned)


def remove_resources(connection: Connection, ids: Collection[int], unmentioned: set[int]) -> set[int]:
    """Remove resources from the cache. Return the resources that lost a reference."""
    if not ids:
        return set()
    targets = gc.count_strong_targets(connection, ids)
    unmentioned.update(ids, gc.find_targets(connection, ids))
    db.delete_statements_of(connection, ids)
    db.set_present(connection, ids, False)
    db.update_referrers(connection, {target: -number for target, number in targets.items()})
    return set(targets)


def find_unsupported(connection: Connection, doubtful: Collection[int]) -> set[int]:
    """Return the resources among `doubtful`, and what they reach, that are only referenced by each other.

    A resource that a selected one references is alive and is not followed: its references count as from outside.
    """
    _, suspects = gc.split_unselected(connection, doubtful)
    frontier = set(suspects) - gc.find_kept_by_selected(connection, suspects)
    inside = set(frontier)
    seen = set(suspects)  # each is looked up once: it may have very many references
    edges: list[gc.StrongReference] = []
    while frontier:
        found = list(gc.iter_unselected_references(connection, frontier))
        edges += found
        reached = {edge.target for edge in found} - seen
        seen |= reached
        frontier = reached - gc.find_kept_by_selected(connection, reached)
        inside |= frontier
    internal = Counter(edge.target for edge in edges)
    counted = gc.read_referrer_counts(connection, inside)
    return inside - _reach({number for number in inside if counted[number] > internal[number]}, edges)


def _reach(start: set[int], edges: Collection[gc.StrongReference]) -> set[int]:
    onward: dict[int, list[int]] = defaultdict(list)
    for source, target in edges:
        onward[source].append(target)
    reached, stack = set(start), list(start)
    while stack:
        for target in onward[stack.pop()]:
            if target not in reached:
                reached.add(target)
                stack.append(target)
    return reached


def find_problems(cache: Cache) -> list[str]:
    """Check the cache by a full mark and full counts. Return a description of each problem."""
    with cache.reading() as connection:
        schema = cache.schema(connection)
        found = [
            f"{uri}: not reachable from a selected resource"
            for uri in gc.read_uris(connection, gc.find_unreachable(connection))
        ]
        for uri, kept, right in gc.find_wrong_referrer_counts(connection):
            found.append(f"{uri}: the count of strong references is {kept}, but there are {right}")
        for name, target, strong in gc.list_reference_strengths(connection):
            if strong != (schema.is_strong(name) or is_blank(target)):
                found.append(f"{target}: the references of {name} to it should{'' if strong else ' not'} be weak")
        found += [f"{uri}: {law}" for uri, law in gc.find_invalid_rows(connection)]
    return sorted(found)
