"""What the benchmark of the paper asks of the database: stores to measure on, what the last run found, and the plainer
ways of finding it that ours is compared with."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy
from sqlalchemy import Connection, Engine, text

from mdv.db.copy import text_field
from mdv.db.engine import driver, make_engine
from mdv.db.floor import COPY_FLOOR, tidy
from mdv.db.graph import FILTER_RULES
from mdv.db.migrate import migrate
from mdv.db.statements import statements
from mdv.db.tables import (
    atomic_rules,
    document_versions,
    documents,
    end_rules,
    feed,
    filter_data,
    filter_data_history,
    lmr_resources,
    resources,
    rule_dependencies,
    rule_ends,
    rule_searches,
    rules,
    transactions,
)


class Databases:
    """Databases on one server, each migrated and empty at first."""

    def __init__(self, url: str) -> None:
        self._url = sqlalchemy.make_url(url)
        self._made = 0
        engine = self._engine(str(self._url.database))
        migrate(engine)
        engine.dispose()

    @contextmanager
    def new(self) -> Iterator[Engine]:
        """A database that is gone afterwards."""
        self._made += 1
        name = f"bench_{self._made}"
        self._administer(f"create database {name} template {self._url.database}")
        engine = self._engine(name)
        try:
            yield engine
        finally:
            engine.dispose()
            self._administer(f"drop database {name} with (force)")

    def _engine(self, name: str) -> Engine:
        # The connection that was used last is used next: it has prepared the statements.
        return make_engine(self._url.set(database=name).render_as_string(hide_password=False), pool_use_lifo=True)

    def _administer(self, statement: str) -> None:
        engine = self._engine("postgres")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(statement))
        engine.dispose()


def forget_documents(engine: Engine, last_kept: int) -> None:
    """Empty the store of all documents, and of the resources after `last_kept`; rules and their classes stay."""
    with engine.begin() as connection:
        connection.execute(text("truncate documents, document_versions, filter_data, filter_data_history, bench_floor"))
        connection.execute(text("delete from resources where id > :last"), {"last": last_kept})
    tidy(engine)


_CHANGES_OF = "select rule_id, matched from ({changes}) as c (rule_id, uri, matched) where uri = %(uri)s"


def changes_of(connection: Connection, uri: str) -> list[tuple[int, bool]]:
    """What the last run changed for one resource: end rule, and whether it matches now."""
    session = driver(connection)
    found: list[tuple[int, bool]] = []
    for sql in statements("results").values():
        found += session.execute(_CHANGES_OF.format(changes=sql.rstrip(";")), {"uri": uri}).fetchall()
    return found


def count_ranged(connection: Connection) -> int:
    """The resources for which the last run found ranges."""
    return int(connection.execute(text("select count(distinct resource_id) from result_ranges")).scalar_one())


def strpos_on_all(connection: Connection, values: Sequence[str]) -> int:
    """How many constants of `contains` are in the values, by looking for every constant in every value."""
    asked = text(
        "select count(*) from unnest(cast(:values as text[])) as v (value)"
        " join filter_rules_con r on strpos(v.value, r.value) > 0"
    )
    return int(connection.execute(asked, {"values": list(values)}).scalar_one())


OWN_QUERIES = {
    "OID": """
        select c.resource_id from resources r
        join filter_data c on c.resource_id = r.id and c.property_id = %(type)s and c.target_id + 0 = %(CycleProvider)s
        where r.uri = %(constant)s and c.position = %(position)s""",
    "PATH": """
        select c.resource_id from filter_data m
        join filter_data i on i.target_id = m.resource_id and i.property_id = %(serverInformation)s
        join filter_data c on c.resource_id = i.resource_id and c.property_id = %(type)s
            and c.target_id + 0 = %(CycleProvider)s
        where m.property_id = %(memory)s and m.number = %(constant)s and m.position = %(position)s""",
    "JOIN": """
        select c.resource_id from filter_data m
        join filter_data p on p.resource_id = m.resource_id and p.property_id + 0 = %(cpu)s and p.number = 600
        join filter_data i on i.target_id = m.resource_id and i.property_id = %(serverInformation)s
        join filter_data h on h.resource_id = i.resource_id and h.property_id + 0 = %(serverHost)s
            and strpos(h.value, 'uni-passau.de') > 0
        join filter_data c on c.resource_id = i.resource_id and c.property_id = %(type)s
            and c.target_id + 0 = %(CycleProvider)s
        where m.property_id = %(memory)s and m.number = %(constant)s and m.position = %(position)s""",
}
"""By type of rule, the query that one rule asks of the documents of the last transaction."""

_PIN = """
select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('join_collapse_limit', '1', true), set_config('plan_cache_mode', 'force_generic_plan', true)"""


def ask_each(
    connection: Connection, rule_type: str, constants: Sequence[int | str], numbers: Mapping[str, int]
) -> list[list[int]]:
    """The resources that rules of a type match, each rule by a query of its own, planned once and as well as can be:
    from the constant, by index (`+ 0` keeps from indexes that lead to a great many)."""
    session, sql = driver(connection), OWN_QUERIES[rule_type]
    session.execute(_PIN)
    return [
        [number for (number,) in session.execute(sql, {**numbers, "constant": constant}, prepare=True).fetchall()]
        for constant in constants
    ]


def number_of(connection: Connection, uri: str) -> int:
    """The number of a resource."""
    return int(connection.execute(text("select id from resources where uri = :uri"), {"uri": uri}).scalar_one())


def count_rules(connection: Connection) -> int:
    return int(connection.execute(text("select count(*) from rules")).scalar_one())


def table_sizes(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """The bytes of tables, with their indexes and all else that belongs to them."""
    asked = text("select name, pg_total_relation_size(name::regclass) from unnest(cast(:names as text[])) as t (name)")
    return {name: int(size) for name, size in connection.execute(asked, {"names": list(names)})}


DOCUMENT_TABLES = tuple(
    table.name for table in (documents, document_versions, resources, filter_data, filter_data_history, transactions)
)
RULE_TABLES = tuple(
    table.name
    for table in (rules, rule_ends, rule_searches, atomic_rules, rule_dependencies, end_rules, *FILTER_RULES.values())
)
HELD_TABLES, FEED_TABLES = (lmr_resources.name,), (feed.name,)


@dataclass(frozen=True, slots=True)
class Weighed:
    """The rows of the first of some tables, the bytes of all of them with all that belongs to them, and those of their
    indexes alone."""

    rows: int
    total: int
    indexes: int


def weigh(connection: Connection, names: Sequence[str]) -> Weighed:
    """What some tables weigh."""
    asked = text("select sum(pg_indexes_size(name::regclass)) from unnest(cast(:names as text[])) as t (name)")
    indexes = int(connection.execute(asked, {"names": list(names)}).scalar_one())
    rows = int(connection.execute(text(f"select count(*) from {names[0]}")).scalar_one())  # noqa: S608
    return Weighed(rows, sum(table_sizes(connection, names).values()), indexes)


def plan_bytes(connection: Connection) -> int:
    """The bytes that the server keeps for plans of statements that this connection has prepared."""
    asked = text("select sum(total_bytes) from pg_backend_memory_contexts where name like 'CachedPlan%'")
    return int(connection.execute(asked).scalar_one())


def make_rule_floor(connection: Connection) -> None:
    connection.execute(text("create table bench_rules (id bigint primary key, text text not null)"))


def copy_rule_floor(connection: Connection, first: int, texts: Sequence[str]) -> None:
    """The least that keeping rules can cost: their texts by COPY, and commit."""
    session = driver(connection)
    rows = "".join(f"{number}\t{text_field(rule)}\n" for number, rule in enumerate(texts, first))
    with session.cursor() as cursor, cursor.copy("copy bench_rules (id, text) from stdin") as copy:
        copy.write(rows.encode())
    session.commit()


_STORED = "document_id, resource_id, target_id, hash, position, property_id, shows, value, number"
_BLOCK = 4 * 1024 * 1024


def copy_again(engine: Engine, most: int) -> Iterator[tuple[int, float]]:
    """The bare COPY and commit of statements that are stored, into an equally indexed table, block by block: how many,
    and the seconds without their reading."""
    with engine.connect() as reading, engine.connect() as writing:
        source, target = driver(reading), driver(writing)
        asked = f"copy (select {_STORED} from filter_data limit {most:d}) to stdout"  # noqa: S608
        with source.cursor() as cursor, cursor.copy(asked) as rows:
            for block in _blocks(rows):
                began = time.perf_counter()
                with target.cursor() as filling, filling.copy(COPY_FLOOR) as copy:
                    copy.write(b"".join(block))
                target.commit()
                yield len(block), time.perf_counter() - began


def _blocks(rows: Iterable[bytes | memoryview | bytearray]) -> Iterator[list[bytes]]:
    block: list[bytes] = []
    weight = 0
    for row in rows:
        block.append(bytes(row))
        weight += len(block[-1])
        if weight > _BLOCK:
            yield block
            block, weight = [], 0
    if block:
        yield block
