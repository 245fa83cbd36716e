"""Job pages: list, details, retry of dead letters."""

from __future__ import annotations

from flask import Response, request, url_for

from mdv.inspect.sql.jobs import list_jobs, read_lmr_names_of_jobs
from web.number_params import read_after
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
    require_viewer()
    state = request.args.get("state", "")
    state = state if state in dict(STATES) else ""
    before = read_after(request.args.get("after"))
    with services().single.connect() as connection:
        found = list_jobs(connection, state or None, before, PAGE_SIZE + 1)
        names = read_lmr_names_of_jobs(connection, found)
    more = url_for("pages.jobs", state=state, after=found[PAGE_SIZE - 1].number) if len(found) > PAGE_SIZE else None
    return render_page("jobs.html", jobs=found[:PAGE_SIZE], lmr_names=names, states=STATES, state=state, more=more)


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
