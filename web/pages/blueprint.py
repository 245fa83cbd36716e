"""The blueprint of all pages of an MDP."""

from __future__ import annotations

from web.pages import (
    admin,
    admin_rules,
    admin_tokens,
    admin_users,
    admin_webhooks,
    backbone,
    batches,
    browse,
    documents,
    eca_editor,
    eca_graph,
    eca_rules,
    eca_runs,
    jobs,
    lmrs,
    overview,
    processes,
    programs,
    provider_rules,
    query,
    real_actions,
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
    programs,
    processes,
    real_actions,
    schema,
    lmrs,
    jobs,
    batches,
    backbone,
    sign_in,
    admin,
    admin_users,
    admin_tokens,
    admin_webhooks,
    admin_rules,
)
"""Importing a module adds its pages to the blueprint."""

__all__ = ["PARTS", "pages"]
