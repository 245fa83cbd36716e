"""Whether the server lives, whether it can serve, and its figures: open to everybody."""

from __future__ import annotations

from typing import Any

import redis
from flask import Blueprint, Response
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy.exc import SQLAlchemyError

from mdv.db.migrate import is_migrated
from web.metrics import render_metrics
from web.services import services

health = Blueprint("health", __name__)


@health.get("/healthz")
def healthz() -> dict[str, str]:
    """This process answers."""
    return {"status": "alive"}


@health.get("/readyz")
def readyz() -> tuple[dict[str, Any], int]:
    """The database answers and has this version's tables. Redis is told of and not needed: it only saves time."""
    try:
        with services().engine.connect() as connection:
            database = "ready" if is_migrated(connection) else "not migrated: run `mdv migrate`"
    except SQLAlchemyError:
        database = "away"
    try:
        services().redis.ping()
        queue = "ready"
    except redis.RedisError:
        queue = "away"
    ready = database == "ready"
    return {"status": "ready" if ready else "not ready", "database": database, "redis": queue}, 200 if ready else 503


@health.get("/metrics")
def metrics() -> Response:
    return Response(render_metrics(services().engine), content_type=CONTENT_TYPE_LATEST)
