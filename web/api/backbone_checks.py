"""/backbone/verify, /backbone/repair: compare documents with those of other members, and replace some of them."""

from __future__ import annotations

from typing import Any

from flask import Response

from mdv.errors import MdvError
from web.auth import require_unlimited_admin
from web.job_queue import PendingJob, accepted_response, has_ended
from web.json_bodies import describe_json_body, read_json_body
from web.models import Accepted, BackboneRepair, BackboneVerification
from web.openapi import PREFER, describe_json, describe_problems, object_schema
from web.routing import RouteGroup
from web.use_cases.backbone_checks import queue_repair, queue_verification

routes = RouteGroup("checks", "Compare the documents of members of a backbone, and repair them")

_RESULT = object_schema(differing="integer", documents="array", pending="integer", repairs="integer", seconds="number")
_REPAIR = {"from": "m2", "documents": ["http://example.org/d"]}


@routes.route("POST", "/backbone/verify", "Compare documents with those of a member",
              {200: describe_json(_RESULT, "What was found"), 202: Accepted} | describe_problems(404, 409, 413, 415),
              headers=(PREFER,),
              body=describe_json_body(BackboneVerification, {"peer": "m2", "deep": True}))  # fmt: skip
def verify() -> Response | dict[str, Any]:
    """Finds documents that differ although nothing is pending, and with `deep` documents whose rows were changed from
    outside. Changes nothing. `mdv replicate` runs it: the answer is 202 with a job, which shows the progress, or with
    `Prefer: wait=SECONDS` the result."""
    caller = require_unlimited_admin()
    given = read_json_body(BackboneVerification)
    return _answer(*queue_verification(caller, given.peer, given.deep))


@routes.route("POST", "/backbone/repair", "Replace documents by those of a member",
              {200: describe_json(_RESULT, "What was found"), 202: Accepted} | describe_problems(404, 409, 413, 415),
              headers=(PREFER,),
              body=describe_json_body(BackboneRepair, _REPAIR))  # fmt: skip
def repair() -> Response | dict[str, Any]:
    """Replaces documents of this MDP that differ from those of a member, or only those that are named. Equal documents
    stay. Rules and LMRs are notified of what changes. Answers as `POST /backbone/verify` does."""
    caller = require_unlimited_admin()
    given = read_json_body(BackboneRepair)
    return _answer(*queue_repair(caller, given.from_, given.documents))


def _answer(job: Any, status: Any) -> Response | dict[str, Any]:
    if status is None or not has_ended(status):
        return accepted_response(PendingJob(job, "urn:mdv:backbone", status))
    if status.problem is not None:
        raise MdvError.from_problem(status.problem)
    return dict(status.result or {})
