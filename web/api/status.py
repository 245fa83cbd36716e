"""/status: how the MDP is."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

import mdv
from mdv.db.status import read_status
from mdv.mdp.status import workers_heard
from web.auth import reader
from web.calls import Calls
from web.models import MdpStatus
from web.openapi import problems
from web.services import services

calls = Calls("status", "How the MDP is")


@calls.call("GET", "/status", "How the MDP is", {200: MdpStatus} | problems())
def status() -> dict[str, Any]:
    """Where it stands, what it holds, which LMRs are behind, what waits, who works. It costs the same on a large store
    as on a small one: what there is much of is estimated."""
    reader()
    s = services()
    with s.engine.connect() as connection:
        found = read_status(connection)
    workers = workers_heard(s.redis)
    return {
        "version": mdv.__version__,
        "epoch": str(found.epoch),
        "position": found.position,
        "last_transaction": _moment(found.last_transaction),
        "counts": {name: asdict(getattr(found, name)) for name in ("documents", "resources", "statements", "rules")},
        "lmrs": found.lmrs,
        "behind": [
            asdict(lmr) | {"since": _moment(lmr.since), "asked_at": _moment(lmr.asked_at)} for lmr in found.behind
        ],
        "queue": asdict(found.queue),
        "workers": None if workers is None else [asdict(worker) for worker in workers],
        "database_bytes": found.database_bytes,
    }


def _moment(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
