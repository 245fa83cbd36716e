"""The room of the pages: all of them, under one roof."""

from __future__ import annotations

from web.pages import browse, documents, jobs, like, lmrs, overview, query, register, resource, rules, schema, sign_in
from web.pages.frame import pages

PARTS = (overview, register, documents, browse, resource, like, query, rules, schema, lmrs, jobs, sign_in)
"""Each adds its pages when it is imported."""

__all__ = ["PARTS", "pages"]
