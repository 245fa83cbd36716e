"""A store of one size: documents, and rules of several LMRs, none of which runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import islice

from sqlalchemy import Engine

from mdv.bench.registration import Bench
from mdv.bench.scale.series import Timed
from mdv.bench.workload import SCHEMA
from mdv.db.floor import tidy
from mdv.db.lmrs import Lmr
from mdv.mdp.filter import read_changes
from mdv.mdp.register import Outcome, Prepared, prepare, register
from mdv.mdp.rules import RuleDraft, add_rules
from mdv.mdp.subscribe import create_lmr

FILLED_AT_ONCE = 1000

Text = tuple[str, bytes]
"""The URI and the text of a document."""


class Store:
    """It registers, checks what came of it, and lets the floor take its turn."""

    def __init__(self, engine: Engine, turtle: bytes = SCHEMA, media_type: str = "application/rdf+xml") -> None:
        self.engine, self._media_type = engine, media_type
        self.bench = Bench(engine, turtle=turtle)
        self._schema = self.bench.schema()
        self.lmrs: list[Lmr] = []

    def follow(self, wanted: Iterable[Sequence[str]]) -> list[list[int]]:
        """An LMR for each, with these rules; the end rules of each LMR's."""
        bench, drafts, before = self.bench, [], len(self.lmrs)
        with self.engine.begin() as connection:
            for texts in wanted:
                lmr, _ = create_lmr(connection, f"lmr-{len(self.lmrs)}")
                self.lmrs.append(lmr)
                drafts += [RuleDraft(lmr.id, None, text) for text in texts]
        with self.engine.begin() as connection:
            added = add_rules(connection, drafts, bench.schemas, bench.vocabulary, bench.rules)
        ends: dict[int, list[int]] = {lmr.id: [] for lmr in self.lmrs[before:]}
        for draft, rule in zip(drafts, added, strict=True):
            ends[draft.owner].append(rule.ends[0])
        return list(ends.values())

    def fill(self, texts: Iterable[Text]) -> float:
        """Register documents that nobody measures, and vacuum, so that autovacuum finds nothing to do; the seconds of
        that."""
        left = iter(texts)
        while some := list(islice(left, FILLED_AT_ONCE)):
            self._register(self._prepared(some))
        began = time.perf_counter()
        tidy(self.engine)
        return time.perf_counter() - began

    def turn(self, texts: Sequence[Text], matched: int, lmrs: int) -> Timed:
        """Register documents and let the floor copy them. Each of them must have brought as many new matches, and have
        been told to as many LMRs."""
        batch = self._prepared(texts)
        began = time.perf_counter()
        answers = self._register(batch)
        seconds = time.perf_counter() - began
        for answer in answers:
            if (answer.matched, answer.lmrs) != (matched, lmrs):
                raise AssertionError(
                    f"{answer.document}: {answer.matched} resources matched and {answer.lmrs} LMRs were told,"
                    f" not {matched} and {lmrs}."
                )
        return Timed(seconds, self.bench.floor.copy(batch))

    def delete(self, uri: str) -> None:
        self._register([Prepared(uri, None, self._schema.version)])

    def changes(self) -> list[tuple[int, str, bool]]:
        """What the last registration changed: end rule, resource, and whether it matches now."""
        with self.engine.begin() as connection:
            return read_changes(connection)

    def _prepared(self, texts: Iterable[Text]) -> list[Prepared]:
        return [prepare(uri, body, self._media_type, self._schema) for uri, body in texts]

    def _register(self, batch: Sequence[Prepared]) -> list[Outcome]:
        bench = self.bench
        with self.engine.begin() as connection:
            answers = register(connection, batch, bench.schemas, bench.vocabulary, bench.rules)
        for answer in answers:
            if not isinstance(answer, Outcome):
                raise answer
        return [answer for answer in answers if isinstance(answer, Outcome)]
