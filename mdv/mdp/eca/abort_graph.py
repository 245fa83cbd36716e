"""The abort graph: which copies of which runs are compensated together.

The ABORT of a rule says whether its copy is compensated with its parent, the copy whose update triggered it, and the
parent with the copy. The copies of a transaction and the detached copies that it triggered form one graph over several
runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from sqlalchemy import Connection

from mdv.db.eca.runs import StoredRun, read_detached_runs, read_runs
from mdv.mdp.eca.run import TRANSACTION, CopyState

ABORTS_PARENT, ABORTS_WITH_PARENT = ("ChildParent", "Mutual"), ("ParentChild", "Mutual")


class CopyKey(NamedTuple):
    """A copy of a run, by numbers."""

    run: int
    copy: int


class AbortGraph:
    """The abort graph of the runs that are kept, read as far as it is needed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.runs: dict[int, StoredRun] = {}
        self._children: dict[int, dict[int, list[tuple[int, str]]]] = {}
        """By run and copy: the detached runs that it triggered, with their ABORT."""

    def load(self, numbers: Iterable[int]) -> None:
        """Read runs with the detached runs that they triggered."""
        missing = [number for number in set(numbers) if number not in self._children]
        if not missing:
            return
        found = read_detached_runs(self._connection, missing)
        self.runs |= {run.id: run for run in (*read_runs(self._connection, missing), *found)}
        for number in missing:
            self._children[number] = defaultdict(list)
        for run in found:
            parent = self.runs.get(run.parent_run or 0)
            if parent is not None and run.parent_copy is not None:
                copy = parent.copies[run.parent_copy]
                self._children[parent.id][copy.parent].append((run.id, copy.abort))

    def closure(self, copies: Collection[CopyKey]) -> set[CopyKey]:
        """Return these copies with all that are compensated with them."""
        found = {key for key in copies if self._exists(key)}
        todo = list(found)
        while todo:
            self.load(key.run for key in todo)
            more = {other for key in todo for other in self._next(key) if self._exists(other)}
            todo = list(more - found)
            found |= more
        return found

    def _exists(self, key: CopyKey) -> bool:
        """True if a copy was executed and not undone."""
        self.load([key.run])
        run = self.runs.get(key.run)
        if run is None or run.outcome == "refused":
            return False
        return key.copy == TRANSACTION or run.copies[key.copy].state == CopyState.DONE

    def _next(self, key: CopyKey) -> Iterator[CopyKey]:
        run = self.runs[key.run]
        for number, copy in enumerate(run.copies):
            if copy.parent == key.copy and copy.abort in ABORTS_WITH_PARENT:
                yield CopyKey(run.id, number)
        for child, abort in self._children[run.id].get(key.copy, ()):
            if abort in ABORTS_WITH_PARENT:
                yield CopyKey(child, TRANSACTION)
        if key.copy != TRANSACTION:
            copy = run.copies[key.copy]
            if copy.abort in ABORTS_PARENT:
                yield CopyKey(run.id, copy.parent)
        elif run.parent_run is not None and run.parent_copy is not None:
            self.load([run.parent_run])
            parent = self.runs.get(run.parent_run)
            if parent is not None:
                copy = parent.copies[run.parent_copy]
                if copy.abort in ABORTS_PARENT:
                    yield CopyKey(parent.id, copy.parent)
