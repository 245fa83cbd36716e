"""Several MDPs of a backbone in the test process: each with a database, a web server, a worker and its replication.

They talk over HTTP, each through a proxy of its own, which can fail in several ways.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from mdv.config import Config
from mdv.db.engine import make_engine
from mdv.db.epoch import update_epoch
from mdv.mdp.provider import Provider
from mdv.mdp.replicate import Replicator
from mdv.replication.link_status import LINKS_KEY, LINKS_SECONDS, ReplicationStatus
from tests.support.eventually import eventually
from tests.support.faulty_proxy import Faults, FaultyProxy
from tests.support.in_process_server import serve_in_process
from tests.support.server import Api, WebAddress, environment
from web.services import make_redis
from workers.messages import PUBLISHED_CHANNEL
from workers.replicate import read_databases

RELAY_SECONDS = 0.5


@dataclass
class HttpMember:
    """One MDP. `url`: where the others find it, that of its proxy."""

    name: str
    database_url: str
    redis_url: str
    server: WebAddress
    proxy: FaultyProxy
    settings: dict[str, str]
    stack: ExitStack = field(default_factory=ExitStack)
    replicator: Replicator | None = None
    thread: threading.Thread | None = None

    def serve(self) -> None:
        """Start the web server and the worker, again at the same port."""
        started = serve_in_process(self.database_url, self.redis_url, port=self.server.port, **self.settings)
        self.server = self.stack.enter_context(started)

    def stop(self) -> None:
        """Stop everything. The database remains."""
        self.stop_replication()
        self.stack.close()

    def begin(self) -> None:
        """Start everything again."""
        self.serve()
        self.replicate()

    @property
    def url(self) -> str:
        return self.proxy.url

    @property
    def api(self) -> Api:
        return self.server.api()

    def backbone(self) -> dict[str, Any]:
        answer = self.api.get("/backbone")
        assert answer.status_code == 200, answer.text
        return answer.json()  # type: ignore[no-any-return]

    def replicate(self) -> None:
        """Start the replication of this MDP."""
        config = Config.from_environment(environment(self.database_url, self.redis_url, **self.settings))
        engine = make_engine(self.database_url, pool_size=4)
        redis = make_redis(self.redis_url)

        def report(status: ReplicationStatus) -> None:
            redis.set(LINKS_KEY, status.to_json(), ex=LINKS_SECONDS)

        self.replicator = Replicator(
            Provider.configured(engine, config), lambda: redis.publish(PUBLISHED_CHANNEL, b"1"), report,
            config.backbone_relay_seconds, config.backbone_plain, read_databases(config), config.backbone_check_seconds,
        )  # fmt: skip
        self.thread = threading.Thread(target=self.replicator.run, daemon=True)
        self.thread.start()

    def stop_replication(self) -> None:
        if self.replicator is not None and self.thread is not None:
            self.replicator.stop()
            self.thread.join(30)
            self.replicator = self.thread = None

    def metric(self, name: str) -> float:
        """Return the value of a metric without labels."""
        lines = self.api.http.get("/metrics").text.splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Send a request. Return the JSON of a successful answer."""
        answer = self.api.http.request(method, f"/api/v1{path}", json=body, params=query)
        assert answer.is_success, answer.text
        return answer.json()


class HttpBackbone:
    """The members, by name."""

    def __init__(self, new_database: Callable[[], str], new_queue: Callable[[], str], **settings: str) -> None:
        self._settings = settings
        self.members: dict[str, HttpMember] = {}
        self._new_database, self._new_queue = new_database, new_queue
        self._stack = ExitStack()

    def __getitem__(self, name: str) -> HttpMember:
        return self.members[name]

    def start(self, name: str, **settings: str) -> HttpMember:
        """Start an MDP that is in no backbone yet."""
        database_url, redis_url = self._new_database(), self._new_queue()
        engine = make_engine(database_url)
        with engine.begin() as connection:
            update_epoch(connection, restored=True)  # copies of a template have the same
        engine.dispose()
        settings = {"MDV_BACKBONE_RELAY_SECONDS": str(RELAY_SECONDS), **self._settings, **settings}
        stack = ExitStack()
        server = stack.enter_context(serve_in_process(database_url, redis_url, **settings))
        proxy = self._stack.enter_context(FaultyProxy(server.port))
        member = HttpMember(name, database_url, redis_url, server, proxy, settings, stack)
        self._stack.callback(member.stop)
        member.replicate()
        self.members[name] = member
        return member

    def found(self, name: str = "m1", mode: str = "orset") -> HttpMember:
        member = self.start(name)
        member.call("POST", "/backbone", {"name": name, "url": member.url, "mode": mode})
        return member

    def join(self, name: str, merge: bool = False, start: bool = True) -> HttpMember:
        member = self.start(name) if start else self[name]
        code = self.lead.call("POST", "/backbone/invitations")["code"]
        member.call("POST", "/backbone/entry", {"name": name, "url": member.url, "code": code, "merge": merge})
        eventually(lambda: member.backbone()["state"] == "active", detail=member.backbone)
        return member

    @property
    def lead(self) -> HttpMember:
        return next(iter(self.members.values()))

    def rest(self) -> dict[str, int]:
        """Wait until all members have applied the same operations. Return their vector."""

        def vector() -> dict[str, int] | None:
            found = [member.backbone()["vector"] for member in self.members.values()]
            return found[0] if all(one == found[0] for one in found) else None

        found: dict[str, int] = eventually(vector, detail=lambda: [one.backbone() for one in self.members.values()])
        return found

    def close(self) -> None:
        self._stack.close()


@contextmanager
def http_backbone(
    new_database: Callable[[], str], new_queue: Callable[[], str], **settings: str
) -> Iterator[HttpBackbone]:
    backbone = HttpBackbone(new_database, new_queue, **settings)
    try:
        yield backbone
    finally:
        backbone.close()


def content(member: HttpMember, uri: str) -> tuple[int, str | None, list[str]]:
    answer = member.api.get("/documents", uri=uri, headers={"Accept": "application/n-triples"})
    lines = sorted(answer.text.splitlines()) if answer.status_code == 200 else []
    return answer.status_code, answer.headers.get("ETag"), lines


def check_equal(backbone: HttpBackbone, *uris: str) -> list[tuple[int, str | None, list[str]]]:
    """Check that all members have the same documents with the same ETags and versions, and equal sums."""
    backbone.rest()
    found = []
    for uri in uris:
        contents = [content(member, uri) for member in backbone.members.values()]
        assert all(one == contents[0] for one in contents), contents
        found.append(contents[0])
        histories = [member.call("GET", "/documents/history", uri=uri)["items"] for member in backbone.members.values()]
        assert len({history[0]["version"] for history in histories}) == 1
    sums = [member.call("GET", "/backbone/checksum") for member in backbone.members.values()]
    assert all(one == sums[0] for one in sums)
    return found


def has(member: HttpMember, uri: str) -> bool:
    return content(member, uri)[0] == 200


class partition:
    """Cut all connections between the members, and heal them at the end."""

    def __init__(self, backbone: HttpBackbone) -> None:
        self.backbone = backbone

    def __enter__(self) -> None:
        for member in self.backbone.members.values():
            member.proxy.faults = Faults(is_down=True)

    def __exit__(self, *_: object) -> None:
        for member in self.backbone.members.values():
            member.proxy.faults = Faults()
