"""The Flask application of an LMR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Flask, Response
from prometheus_client import CONTENT_TYPE_LATEST, PROCESS_COLLECTOR
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from mdv.config import Config
from mdv.lmr.cache import Cache
from mdv.lmr.homes import Homes
from mdv.lmr.sync import Sync
from mdv.metrics import REQUEST_SECONDS, REQUESTS, render_process_metrics
from web.app_factory import make_app
from web.lmr.api import ROUTE_GROUPS
from web.lmr.pages import blueprint
from web.lmr.services import LmrServices, lmr
from web.page_base import configure_pages

health = Blueprint("health", __name__)


def create_lmr_app(config: Config) -> Flask:
    """Return the Flask application of one LMR, and start the thread that keeps its cache up to date."""
    cache = Cache.open(config.lmr_store)
    homes = Homes.configured(cache, config.mdp_url, config.lmr_token, config.lmr_home_seconds)
    sync = Sync(cache, homes, home_seconds=config.lmr_home_seconds, patience=config.lmr_patience)
    services = LmrServices(config, cache, homes, sync)
    app = make_app(config, services, ROUTE_GROUPS, health, blueprint.pages)
    nav = [(endpoint, name) for endpoint, name in blueprint.NAV if f"pages.{endpoint}" in app.view_functions]
    configure_pages(app, config, nav=nav)
    app.context_processor(_page_header)
    services.start()
    return app


def _page_header() -> dict[str, str]:
    """Return the page header: the name of the LMR, once the MDP has reported it."""
    info = lmr().cached_mdp_info()
    return {"place": f"LMR {info.name}" if info is not None else "LMR"}


@health.get("/healthz")
def healthz() -> dict[str, str]:
    """Return 200 if the process is alive."""
    return {"status": "alive"}


@health.get("/readyz")
def readyz() -> tuple[dict[str, Any], int]:
    """Return 200 if the cache is readable and the first snapshot is complete. The MDP is reported but not required."""
    status = lmr().sync.status
    mdp = "away" if status.last_error else "ready" if status.last_contact else "not asked yet"
    try:
        lmr().cache.state()
    except SQLAlchemyError:
        return {"status": "not ready", "cache": "away", "mdp": mdp}, 503
    if not lmr().has_snapshot:
        return {"status": "not ready", "cache": "waiting for its first snapshot", "mdp": mdp}, 503
    return {"status": "ready", "cache": "ready", "mdp": mdp, "up_to_date": status.up_to_date}, 200


@health.get("/metrics")
def metrics() -> Response:
    text = render_process_metrics(REQUESTS, REQUEST_SECONDS, PROCESS_COLLECTOR, _StateCollector(lmr().sync))
    return Response(text, content_type=CONTENT_TYPE_LATEST)


class _StateCollector(Collector):
    """Collects the current state of an LMR."""

    def __init__(self, sync: Sync) -> None:
        self._status = sync.status

    def collect(self) -> Iterator[Metric]:
        status = self._status
        contact = status.last_contact.timestamp() if status.last_contact else 0
        yield GaugeMetricFamily(
            "mdv_lmr_position", "MDP position up to which all transactions are applied", status.position
        )
        yield GaugeMetricFamily(
            "mdv_lmr_up_to_date", "1 if the cache was up to date at the last contact", status.up_to_date
        )
        yield GaugeMetricFamily(
            "mdv_lmr_last_contact_timestamp_seconds", "Time of the last response of the MDP", contact
        )
