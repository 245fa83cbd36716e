"""Stored suspended rules: the reason of each, and the data from which its matches can be computed."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import psycopg
from psycopg.types.json import Jsonb
from sqlalchemy import Connection

from mdv.db.engine import driver
from mdv.db.load_sql import load_sql
from mdv.db.postgres_copy import array_literal
from mdv.db.publish import RuleNotices

EVENT_SUSPENDED, EVENT_RESUMED = 5, 6
"""Kinds of events about rules, as in the feed."""

ConstantValue = Decimal | str


class Suspension(NamedTuple):
    """A suspended rule: since which position and when, the reason, and the time limit in seconds that it exceeded.
    `pending`: it is being added. `noticed`: its LMR was notified."""

    rule_id: int
    position: int
    reason: str
    seconds: float | None
    at: datetime
    pending: bool
    noticed: bool

    def as_dict(self) -> dict[str, Any]:
        return {
            "reason": self.reason,
            "seconds": self.seconds,
            "position": self.position,
            "at": self.at.isoformat(),
        }


class ListedSuspension(NamedTuple):
    """A suspended rule with its name and its LMR (None: a rule of the provider itself)."""

    rule_id: int
    name: str | None
    owner: int
    lmr: str | None
    position: int
    reason: str
    seconds: float | None
    at: datetime


class KeptEnd(NamedTuple):
    """A conjunction of a suspended rule. Its matches as of a position count for the rule's owner: those with resource
    IDs above `after` and up to `up_to` (None: no bound). If it is `ranged`, all ends of the owner with the same unit
    and position count as one."""

    rule_id: int
    owner: int
    as_of: int
    unit: int
    ranged: bool
    pattern: dict[str, Any]
    constants: tuple[ConstantValue, ...]
    after: int
    up_to: int | None


class Suspensions:
    """Reads and changes suspended rules in one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._session: psycopg.Connection[Any] = driver(connection)
        self._sql = load_sql("suspensions")

    def rules_of_group(self, group_id: int) -> list[int]:
        """Return the rules that end in a whole group."""
        return [number for (number,) in self._run("rules_of_group", group=group_id).fetchall()]

    def add(
        self, ids: Collection[int], state_position: int, position: int, ranged: Collection[int], reason: str,
        seconds: float | None,
    ) -> None:  # fmt: skip
        """Suspend rules that are still in the rule graph. Their matches as of `state_position` still count. `ranged`:
        the groups whose rules match ranges of constants."""
        self._run("suspend", ids=array_literal(ids), position=position, reason=reason, seconds=seconds)
        self._run("keep_ends", ids=array_literal(ids), as_of=state_position, ranged=array_literal(ranged))

    def add_broken(self, reasons: Mapping[int, str], position: int) -> None:
        """Suspend rules that are invalid under the schema. Their matches do not count."""
        rows = [{"id": number, "reason": reason} for number, reason in reasons.items()]
        self._run("suspend_broken", rules=json.dumps(rows, ensure_ascii=False), position=position)

    def broken(self) -> dict[int, bool]:
        """Return the rules that are invalid under the schema. True if the LMR was notified."""
        return dict(self._run("broken_rules").fetchall())

    def read(self, ids: Collection[int]) -> dict[int, Suspension]:
        """Return those of these rules that are suspended, by ID."""
        rows = self._run("read_suspended", ids=array_literal(ids)).fetchall() if ids else []
        return {row[0]: Suspension(*row) for row in rows}

    def of_lmr(self, lmr: int, most: int) -> list[tuple[Suspension, str | None, str]]:
        """Return the first suspended rules of an LMR, including pending ones, each with its name and text."""
        rows = self._run("suspended_of_lmr", lmr=lmr, most=most).fetchall()
        return [(Suspension(*row[:-2]), *row[-2:]) for row in rows]

    def page(self, after: int, most: int) -> list[ListedSuspension]:
        """Return a page of suspended rules, ordered by ID."""
        return [ListedSuspension(*row) for row in self._run("list_suspended", after=after, most=most).fetchall()]

    def count(self, pending: bool = False) -> int:
        """Return the number of suspended rules. `pending`: include rules that are being added."""
        row = self._run("count_suspended", pending=pending).fetchone()
        return int(row[0]) if row else 0

    # Matches that are published in several transactions

    def add_pending(self, ids: Collection[int]) -> None:
        """Record that these rules were just added, and that none of their matches counts yet."""
        self._run("add_pending", ids=array_literal(ids), reason="The rule is being added.")

    def keep_pending_end(self, kept: KeptEnd, number: int) -> None:
        """Store a conjunction of a rule that is being added."""
        self._run(
            "keep_pending_end", rule=kept.rule_id, number=number, owner=kept.owner, as_of=kept.as_of, unit=kept.unit,
            ranged=kept.ranged, pattern=Jsonb(kept.pattern), constants=Jsonb([_body(c) for c in kept.constants]),
        )  # fmt: skip

    def pending(self) -> list[int]:
        return [number for (number,) in self._run("pending_ids").fetchall()]

    def count_up_to(self, ids: Collection[int], bound: int) -> int:
        """Count matches of these rules up to a resource ID from now on. Return how many of the rules still exist."""
        return len(self._run("count_more", ids=array_literal(ids), bound=bound).fetchall())

    def count_after(self, ids: Collection[int], bound: int) -> int:
        """Count matches of these rules above a resource ID from now on. Return how many of the rules still exist."""
        return len(self._run("count_less", ids=array_literal(ids), bound=bound).fetchall())

    def ids(self) -> set[int]:
        """Return the IDs of all suspended rules."""
        return {number for (number,) in self._run("suspended_ids").fetchall()}

    def kept_patterns(self) -> list[dict[str, Any]]:
        """Return the patterns of all suspended rules whose matches count."""
        return [pattern for (pattern,) in self._run("kept_patterns").fetchall()]

    def kept_ends(self, ids: Collection[int]) -> list[KeptEnd]:
        """Return the ends that still count for these rules, and for rules that are counted together with them."""
        rows = self._run("read_units", ids=array_literal(ids)).fetchall() if ids else []
        return [
            KeptEnd(rule, owner, as_of, unit, ranged, pattern, tuple(map(_value, constants)), after, up_to)
            for rule, owner, as_of, unit, ranged, pattern, constants, after, up_to in rows
        ]

    def end(self, ids: Collection[int]) -> None:
        """End the suspension of these rules."""
        self._run("end_suspension", ids=array_literal(ids))

    def forget_kept_ends(self) -> None:
        """Stop counting matches of suspended rules."""
        self._run("forget_kept_ends")

    def note(self, notices: RuleNotices, position: int, kind: int, reason: str) -> None:
        """Store the reason for the events about these rules."""
        self._run("note", ids=array_literal(notices.rules), position=position, kind=kind, reason=reason)

    def _run(self, name: str, **values: object) -> psycopg.Cursor[Any]:
        return self._session.execute(self._sql[name], values, prepare=True)


def _body(value: ConstantValue) -> dict[str, str]:
    return {"text": value} if isinstance(value, str) else {"number": str(value)}


def _value(body: dict[str, str]) -> ConstantValue:
    return Decimal(body["number"]) if "number" in body else body["text"]
