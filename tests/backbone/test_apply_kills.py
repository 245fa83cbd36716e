"""A process that applies operations is killed at every point. What it has applied is whole, and the next goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mdv.failpoints import COMMITTED_OPERATIONS, REPLICA_FAILPOINTS
from mdv.lmr.cache import Cache
from mdv.lmr.sync import Sync
from tests.support.cache_content import content_of
from tests.support.in_process_source import Near
from tests.support.replicas import NewDatabase, ReplicaMdp, Replicas

pytestmark = pytest.mark.full

SCHEMA = ":Book a rdfs:Class . :tag a rdf:Property ; mdv:setValued true ."
ROOT = Path(__file__).parents[2]


@pytest.fixture
def two(new_database: NewDatabase) -> Replicas:
    replicas = Replicas.found(new_database, "ab")
    for member in replicas.members.values():
        member.put_schema(SCHEMA)
    return replicas


def apply_in_process(replicas: Replicas, die_at: str) -> int:
    urls = [replicas[name].engine.url.render_as_string(hide_password=False) for name in "ab"]
    command = [sys.executable, "-m", "tests.support.replica_process", *urls]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "MDV_DIE_AT": die_at}, check=False).returncode


def contents(member: ReplicaMdp) -> list[tuple[object, ...]]:
    return member.rows(
        "select d.uri, d.version, d.digest, d.present, f.value from documents d"
        " left join filter_data f on f.document_id = d.id order by d.uri, f.value"
    )


def test_an_operation_is_applied_once_and_whole_at_every_kill(two: Replicas, tmp_path: Path) -> None:
    a, b = two["a"], two["b"]
    lmr = b.create_lmr("reader")
    b.subscribe(lmr, "search rdfs:Resource r register r where r.tag? contains 'x'")
    cache = Cache.open(f"sqlite:///{tmp_path / 'reader.sqlite'}")
    sync = Sync(cache, Near(b, lmr))
    for number, point in enumerate(REPLICA_FAILPOINTS):
        a.put({f"http://d/{n}": f"<http://d/{n}#r> :tag 'x{number}', 'y' ." for n in range(3)})
        a.put_one(f"http://d/new/{number}", f"<http://d/new/{number}#r> :tag 'x' .")
        before = contents(b)
        times = 2 if point == COMMITTED_OPERATIONS else 1  # the first is the answer to the poll
        assert apply_in_process(two, f"{point}:{times}") == -signal.SIGKILL, point
        applied = b.facts.vector.get(a.facts.life, 0) == a.facts.seq
        assert applied == (point == COMMITTED_OPERATIONS), "only the last point is after the commit"
        assert contents(b) == (contents(a) if applied else before), point
        assert apply_in_process(two, "nothing:1") == 0
        b.restart()
        two.rest()
        assert contents(b) == contents(a), point
        assert b.facts.vector == a.facts.vector
        while not sync.step().up_to_date:
            """The feed has more."""
        found = content_of(cache)
        assert found.selected == {f"{uri}#r" for uri, *_ in contents(a)}
        assert b.one("select max(version) from documents") == number + 1
    cache.close()
