"""Rules and locks of the backbone: the last writer of each key decides."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.backbone.registers import Register, Registers
from mdv.db.engine import driver
from mdv.db.load_sql import load_sql


class ReplicatedRule(NamedTuple):
    """A rule or lock. `local_id`: its ID here; None if there is none. `is_new`: it is not carried out here yet."""

    key: str
    register: Register
    local_id: int | None
    is_new: bool


def list_registers(connection: Connection) -> dict[str, Register]:
    """Return all rules and locks, also removed ones."""
    return {one.key: one.register for one in list_rules(connection)}


def list_rules(connection: Connection) -> list[ReplicatedRule]:
    """Return all rules and locks, also removed ones."""
    return _rules(connection, "list_rules")


def list_new_rules(connection: Connection) -> list[ReplicatedRule]:
    """Return the rules and locks that are not carried out here yet, oldest change first."""
    return _rules(connection, "list_new_rules")


def store_registers(connection: Connection, registers: Registers) -> None:
    """Store rules and locks, to be carried out later."""
    rows = [{"key": key, **one._asdict()} for key, one in registers.items()]
    _execute(connection, "store_rules", rules=json.dumps(rows, ensure_ascii=False))


def note_rule(connection: Connection, key: str, local_id: int | None) -> None:
    """Note that a rule or lock is carried out here, and its ID."""
    _execute(connection, "note_rule", key=key, local_id=local_id)


def _rules(connection: Connection, query: str) -> list[ReplicatedRule]:
    rows = _execute(connection, query).fetchall()
    return [
        ReplicatedRule(key, Register(at, life, value), number, is_new) for key, at, life, value, number, is_new in rows
    ]


def _execute(connection: Connection, query: str, /, **values: object) -> Any:
    return driver(connection).execute(load_sql("replica")[query], values, prepare=True)
