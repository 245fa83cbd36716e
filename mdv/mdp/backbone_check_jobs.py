"""Run the checks and repairs of a backbone as jobs, and queue a check every hour. Part of `mdv replicate`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy import Connection, Engine

from mdv.backbone.kinds import SET_KINDS
from mdv.backbone.messages import TransferredDocument
from mdv.backbone.replica_store import MemberFacts
from mdv.db.jobs import PRIORITY_BACKGROUND, Job, JobOutcome, JobQueue, JobStatus, add_job, claim_jobs, finish_jobs
from mdv.db.replica.checks import list_checks, seconds_since_check
from mdv.db.replica.keys import read_private_key
from mdv.errors import MdvError, NotFound, Unavailable
from mdv.mdp.backbone_checks import BackboneCheck, CheckResult
from mdv.mdp.replica import Replica
from mdv.replication.link_status import CheckProgress
from mdv.replication.member_url import check_member_url
from mdv.replication.peer_client import PeerClient

log = structlog.get_logger()

BACKBONE_URI = "urn:mdv:backbone"
"""What the jobs of the backbone are about."""
CALLER = "mdv replicate"
POLL_SECONDS = 1.0
FIRST_CHECK_SECONDS = 60.0
"""A check that is due after a start waits this long, so that the members can catch up first."""


@dataclass
class CheckRunner:
    """Runs jobs in a thread of its own. `turn`: calls of the member are made one at a time. `interval`: seconds between
    scheduled checks; 0: there are none."""

    engine: Engine
    replica: Replica
    turn: threading.Lock
    interval: float
    allows_plain: bool
    progress: CheckProgress | None = None

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._next = time.monotonic() + min(self.interval, FIRST_CHECK_SECONDS)
        self._thread = threading.Thread(target=self._run, name="checks", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._stop.is_set()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            try:
                self._schedule()
                while self._run_next() and not self._stop.is_set():
                    """There may be more jobs."""
            except Exception as error:  # the database is away; the next round tries again
                log.warning("checks of the backbone are interrupted", reason=str(error).partition("\n")[0][:300])

    def _schedule(self) -> None:
        """Queue a check, if the last one was long enough ago."""
        now = time.monotonic()
        if not self.interval or now < self._next:
            return
        with self.engine.begin() as connection:
            since = seconds_since_check(connection)
            is_due = since is None or since >= self.interval
            self._next = now + (self.interval if since is None or is_due else self.interval - since)
            if is_due:
                options = {"scheduled": True, "deep": True, "mend": True, "by": CALLER}
                add_job(connection, "verify", BACKBONE_URI, CALLER, options=options, priority=PRIORITY_BACKGROUND)

    def _run_next(self) -> bool:
        """Run the next job. Return False if there is none."""
        with self.engine.begin() as connection:
            jobs = claim_jobs(connection, 1, JobQueue.BACKBONE)
            outcomes = [self._outcome(job) for job in jobs]
            finish_jobs(connection, outcomes)
        return bool(outcomes)

    def _outcome(self, job: Job) -> JobOutcome:
        def report(step: str, done: int, total: int) -> None:
            if self._stop.is_set():
                raise Unavailable("The process that checks is stopping.")
            self.progress = CheckProgress(str(job.id), step, done, total)

        report("begin", 0, 0)
        try:
            result = self._check(job, report)
        except MdvError as error:
            if self._stop.is_set():
                raise
            return JobOutcome(job, None, error.problem())
        finally:
            self.progress = None
        log.info("backbone checked", kind=job.kind, differing=len(result.diverged), damaged=len(result.damaged),
                 repaired=len(result.repaired), undecided=len(result.undecided), seconds=result.seconds)  # fmt: skip
        return JobOutcome(job, result.as_dict(), None)

    def _check(self, job: Job, report: Callable[[str, int, int], object]) -> CheckResult:
        options = job.options
        name = options.get("from") or options.get("peer")
        with self.engine.connect() as connection:
            facts, mode = self.replica.facts(connection), self.replica.mode(connection)
            key = read_private_key(connection)
        if facts is None or mode is None or key is None:
            raise NotFound("This MDP is in no backbone.")
        kind = SET_KINDS[mode]
        with ExitStack() as stack:
            peers: dict[str, PeerClient] = {}
            for other, url in _urls(facts, name).items():
                client = PeerClient(check_member_url(url, self.allows_plain), facts.name, key, kind)
                stack.callback(client.close)
                peers[other] = client
            check = BackboneCheck(self.replica, self.engine, peers, report, self._repair)
            result = check.run(bool(options.get("deep")), options.get("documents"))
            if name is not None and name in result.unreachable:
                raise Unavailable(f"{name} does not answer: {result.unreachable[name]}")
            self._note(result)
            if job.kind == "repair":
                check.take_all(str(name), kind)
            elif options.get("mend"):
                check.mend(kind, len(facts.table.active()))
            is_complete = set(peers) == set(_urls(facts, None)) and not result.unreachable and not result.pending
            self._note_open(result, bool(options.get("mend")), is_complete and bool(options.get("deep")))
        return result

    def _repair(
        self, documents: Sequence[TransferredDocument], seen: Mapping[str, int], is_restoration: bool
    ) -> list[str]:
        with self.turn:
            return self.replica.repair(documents, seen, is_restoration)

    def _note(self, result: CheckResult) -> None:
        """Count the documents that have diverged."""
        found = {*result.diverged, *result.damaged}
        with self.turn, self.replica.member() as member:
            member.store.facts.note_diverged(found)

    def _note_open(self, result: CheckResult, was_mended: bool, is_complete: bool) -> None:
        """Remember the documents that still differ. `was_mended`: those that this member must not repair are up to
        others. `is_complete`: all rows were checked and all members compared."""
        differing = result.undecided if was_mended else {*result.diverged, *result.damaged}
        open_ = set(differing) - set(result.repaired)
        with self.turn, self.replica.member() as member:
            facts = member.store.facts
            facts.diverged = open_ if is_complete else (facts.diverged | open_) - set(result.repaired)


def last_checks(connection: Connection, most: int) -> list[JobStatus]:
    """Return the last checks and repairs, newest first."""
    return list_checks(connection, most)


def _urls(facts: MemberFacts, name: str | None) -> dict[str, Any]:
    """Return the URLs of the members to be compared with: one, or all others."""
    urls = {other: member.url for other, member in facts.table.members.items()
            if other != facts.name and member.current and not member.is_removed}  # fmt: skip
    if name is None:
        return urls
    if name not in urls:
        raise NotFound(f"The backbone has no other active member {name!r}. `mdv peer list` lists them.")
    return {name: urls[name]}
