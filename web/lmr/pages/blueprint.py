"""The blueprint of all pages of an LMR."""

from __future__ import annotations

from web.lmr.pages import cache, local, overview, query, rules, search, sign_in, subscriptions
from web.lmr.pages.base import pages

PARTS = (overview, cache, search, query, subscriptions, rules, local, sign_in)
"""Importing a module adds its pages to the blueprint."""

NAV = [("overview", "Overview"), ("cache", "Cache"), ("query", "Query"), ("subscriptions", "Subscriptions"),
       ("local", "Local")]  # fmt: skip
"""The navigation of the pages: endpoint and label."""

__all__ = ["NAV", "PARTS", "pages"]
