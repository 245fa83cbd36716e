"""SQL of `mdv bench real`: the same reads as a bare cursor, the same changes as a bare COPY, and a bare queue."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from sqlalchemy import Engine, text

from mdv.bench.sql.copy_floor import COPY_INTO_FLOOR
from mdv.db.engine import driver
from mdv.db.load_sql import load_sql

FETCHED_ROWS = 1000

_TERMS = "s.uri, p.uri, t.uri, f.value, f.lang, d.uri"
_SAME_PLAN = f"""
select {_TERMS}
from filter_data f
cross join lateral (select uri from resources r where r.id = f.resource_id offset 0) s
cross join lateral (select uri from vocabulary v where v.id = f.property_id offset 0) p
left join lateral (select uri from resources r where r.id = f.target_id offset 0) t on true
left join lateral (select uri from vocabulary v where v.id = f.datatype_id offset 0) d on true
where f.property_id = (select id from vocabulary where uri = %(property)s) and f.position + 0 <= %(position)s
order by f.resource_id, f.property_id, f.hash"""  # noqa: S608 (constants)
_BEST_PLAN = f"""
select {_TERMS}
from filter_data f
join resources s on s.id = f.resource_id
join vocabulary p on p.id = f.property_id
left join resources t on t.id = f.target_id
left join vocabulary d on d.id = f.datatype_id
where p.uri = %(property)s"""  # noqa: S608 (constants)
_JOIN = """
select s.uri, i.uri, m.value, d.uri
from filter_data f
join vocabulary p on p.id = f.property_id and p.uri = %(first)s
join filter_data m on m.resource_id = f.target_id
join vocabulary q on q.id = m.property_id and q.uri = %(second)s
join resources s on s.id = f.resource_id
join resources i on i.id = f.target_id
left join vocabulary d on d.id = m.datatype_id"""


def read_by_cursor(engine: Engine, property_iri: str, is_same_plan: bool) -> tuple[int, float]:
    """Read all statements of a property by a cursor, with the plan of programs or the best one. Return their number and
    the seconds."""
    with engine.connect() as connection:
        session = driver(connection)
        position = session.execute("select position from mdp_state").fetchone()
        assert position is not None
        session.rollback()
        began = time.perf_counter()
        if is_same_plan:
            session.execute(load_sql("real")["begin_reading"], {"timeout": "60s"})
        values = {"property": property_iri, "position": position[0]}
        count = sum(1 for _ in _rows(session, _SAME_PLAN if is_same_plan else _BEST_PLAN, values))
        seconds = time.perf_counter() - began
        session.rollback()
    return count, seconds


def join_by_cursor(engine: Engine, first: str, second: str) -> tuple[int, float]:
    """Join the references of a property with the values of another one, by a cursor."""
    with engine.connect() as connection:
        session = driver(connection)
        began = time.perf_counter()
        count = sum(1 for _ in _rows(session, _JOIN, {"first": first, "second": second}))
        seconds = time.perf_counter() - began
        session.rollback()
    return count, seconds


def _rows(session: psycopg.Connection[Any], sql: str, values: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    with session.cursor("bench") as cursor:
        cursor.itersize = FETCHED_ROWS
        cursor.execute(sql, values)
        yield from cursor


def copy_statements(engine: Engine, rows: bytes) -> float:
    """COPY rows into the floor table, and commit. Return the seconds."""
    with engine.connect() as connection:
        session = driver(connection)
        began = time.perf_counter()
        with session.cursor() as cursor, cursor.copy(COPY_INTO_FLOOR) as copy:
            copy.write(rows)
        session.commit()
        return time.perf_counter() - began


def floor_rows(first: int, count: int) -> bytes:
    """Return the rows of `count` statements with a number as value, for `copy_statements`."""
    return "".join(
        f"1\t{number}\t\\N\t{hash((number, 'x'))}\t{number}\t1\tt\t{number}\t{number}\n"
        for number in range(first, first + count)
    ).encode()


def commit_one_row(engine: Engine, number: int) -> float:
    """Insert one row into the floor table and commit: a durable commit. Return the seconds."""
    return copy_statements(engine, floor_rows(number, 1))


# A queue: rows that workers lock with SKIP LOCKED, delete, and answer with another row.

_TAKE = """
with taken as (
    select id from bench_queue where not is_done order by id limit 1 for update skip locked
)
update bench_queue q set is_done = true, result = q.id + 1 from taken where q.id = taken.id returning q.id"""


def fill_queue(engine: Engine, tasks: int) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "create table if not exists bench_queue"
                " (id bigint primary key, is_done boolean not null default false, result bigint)"
            )
        )
        connection.execute(text("create index if not exists bench_queue_open on bench_queue (id) where not is_done"))
        connection.execute(text("truncate bench_queue"))
        connection.execute(
            text("insert into bench_queue (id) select generate_series(1, cast(:tasks as bigint))"), {"tasks": tasks}
        )


def take_tasks(engine: Engine) -> int:
    """Take tasks from the queue, one per durable transaction, until none is left. Return their number."""
    taken = 0
    with engine.connect() as connection:
        session = driver(connection)
        while session.execute(_TAKE, prepare=True).fetchone() is not None:
            session.commit()
            taken += 1
        session.rollback()
    return taken


def count_done(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("select count(*) from bench_queue where result = id + 1")).scalar_one())


def count_values(engine: Engine, property_iri: str) -> int:
    """Return the number of statements of a property."""
    asked = text("select count(*) from filter_data f join vocabulary v on v.id = f.property_id where v.uri = :iri")
    with engine.connect() as connection:
        return int(connection.execute(asked, {"iri": property_iri}).scalar_one())


def process_states(engine: Engine) -> dict[str, int]:
    """Return the number of processes in each state."""
    asked = text("select state, count(*) from real_processes group by state")
    with engine.connect() as connection:
        return {str(state): int(count) for state, count in connection.execute(asked)}


def process_problems(engine: Engine) -> Sequence[str]:
    """Return why processes failed, at most ten of them."""
    asked = text("select problem::text from real_processes where state = 'failed' limit 10")
    with engine.connect() as connection:
        return [str(problem) for (problem,) in connection.execute(asked)]
