"""LMRs of a backbone: the registers that define them, and the rows that are made from these.

The key of an LMR is its lasting ID; the key of a rule is that of its LMR, a slash, and the lasting ID of the rule.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.backbone.registers import Register, Registers
from mdv.db.engine import driver
from mdv.db.load_sql import load_sql


class LmrPlace(NamedTuple):
    """The lasting ID of an LMR (None: it is not announced yet), the number of its last adoption, and the member where
    it is at home (None: here)."""

    lasting_id: str | None
    term: int
    home: str | None


class AnnouncedRule(NamedTuple):
    """A rule of an LMR. `lasting_id`: None if it is not announced."""

    id: int
    lasting_id: int | None
    name: str | None
    text: str


# Registers


def read_registers(connection: Connection, keys: Iterable[str] | None = None) -> dict[str, Register]:
    """Return registers: all, or those with some keys."""
    if keys is None:
        return _registers(_execute(connection, "list_registers"))
    return _registers(_execute(connection, "find_registers", keys=list(keys)))


def read_rule_registers(connection: Connection, lasting_id: str) -> dict[str, Register]:
    """Return the registers of the rules of an LMR."""
    return _registers(_execute(connection, "list_registers_of", first=f"{lasting_id}/", last=f"{lasting_id}0"))


def write_registers(connection: Connection, registers: Registers) -> None:
    if registers:
        rows = [{"key": key, **one._asdict()} for key, one in registers.items()]
        _execute(connection, "write_registers", rows=json.dumps(rows))


def _registers(cursor: Any) -> dict[str, Register]:
    return {key: Register(at, life, value) for key, at, life, value in cursor.fetchall()}


# Rows


def list_unannounced(connection: Connection) -> list[int]:
    """Return the IDs of the LMRs that are at home here and that the other members do not know as they are."""
    return [number for (number,) in _execute(connection, "list_unannounced").fetchall()]


def list_token_hashes(connection: Connection, lmr: int) -> list[str]:
    return [one for (one,) in _execute(connection, "list_token_hashes", lmr=lmr).fetchall()]


def replace_tokens(connection: Connection, lmr: int, hashes: Sequence[str]) -> None:
    """Let an LMR have the tokens with these hashes, and no others."""
    _execute(connection, "replace_tokens", lmr=lmr, hashes=list(hashes))


def name_lmr(connection: Connection, lmr: int, lasting_id: str) -> None:
    _execute(connection, "name_lmr", lmr=lmr, lasting_id=lasting_id)


def note_announced(connection: Connection, lmr: int) -> None:
    _execute(connection, "note_announced", lmr=lmr)


def find_lmr_number(connection: Connection, lasting_id: str) -> int | None:
    row = _execute(connection, "find_lmr", lasting_id=lasting_id).fetchone()
    return None if row is None else int(row[0])


def read_place(connection: Connection, lmr: int) -> LmrPlace:
    row = _execute(connection, "read_place", lmr=lmr).fetchone()
    return LmrPlace(*row) if row is not None else LmrPlace(None, 0, None)


def insert_dormant(connection: Connection, lasting_id: str, name: str, term: int, home: str) -> int:
    """Store an LMR that is at home at another member. If its name is in use here, a number is added to it. The caller
    holds the lock."""
    taken = {one for (one,) in _execute(connection, "list_names").fetchall()}
    names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3)))
    free = next(one for one in names if one not in taken)
    row = _execute(connection, "insert_dormant", name=free, lasting_id=lasting_id, term=term, home=home).fetchone()
    return int(row[0])


def set_place(connection: Connection, lmr: int, term: int, home: str | None) -> None:
    """Store where an LMR is at home; None: here."""
    _execute(connection, "set_place", lmr=lmr, term=term, home=home)


def list_announced_rules(connection: Connection, lmr: int, rules: Collection[int] | None = None) -> list[AnnouncedRule]:
    """Return the rules of an LMR: all, or some."""
    given = None if rules is None else list(rules)
    return [AnnouncedRule(*row) for row in _execute(connection, "list_rules", lmr=lmr, rules=given).fetchall()]


def insert_lasting_ids(connection: Connection, lmr: int, ids: Mapping[int, int]) -> None:
    """Store the lasting IDs of rules, by rule."""
    _execute(connection, "insert_rules", lmr=lmr, rules=list(ids), lasting=list(ids.values()))


def find_lasting_ids(connection: Connection, lmr: int, rules: Collection[int]) -> dict[int, int]:
    """Return the lasting IDs of rules, also of removed ones, by rule."""
    return dict(_execute(connection, "find_lasting_ids", lmr=lmr, rules=list(rules)).fetchall())


def list_lasting_ids(connection: Connection, lmr: int) -> dict[int, int]:
    """Return the lasting IDs of the rules of an LMR, where they differ from the IDs of the rules."""
    return dict(_execute(connection, "list_lasting_ids", lmr=lmr).fetchall())


def forget_rules(connection: Connection, lmr: int) -> None:
    _execute(connection, "forget_rules", lmr=lmr)


def forget_backbone_lmrs(connection: Connection) -> None:
    """Delete the LMRs that are at home elsewhere, and what the others know of those that are at home here."""
    _execute(connection, "forget_backbone")


def _execute(connection: Connection, query: str, /, **values: object) -> Any:
    return driver(connection).execute(load_sql("replica_lmrs")[query], values, prepare=True)
