"""A worker is killed at every failpoint of a run, of a detached job and of a compensation; the next one goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from mdv.embedded import Postgres
from mdv.failpoints import AFTER_EDIT, ECA_FAILPOINTS
from tests.support.eca_system import RULES, SCHEMA, add, put, statements, submit, work
from tests.support.eventually import eventually
from tests.support.mdp import Mdp
from tests.support.two_processes import systems

pytestmark = pytest.mark.full

WORKER = """
import sys
from mdv.db.engine import make_engine
from mdv.mdp.worker import Worker
Worker(make_engine(sys.argv[1]), 10**6).work()
"""
POINTS = (*ECA_FAILPOINTS, AFTER_EDIT, "before the commit")


def prepare(mdp: Mdp) -> Mdp:
    """Add rules of all modes: one is undone, and one is detached, fails and compensates its parent. Queue documents."""
    mdp.put_schema(SCHEMA)
    put(mdp, "http://d/1", "<http://r/1> :subject 'before' .")
    add(mdp, "ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'now')",
             "COUPLING Deferred ABORT ParentChild ON INSERT (_, subject, _) IF TRUE"
             " DO INSERT ($delta, tag, 'undone') INSERT ($delta, level, 1), ($delta, level, 2)",
             "COUPLING Detached ABORT Independent ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'late')",
             "COUPLING Detached ABORT Mutual ON INSERT (_, subject, 'bad') IF TRUE"
             " DO INSERT ($delta, level, 1), ($delta, level, 2)")  # fmt: skip
    submit(mdp, "register", "http://d/1", "<http://r/1> :subject 'before', 'bad' .")
    submit(mdp, "register", "http://d/2", "<http://r/2> :subject 'good' .")
    return mdp


@pytest.fixture
def eca(mdp: Mdp) -> Mdp:
    return prepare(mdp)


@pytest.fixture(scope="module")
def undisturbed(postgres: Postgres, template: str) -> tuple[Any, ...]:
    """The content after the same jobs without kills."""
    with systems(Mdp, postgres, template)() as (mdp, _):
        work(prepare(mdp))
        return content(mdp)


def content(mdp: Mdp) -> tuple[Any, ...]:
    """Return what must not depend on kills: statements, ended jobs, and runs."""
    documents = [statements(mdp, uri) for uri in ("http://d/1", "http://d/2", RULES)]
    jobs = mdp.rows("select kind, state, count(*) from jobs group by 1, 2 order by 1, 2")
    runs = mdp.rows("select cause, outcome, fired, compensated from eca_runs order by id")
    counts = mdp.rows("select rule_id, fired, failed, failures from eca_counts order by rule_id")
    return documents, jobs, runs, counts


def die(mdp: Mdp, point: str, number: int) -> bool:
    """Run a worker that is killed at a failpoint. Return False if it ended without reaching it."""
    url = mdp.engine.url.render_as_string(hide_password=False)
    environment = {**os.environ, "MDV_DIE_AT": f"{point}:{number}", "PGAPPNAME": "killed"}
    ended = subprocess.run([sys.executable, "-c", WORKER, url], env=environment, capture_output=True, check=False)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr.decode()
    # The server may need a moment to find that the connection is closed. Until then, the jobs stay locked.
    eventually(lambda: mdp.one("select count(*) from pg_stat_activity where application_name = 'killed'") == 0)
    return ended.returncode != 0


def test_the_undisturbed_jobs_use_all_modes(undisturbed: tuple[Any, ...]) -> None:
    documents, jobs, runs, _ = undisturbed

    assert documents == [
        {("http://r/1", "subject", "before")},
        {("http://r/2", "subject", "good")},
        {("http://r/1", "tag", "late"), ("http://r/2", "tag", "now"), ("http://r/2", "tag", "late")},
    ]
    assert {kind for kind, *_ in jobs} == {"register", "detached", "compensate"}
    assert [cause for cause, *_ in runs].count("compensation") == 1


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_worker_changes_nothing(eca: Mdp, point: str, undisturbed: tuple[Any, ...]) -> None:
    died = [number for number in (1, 2) if die(eca, point, number)]

    work(eca)

    assert died
    assert content(eca) == undisturbed
