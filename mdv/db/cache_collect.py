"""What the garbage collector of a cache asks and tells the database, and what proves its work."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from sqlalchemy import Connection, Subquery, delete, exists, func, literal_column, or_, select
from sqlalchemy.sql.expression import ColumnElement

from mdv.db.cache import in_parts
from mdv.db.cache_tables import GLOBAL, resources, statements, vocabulary
from mdv.feed import BUCKETS, MODULUS, mark_hash

_LOW = 2**32 - 1


class Edge(NamedTuple):
    """A strong reference."""

    source: int
    target: int


def without_reason(connection: Connection, ids: Collection[int]) -> tuple[list[int], list[int]]:
    """Of these resources, those that are here although nothing refers to them, and those that are here because
    something does; what is selected is in neither."""
    c = resources.c
    dead: list[int] = []
    doubtful: list[int] = []
    for part in in_parts(ids):
        query = select(c.id, c.referrers).where(c.id.in_(part), c.present, ~c.selected)
        for number, referrers in connection.execute(query):
            (doubtful if referrers > 0 else dead).append(number)
    return dead, doubtful


def strong_targets(connection: Connection, ids: Iterable[int]) -> dict[int, int]:
    """How many strong references lead from these resources, by what they lead to."""
    s = statements.c
    found: dict[int, int] = {}
    for part in in_parts(ids):
        query = select(s.target_id, func.count()).where(s.resource_id.in_(part), s.strong).group_by(s.target_id)
        for target, number in connection.execute(query):
            found[target] = found.get(target, 0) + number
    return found


def all_targets(connection: Connection, ids: Iterable[int]) -> set[int]:
    """What the MDP's statements about these resources refer to."""
    s = statements.c
    found: set[int] = set()
    for part in in_parts(ids):
        query = select(s.target_id).where(s.resource_id.in_(part), s.document_id == GLOBAL, s.target_id.is_not(None))
        found.update(connection.execute(query.distinct()).scalars())
    return found


