"""Read your own writes at any member of the backbone, and wait until other members have a change."""

from __future__ import annotations

import re
import time
from typing import Any

from flask import request
from sqlalchemy import Connection

from mdv.backbone.etag import has_token, parse_token
from web.services import Services, services

MAX_REPLICAS = 100


def wait_for_token(s: Services, token: str, seconds: float) -> bool:
    """Wait until the change of a token is here, at most `seconds`. Return whether it is."""
    wanted = parse_token(token)

    def is_here(connection: Connection) -> bool:
        facts = s.replica.progress(connection)
        return facts is not None and has_token(facts.vector, wanted)

    with s.waits.slot("token") as has_slot:
        deadline = time.monotonic() + (min(seconds, s.config.max_wait_seconds) if has_slot else 0)
        return s.log_notifier.wait_until(is_here, deadline)


def prefer_replicas() -> int | None:
    """Return the number of `Prefer: replicas=N`; None if absent."""
    found = re.search(r"(?:^|[,;\s])replicas\s*=\s*\"?(\d{1,3})", request.headers.get("Prefer", ""), re.IGNORECASE)
    return min(int(found.group(1)), MAX_REPLICAS) if found else None


def wait_for_replicas(result: dict[str, Any], wanted: int | None, deadline: float) -> dict[str, Any]:
    """Wait until `wanted` other members have the change of a result. Return the result with the number of those that
    have it."""
    token = result.get("token")
    if wanted is None or token is None or result.get("dry_run"):
        return result
    s, dot, found = services(), parse_token(token), 0

    def have_it(connection: Connection) -> bool:
        nonlocal found
        facts = s.replica.facts(connection)
        if facts is None:
            return True
        others = [member.current for name, member in facts.table.members.items() if name != facts.name]
        found = sum(
            any(has_token(facts.reports.get(life, {}), dot) for life in lives) for lives in others
        )  # fmt: skip
        return found >= wanted

    s.log_notifier.wait_until(have_it, deadline)
    return result | {"replicas": found}
