"""Registries: each kind that one module declares has an entry wherever something is done by kind."""

from __future__ import annotations

from mdv.cause import CAUSE_KINDS
from mdv.db.jobs import JOB_KINDS, JobQueue, kinds_of
from mdv.mdp.subscribe import RULE_JOBS
from mdv.mdp.worker import RULE_JOB_HANDLERS
from mdv.rdf.gate import GATES
from mdv.rdf.serialise import WRITERS
from mdv.rdf.stream import STREAM_WRITERS
from mdv.rdf.syntax import SYNTAXES
from workers.wake import TASKS, task_for


def test_every_syntax_can_be_read_and_written() -> None:
    names = {syntax.name for syntax in SYNTAXES}
    assert GATES.keys() == WRITERS.keys() == STREAM_WRITERS.keys() == names


def test_every_kind_of_jobs_has_a_handler_and_a_task() -> None:
    assert RULE_JOB_HANDLERS.keys() == {*kinds_of(JobQueue.RULES)}
    assert RULE_JOBS.keys() < RULE_JOB_HANDLERS.keys()
    assert {*kinds_of(JobQueue.BACKBONE)} == {"verify", "repair"}
    assert {*kinds_of(JobQueue.DOCUMENTS)} == JOB_KINDS.keys() - RULE_JOB_HANDLERS.keys() - {"verify", "repair"}
    # No task of the workers, but `mdv replicate` runs those of the backbone.
    assert TASKS.keys() == {*JobQueue} - {JobQueue.BACKBONE}
    for kind in JOB_KINDS:
        assert task_for(kind) == TASKS.get(JOB_KINDS[kind].queue), kind
    assert {task_for(kind) for kind in JOB_KINDS} == {*TASKS.values(), None}


def test_names_of_kinds_are_their_keys() -> None:
    assert all(name == kind.name for kinds in (JOB_KINDS, CAUSE_KINDS) for name, kind in kinds.items())
