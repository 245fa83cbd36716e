"""The application of an LMR: its parts put together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Flask, Response
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from mdv.config import Config
from mdv.figures import REQUEST_SECONDS, REQUESTS, render_only
from mdv.lmr.mdp import Mdp
from mdv.lmr.store import Cache
from mdv.lmr.sync import Sync
from web.assemble import assemble
from web.frame import furnish
from web.lmr.api import NOUNS
from web.lmr.bodies import BodiesInTime
from web.lmr.pages import room
from web.lmr.services import LmrServices, lmr

health = Blueprint("health", __name__)


def create_lmr_app(config: Config) -> Flask:
    """The web server of one LMR, which begins to keep its cache current."""
    cache = Cache.open(config.lmr_store)
    mdp = Mdp(config.mdp_url, config.lmr_token)
    services = LmrServices(config, cache, mdp, Sync(cache, mdp))
    app = assemble(config, services, NOUNS, health, room.pages)
    nav = [(endpoint, name) for endpoint, name in room.NAV if f"pages.{endpoint}" in app.view_functions]
    furnish(app, config, nav=nav)
    app.context_processor(_place)
    app.wsgi_app = BodiesInTime(app.wsgi_app, config.body_seconds)  # type: ignore[method-assign]
    services.start()
    return app


def _place() -> dict[str, str]:
    """What the head of a page says: which LMR this is, once the MDP has said so."""
    told = lmr().told_last()
    return {"place": f"LMR {told.name}" if told is not None else "LMR"}


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
    figures = render_only(REQUESTS, REQUEST_SECONDS, _Moment(lmr().sync))
    return Response(figures, content_type=CONTENT_TYPE_LATEST)


class _Moment(Collector):
    """Where an LMR stands at this moment."""

    def __init__(self, sync: Sync) -> None:
        self._status = sync.status

    def collect(self) -> Iterator[Metric]:
        status = self._status
        contact = status.last_contact.timestamp() if status.last_contact else 0
        yield GaugeMetricFamily("mdv_lmr_position", "The MDP's position up to which all is here", status.position)
        yield GaugeMetricFamily("mdv_lmr_up_to_date", "Whether all was here at the last contact", status.up_to_date)
        yield GaugeMetricFamily("mdv_lmr_last_contact_timestamp_seconds", "When the MDP last answered", contact)
