"""/status: the status of the MDP."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

import mdv
from mdv.inspect.sql.status import read_status
from mdv.mdp.worker_heartbeats import list_live_workers
from web.auth import require_reader
from web.models import MdpStatus, MdpStatusQuery
from web.openapi import describe_problems
from web.routing import RouteGroup
from web.services import services
from web.use_cases.own_writes import wait_for_token

routes = RouteGroup("status", "Status of the MDP")


@routes.route("GET", "/status", "Status of the MDP", {200: MdpStatus} | describe_problems(), query=MdpStatusQuery)
def status(query: MdpStatusQuery) -> dict[str, Any]:
    """Returns the position, the sizes of the store, LMRs that are behind, the job queue and the workers. Large counts
    are estimated, so that the cost does not depend on the size of the store.

    With the `token` of a change as `after`, it answers once that change is here, or after `wait` seconds, with
    `reached`: so you can read your own writes at any MDP of a backbone."""
    require_reader()
    s = services()
    reached = {} if query.after is None else {"reached": wait_for_token(s, query.after, query.wait)}
    with s.engine.connect() as connection:
        found = read_status(connection)
    workers = list_live_workers(s.redis)
    return {
        "version": mdv.__version__,
        "epoch": str(found.epoch),
        "position": found.position,
        "last_transaction": _moment(found.last_transaction),
        "counts": {name: asdict(getattr(found, name)) for name in ("documents", "resources", "statements", "rules")},
        "rules_suspended": found.suspended,
        "lmrs": found.lmrs,
        "behind": [
            asdict(lmr) | {"since": _moment(lmr.since), "asked_at": _moment(lmr.asked_at)} for lmr in found.behind
        ],
        "queue": asdict(found.queue),
        "workers": None if workers is None else [asdict(worker) for worker in workers],
        "database_bytes": found.database_bytes,
    } | reached


def _moment(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
