"""The results page of the search box."""

from __future__ import annotations

from flask import Response

from web.lmr.pages.base import pages, require_viewer
from web.lmr.search import run_cache_search
from web.search_view import search_page


@pages.get("/search")
def search() -> Response:
    require_viewer()
    return search_page(run_cache_search)
