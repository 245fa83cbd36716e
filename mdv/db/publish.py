"""Publication: turn the results of the filter into events in the feeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from mdv.db.load_sql import load_sql
from mdv.db.pipeline import PendingResult, Pipeline, TextRow
from mdv.db.postgres_copy import array_literal


class ReferenceChanges(NamedTuple):
    """New strong references, as sources and targets, and the targets of removed ones."""

    sources: Sequence[int] = ()
    targets: Sequence[int] = ()
    lost: Collection[int] = ()


class RuleNotices(NamedTuple):
    """Rules that events are published for, each with the LMR that owns it."""

    lmrs: Sequence[int] = ()
    rules: Sequence[int] = ()

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> RuleNotices:
        """Return the notices for pairs of LMR and rule. Rules of the provider itself (LMR 0) have no notices."""
        with_lmr = [(lmr, rule) for lmr, rule in pairs if lmr]
        return cls([lmr for lmr, _ in with_lmr], [rule for _, rule in with_lmr])


class PublishedCounts(NamedTuple):
    """The number of published events, and of LMRs that received any."""

    events: int
    lmrs: int


class Publication:
    """One publication, within the transaction at `tx`. It takes place when the pipeline is sent."""

    def __init__(self, pipeline: Pipeline, tx: int, last_offset: int, strong: Iterable[int]) -> None:
        self._exchange = pipeline
        self._sql = load_sql("publish")
        self._tx = tx
        self._last_offset = last_offset
        self._strong = array_literal(strong)

    def publish_changes(
        self, changed: Iterable[int], gone: Collection[int], returned: Collection[int], references: ReferenceChanges
    ) -> Callable[[], PublishedCounts]:
        """Publish after a run of the filter: changed resources, deleted ones, ones that are described again and still
        match a rule, and changes of strong references."""
        self._run("begin_publication")
        self._run("count_reasons")
        if gone:
            self._run("note_gone", gone=array_literal(gone))
        if returned:
            self._run("note_returned", returned=array_literal(returned))
        return self._finish(changed, references)

    def publish_rules(self, kind: int = 0, notices: RuleNotices | None = None) -> Callable[[], PublishedCounts]:
        """Publish after a change of rules: the selection changes of `reason_changes`, and notices of a kind."""
        self._run("begin_publication")
        if notices is not None and notices.rules:
            self._run("announce", lmrs=array_literal(notices.lmrs), rules=array_literal(notices.rules), kind=kind)
        self._run("count_rule_reasons")
        self._run("clear_reason_changes")
        return self._finish((), ReferenceChanges())

    def publish_schema(
        self, stronger: Collection[int], weaker: Collection[int], notices: Mapping[int, RuleNotices]
    ) -> Callable[[], PublishedCounts]:
        """Publish after a change of the schema: the selection changes of `reason_changes`, properties that became
        strong or weak, and notices by their kind. Every LMR receives the schema."""
        self._run("begin_publication")
        for kind, some in notices.items():
            if some.rules:
                self._run("announce", lmrs=array_literal(some.lmrs), rules=array_literal(some.rules), kind=kind)
        self._run("count_rule_reasons")
        self._run("clear_reason_changes")
        if stronger:
            self._run("note_new_strong", stronger=array_literal(stronger), strong=self._strong)
        if weaker:
            self._run("doubt_weaker", weaker=array_literal(weaker))
            self._run("doubt_onward", strong=self._strong)
        return self._finish((), ReferenceChanges(), schema=True)

    def _finish(
        self, changed: Iterable[int], references: ReferenceChanges, schema: bool = False
    ) -> Callable[[], PublishedCounts]:
        sources, targets = array_literal(references.sources), array_literal(references.targets)
        self._run("enter", sources=sources, targets=targets, strong=self._strong)
        self._run("doubt", lost=array_literal(references.lost), strong=self._strong)
        self._run("trust", strong=self._strong)
        if schema:
            self._run("note_leaving")
        self._run("leave")
        self._run("note_changed", changed=array_literal(changed))
        written = self._run("write_feed", tx=self._tx, last_offset=self._last_offset, schema=schema)

        def published() -> PublishedCounts:
            (row,) = written.rows() or [("0", "0")]
            return PublishedCounts(*(int(number or 0) for number in row))

        return cache(published)

    def lmrs_by_resource(self) -> dict[int, list[int]]:
        """Return the LMRs that received an event, by resource."""
        lmrs = defaultdict(list)
        for resource, lmr in self._fetch("lmrs_by_resource"):
            lmrs[int(resource or 0)].append(int(lmr or 0))
        return lmrs

    def list_notified_lmrs(self, most: int) -> list[str]:
        """List the names of the LMRs that received an event."""
        return [name or "" for (name,) in self._fetch("notified_lmrs", tx=self._tx, most=most)]

    def _fetch(self, name: str, **values: object) -> list[TextRow]:
        answer = self._run(name, **values)
        self._exchange.send()
        return answer.rows()

    def _run(self, name: str, **values: object) -> PendingResult:
        return self._exchange.queue_named(self._sql[name], **values)
