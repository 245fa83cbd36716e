"""How long a check of a backbone takes, and to find and repair ten documents whose rows SQL has changed.

The members are databases of one process, so that the network costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from mdv.backbone.divergence import DocumentList, group_sums, in_groups
from mdv.backbone.kinds import SET_KINDS
from mdv.backbone.messages import TransferredDocument
from mdv.bench.sql.damage import damage_documents
from mdv.db.engine import use_read_only_snapshot
from mdv.mdp.backbone_checks import BackboneCheck
from mdv.mdp.replica import Replica

DAMAGED = 10
REPEATED = 3


@dataclass(frozen=True, slots=True)
class RepairFigures:
    """Seconds: of a comparison of sums, of a check of all rows, and of repairing the documents that it has found."""

    documents: int
    sums_seconds: float
    deep_seconds: float
    repair_seconds: float


class LocalPeer:
    """A peer of a check that is another database of this process."""

    def __init__(self, replica: Replica, engine: Engine) -> None:
        self._replica, self._engine = replica, engine

    def sums(self, groups: Iterable[int] | None = None) -> dict[int, int]:
        with self._engine.connect() as connection:
            sums = self._replica.sums(connection)
        return group_sums(sums) if groups is None else in_groups(sums, groups)

    def list_documents(self, buckets: Iterable[int]) -> DocumentList:
        with self._engine.connect() as connection:
            self._snapshot(connection)
            return self._replica.documents_of_buckets(connection, list(buckets))

    def read_documents(self, buckets: Iterable[int]) -> Iterable[TransferredDocument]:
        with self._engine.connect() as connection:
            self._snapshot(connection)
            return self._replica.state_page(connection, "", 1000, list(buckets))

    @staticmethod
    def _snapshot(connection: Connection) -> None:
        use_read_only_snapshot(connection)


def measure_repair(replica: Replica, engine: Engine, peer: LocalPeer, documents: int, mode: str) -> RepairFigures:
    """Damage ten documents of a member, and let a check find and repair them."""

    def check() -> BackboneCheck:
        return BackboneCheck(replica, engine, {"peer": peer}, lambda step, done, total: None, replica.repair)

    equal = [check().run(deep=False).seconds for _ in range(REPEATED)]
    uris = damage_documents(engine, DAMAGED, documents // 2)
    last = check()
    found = last.run(deep=True)
    if sorted(found.damaged) != sorted(uris):
        raise AssertionError(f"The check has found {found.damaged} instead of {uris}.")
    deep, began = found.seconds, time.perf_counter()
    last.mend(SET_KINDS[mode], 2)
    repaired = time.perf_counter() - began
    if sorted(found.repaired) != sorted(uris) or check().run(deep=True).damaged:
        raise AssertionError(f"Repaired were {found.repaired} instead of {uris}.")
    return RepairFigures(documents, sorted(equal)[REPEATED // 2], deep, repaired)
