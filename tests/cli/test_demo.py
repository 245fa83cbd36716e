"""The demo: two LMRs whose rules overlap, over a small catalogue of books."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mdv.client import Client
from tests.support.whole_system import Up

pytestmark = pytest.mark.full

BASE = "http://mdv.example/library/"
AT_BOTH = {"alice", "looking-glass", "moby-dick"}
AT_LOCAL = AT_BOTH | {"pride-and-prejudice", "frankenstein"}
AT_SCHOOL = AT_BOTH | {"treasure-island", "vingt-mille-lieues"}
AT_NONE = {"time-machine", "faust", "verwandlung"}


def test_both_lmrs_hold_the_books_that_their_rules_select(new_up: Callable[..., Up]) -> None:
    up = new_up("data", demo=True).start()
    assert "The demo is loaded: 14 documents" in up.output
    assert (up.folder / "school.token").stat().st_mode & 0o777 == 0o600
    with Client(up.system) as mdp, Client(up.lmr_system) as lmr:
        lmr.get("/status", after=mdp.get("/status")["position"], wait=60)
        found = lmr.post("/query", {"query": "search Book b return b, b.title, b.author.name order by b.title"})
        rows = [[value["value"] for value in row] for row in found["rows"]]
        assert {row[0] for row in rows} == {f"{BASE}{name}.ttl#book" for name in AT_LOCAL}
        assert rows[0] == [f"{BASE}alice.ttl#book", "Alice's Adventures in Wonderland", "Lewis Carroll"]
        for name in AT_LOCAL | AT_SCHOOL | AT_NONE:
            for repository, held in (("local", AT_LOCAL), ("school", AT_SCHOOL)):
                told = mdp.get("/explain", lmr=repository, uri=f"{BASE}{name}.ttl#book")
                assert told["held"] == (name in held), (repository, name)
        assert [(one["name"], one["behind"]) for one in mdp.items("/lmrs")] == [("local", 0), ("school", 0)]
        author = mdp.get("/explain", lmr="school", uri=f"{BASE}authors.ttl#stevenson")
        assert author["held"], "strongly referenced by a book"
