"""The room of an LMR's pages: all of them, under one roof."""

from __future__ import annotations

from web.lmr.pages import cache, local, overview, query, rules, sign_in, subscriptions
from web.lmr.pages.frame import pages

PARTS = (overview, cache, query, subscriptions, rules, local, sign_in)
"""Each adds its pages when it is imported."""

NAV = [("overview", "Overview"), ("cache", "Cache"), ("query", "Query"), ("subscriptions", "Subscriptions"),
       ("local", "Local")]  # fmt: skip
"""The rooms that every page leads to, by their endpoints, as far as they are there."""

__all__ = ["NAV", "PARTS", "pages"]
