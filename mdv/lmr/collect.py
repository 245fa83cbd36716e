"""The garbage collector: a cache holds what is selected and what that reaches over strong references, and no more.

Reference counts find what nothing refers to any more, at once. Cycles keep each other's counts up, so whatever lost a
reference and still has some is suspected: it is followed forward over strong references, and what is found there
without support from outside goes together. The work is that of what can be reached from what lost a reference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from sqlalchemy import Connection

from mdv.db import cache as db
from mdv.db import cache_collect as gc
from mdv.lmr.store import Cache
from mdv.model import is_blank


def collect(connection: Connection, lost: Collection[int], spoken: set[int]) -> None:
    """Remove what has no reason to be here. `lost` holds at least what lost a reason, or came without one; to `spoken`
    is added what may have been spoken of for the last time."""
    doubtful: set[int] = set()
    while lost:
        doubtful.update(lost)
        dead, _ = gc.without_reason(connection, lost)
        lost = remove(connection, dead, spoken)
    # Whatever these refer to outside of themselves was found to be supported: there is no second round.
    remove(connection, unsupported(connection, doubtful), spoken)


def collect_fully(connection: Connection, spoken: set[int]) -> None:
    """The same by a full mark: for what changes much at once."""
    remove(connection, gc.unreached(connection), spoken)


def remove(connection: Connection, ids: Collection[int], spoken: set[int]) -> set[int]:
    """Take resources out of the cache; what lost a reference by that."""
    if not ids:
        return set()
    targets = gc.strong_targets(connection, ids)
    spoken.update(ids, gc.all_targets(connection, ids))
    db.delete_statements_of(connection, ids)
    db.set_present(connection, ids, False)
    db.add_referrers(connection, {target: -number for target, number in targets.items()})
    return set(targets)


def unsupported(connection: Connection, doubtful: Collection[int]) -> set[int]:
    """What only refers to each other, of `doubtful` and of what that reaches.

    Whatever something selected refers to is alive, and need not be followed: its references count as from outside.
    """
    _, suspects = gc.without_reason(connection, doubtful)
    frontier = set(suspects) - gc.kept_by_selected(connection, suspects)
    inside = set(frontier)
    edges: list[gc.Edge] = []
    while frontier:
        found = list(gc.unselected_edges(connection, frontier))
        edges += found
        reached = {edge.target for edge in found} - inside
        frontier = reached - gc.kept_by_selected(connection, reached)
        inside |= frontier
    internal = Counter(edge.target for edge in edges)
    counted = gc.referrers_of(connection, inside)
    return inside - _reach({number for number in inside if counted[number] > internal[number]}, edges)


def _reach(start: set[int], edges: Collection[gc.Edge]) -> set[int]:
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


def check(cache: Cache) -> list[str]:
    """Whether the cache holds what it should, by a full mark and full counts; what is wrong, in words."""
    with cache.reading() as connection:
        schema = cache.schema(connection)
        found = [f"{uri}: nothing reaches it" for uri in gc.uris_of(connection, gc.unreached(connection))]
        for uri, kept, right in gc.wrong_counts(connection):
            found.append(f"{uri}: {kept} strong references are counted, and there are {right}")
        for name, target, strong in gc.strengths(connection):
            if strong != (schema.is_strong(name) or is_blank(target)):
                found.append(f"{target}: the references of {name} to it should{'' if strong else ' not'} be weak")
        found += [f"{uri}: {law}" for uri, law in gc.out_of_place(connection)]
    return sorted(found)
