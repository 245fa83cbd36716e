"""Conflicts of the backbone: find one, show the origins of its values, resolve it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from flask import Response

from mdv.accounts.callers import Caller, check_may_write
from mdv.backbone.conflicts import BackboneConflict, Resolution, resolve_conflict
from mdv.mdp.backbone_conflicts import find_conflict, value_origins
from mdv.model import Term
from mdv.rdf.term_json import write_statement
from web.json_bodies import JSON
from web.services import Services, services
from web.use_cases.document_changes import answer_change


def find_open_conflict(s: Services, identity: str) -> BackboneConflict:
    """Return an open conflict by its ID."""
    with s.single.connect() as connection:
        return find_conflict(s.replica, connection, identity)


def describe_conflict(s: Services, conflict: BackboneConflict) -> dict[str, Any]:
    """Return a conflict with the origins of its values."""
    with s.snapshot() as connection:
        origins = value_origins(s.replica, connection, [conflict]).get(conflict.id, [])
    shown = [
        {"value": one.value.as_dict(), "members": list(one.members), "at": one.at.isoformat() if one.at else None}
        for one in origins
    ]
    return conflict.as_dict() | {"origins": shown}


def answer_resolution(conflict: BackboneConflict, keep: Sequence[Term | str], caller: Caller) -> Response:
    """Resolve a conflict by a change of its document, and answer with its result."""
    resolution = resolve_conflict(conflict, keep)
    check_may_write(caller, conflict.document)
    wait = services().config.max_wait_seconds
    kind, body = change_of(resolution)
    return answer_change(
        kind, conflict.document, caller, body=body, media_type=JSON if body else None,
        confirms=resolution.is_confirmation, default_wait=int(wait),
    )  # fmt: skip


def change_of(resolution: Resolution) -> tuple[str, bytes | None]:
    """Return the kind of the job that resolves a conflict, and its body."""
    if resolution.is_deletion:
        return "delete", None
    return "edit", json.dumps({"remove": [write_statement(one) for one in resolution.removals]}).encode()
