"""Job pages: list, details, retry of dead letters."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flask import Response, request, url_for

from mdv.inspect.sql.jobs import (
    BurstKey,
    list_failed_jobs,
    list_jobs,
    list_jobs_of_burst,
    read_lmr_names_of_jobs,
)
from mdv.inspect.sql.minute_metrics import TIME_RANGES
from web.number_params import read_after, read_job_number
from web.pages.base import pages, redirect_to, render_page, require_unlimited_editor, require_viewer
from web.services import services
from web.use_cases.jobs import find_job, retry_dead_letter

STATES = (
    ("", "All"),
    ("queued", "Waiting"),
    ("done", "Done"),
    ("failed", "Failed"),
    ("dead", "Dead letters"),
)
PAGE_SIZE = 50


@pages.get("/jobs")
def jobs() -> Response:
    """List jobs, newest first: all, those of a burst, or those that failed in a time range."""
    require_viewer()
    state = request.args.get("state", "")
    state = state if state in dict(STATES) else ""
    before = read_after(request.args.get("after"))
    burst = _burst()
    range_ = TIME_RANGES.get(request.args.get("range", "")) if state == "failed" and burst is None else None
    with services().single.connect() as connection:
        if burst is not None:
            found = list_jobs_of_burst(connection, burst, state or None, before, PAGE_SIZE + 1)
        elif range_ is not None:
            found = list_failed_jobs(connection, range_.seconds, before, PAGE_SIZE + 1)
        else:
            found = list_jobs(connection, state or None, before, PAGE_SIZE + 1)
        names = read_lmr_names_of_jobs(connection, found)
    shown = {"range": range_.name if range_ else None} | (_burst_parameters(burst) if burst else {})
    more = None
    if len(found) > PAGE_SIZE:
        more = url_for("pages.jobs", **shown, state=state or None, after=found[PAGE_SIZE - 1].number)
    return render_page(
        "jobs.html",
        jobs=found[:PAGE_SIZE],
        lmr_names=names,
        states=STATES,
        state=state,
        more=more,
        burst=burst,
        burst_parameters=_burst_parameters(burst) if burst else {},
        time_range=range_,
        ranges=TIME_RANGES,
    )


def _burst() -> BurstKey | None:
    """Return the burst of the request, if it names one."""
    given = request.args
    if not {"kind", "by", "first", "last"} <= given.keys():
        return None
    first, last = read_job_number(given["first"]), read_job_number(given["last"])
    return BurstKey(given["kind"], given["by"], "dry_run" in given, first, last)


def _burst_parameters(burst: BurstKey) -> dict[str, Any]:
    return asdict(burst) | {"dry_run": 1 if burst.dry_run else None}


@pages.get("/jobs/<job>")
def job(job: str) -> Response:
    require_viewer()
    found = find_job(job)
    with services().single.connect() as connection:
        return render_page("job.html", job=found, lmr_names=read_lmr_names_of_jobs(connection, [found]))


@pages.post("/jobs/<job>/retry")
def retry_job(job: str) -> Response:
    require_unlimited_editor()
    retry_dead_letter(job)
    return redirect_to("job", job=job)
