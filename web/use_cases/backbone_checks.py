"""Queue checks and repairs of the backbone, and show the last ones with their progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from mdv.accounts.callers import Caller
from mdv.errors import NotFound
from mdv.mdp import backbone_check_jobs
from mdv.mdp.backbone_check_jobs import BACKBONE_URI
from mdv.mdp.jobs import JobStatus
from web.job_queue import enqueue_job
from web.negotiate import prefer_wait
from web.services import Services, services
from web.use_cases.backbone import read_facts, read_replication
from workers.messages import JobMessage

CHECKS_SHOWN = 10


def queue_verification(caller: Caller, peer: str | None, deep: bool) -> tuple[UUID, JobMessage | None]:
    """Queue a check. Return its job, and the status if the caller waits."""
    _refuse_unknown(peer)
    return _queue("verify", caller, {"peer": peer, "deep": deep})


def queue_repair(caller: Caller, peer: str, documents: Sequence[str] | None) -> tuple[UUID, JobMessage | None]:
    """Queue a repair. Return its job, and the status if the caller waits."""
    _refuse_unknown(peer)
    return _queue(
        "repair", caller, {"from": peer, "documents": None if documents is None else list(documents), "deep": True}
    )


def _queue(kind: str, caller: Caller, options: dict[str, Any]) -> tuple[UUID, JobMessage | None]:
    wait = prefer_wait(services().config.max_wait_seconds) or 0
    return enqueue_job(kind, BACKBONE_URI, caller, options, wait, keyed=False)


def _refuse_unknown(peer: str | None) -> None:
    facts, _ = read_facts(services())
    if peer is not None and (peer == facts.name or not facts.table.is_member(peer)):
        raise NotFound(f"The backbone has no other member {peer!r}. `mdv peer list` lists them.")


def last_checks(s: Services) -> list[JobStatus]:
    """Return the last checks and repairs, newest first."""
    with s.single.connect() as connection:
        return backbone_check_jobs.last_checks(connection, CHECKS_SHOWN)


def check_progress(s: Services, job: str) -> dict[str, Any] | None:
    """Return how far a running check or repair is; None if it is not known."""
    status = read_replication(s)
    if status is None or status.check is None or status.check.job != job:
        return None
    return {"step": status.check.step, "done": status.check.done, "total": status.check.total}