def kept_by_selected(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Those of these resources that something selected refers to strongly."""
    c, s, source = resources.c, statements.c, resources.alias("source")
    found: set[int] = set()
    for part in in_parts(ids):
        selected = (
            select(s.resource_id)
            .join(source, source.c.id == s.resource_id)
            .where(s.target_id == c.id, s.strong, source.c.selected)
        )
        found.update(connection.execute(select(c.id).where(c.id.in_(part), exists(selected))).scalars())
    return found


def unselected_edges(connection: Connection, ids: Iterable[int]) -> Iterator[Edge]:
    """The strong references from these resources to what is here and not selected."""
    s, c = statements.c, resources.c
    for part in in_parts(ids):
        query = select(s.resource_id, s.target_id).join(resources, c.id == s.target_id)
        query = query.where(s.resource_id.in_(part), s.strong, c.present, ~c.selected)
        yield from (Edge(*row) for row in connection.execute(query))


def referrers_of(connection: Connection, ids: Iterable[int]) -> dict[int, int]:
    """How many strong references lead to each of these resources."""
    c = resources.c
    found: dict[int, int] = {}
    for part in in_parts(ids):
        found.update((r.id, r.referrers) for r in connection.execute(select(c.id, c.referrers).where(c.id.in_(part))))
    return found


def drop_rows(connection: Connection, ids: Iterable[int]) -> None:
    """Rows of resources go, if they are not here and nobody speaks of them."""
    for part in in_parts(ids):
        connection.execute(delete(resources).where(resources.c.id.in_(part), _needless()))


def _needless() -> ColumnElement[bool]:
    c, s = resources.c, statements.c
    spoken_of = exists(select(s.target_id).where(s.target_id == c.id))
    described = exists(select(s.resource_id).where(s.resource_id == c.id))
    return ~c.present & ~c.selected & (c.referrers == 0) & ~spoken_of & ~described


# -- a full mark


def unreached(connection: Connection) -> list[int]:
    """What is here although nothing selected reaches it: a full mark."""
    # A difference of sets, since `not in` asks Postgres for every resource again when the list is long.
    here = select(resources.c.id).where(resources.c.present)
    return list(connection.execute(here.except_(select(_reached().c.id))).scalars())


def _reached() -> Subquery:
    s, target = statements.c, resources.alias("reached_target")
    start = select(resources.c.id).where(resources.c.present, resources.c.selected)
    reached = start.cte("reached", recursive=True)
    step = (
        select(s.target_id)
        .join_from(reached, statements, (s.resource_id == reached.c.id) & s.strong)
        .join(target, (target.c.id == s.target_id) & target.c.present)
    )
    return select(reached.union(step).c.id).subquery()


def uris_of(connection: Connection, ids: Iterable[int]) -> list[str]:
    c = resources.c
    return [uri for part in in_parts(ids) for uri in connection.execute(select(c.uri).where(c.id.in_(part))).scalars()]


def wrong_counts(connection: Connection) -> list[tuple[str, int, int]]:
    """Resources whose strong references are not counted right: the number that is kept, and the right one."""
    c, s = resources.c, statements.c
    counted = select(s.target_id, func.count().label("number")).where(s.strong, s.document_id == GLOBAL)
    right = counted.group_by(s.target_id).subquery()
    number = func.coalesce(right.c.number, 0)
    query = select(c.uri, c.referrers, number).outerjoin_from(resources, right, right.c.target_id == c.id)
    return [(uri, kept, is_right) for uri, kept, is_right in connection.execute(query.where(c.referrers != number))]


def strengths(connection: Connection) -> list[tuple[str, str, bool]]:
    """Which properties lead to which resources with a strength that may be wrong: property, target, strong. A row for
    each property, strength, and whether a blank node is meant, with an example."""
    s, c = statements.c, resources.c
    blank = c.uri.contains("#_:", autoescape=True)
    query = (
        select(vocabulary.c.uri, func.min(c.uri), s.strong)
        .join_from(statements, resources, c.id == s.target_id)
        .join(vocabulary, vocabulary.c.id == s.property_id)
        .where(s.document_id == GLOBAL)
        .group_by(vocabulary.c.uri, s.strong, blank)
    )
    return [(name, target, strong) for name, target, strong in connection.execute(query)]


def out_of_place(connection: Connection) -> list[tuple[str, str]]:
    """Rows that break a law of the tables, each with the law."""
    c, s = resources.c, statements.c
    said = exists(select(s.resource_id).where(s.resource_id == c.id, s.document_id == GLOBAL))
    laws = [
        ("it is not here, and the MDP's statements about it are", ~c.present & said),
        ("nobody needs its row", _needless()),
    ]
    found = [(uri, law) for law, broken in laws for uri in connection.execute(select(c.uri).where(broken)).scalars()]
    strong = select(c.uri).join_from(statements, resources, c.id == s.resource_id)
    strong = strong.where(s.strong, or_(s.document_id != GLOBAL, s.target_id.is_(None)))
    return found + [(uri, "a strong reference that is local or none") for uri in connection.execute(strong).scalars()]


# -- checksum


def bucket_sums(connection: Connection) -> list[int]:
    """The checksum of the cache: a number for each bucket. Halves of the hashes are added apart, since a sum of whole
    ones would leave SQLite's numbers."""
    c, s = resources.c, statements.c
    sums = [0] * BUCKETS
    high, low = s.hash.bitwise_rshift(literal_column("32")), s.hash.bitwise_and(_LOW)
    halves = select(c.bucket, func.sum(high), func.sum(low)).join_from(statements, resources, c.id == s.resource_id)
    halves = halves.where(s.document_id == GLOBAL).group_by(c.bucket)
    for bucket, high_sum, low_sum in connection.execute(halves):
        sums[bucket] += (int(high_sum) << 32) + int(low_sum)
    marked = select(c.bucket, c.uri).where(c.present, c.selected).execution_options(yield_per=5000)
    for bucket, uri in connection.execute(marked):
        sums[bucket] += mark_hash(uri)
    return [number % MODULUS for number in sums]
