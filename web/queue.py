"""Queue a change as a job, once for each Idempotency-Key, and wait for its end if the caller wants to."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any
from uuid import UUID

from flask import Response, make_response, request
from sqlalchemy.exc import IntegrityError

from mdv.db.jobs import RULE_KINDS, JobStatus, add_job, find_key
from mdv.errors import BadRequest, KeyReused
from web.auth import Caller
from web.services import services

_KEY = re.compile(r"[\x20-\x7e]{1,255}")


def queue(
    kind: str,
    uri: str,
    caller: Caller,
    options: dict[str, Any],
    wait: float,
    body: bytes | None = None,
    media_type: str | None = None,
    keyed: bool = True,
) -> tuple[UUID, JobStatus | None]:
    """The job, and its status, if that is known after at most `wait` seconds."""
    key = _idempotency_key() if keyed else None
    digest = hashlib.sha256(json.dumps([kind, uri, media_type, options], sort_keys=True).encode() + (body or b""))
    job_id = _job_of_key(caller, key, digest.digest())
    is_new = job_id is None
    if job_id is None:
        job_id = _add(kind, uri, caller, body, media_type, options, key, digest.digest())
        services().wake_worker("mdv.rules" if kind in RULE_KINDS else "mdv.work")
    return job_id, services().wait_for_job(job_id, wait, is_new)


def lmr_uri(number: int) -> str:
    """What jobs about an LMR's rules are about."""
    return f"urn:mdv:lmr:{number}"


def accepted(job_id: UUID, uri: str, status: JobStatus | None) -> Response:
    """The answer to a change that has not been carried out yet."""
    state = status.state if status else "queued"
    response = make_response({"job": str(job_id), "state": state, "document": uri}, 202)
    response.headers["Location"] = f"/api/v1/jobs/{job_id}"
    return response


def has_ended(status: JobStatus | None) -> bool:
    return status is not None and status.state in ("done", "failed")


def _add(
    kind: str, uri: str, caller: Caller, body: bytes | None, media_type: str | None, options: dict[str, Any],
    key: str | None, digest: bytes,
) -> UUID:  # fmt: skip
    try:
        with services().single.connect() as connection:
            return add_job(connection, kind, uri, caller.name, body, media_type, options, key, digest if key else None)
    except IntegrityError:
        # Another request with this key came in between.
        job_id = _job_of_key(caller, key, digest)
        if job_id is None:
            raise
        return job_id


def _job_of_key(caller: Caller, key: str | None, digest: bytes) -> UUID | None:
    if key is None:
        return None
    with services().single.connect() as connection:
        found = find_key(connection, caller.name, key)
    if found is None:
        return None
    job_id, known = found
    if known != digest:
        raise KeyReused()
    return job_id


def _idempotency_key() -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is not None and not _KEY.fullmatch(key):
        raise BadRequest("An Idempotency-Key has 1 to 255 printable ASCII characters.")
    return key
