"""A store of one size: documents, and rules of several LMRs that are not running."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import islice

from sqlalchemy import Engine

from mdv.bench.registration import RegistrationBench
from mdv.bench.scale.series import TimedRound
from mdv.bench.sql.copy_floor import vacuum_analyze
from mdv.bench.workload import SCHEMA
from mdv.db.lmrs import Lmr
from mdv.mdp.filter import read_match_changes
from mdv.mdp.lmrs import create_lmr
from mdv.mdp.register import Prepared, RegistrationOutcome, prepare, register
from mdv.mdp.rules.add import add_rules
from mdv.mdp.rules.planning import RuleDraft

DOCUMENTS_PER_FILL = 1000

DocumentText = tuple[str, bytes]
"""The URI and the text of a document."""


class ScaleStore:
    """Registers documents, checks the results, and runs the floor."""

    def __init__(self, engine: Engine, turtle: bytes = SCHEMA, media_type: str = "application/rdf+xml") -> None:
        self.engine, self._media_type = engine, media_type
        self.bench = RegistrationBench(engine, turtle=turtle)
        self._schema = self.bench.schema()
        self.lmrs: list[Lmr] = []

    def follow(self, wanted: Iterable[Sequence[str]]) -> list[list[int]]:
        """Create an LMR for each list of rules. Return the end rules of each LMR."""
        bench, drafts, before = self.bench, [], len(self.lmrs)
        with self.engine.begin() as connection:
            for texts in wanted:
                lmr, _ = create_lmr(connection, f"lmr-{len(self.lmrs)}")
                self.lmrs.append(lmr)
                drafts += [RuleDraft(lmr.id, None, text) for text in texts]
        with self.engine.begin() as connection:
            added = add_rules(connection, drafts, bench.provider)
        ends: dict[int, list[int]] = {lmr.id: [] for lmr in self.lmrs[before:]}
        for draft, rule in zip(drafts, added, strict=True):
            ends[draft.owner].append(rule.ends[0])
        return list(ends.values())

    def fill(self, texts: Iterable[DocumentText]) -> float:
        """Register documents without measuring, and vacuum, so that autovacuum has nothing to do. Return the seconds of
        the vacuum."""
        left = iter(texts)
        while some := list(islice(left, DOCUMENTS_PER_FILL)):
            self._register(self._prepared(some))
        began = time.perf_counter()
        vacuum_analyze(self.engine)
        return time.perf_counter() - began

    def turn(self, texts: Sequence[DocumentText], matched: int, lmrs: int) -> TimedRound:
        """Register documents and copy them into the floor table. Check the number of new matches and of notified
        LMRs."""
        batch = self._prepared(texts)
        began = time.perf_counter()
        answers = self._register(batch)
        seconds = time.perf_counter() - began
        for answer in answers:
            if (answer.matched, answer.lmrs) != (matched, lmrs):
                raise AssertionError(
                    f"{answer.document}: {answer.matched} resources matched and {answer.lmrs} LMRs were notified,"
                    f" expected {matched} and {lmrs}."
                )
        return TimedRound(seconds, self.bench.floor.copy(batch))

    def delete(self, uri: str) -> None:
        self._register([Prepared(uri, None, self._schema.version)])

    def changes(self) -> list[tuple[int, str, bool]]:
        """Return the changes of the last registration: end rule, resource, and whether it matches now."""
        with self.engine.begin() as connection:
            return read_match_changes(connection)

    def _prepared(self, texts: Iterable[DocumentText]) -> list[Prepared]:
        return [prepare(uri, body, self._media_type, self._schema) for uri, body in texts]

    def _register(self, batch: Sequence[Prepared]) -> list[RegistrationOutcome]:
        bench = self.bench
        with self.engine.begin() as connection:
            answers = register(connection, batch, bench.provider)
        for answer in answers:
            if not isinstance(answer, RegistrationOutcome):
                raise answer
        return [answer for answer in answers if isinstance(answer, RegistrationOutcome)]
