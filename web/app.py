"""The application of an MDP: its parts put together."""

from __future__ import annotations

from flask import Flask

from mdv.config import Config
from mdv.db.engine import make_engine
from web.api import documents, feed, filter, jobs, lmrs, query, resources, rules, schema, status, webhooks, why
from web.assemble import assemble
from web.frame import furnish
from web.health import health
from web.pages import room
from web.services import Services, make_redis

NOUNS = [
    noun.calls for noun in (documents, resources, query, schema, rules, lmrs, feed, webhooks, why, filter, jobs, status)
]

NAV = [("overview", "Overview"), ("register_form", "Register"), ("documents", "Documents"), ("browse", "Browse"),
       ("query", "Query"), ("rules", "Rules"), ("schema", "Schema"), ("lmrs", "LMRs"), ("jobs", "Jobs")]  # fmt: skip
"""The rooms that every page leads to, by their endpoints."""


def create_app(config: Config) -> Flask:
    """The web server of one MDP."""
    engine = make_engine(config.database_url, pool_size=32, max_overflow=16, pool_timeout=20, hide_parameters=True)
    app = assemble(config, Services(config, engine, make_redis(config.redis_url)), NOUNS, health, room.pages)
    furnish(app, config, place="MDV", nav=NAV)
    return app
