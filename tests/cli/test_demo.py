"""The demo: two LMRs whose rules overlap, over a small catalogue of books, and event rules that have fired."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mdv.client import Client
from tests.support.whole_system import Up, started

pytestmark = pytest.mark.full

BASE = "http://mdv.example/library/"
AT_BOTH = {"alice", "looking-glass", "moby-dick"}
AT_LOCAL = AT_BOTH | {"pride-and-prejudice", "frankenstein"}
AT_SCHOOL = AT_BOTH | {"treasure-island", "vingt-mille-lieues"}
AT_NONE = {"time-machine", "faust", "verwandlung"}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with started(Up(tmp_path_factory.mktemp("demo") / "data", demo=True)) as up:
        yield up


def test_both_lmrs_hold_the_books_that_their_rules_select(up: Up) -> None:
    assert "The demo is loaded: 19 documents" in up.output
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


def test_each_event_rule_has_made_a_message_for_a_user(up: Up) -> None:
    learning = "http://mdv.example/learning/"
    with Client(up.system) as mdp:
        fired = {rule["name"]: (rule["fired"], rule["failed"]) for rule in mdp.items("/eca/rules", set="learning")}
        assert fired == {"new-object": (1, 0), "updated-object": (1, 0), "new-user": (1, 0)}
        for messages, member, rule in (
            ("new-objects", "sql-course.ttl#course", "new-object"),
            ("updated-objects", "sql-course.ttl#course", "updated-object"),
            ("new-users", "ben.ttl#ben", "new-user"),
        ):
            (origin,) = mdp.get("/resources", uri=f"{learning}anna.ttl#{messages}")["origins"]
            assert (origin["statement"][1]["value"], origin["rule"]) == (f"{learning}{member}", rule)
