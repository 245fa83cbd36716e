"""A worker that is killed while it runs a program: another one goes on, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.server import start_server, start_worker, stopping

pytestmark = pytest.mark.full

SCHEMA = "@prefix mdv: <urn:mdv:schema#> . <urn:mdv:schema> mdv:world mdv:open ."
TASKS = 2500
CODE = "REPEAT (-<urn:v:open>(?t, ?v) AND +<urn:v:closed>(?t, ?v) AND CALL primitive:log(?t))"


def test_a_killed_worker_is_replaced(
    new_database: Callable[[], str], new_queue: Callable[[], str], folder: Path
) -> None:
    database, queue = new_database(), new_queue()
    with ExitStack() as stack:
        first = start_worker(folder, database, queue)
        stack.enter_context(stopping(first))
        server = start_server(folder, database, queue)
        stack.enter_context(stopping(server))
        api = server.api()
        assert api.put_schema(SCHEMA).status_code == 200
        body = "\n".join(f"<urn:t:{number}> <urn:v:open> '{number}' ." for number in range(TASKS))
        assert api.put("http://d/tasks", body).status_code == 201
        started = api.http.post(
            "/api/v1/real", json={"code": CODE, "mode": "run", "into": "http://d/done"},
            headers={"Prefer": "respond-async"},
        )  # fmt: skip
        location = started.headers["Location"]

        def shown() -> dict[str, Any]:
            found: dict[str, Any] = api.http.get(location).json()
            return found

        eventually(lambda: shown()["slices"] >= 2)
        first.kill()
        left = shown()
        assert left["state"] == "ready" and 0 < left["effects"]["added"] < TASKS
        stack.enter_context(stopping(start_worker(folder, database, queue)))
        done = eventually(lambda: found if (found := shown())["ended_at"] else None, 120)
        assert done["state"] == "done" and done["effects"] == {"added": TASKS, "removed": TASKS}
        logged = [entry for entry in api.all(location.removeprefix("/api/v1") + "/log", 1000) if entry["kind"] == "log"]
        assert len(logged) == len({entry["message"]["value"] for entry in logged}) == TASKS
