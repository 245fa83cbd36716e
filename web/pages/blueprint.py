"""The blueprint of all pages of an MDP."""

from __future__ import annotations

from web.pages import (
    batches,
    browse,
    documents,
    jobs,
    lmrs,
    overview,
    provider_rules,
    query,
    register,
    resource,
    rules,
    schema,
    search,
    sign_in,
    similar,
)
from web.pages.base import pages

PARTS = (
    overview,
    register,
    documents,
    browse,
    search,
    resource,
    similar,
    query,
    rules,
    provider_rules,
    schema,
    lmrs,
    jobs,
    batches,
    sign_in,
)
"""Importing a module adds its pages to the blueprint."""

__all__ = ["PARTS", "pages"]
