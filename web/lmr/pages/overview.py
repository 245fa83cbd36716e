"""The overview of an LMR: whether its cache is current, what is in it, and whether that is right."""

from __future__ import annotations

from typing import Any

from flask import Response

from mdv.lmr.collect import check as check_cache
from web.lmr.acts import compare_with_mdp
from web.lmr.pages.frame import editor, is_part, may_change, page, pages, part, visitor
from web.lmr.services import lmr

MOST_PROBLEMS = 100
"""Of what is wrong with a cache, so much is shown."""


@pages.get("/")
def overview() -> Response:
    visitor()
    return page("lmr_own_overview.html", **_now(), may_change=may_change())


@pages.get("/overview/now")
def overview_now() -> Response:
    """The part of the overview that is fetched anew every few seconds."""
    visitor()
    return part("lmr_own_overview_now.html", **_now())


def _now() -> dict[str, Any]:
    s = lmr()
    return {
        "now": s.sync.status,
        "counts": s.counter.counts(),
        "mdp": s.mdp.url,
        "told": s.told(),
        "has_begun": s.has_begun,
    }


@pages.post("/verify")
def verify() -> Response:
    """Compare with the MDP's checksum: what differs is fetched again."""
    editor()
    return _found(verified=compare_with_mdp())


@pages.post("/check")
def check() -> Response:
    """Whether exactly that is here which should be."""
    editor()
    problems = check_cache(lmr().cache)
    return _found(problems=problems[:MOST_PROBLEMS], more=len(problems) - MOST_PROBLEMS)


def _found(**values: Any) -> Response:
    if is_part():
        return part("lmr_own_checked_part.html", **values)
    return page("lmr_own_checked.html", **values)
