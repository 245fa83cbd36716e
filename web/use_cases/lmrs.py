"""Change the rules of an LMR, and explain its content."""

from __future__ import annotations

import json
from typing import Any

from mdv.accounts.callers import Caller
from mdv.inspect.explain_resource import explain_resource
from mdv.inspect.resource_reasons import ResourceExplanation
from mdv.mdp.jobs import lmr_uri
from mdv.mdp.lmrs import Lmr
from web.job_queue import FinishedJob, PendingJob, run_job
from web.negotiate import run_in_thread
from web.services import services


def change_rules(kind: str, lmr: Lmr, options: dict[str, Any], by: str) -> FinishedJob | PendingJob:
    """Run a change of an LMR's rules as a job. `kind`: one of the kinds of `mdv.mdp.subscribe.RULE_JOBS`. `by`: the
    caller. Idempotency keys belong to the LMR, and not to the caller."""
    uri = lmr_uri(lmr.id)
    owner = Caller(uri, "lmr", lmr=lmr.id)
    body = run_in_thread(lambda: json.dumps(options).encode())
    return run_job(kind, uri, owner, {"lmr": lmr.id}, body, "application/json", by=by)


def explain_at_lmr(lmr: Lmr, uri: str) -> ResourceExplanation:
    """Explain why an LMR holds a resource or not."""
    s = services()
    with s.engine.connect() as connection:
        return explain_resource(connection, lmr.id, uri, s.provider)
