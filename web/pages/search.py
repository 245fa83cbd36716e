"""The results page of the search box."""

from __future__ import annotations

from flask import Response

from web.pages.base import pages, require_viewer
from web.search_view import search_page
from web.use_cases.search import run_search


@pages.get("/search")
def search() -> Response:
    require_viewer()
    return search_page(run_search)
