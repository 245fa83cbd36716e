"""Stability: which operations every active member has.

Members report their vectors, also those of others that they have heard of. A report counts once our own vector covers
it. So an operation that we have not applied was not at its member then: if that member makes an operation later, its
deps include the report. Hence all operations still to come have seen everything that is stable.
"""

from __future__ import annotations

from mdv.backbone.membership import MemberTable
from mdv.backbone.vector import Life, Vector, common, covers, joined


class VectorReports:
    """The reports of the other members. `counted` is durable; `pending` are those that we do not cover yet."""

    def __init__(self, counted: dict[Life, Vector]) -> None:
        self.counted = counted
        self._pending: dict[Life, Vector] = {}

    def add(self, life: Life, report: Vector, ours: Vector) -> None:
        """Add a report. A life's reports only grow, so an older one is dropped."""
        known = self.counted.get(life)
        if known is not None and (known == report or covers(known, report)):
            return
        if covers(ours, report):
            if known is None or covers(report, known):
                self.counted[life] = dict(report)
        elif life not in self._pending:
            # Later reports are dropped until this one counts. Otherwise, under constant load, none would ever count.
            self._pending[life] = dict(report)

    def latest(self) -> dict[Life, Vector]:
        """Return the known vectors by life, to be sent to other members."""
        return {**self.counted, **self._pending}

    def recount(self, ours: Vector) -> None:
        """Count the pending reports that our vector covers now."""
        for life in [life for life, report in self._pending.items() if covers(ours, report)] if self._pending else ():
            self.add(life, self._pending.pop(life), ours)

    def stable(self, table: MemberTable, own_life: Life, ours: Vector, before: Vector) -> dict[Life, int]:
        """Return the stable operations. `before`: the result of last time; stable operations remain stable."""
        reports: list[Vector] = [ours]
        for life in table.current_lives():
            if life == own_life:
                continue
            report = self.counted.get(life)
            # A report from before a life was closed does not say what its member had of that life.
            if report is None or not covers(report, table.closings):
                return dict(before)
            reports.append(report)
        return joined(common(reports), before)
