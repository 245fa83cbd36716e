"""SQL of the benchmarks: databases to measure, the results of the last run, and simpler queries to compare with."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy
from sqlalchemy import Connection, Engine, text

from mdv.bench.sql.copy_floor import COPY_INTO_FLOOR, vacuum_analyze
from mdv.db.engine import driver, make_engine
from mdv.db.load_sql import load_sql
from mdv.db.migrate import migrate
from mdv.db.postgres_copy import copy_text
from mdv.db.tables import (
    FILTER_RULES_TABLES,
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

_BACKENDS = text("select pid from pg_stat_activity where datname = current_database()")


class BenchDatabases:
    """Databases on one server. Each is migrated and empty at first."""

    def __init__(self, url: str) -> None:
        self._url = sqlalchemy.make_url(url)
        self._made = 0
        engine = self._engine(str(self._url.database))
        migrate(engine)
        engine.dispose()

    @contextmanager
    def new(self) -> Iterator[Engine]:
        """Provide a new database, and drop it afterwards."""
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
        # Reuse the last connection first, because it has prepared the statements.
        return make_engine(self._url.set(database=name).render_as_string(hide_password=False), pool_use_lifo=True)

    def _administer(self, statement: str) -> None:
        engine = self._engine("postgres")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(statement))
        engine.dispose()


def list_backends(engine: Engine) -> list[int]:
    """Return the processes of the server that serve the database."""
    with engine.connect() as connection:
        return list(connection.execute(_BACKENDS).scalars())


def delete_documents(engine: Engine, last_kept: int) -> None:
    """Delete all documents, and the resources after `last_kept`. Rules and their classes stay."""
    with engine.begin() as connection:
        connection.execute(text("truncate documents, document_versions, filter_data, filter_data_history, bench_floor"))
        connection.execute(text("delete from resources where id > :last"), {"last": last_kept})
    vacuum_analyze(engine)


_CHANGES_OF = "select rule_id, matched from ({changes}) as c (rule_id, uri, matched) where uri = %(uri)s"


def read_changes_of(connection: Connection, uri: str) -> list[tuple[int, bool]]:
    """Return the changes of the last run for one resource: end rule, and whether it matches now."""
    session = driver(connection)
    found: list[tuple[int, bool]] = []
    for sql in load_sql("filter_results").values():
        found += session.execute(_CHANGES_OF.format(changes=sql.rstrip(";")), {"uri": uri}).fetchall()
    return found


def count_range_resources(connection: Connection) -> int:
    """Return the number of resources for which the last run found ranges."""
    return int(connection.execute(text("select count(distinct resource_id) from result_ranges")).scalar_one())


def count_strpos_matches(connection: Connection, values: Sequence[str]) -> int:
    """Return how many constants of `contains` occur in the values, by searching every value for every constant."""
    asked = text(
        "select count(*) from unnest(cast(:values as text[])) as v (value)"
        " join filter_rules_con r on strpos(v.value, r.value) > 0"
    )
    return int(connection.execute(asked, {"values": list(values)}).scalar_one())


QUERY_PER_RULE = {
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
"""For each rule type, the query of one rule on the documents of the last transaction."""

_PIN = """
select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('join_collapse_limit', '1', true), set_config('plan_cache_mode', 'force_generic_plan', true)"""


def query_each_rule(
    connection: Connection, rule_type: str, constants: Sequence[int | str], numbers: Mapping[str, int]
) -> list[list[int]]:
    """Return the resources that each rule matches, by one query per rule. The plans start from the constant and use
    indexes (`+ 0` avoids indexes with very many entries)."""
    session, sql = driver(connection), QUERY_PER_RULE[rule_type]
    session.execute(_PIN)
    return [
        [number for (number,) in session.execute(sql, {**numbers, "constant": constant}, prepare=True).fetchall()]
        for constant in constants
    ]


def resource_id_of(connection: Connection, uri: str) -> int:
    """Return the id of a resource."""
    return int(connection.execute(text("select id from resources where uri = :uri"), {"uri": uri}).scalar_one())


def count_rules(connection: Connection) -> int:
    return int(connection.execute(text("select count(*) from rules")).scalar_one())


def read_table_sizes(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """Return the bytes of tables, including their indexes and TOAST tables."""
    asked = text("select name, pg_total_relation_size(name::regclass) from unnest(cast(:names as text[])) as t (name)")
    return {name: int(size) for name, size in connection.execute(asked, {"names": list(names)})}


DOCUMENT_TABLES = tuple(
    table.name for table in (documents, document_versions, resources, filter_data, filter_data_history, transactions)
)
RULE_TABLES = tuple(
    table.name
    for table in (
        rules,
        rule_ends,
        rule_searches,
        atomic_rules,
        rule_dependencies,
        end_rules,
        *FILTER_RULES_TABLES.values(),
    )
)
LMR_TABLES, FEED_TABLES = (lmr_resources.name,), (feed.name,)


@dataclass(frozen=True, slots=True)
class TableSizes:
    """Rows of the first of some tables, total bytes of all of them, and bytes of their indexes alone."""

    rows: int
    total: int
    indexes: int


def read_total_sizes(connection: Connection, names: Sequence[str]) -> TableSizes:
    """Return the sizes of some tables."""
    asked = text("select sum(pg_indexes_size(name::regclass)) from unnest(cast(:names as text[])) as t (name)")
    indexes = int(connection.execute(asked, {"names": list(names)}).scalar_one())
    rows = int(connection.execute(text(f"select count(*) from {names[0]}")).scalar_one())  # noqa: S608
    return TableSizes(rows, sum(read_table_sizes(connection, names).values()), indexes)


def read_plan_bytes(connection: Connection) -> int:
    """Return the bytes of the plans that the server keeps for the prepared statements of this connection."""
    asked = text("select sum(total_bytes) from pg_backend_memory_contexts where name like 'CachedPlan%'")
    return int(connection.execute(asked).scalar_one())


def create_rule_floor_table(connection: Connection) -> None:
    connection.execute(text("create table bench_rules (id bigint primary key, text text not null)"))


def copy_rule_texts(connection: Connection, first: int, texts: Sequence[str]) -> None:
    """COPY the texts of rules and commit: the lower bound of the cost of storing them."""
    session = driver(connection)
    rows = "".join(f"{number}\t{copy_text(rule)}\n" for number, rule in enumerate(texts, first))
    with session.cursor() as cursor, cursor.copy("copy bench_rules (id, text) from stdin") as copy:
        copy.write(rows.encode())
    session.commit()


_STORED = "document_id, resource_id, target_id, hash, position, property_id, shows, value, number"
_BLOCK = 4 * 1024 * 1024


def copy_stored_statements(engine: Engine, most: int) -> Iterator[tuple[int, float]]:
    """COPY stored statements into a table with the same indexes, and commit block by block. Yield the number of rows
    and the seconds, without the time for reading them."""
    with engine.connect() as reading, engine.connect() as writing:
        source, target = driver(reading), driver(writing)
        asked = f"copy (select {_STORED} from filter_data limit {most:d}) to stdout"  # noqa: S608
        with source.cursor() as cursor, cursor.copy(asked) as rows:
            for block in _blocks(rows):
                began = time.perf_counter()
                with target.cursor() as filling, filling.copy(COPY_INTO_FLOOR) as copy:
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
