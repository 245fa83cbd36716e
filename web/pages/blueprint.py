"""The blueprint of all pages of an MDP."""

from __future__ import annotations

from web.pages import (
    browse,
    documents,
    eca_editor,
    eca_graph,
    eca_rules,
    eca_runs,
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
    eca_rules,
    eca_editor,
    eca_graph,
    eca_runs,
    schema,
    lmrs,
    jobs,
    sign_in,
)
"""Importing a module adds its pages to the blueprint."""

__all__ = ["PARTS", "pages"]
