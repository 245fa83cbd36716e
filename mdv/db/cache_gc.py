"""Database access of the cache's garbage collection, and queries that verify it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from sqlalchemy import Connection, Subquery, delete, exists, func, literal_column, or_, select
from sqlalchemy.sql.expression import ColumnElement

from mdv.db.cache import chunked
from mdv.db.cache_tables import GLOBAL_DOCUMENT, resources, statements, vocabulary
from mdv.feed import BUCKET_COUNT, CHECKSUM_MODULUS, selection_hash

_LOW = 2**32 - 1


class StrongReference(NamedTuple):
    """A strong reference."""

    source: int
    target: int


def split_unselected(connection: Connection, ids: Collection[int]) -> tuple[list[int], list[int]]:
    """Return those of these resources that are present and not selected, as two lists: without and with strong
    references to them."""
    c = resources.c
    dead: list[int] = []
    doubtful: list[int] = []
    for part in chunked(ids):
        query = select(c.id, c.referrers).where(c.id.in_(part), c.present, ~c.selected)
        for number, referrers in connection.execute(query).all():
            (doubtful if referrers > 0 else dead).append(number)
    return dead, doubtful


def count_strong_targets(connection: Connection, ids: Iterable[int]) -> dict[int, int]:
    """Return the number of strong references from these resources, by target."""
    s = statements.c
    found: dict[int, int] = {}
    for part in chunked(ids):
        query = select(s.target_id, func.count()).where(s.resource_id.in_(part), s.strong).group_by(s.target_id)
        for target, number in connection.execute(query).all():
            found[target] = found.get(target, 0) + number
    return found


def find_targets(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Return the targets of the MDP's statements about these resources."""
    s = statements.c
    found: set[int] = set()
    for part in chunked(ids):
        query = select(s.target_id).where(
            s.resource_id.in_(part), s.document_id == GLOBAL_DOCUMENT, s.target_id.is_not(None)
        )
        found.update(connection.execute(query.distinct()).scalars().all())
    return found


def find_kept_by_selected(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Return those of these resources that a selected resource references strongly."""
    c, s, source = resources.c, statements.c, resources.alias("source")
    found: set[int] = set()
    for part in chunked(ids):
        selected = (
            select(s.resource_id)
            .join(source, source.c.id == s.resource_id)
            .where(s.target_id == c.id, s.strong, source.c.selected)
        )
        found.update(connection.execute(select(c.id).where(c.id.in_(part), exists(selected))).scalars().all())
    return found


def iter_unselected_references(connection: Connection, ids: Iterable[int]) -> Iterator[StrongReference]:
    """Yield the strong references from these resources to present resources that are not selected."""
    s, c = statements.c, resources.c
    for part in chunked(ids):
        query = select(s.resource_id, s.target_id).join(resources, c.id == s.target_id)
        query = query.where(s.resource_id.in_(part), s.strong, c.present, ~c.selected)
        yield from map(StrongReference._make, connection.execute(query).all())


def read_referrer_counts(connection: Connection, ids: Iterable[int]) -> dict[int, int]:
    """Return the number of strong references to each of these resources."""
    c = resources.c
    found: dict[int, int] = {}
    for part in chunked(ids):
        found.update(connection.execute(select(c.id, c.referrers).where(c.id.in_(part))).all())
    return found


def delete_unused_rows(connection: Connection, ids: Iterable[int]) -> None:
    """Delete those of these resources that are not present and that no statement mentions."""
    for part in chunked(ids):
        connection.execute(delete(resources).where(resources.c.id.in_(part), _unused()))


def _unused() -> ColumnElement[bool]:
    c, s = resources.c, statements.c
    referenced = exists(select(s.target_id).where(s.target_id == c.id))
    described = exists(select(s.resource_id).where(s.resource_id == c.id))
    return ~c.present & ~c.selected & (c.referrers == 0) & ~referenced & ~described


# -- full mark phase


def find_unreachable(connection: Connection) -> list[int]:
    """Return present resources that no selected resource reaches, by a full mark phase."""
    # With `not in` and a long list, Postgres would run the subquery for each resource.
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


def read_uris(connection: Connection, ids: Iterable[int]) -> list[str]:
    c = resources.c
    return [uri for part in chunked(ids) for uri in connection.execute(select(c.uri).where(c.id.in_(part))).scalars()]


def find_wrong_referrer_counts(connection: Connection) -> list[tuple[str, int, int]]:
    """Return resources with a wrong number of strong references: the URI, the stored number and the correct one."""
    c, s = resources.c, statements.c
    counted = select(s.target_id, func.count().label("number")).where(s.strong, s.document_id == GLOBAL_DOCUMENT)
    right = counted.group_by(s.target_id).subquery()
    number = func.coalesce(right.c.number, 0)
    query = select(c.uri, c.referrers, number).outerjoin_from(resources, right, right.c.target_id == c.id)
    return [(uri, kept, is_right) for uri, kept, is_right in connection.execute(query.where(c.referrers != number))]


def list_reference_strengths(connection: Connection) -> list[tuple[str, str, bool]]:
    """Return the strengths of references, to be compared with the schema: property, example target, strong. One row for
    each property, strength, and whether the targets are blank nodes."""
    s, c = statements.c, resources.c
    blank = c.uri.contains("#_:", autoescape=True)
    query = (
        select(vocabulary.c.uri, func.min(c.uri), s.strong)
        .join_from(statements, resources, c.id == s.target_id)
        .join(vocabulary, vocabulary.c.id == s.property_id)
        .where(s.document_id == GLOBAL_DOCUMENT)
        .group_by(vocabulary.c.uri, s.strong, blank)
    )
    return [(name, target, strong) for name, target, strong in connection.execute(query)]


def find_invalid_rows(connection: Connection) -> list[tuple[str, str]]:
    """Return rows that break an invariant of the tables: the URI and a description."""
    c, s = resources.c, statements.c
    has_global = exists(select(s.resource_id).where(s.resource_id == c.id, s.document_id == GLOBAL_DOCUMENT))
    laws = [
        ("it is not present, but has statements of the MDP", ~c.present & has_global),
        ("its row is unused", _unused()),
    ]
    found = [(uri, law) for law, broken in laws for uri in connection.execute(select(c.uri).where(broken)).scalars()]
    strong = select(c.uri).join_from(statements, resources, c.id == s.resource_id)
    strong = strong.where(s.strong, or_(s.document_id != GLOBAL_DOCUMENT, s.target_id.is_(None)))
    return found + [
        (uri, "a strong reference is local or has no target") for uri in connection.execute(strong).scalars()
    ]


# -- checksum


def compute_bucket_sums(connection: Connection) -> list[int]:
    """Return the checksum of the cache: one number for each bucket. The halves of the hashes are summed separately,
    since the sum of whole hashes would overflow SQLite's integers."""
    c, s = resources.c, statements.c
    sums = [0] * BUCKET_COUNT
    high, low = s.hash.bitwise_rshift(literal_column("32")), s.hash.bitwise_and(_LOW)
    halves = select(c.bucket, func.sum(high), func.sum(low)).join_from(statements, resources, c.id == s.resource_id)
    halves = halves.where(s.document_id == GLOBAL_DOCUMENT).group_by(c.bucket)
    for bucket, high_sum, low_sum in connection.execute(halves):
        sums[bucket] += (int(high_sum) << 32) + int(low_sum)
    marked = select(c.bucket, c.uri).where(c.present, c.selected).execution_options(yield_per=5000)
    for bucket, uri in connection.execute(marked):
        sums[bucket] += selection_hash(uri)
    return [number % CHECKSUM_MODULUS for number in sums]
