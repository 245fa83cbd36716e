"""Two members on two clusters of Postgres: operations come by logical replication, and by HTTP where that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from mdv.db.engine import make_engine
from mdv.db.migrate import migrate
from mdv.db.replica.transport import connect_to_peer, refuse_without_logical_wal
from mdv.embedded import Postgres, start_postgres
from mdv.errors import Unavailable
from tests.support.eventually import eventually
from tests.support.faulty_proxy import Faults
from tests.support.http_backbone import HttpBackbone, HttpMember, http_backbone
from tests.support.server import SCHEMA, provider

FAST = {"fsync": "off", "synchronous_commit": "off", "shared_buffers": "64MB", "wal_level": "logical"}

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Postgres]]:
    with ExitStack() as stack:
        found = {}
        for name in ("m1", "m2"):
            folder = tmp_path_factory.mktemp("cluster") / name
            found[name] = stack.enter_context(start_postgres(folder, FAST))
            engine = make_engine(found[name].url)
            migrate(engine)
            engine.dispose()
        yield found


@pytest.fixture(scope="module")
def two(clusters: dict[str, Postgres], new_queue: Callable[[], str]) -> Iterator[HttpBackbone]:
    urls = iter(server.url for server in clusters.values())
    with http_backbone(lambda: next(urls), new_queue) as backbone:
        databases = {"m1": f"m2={clusters['m2'].url}", "m2": f"m1={clusters['m1'].url}"}
        for name, known in databases.items():
            backbone.start(name, MDV_BACKBONE_TRANSPORT="postgres", MDV_BACKBONE_DATABASES=known)
        m1 = backbone["m1"]
        m1.call("POST", "/backbone", {"name": "m1", "url": m1.url, "mode": "orset"})
        assert m1.api.put_schema(SCHEMA).status_code == 200
        backbone.join("m2", start=False)
        eventually(lambda: {transport_of(one) for one in backbone.members.values()} == {"postgres"})
        eventually(lambda: all(publishes_its_life(one, clusters[one.name]) for one in backbone.members.values()))
        yield backbone


def transport_of(member: HttpMember) -> str | None:
    return next(one["transport"] for one in member.backbone()["members"] if one["name"] != member.name)


def publishes_its_life(member: HttpMember, server: Postgres) -> bool:
    """A member that joins begins a life. Operations of it that are older than its publication come by HTTP."""
    filters = query(server, "select rowfilter from pg_publication_tables")
    return any(member.backbone()["life"] in text for (text,) in filters)


def query(server: Postgres, text: str) -> list[Any]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        return connection.execute(text.encode()).fetchall()


def has(member: HttpMember, uri: str) -> bool:
    return member.api.get("/documents", uri=uri).status_code == 200


def etag(member: HttpMember, uri: str) -> str | None:
    return member.api.get("/documents", uri=uri).headers.get("ETag")


@pytest.fixture
def no_http(two: HttpBackbone) -> Iterator[None]:
    two.rest()  # HTTP brings the operations from before the subscriptions
    for member in two.members.values():
        member.proxy.faults = Faults(is_down=True)
    yield
    for member in two.members.values():
        member.proxy.faults = Faults()


@pytest.mark.xfail(
    reason="Known fault: operations of a member that has joined may not arrive by its subscription. HTTP brings them."
)
def test_operations_arrive_by_logical_replication_alone(
    two: HttpBackbone, clusters: dict[str, Postgres], no_http: None
) -> None:
    m1, m2 = two.members.values()
    uri = "http://docs.example/1"
    assert m1.api.put(uri, provider(1)).status_code == 201
    eventually(lambda: has(m2, uri))
    assert m2.api.put(uri, provider(2)).status_code == 200
    eventually(lambda: etag(m1, uri) == etag(m2, uri))
    assert (etag(m1, uri) or "").startswith('"2-')
    eventually(lambda: [query(server, "select count(*) from replica_inbox") for server in clusters.values()]
               == [[(0,)], [(0,)]])  # fmt: skip


def test_a_paused_member_is_not_applied(two: HttpBackbone, clusters: dict[str, Postgres]) -> None:
    m1, m2 = two.members.values()
    uri = "http://docs.example/2"
    m2.call("PATCH", "/backbone/members/m1", {"paused": True})
    before = m2.backbone()["vector"]
    assert m1.api.put(uri, provider(1)).status_code == 201
    ((position,),) = query(clusters["m1"], "select pg_current_wal_lsn()::text")
    arrived = f"select bool_and(confirmed_flush_lsn >= '{position}') from pg_replication_slots"
    eventually(lambda: query(clusters["m1"], arrived) == [(True,)])
    eventually(lambda: query(clusters["m2"], "select count(*) from replica_inbox") == [(0,)])
    assert not has(m2, uri) and m2.backbone()["vector"] == before
    m2.call("PATCH", "/backbone/members/m1", {"paused": False})
    eventually(lambda: has(m2, uri))  # what the subscription has brought was dropped, so HTTP brings it
    two.rest()


def test_a_lost_slot_is_made_again_and_http_brings_what_is_missing(
    two: HttpBackbone, clusters: dict[str, Postgres]
) -> None:
    m1, m2 = two.members.values()
    m2.stop_replication()
    query(clusters["m1"], "select pg_terminate_backend(active_pid, 5000) from pg_replication_slots where active")
    eventually(lambda: _drop_slots(clusters["m1"]))
    uri = "http://docs.example/3"
    assert m1.api.put(uri, provider(1)).status_code == 201
    m2.replicate()
    eventually(lambda: has(m2, uri))
    eventually(lambda: query(clusters["m1"], "select count(*) from pg_replication_slots where active") == [(1,)])
    two.rest()


def _drop_slots(server: Postgres) -> bool:
    try:
        query(server, "select pg_drop_replication_slot(slot_name) from pg_replication_slots")
    except psycopg.errors.ObjectInUse:
        query(server, "select pg_terminate_backend(active_pid, 5000) from pg_replication_slots where active")
        return False
    return True


def test_without_databases_the_subscriptions_end(two: HttpBackbone, clusters: dict[str, Postgres]) -> None:
    """This is the last test of the file: m2 uses HTTP alone, then leaves."""
    m1, m2 = two.members.values()
    m2.stop_replication()
    m2.settings["MDV_BACKBONE_TRANSPORT"] = "http"
    m2.replicate()
    eventually(lambda: query(clusters["m2"], "select count(*) from pg_subscription") == [(0,)])
    uri = "http://docs.example/4"
    assert m1.api.put(uri, provider(1)).status_code == 201
    eventually(lambda: has(m2, uri))
    eventually(lambda: transport_of(m2) == "http")
    eventually(lambda: m2.api.http.post("/api/v1/backbone/exit", json={}).status_code == 200)
    # m1 drops the slot of a member that is gone, so that it keeps no WAL for it.
    eventually(lambda: query(clusters["m1"], "select count(*) from pg_replication_slots") == [(0,)])


def test_a_postgres_without_logical_wal_is_refused(postgres: Postgres, clusters: dict[str, Postgres]) -> None:
    with connect_to_peer(postgres.url) as database, pytest.raises(Unavailable, match="wal_level"):
        refuse_without_logical_wal(database)
