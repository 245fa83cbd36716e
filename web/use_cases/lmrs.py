"""Change the rules of an LMR, and explain its content."""

from __future__ import annotations

import json
import time
from typing import Any

from sqlalchemy import Connection

from mdv.accounts.callers import Caller
from mdv.backbone.etag import TOKEN_CHARACTERS
from mdv.errors import BadRequest, Behind, Conflict, Unavailable
from mdv.inspect.explain_resource import explain_resource
from mdv.inspect.resource_reasons import ResourceExplanation
from mdv.mdp.jobs import lmr_uri
from mdv.mdp.lmrs import Lmr
from web.job_queue import FinishedJob, PendingJob, run_job
from web.models import AdoptionRequest
from web.negotiate import run_in_thread
from web.services import services

MAX_SUM_DIGITS = 20


def change_rules(kind: str, lmr: Lmr, options: dict[str, Any], by: str) -> FinishedJob | PendingJob:
    """Run a change of an LMR's rules as a job. `kind`: one of the kinds of `mdv.mdp.subscribe.RULE_JOBS`. `by`: the
    caller. Idempotency keys belong to the LMR, and not to the caller."""
    uri = lmr_uri(lmr.id)
    owner = Caller(uri, "lmr", lmr=lmr.id)
    body = run_in_thread(lambda: json.dumps(options).encode())
    return run_job(kind, uri, owner, {"lmr": lmr.id}, body, "application/json", by=by)


def adopt_lmr(lmr: Lmr, given: AdoptionRequest, by: str) -> dict[str, Any]:
    """Make this MDP the home of an LMR, once it has all changes that the LMR has. Return where the LMR continues."""
    s = services()
    if not all(text.isascii() and text.isdecimal() and len(text) <= MAX_SUM_DIGITS for text in given.buckets):
        raise BadRequest("`buckets` must be 256 numbers below 2^64, as texts: the checksum of the cache.")
    sums = list(map(int, given.buckets))
    _wait_for_vector(given)
    done = change_rules("adopt", lmr, {"term": given.term}, by)
    if isinstance(done, PendingJob):
        raise Unavailable("The rules of the LMR are still being activated. Try again shortly.")
    cursor, position, buckets = s.feeds.take_differences(lmr, sums)
    with s.single.connect() as connection:
        facts = s.replica.facts(connection)
    result = done.result | {"cursor": cursor, "position": position, "buckets": buckets}
    return result | {"home": facts.name if facts is not None else ""}


def _wait_for_vector(given: AdoptionRequest) -> None:
    """Wait until this MDP has all changes of an LMR. Raise `Behind` if it does not get them in time."""
    s = services()
    missing: dict[str, int] = {}

    def has_all(connection: Connection) -> bool:
        nonlocal missing
        facts = s.replica.facts(connection)
        if facts is None:
            raise Conflict("This MDP is in no backbone, so it cannot adopt an LMR.")
        missing = {life: seq for life, seq in given.vector.items() if facts.vector.get(life, 0) < seq}
        return given.accept_older or not missing

    deadline = time.monotonic() + min(given.wait, s.config.max_wait_seconds)
    if not s.log_notifier.wait_until(has_all, deadline):
        lives = ", ".join(f"{life[:TOKEN_CHARACTERS]} up to {seq}" for life, seq in sorted(missing.items())[:3])
        raise Behind(f"This MDP lacks changes that the LMR has: {lives}. Try again, or set accept_older.",
                     missing=missing)  # fmt: skip


def find_home_url(lmr: Lmr) -> str:
    """Return the URL of the member where an LMR is at home; nothing if that is here or unknown."""
    s = services()
    if lmr.home is None:
        return ""
    with s.single.connect() as connection:
        facts = s.replica.facts(connection)
    member = facts.table.members.get(lmr.home) if facts is not None else None
    return member.url if member is not None else ""


def explain_at_lmr(lmr: Lmr, uri: str) -> ResourceExplanation:
    """Explain why an LMR holds a resource or not."""
    s = services()
    with s.engine.connect() as connection:
        return explain_resource(connection, lmr.id, uri, s.provider)
