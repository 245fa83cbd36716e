"""Queue a change as a job, once for each Idempotency-Key, and wait for its end if the caller wants to."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any
from uuid import UUID

from flask import Response, g, make_response, request
from psycopg.errors import UniqueViolation

from mdv.db.jobs import NOBODY_WAITS, PRIORITIES, SOMEBODY_WAITS, add_job, find_key
from mdv.errors import BadRequest, KeyReused, MdvError, TooMany
from web.auth import Caller
from web.services import services
from workers.signals import News

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
) -> tuple[UUID, News | None]:
    """The job, and its status, if that is known after at most `wait` seconds."""
    key = _idempotency_key() if keyed else None
    digest = hashlib.sha256(json.dumps([kind, uri, media_type, options], sort_keys=True).encode() + (body or b""))
    priority = _priority(request.headers.get("Priority"), SOMEBODY_WAITS if wait else NOBODY_WAITS)
    is_new = True
    try:
        with services().turns.turn():
            services().admission.check(caller.name, wait > 0, len(body or b""))
            with services().single.connect() as connection:
                job_id = add_job(
                    connection, kind, uri, caller.name, body, media_type, options, priority=priority,
                    request=g.request_id, idempotency_key=key, request_hash=digest.digest() if key else None,
                )  # fmt: skip
    except (UniqueViolation, TooMany):
        known = _job_of_key(caller, key, digest.digest())
        if known is None:
            raise
        job_id, is_new = known, False
    else:
        services().wake_for(kind)
    return job_id, services().wait_for_job(job_id, wait, is_new)


def lmr_uri(number: int) -> str:
    """What jobs about an LMR's rules are about."""
    return f"urn:mdv:lmr:{number}"


def accepted(job_id: UUID, uri: str, status: News | None) -> Response:
    """The answer to a change that has not been carried out yet."""
    state = status.state if status else "queued"
    response = make_response({"job": str(job_id), "state": state, "document": uri}, 202)
    response.headers["Location"] = f"/api/v1/jobs/{job_id}"
    return response


def carried_out(
    kind: str, uri: str, caller: Caller, options: dict[str, Any], body: bytes, media_type: str | None
) -> dict[str, Any] | Response:
    """What a change did, once a worker has carried it out; an answer where that takes too long."""
    wait = services().config.max_wait_seconds
    job_id, status = queue(kind, uri, caller, options, wait, body, media_type)
    if status is None or not has_ended(status):
        return accepted(job_id, uri, status)
    if status.problem is not None:
        raise MdvError.from_problem(status.problem)
    return dict(status.result or {})


def has_ended(status: News | None) -> bool:
    return status is not None and status.is_end


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


def _priority(header: str | None, default: int) -> int:
    """The urgency that a caller asks for (RFC 9218); what cannot be read is passed over, as the RFC wants it.

    >>> _priority("u=1", 3), _priority("i, u=7", 3), _priority("u=9", 3), _priority(None, 3), _priority("u=1, u=2", 3)
    (1, 7, 3, 3, 2)
    """
    found = re.findall(r"(?:^|,)\s*u=(\d)\s*(?:;[^,]*)?(?=,|$)", header or "")
    return int(found[-1]) if found and int(found[-1]) in PRIORITIES else default
