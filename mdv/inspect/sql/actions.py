"""Queries of the actions of ReAL that documents describe."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from sqlalchemy import Connection

from mdv.db.load_sql import load_sql
from mdv.real.vocabulary import LRM_BODY, REAL_CODE


class ActionBody(NamedTuple):
    """The code of an action, and the prefixes of its document."""

    code: str
    prefixes: Mapping[str, str]


def read_action_bodies(connection: Connection, actions: Collection[str]) -> dict[str, list[ActionBody]]:
    """Return the bodies of actions, those of the first documents first."""
    values = {"body": LRM_BODY, "code": REAL_CODE, "actions": sorted(actions)}
    found: dict[str, list[ActionBody]] = defaultdict(list)
    for action, code, prefixes in connection.exec_driver_sql(load_sql("actions", __package__)["read_bodies"], values):
        found[action].append(ActionBody(code, dict(prefixes)))
    return found
