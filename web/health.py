"""Liveness, readiness and metrics of an MDP. These calls need no token."""

from __future__ import annotations

from typing import Any

import redis
from flask import Blueprint, Response
from prometheus_client import CONTENT_TYPE_LATEST

from mdv.inspect.readiness import READY, read_database_state
from web.metrics import render_metrics
from web.services import services
from web.use_cases.backbone import read_replication

health = Blueprint("health", __name__)


@health.get("/healthz")
def healthz() -> dict[str, str]:
    """Return 200 if the process is alive."""
    return {"status": "alive"}


@health.get("/readyz")
def readyz() -> tuple[dict[str, Any], int]:
    """Return 200 if the database is available and migrated. Redis is reported but not required."""
    database = read_database_state(services().engine)
    try:
        services().redis.ping()
        queue = "ready"
    except redis.RedisError:
        queue = "away"
    ready = database == READY
    return {"status": "ready" if ready else "not ready", "database": database, "redis": queue}, 200 if ready else 503


@health.get("/metrics")
def metrics() -> Response:
    s = services()
    text = render_metrics(s.engine, s.redis, s.replica, read_replication(s))
    return Response(text, content_type=CONTENT_TYPE_LATEST)
