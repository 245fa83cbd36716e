"""Jobs: what waits, what was refused and why, and another try for what failed by no fault of its own."""

from __future__ import annotations

from collections.abc import Sequence

from flask import Response, request, url_for
from sqlalchemy import Connection

from mdv.db.jobs import NEWEST, JobStatus, list_jobs
from mdv.db.lmrs import names_of
from web.api.jobs import find_job, retry_dead
from web.numbers import after_number
from web.pages.frame import go, page, pages, visitor, whole_editor
from web.queue import lmr_uri
from web.services import services

STATES = (
    ("", "All"),
    ("queued", "Waiting"),
    ("done", "Done"),
    ("failed", "Refused or failed"),
    ("dead", "Dead letters"),
)
ON_A_PAGE = 50


@pages.get("/jobs")
def jobs() -> Response:
    visitor()
    state = request.args.get("state", "")
    state = state if state in dict(STATES) else ""
    before = after_number(request.args.get("after")) or NEWEST
    with services().single.connect() as connection:
        found = list_jobs(connection, state or None, before, ON_A_PAGE + 1)
        names = lmr_names(connection, found)
    more = url_for("pages.jobs", state=state, after=found[ON_A_PAGE - 1].number) if len(found) > ON_A_PAGE else None
    return page("jobs.html", jobs=found[:ON_A_PAGE], lmr_names=names, states=STATES, state=state, more=more)


@pages.get("/jobs/<job>")
def job(job: str) -> Response:
    visitor()
    found = find_job(job)
    with services().single.connect() as connection:
        return page("job.html", job=found, lmr_names=lmr_names(connection, [found]))


def lmr_names(connection: Connection, jobs: Sequence[JobStatus]) -> dict[str, str]:
    """The names of the LMRs that jobs are about, as far as they are there still, by what jobs call them."""
    wanted = {job.uri.rpartition(":")[2] for job in jobs if job.uri.startswith(lmr_uri(0)[:-1])}
    return {lmr_uri(number): name for number, name in names_of(connection, map(int, wanted)).items()}


@pages.post("/jobs/<job>/retry")
def retry_job(job: str) -> Response:
    whole_editor()
    retry_dead(job)
    return go("job", job=job)
