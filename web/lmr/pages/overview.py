"""The overview page of an LMR: progress, sizes, verification of the cache."""

from __future__ import annotations

from typing import Any

from flask import Response

from mdv.inspect.sql.cache import read_suspended_rules
from mdv.lmr.garbage_collector import find_problems as check_cache
from web.lmr.actions import compare_with_mdp
from web.lmr.pages.base import (
    is_fragment_request,
    may_change,
    pages,
    render_fragment,
    render_page,
    require_editor,
    require_viewer,
)
from web.lmr.services import lmr

MAX_SUSPENDED_SHOWN = 20
"""Maximum number of suspended rules that are listed."""
MAX_PROBLEMS_SHOWN = 100
"""Maximum number of inconsistencies that are shown."""


@pages.get("/")
def overview() -> Response:
    require_viewer()
    return render_page("lmr_own_overview.html", **_current_values(), may_change=may_change())


@pages.get("/overview/now")
def overview_now() -> Response:
    """Return the fragment of the overview that is refreshed every few seconds."""
    require_viewer()
    return render_fragment("lmr_own_overview_now.html", **_current_values())


def _current_values() -> dict[str, Any]:
    s = lmr()
    with s.cache.reading() as connection:
        suspended = read_suspended_rules(connection, MAX_SUSPENDED_SHOWN)
    return {
        "suspended": suspended,
        "now": s.sync.status,
        "counts": s.counter.counts(),
        "mdp": s.mdp.url,
        "mdps": s.homes.urls,
        "home": s.cache.home(),
        "info": s.mdp_info(),
        "has_snapshot": s.has_snapshot,
    }


@pages.post("/verify")
def verify() -> Response:
    """Compare checksums with the MDP and fetch differing buckets again."""
    require_editor()
    response = _render_result(verified=compare_with_mdp())
    response.headers["HX-Trigger"] = "verified"  # refreshes the progress above, which shows the time of the comparison
    return response


@pages.post("/check")
def check() -> Response:
    """Check the consistency of the cache."""
    require_editor()
    problems = check_cache(lmr().cache)
    return _render_result(problems=problems[:MAX_PROBLEMS_SHOWN], more=len(problems) - MAX_PROBLEMS_SHOWN)


def _render_result(**values: Any) -> Response:
    if is_fragment_request():
        return render_fragment("lmr_own_checked_part.html", **values)
    return render_page("lmr_own_checked.html", **values)
