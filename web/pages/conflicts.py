"""The pages of conflicts: the values side by side with their origins, and a choice."""

from __future__ import annotations

import json
from typing import Any

from flask import Response, request, url_for

from mdv.accounts.callers import check_may_write
from mdv.backbone.conflicts import MERGED, resolve_conflict
from mdv.errors import BadRequest, MdvError
from mdv.mdp.backbone_conflicts import value_origins
from mdv.model import Term
from mdv.rdf.term_json import read_term
from web.json_bodies import JSON
from web.pages.base import pages, redirect_to, render_page, require_editor, require_viewer, session
from web.pages.changes import change_document
from web.services import services
from web.use_cases.backbone import find_facts
from web.use_cases.conflicts import change_of, find_open_conflict

PAGE_SIZE = 20
NOTHING = "nothing"


@pages.get("/backbone/conflicts")
def conflicts() -> Response:
    """Show open conflicts, or those of a document, with the origins of their values."""
    require_viewer()
    return _render()


@pages.post("/backbone/conflicts/<conflict>")
def resolve(conflict: str) -> Response:
    """Keep the chosen value of a conflict, and no other."""
    caller = require_editor()
    try:
        found = find_open_conflict(services(), conflict)
        check_may_write(caller, found.document)
        resolution = resolve_conflict(found, _chosen())
        kind, body = change_of(resolution)
        confirms = resolution.is_confirmation
        change_document(kind, found.document, caller, body, JSON if body else None, confirms=confirms)
    except MdvError as error:
        return _render(error.problem())
    return redirect_to("conflicts", document=request.form.get("document") or None)


def _chosen() -> list[Term]:
    """Return the values that the form keeps: one as JSON, or none."""
    choice = request.form.get("keep", "")
    if choice == NOTHING:
        return []
    try:
        given = json.loads(choice)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise BadRequest("Choose the value to be kept.")
    return [read_term(given)]


def _render(problem: dict[str, Any] | None = None) -> Response:
    s = services()
    if find_facts(s) is None:
        return render_page("backbone.html", backbone=None)
    document, after = request.values.get("document", ""), request.args.get("after", "")
    with s.snapshot() as connection:
        found, more = s.replica.conflict_page(connection, after, PAGE_SIZE, document or None)
        origins = value_origins(s.replica, connection, found)
    user = session()
    page = render_page(
        "conflicts.html", conflicts=[one for one in found if one.kind != MERGED],
        merged=[one for one in found if one.kind == MERGED], origins=origins, document=document, problem=problem,
        may_change=user is not None and user.role == "admin", nothing=NOTHING,
        more=url_for("pages.conflicts", after=more) if more else None,
    )  # fmt: skip
    page.status_code = problem["status"] if problem else 200
    return page
