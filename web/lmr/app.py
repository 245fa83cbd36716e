"""The application of an LMR: its parts put together."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Flask, Response
from prometheus_client import CONTENT_TYPE_LATEST, Gauge, generate_latest
from sqlalchemy.exc import SQLAlchemyError

from mdv.config import Config
from mdv.lmr.mdp import Mdp
from mdv.lmr.store import Cache
from mdv.lmr.sync import Sync
from web.assemble import assemble
from web.lmr.api import NOUNS
from web.lmr.bodies import BodiesInTime
from web.lmr.services import LmrServices, lmr
from web.metrics import REGISTRY

health = Blueprint("health", __name__)

POSITION = Gauge("mdv_lmr_position", "The MDP's position up to which all is in the cache", registry=REGISTRY)
UP_TO_DATE = Gauge("mdv_lmr_up_to_date", "Whether the cache had all at its last contact", registry=REGISTRY)


def create_lmr_app(config: Config) -> Flask:
    """The web server of one LMR, which begins to keep its cache current."""
    cache = Cache.open(config.lmr_store)
    mdp = Mdp(config.mdp_url, config.lmr_token)
    services = LmrServices(config, cache, mdp, Sync(cache, mdp))
    app = assemble(config, services, NOUNS, health)
    app.wsgi_app = BodiesInTime(app.wsgi_app, config.body_seconds)  # type: ignore[method-assign]
    services.start()
    return app


@health.get("/healthz")
def healthz() -> dict[str, str]:
    """This process answers."""
    return {"status": "alive"}


@health.get("/readyz")
def readyz() -> tuple[dict[str, Any], int]:
    """The cache can be read, and was filled once. The MDP is told of and not needed after that."""
    status = lmr().sync.status
    mdp = "away" if status.last_error else "ready" if status.last_contact else "not asked yet"
    try:
        lmr().cache.state()
    except SQLAlchemyError:
        return {"status": "not ready", "cache": "away", "mdp": mdp}, 503
    if not lmr().has_begun:
        return {"status": "not ready", "cache": "waiting for its first snapshot", "mdp": mdp}, 503
    return {"status": "ready", "cache": "ready", "mdp": mdp, "up_to_date": status.up_to_date}, 200


@health.get("/metrics")
def metrics() -> Response:
    status = lmr().sync.status
    POSITION.set(status.position)
    UP_TO_DATE.set(status.up_to_date)
    return Response(generate_latest(REGISTRY), content_type=CONTENT_TYPE_LATEST)
