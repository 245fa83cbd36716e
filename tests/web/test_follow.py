"""The feed client in the documentation is correct: it gets the same content as a full LMR."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.server import Api, Server, turtle

PATH = Path(__file__).parents[2] / "docs" / "follow.py"


@pytest.fixture(scope="module")
def follow() -> ModuleType:
    spec = importlib.util.spec_from_file_location("follow", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def document(memory: int, host: str = "follow.example", info: str = "#info") -> str:
    return turtle(
        f"<#host> a ex:CycleProvider ; ex:serverHost '{host}' ; ex:serverInformation <{info}> ; ex:knows <#else> .",
        f"<#info> a ex:ServerInformation ; ex:memory {memory} .",
        "<#other> a ex:ServerInformation ; ex:memory 1 .",
        "<#else> a ex:CycleProvider ; ex:serverHost 'else.example' .",
    )


def test_the_documented_feed_client_holds_the_closure(follow: ModuleType, server: Server, api: Api, doc: str) -> None:
    made = api.http.post("/api/v1/lmrs", json={"name": f"follower-{time.time_ns()}"}).json()
    http = server.api(made["token"]).http
    rule = "search CycleProvider c register c where c.serverHost contains 'follow.example'"
    http.post("/api/v1/lmrs/self/subscriptions", json={"rule": rule})
    copy = follow.Copy()

    def caught_up() -> set[str]:
        while not follow.step(http, copy, 0):
            pass
        return {uri.partition("#")[2] for uri in copy.resources}

    steps: list[tuple[Callable[[], object], set[str]]] = [
        (lambda: None, set()),
        (lambda: api.put(doc, document(64)), {"host", "info"}),
        (lambda: api.put(doc, document(65)), {"host", "info"}),
        (lambda: api.put(doc, document(65, info="#other")), {"host", "other"}),
        (lambda: api.put(doc, document(65, host="else.example", info="#other")), set()),
        (lambda: api.put(doc, document(66)), {"host", "info"}),
        (lambda: api.delete(doc), set()),
    ]
    for act, wanted in steps:
        act()
        assert caught_up() == wanted
    copy.cursor = "0" * 12 + "-1-1"
    api.put(doc, document(67))
    assert caught_up() == {"host", "info"}
    api.delete(doc)


def test_the_documented_feed_client_joins_the_parts_of_a_large_resource(follow: ModuleType) -> None:
    first, second = (["urn:p", {"type": "literal", "value": value}] for value in ("1", "2"))
    events = [
        {"event": "put", "resource": "urn:r", "statements": [first], "from": 0, "more": True},
        {"event": "put", "resource": "urn:r", "statements": [second], "from": 1},
        {"event": "match", "resource": "urn:r", "last": True},
    ]
    copy = follow.Copy()
    for _ in range(2):
        copy.apply({"events": events, "cursor": "1"})
        assert copy.resources == {"urn:r": [first, second]}
