"""A worker that is killed at any point of a slice leaves its process as it was, or as the slice made it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from sqlalchemy import Engine

from mdv.failpoints import PROGRAM_FAILPOINTS
from tests.support.mdp import Mdp
from tests.support.real_processes import OPEN, Programs

RUN = """
import sys
from mdv.db.engine import make_engine
from mdv.mdp.provider import Provider
from mdv.mdp.real.program_worker import ProgramWorker
engine = make_engine(sys.argv[1])
worker = ProgramWorker(engine, Provider(engine))
while worker.run_slice() is not None:
    pass
"""

TRANSFER = """
[-:balance(:a, ?x) AND CALL primitive:add(?x, -1 >> ?y) AND +:balance(:a, ?y) AND
 -:balance(:b, ?u) AND CALL primitive:inc(?u >> ?v) AND +:balance(:b, ?v)] AND
FIRST WAIT :go(:on, ?z) AND +:went(?z, :yes)
"""


def run_killed(engine: Engine, failpoint: str) -> int:
    """Run slices in another program, which is killed at a failpoint. Return its exit code."""
    url = engine.url.render_as_string(hide_password=False).replace("+psycopg", "")
    return subprocess.run(
        [sys.executable, "-c", RUN, url], env={"MDV_DIE_AT": f"{failpoint}:1", "PATH": ""}, timeout=60, check=False
    ).returncode  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("failpoint", PROGRAM_FAILPOINTS)
def test_a_killed_worker_loses_and_repeats_nothing(mdp: Mdp, failpoint: str) -> None:
    mdp.put_schema(OPEN)
    mdp.put({"http://d/1": ":a :balance 10 . :b :balance 0 ."})
    programs = Programs(mdp)
    iri = programs.start(TRANSFER)
    assert run_killed(mdp.engine, failpoint) == -signal.SIGKILL
    assert programs.shown("balance") in ({"a 10", "b 0"}, {"a 9", "b 1"})
    programs.run()
    assert programs.shown("balance") == {"a 9", "b 1"} and programs.state(iri) == "waiting"
    mdp.put({"http://d/2": ":on :x :y . :go2 :go :z . :on :go :z ."})
    assert programs.state(iri) == "ready"
    if failpoint != PROGRAM_FAILPOINTS[4]:  # its second slice does not wait
        assert run_killed(mdp.engine, failpoint) == -signal.SIGKILL
    programs.run()
    assert programs.state(iri) == "done" and programs.shown("went") == {"z yes"}
    assert programs.news(iri).solutions == 1
