"""Publication's statements, run: from what the filter found to events in the feeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from typing import NamedTuple

from mdv.db.copy import array_field
from mdv.db.exchange import Answer, Exchange, Row
from mdv.db.statements import statements


class References(NamedTuple):
    """Strong references that came, as sources and targets; and the targets of those that went."""

    sources: Sequence[int] = ()
    targets: Sequence[int] = ()
    lost: Collection[int] = ()


class Published(NamedTuple):
    """How many events there were, for how many LMRs."""

    events: int
    lmrs: int


class Publication:
    """One publication, within the transaction at `tx`. It is done when the exchange is sent."""

    def __init__(self, exchange: Exchange, tx: int, last_offset: int, strong: Iterable[int]) -> None:
        self._exchange = exchange
        self._sql = statements("publish")
        self._tx = tx
        self._last_offset = last_offset
        self._strong = array_field(strong)

    def of_changes(
        self, changed: Iterable[int], gone: Collection[int], references: References
    ) -> Callable[[], Published]:
        """After a run of the filter: what changed, what is gone, and which strong references came and went."""
        self._run("begin_publication")
        self._run("count_reasons")
        if gone:
            self._run("note_gone", gone=array_field(gone))
        return self._finish(changed, references)

    def of_rules(self) -> Callable[[], Published]:
        """After rules came, changed or went: the reasons that `reason_changes` holds."""
        self._run("begin_publication")
        self._run("count_rule_reasons")
        self._run("clear_reason_changes")
        return self._finish((), References())

    def of_schema(self, stronger: Collection[int], weaker: Collection[int]) -> Callable[[], Published]:
        """After a change of the schema: the reasons that `reason_changes` holds, and properties that became strong, or
        ceased to be. Every LMR is told the schema."""
        self._run("begin_publication")
        self._run("count_rule_reasons")
        self._run("clear_reason_changes")
        if stronger:
            self._run("note_new_strong", stronger=array_field(stronger), strong=self._strong)
        if weaker:
            self._run("doubt_weaker", weaker=array_field(weaker))
            self._run("doubt_onward", strong=self._strong)
        return self._finish((), References(), schema=True)

    def _finish(self, changed: Iterable[int], references: References, schema: bool = False) -> Callable[[], Published]:
        sources, targets = array_field(references.sources), array_field(references.targets)
        self._run("enter", sources=sources, targets=targets, strong=self._strong)
        self._run("doubt", lost=array_field(references.lost), strong=self._strong)
        self._run("trust", strong=self._strong)
        if schema:
            self._run("note_leaving")
        self._run("leave")
        self._run("note_changed", changed=array_field(changed))
        told = self._run("write_feed", tx=self._tx, last_offset=self._last_offset, schema=schema)

        def published() -> Published:
            (row,) = told.rows() or [("0", "0")]
            return Published(*(int(number or 0) for number in row))

        return cache(published)

    def told_of(self) -> dict[int, list[int]]:
        """By resource, the LMRs that were told of it."""
        told = defaultdict(list)
        for resource, lmr in self._answered("told_of"):
            told[int(resource or 0)].append(int(lmr or 0))
        return told

    def names_told(self, most: int) -> list[str]:
        """The names of those that were told of something."""
        return [name or "" for (name,) in self._answered("names_told", tx=self._tx, most=most)]

    def _answered(self, name: str, **values: object) -> list[Row]:
        answer = self._run(name, **values)
        self._exchange.send()
        return answer.rows()

    def _run(self, name: str, **values: object) -> Answer:
        return self._exchange.ask_named(self._sql[name], **values)
