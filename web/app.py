"""The Flask application of an MDP."""

from __future__ import annotations

from flask import Flask

from mdv.config import Config
from mdv.db.engine import make_engine
from web.api import (
    backbone,
    backbone_checks,
    backbone_conflicts,
    documents,
    eca,
    eca_analysis,
    explain,
    federation,
    feed,
    filter,
    jobs,
    lmrs,
    processes,
    query,
    real,
    real_locks,
    real_plans,
    resources,
    rules,
    schema,
    search,
    status,
    tokens,
    update,
    webhooks,
)
from web.app_factory import make_app
from web.health import health
from web.page_base import configure_pages
from web.pages import blueprint
from web.services import Services, make_redis

ROUTE_GROUPS = [
    module.routes
    for module in (
        documents,
        update,
        resources,
        search,
        query,
        real,
        real_locks,
        processes,
        real_plans,
        schema,
        rules,
        eca,
        eca_analysis,
        lmrs,
        feed,
        webhooks,
        tokens,
        explain,
        filter,
        jobs,
        backbone,
        federation,
        backbone_conflicts,
        backbone_checks,
        status,
    )
]

NAV_ITEMS = [
    ("overview", "Overview"),
    ("register_form", "Register"),
    ("documents", "Documents"),
    ("browse", "Browse"),
    ("query", "Query"),
    ("rules", "Rules"),
    ("eca_rules", "Event rules"),
    ("programs", "Programs"),
    ("schema", "Schema"),
    ("lmrs", "LMRs"),
    ("jobs", "Jobs"),
    ("backbone", "Backbone"),
    ("federation", "Federation"),
    ("administration", "Admin"),
]
"""The navigation of the pages: endpoint and label."""


def _hidden_pages(app: Flask) -> set[str]:
    """Return the endpoints that the navigation leaves out: the backbone and the federation, if this MDP is in none."""
    services: Services = app.extensions["mdv"]
    hidden = set() if services.is_in_backbone() else {"backbone"}
    return hidden if services.is_in_federation() else hidden | {"federation"}


def create_app(config: Config, exits_if_restored: bool = False) -> Flask:
    """Return the Flask application of one MDP. `exits_if_restored`: see `make_engine`."""
    engine = make_engine(
        config.database_url, exits_if_restored=exits_if_restored, pool_size=32, max_overflow=16, pool_timeout=20,
        hide_parameters=True,
    )  # fmt: skip
    app = make_app(
        config, Services(config, engine, make_redis(config.redis_url)), ROUTE_GROUPS, health, blueprint.pages
    )
    configure_pages(app, config, place="MDV", nav=NAV_ITEMS, hidden_pages=lambda: _hidden_pages(app))
    return app
