"""/real/locks: statements that programs must not change."""

from __future__ import annotations

from typing import Any

import structlog

from mdv.mdp.real.write_locks import LockPattern, StoredLock, add_lock, list_locks, remove_lock
from mdv.mdp.replicated_rules import announce_rules
from web.auth import require_admin, require_unlimited_admin
from web.json_bodies import describe_json_body, read_json_body
from web.models import ListQuery, NewWriteLock, WriteLockShown
from web.number_params import read_after, read_lock_id
from web.openapi import describe_json, describe_problems, page_schema
from web.routing import RouteGroup
from web.services import services

routes = RouteGroup("real-locks", "Locks of statements against programs")
log = structlog.get_logger()

_EXAMPLE = {"document_prefix": "http://mdv.example/", "property": "http://mdv.example/schema#serverPort"}


@routes.route("POST", "/real/locks", "Add a lock against programs",
              {201: WriteLockShown} | describe_problems(408, 413, 415, 429),
              body=describe_json_body(NewWriteLock, _EXAMPLE))  # fmt: skip
def add() -> tuple[dict[str, Any], int]:
    """Programs can no longer add or remove the statements that match all given parts: `+` has no solution, and `-`
    skips them, both with a warning. Registrations, edits and event rules are not concerned. Requires an unlimited admin
    token."""
    caller = require_unlimited_admin()
    given = read_json_body(NewWriteLock)
    pattern = LockPattern(given.document_prefix, given.subject, given.property, given.object)
    with services().engine.begin() as connection:
        lock = add_lock(connection, pattern, caller.by)
        announce_rules(connection, services().provider)
    log.info("lock added", lock=lock.id, by=caller.by)
    return _lock_as_dict(lock), 201


@routes.route("GET", "/real/locks", "List locks against programs",
              {200: describe_json(page_schema({"type": "object"}), "A page")} | describe_problems(),
              query=ListQuery)  # fmt: skip
def list_(query: ListQuery) -> dict[str, Any]:
    """Requires an admin token."""
    require_admin()
    with services().single.connect() as connection:
        rows = list_locks(connection, read_after(query.after), query.limit + 1)
    items = [_lock_as_dict(row) for row in rows[: query.limit]]
    return {"items": items, "next": str(items[-1]["id"]) if len(rows) > query.limit else None}


@routes.route("DELETE", "/real/locks/<number>", "Remove a lock against programs",
              {200: WriteLockShown} | describe_problems(404))  # fmt: skip
def remove(number: str) -> dict[str, Any]:
    """Requires an unlimited admin token."""
    caller = require_unlimited_admin()
    with services().engine.begin() as connection:
        lock = remove_lock(connection, read_lock_id(number))
        announce_rules(connection, services().provider)
    log.info("lock removed", lock=lock.id, by=caller.by)
    return _lock_as_dict(lock)


def _lock_as_dict(lock: StoredLock) -> dict[str, Any]:
    return {"id": lock.id, **lock.pattern._asdict(), "by": lock.by, "created_at": lock.created_at.isoformat()}
