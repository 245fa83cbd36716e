"""The page of checks and repairs of the backbone: start one, and see its progress and what it has found."""

from __future__ import annotations

from flask import Response, request

from web.pages.backbone import may_change_members
from web.pages.base import pages, redirect_to, render_page, require_unlimited_editor, require_viewer
from web.services import services
from web.use_cases.backbone import describe_backbone, find_facts
from web.use_cases.backbone_checks import check_progress, last_checks, queue_repair, queue_verification


@pages.get("/backbone/checks")
def checks() -> Response:
    """Show the last checks and repairs."""
    require_viewer()
    s = services()
    if find_facts(s) is None:
        return render_page("backbone.html", backbone=None)
    jobs = last_checks(s)
    progress = {str(job.id): check_progress(s, str(job.id)) for job in jobs if job.ended_at is None}
    return render_page(
        "checks.html", backbone=describe_backbone(s), jobs=jobs, progress=progress, runs=bool(progress),
        may_change=may_change_members(),
    )  # fmt: skip


@pages.post("/backbone/checks")
def verify() -> Response:
    """Start a check."""
    caller = require_unlimited_editor()
    queue_verification(caller, request.form.get("peer") or None, request.form.get("deep") == "true")
    return redirect_to("checks")


@pages.post("/backbone/repairs")
def repair() -> Response:
    """Take the documents of a member, where they differ."""
    caller = require_unlimited_editor()
    queue_repair(caller, request.form.get("peer", ""), request.form.getlist("document") or None)
    return redirect_to("checks")
