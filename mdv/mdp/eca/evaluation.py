"""The evaluation of the events and conditions of all templates that a change triggers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from psycopg.errors import QueryCanceled
from sqlalchemy import Connection

from mdv.db.eca.rule_sql import (
    CHOOSE_PLANS,
    LIFT_LIMIT,
    LIMIT_TIME,
    REUSE_PLANS,
    TemplateQueries,
    running_rules,
)
from mdv.db.eca.rules import prefixes_of
from mdv.db.engine import postgres_duration
from mdv.db.pipeline import PendingResult, Pipeline
from mdv.mdp.eca.actions import NO_COLLECTION, encode_delta
from mdv.mdp.eca.rule_set import LoadedTemplate, RuleSet
from mdv.mdp.eca.slow_rules import RuleTimedOut, SlowPart, SlowRules
from mdv.mdp.schemas import SchemaInForce
from mdv.mdp.write_limits import WriteLimits
from mdv.rdftl.events import Deltas
from mdv.rdftl.model import Delta

SEPARATE_RULES_PER_MESSAGE = 20
"""Rules of a template that are evaluated one by one, between two checks of the time limit."""


class EvaluatedTransaction(Protocol):
    """The transaction whose changes are evaluated."""

    connection: Connection
    schema: SchemaInForce
    position: int


class FiredRule(NamedTuple):
    """A rule that fires, as it is stored."""

    id: int
    name: str | None
    rule_set: str
    state: str
    rank: tuple[int, ...]
    constants: tuple[str, ...]
    limits: WriteLimits

    @property
    def label(self) -> str:
        return self.name or f"rule {self.id}"


Firing: TypeAlias = tuple[LoadedTemplate, FiredRule, Delta | None]
"""A rule that fires, with its template and an instantiation of `$delta`."""


class RuleFailure(NamedTuple):
    """A rule whose event or condition failed."""

    template: LoadedTemplate
    rule: FiredRule
    reason: str


class _Query(NamedTuple):
    """A query of a template. `rule`: the only rule that it is for, if the rules are evaluated one by one."""

    template: LoadedTemplate
    deltas: list[Delta]
    result: PendingResult
    rule: int | None = None
    is_bad: bool = False
    """It finds rules that fail."""


class Evaluation:
    """The evaluation of the events and conditions of all templates that a change triggers.

    `seconds`: the time limit of one query. `check_time`: raises an error if all of them took too long. `failing`: rules
    that fail, by ID, once everything is evaluated.
    """

    def __init__(
        self,
        tx: EvaluatedTransaction,
        rules: RuleSet,
        deltas: Deltas,
        slow: SlowRules,
        seconds: float,
        check_time: Callable[[], None],
    ) -> None:
        self._tx, self._slow, self._seconds, self._check_time = tx, slow, seconds, check_time
        self._triggered = [(template, found) for key, found in deltas.items() for template in rules.by_key[key]]
        self._deltas = {
            id(found): json.dumps([encode_delta(one, n, tx.schema) for n, one in enumerate(found)], ensure_ascii=False)
            for found in deltas.values()
        }
        self._pairs: dict[int, str] = {}
        self.failing: dict[int, RuleFailure] = {}
        self._one_by_one: dict[int, list[int]] = {}
        """The rules of templates that are evaluated rule by rule, without those that are known to be slow."""

    def look_before(self, written: Pipeline | None) -> None:
        """Evaluate those parts of events that look at the state before the change. `written`: its rows, which are
        written before the queries, so that this state is partly in the history."""
        if self._slow.templates:
            if written is not None:
                written.send()
            self._separate()
        pipeline, pending = written or Pipeline(self._tx.connection), list[_Query]()
        values = {} if written is None else {"position": self._tx.position}
        for template, found in self._triggered:
            queries = self._queries(template)
            sql = queries.before_flush if written is None else queries.before
            bad = queries.bad_elements_before_flush if written is None else queries.bad_elements_before
            if sql is None:
                continue
            if not pending:
                pipeline.queue(LIMIT_TIME, [postgres_duration(self._seconds)])
            pending += self._queue(pipeline, template, found, sql, bad, values)
        if not pending:
            return
        pipeline.queue(LIFT_LIMIT)
        self._send(pipeline, pending)
        pairs: dict[int, list[dict[str, int]]] = {query.template.id: [] for query in pending}
        for query in pending:
            if query.is_bad:
                self._note_bad(query)
                continue
            pairs[query.template.id] += [
                {"n": int(n or 0), "rule_id": int(rule or 0)} for n, rule in query.result.rows()
            ]
        self._pairs = {template: json.dumps(found) for template, found in pairs.items()}

    def evaluate(self, written: Pipeline | None) -> list[Firing]:
        """Evaluate the rest on the state after the change. Return the rules that fire."""
        pipeline, pending = written or Pipeline(self._tx.connection), list[_Query]()
        pipeline.queue(REUSE_PLANS, [postgres_duration(self._seconds)])
        for template, found in self._triggered:
            queries = self._queries(template)
            values = {"pairs": self._pairs[template.id]} if queries.before is not None else {}
            pending += self._queue(pipeline, template, found, queries.after, queries.bad_elements, values)
        pipeline.queue(CHOOSE_PLANS)
        self._send(pipeline, pending)
        firing: dict[tuple[int, Delta | None], Firing] = {}
        for query in pending:
            if query.is_bad:
                self._note_bad(query)
        for query in pending:
            if query.is_bad:
                continue
            template = query.template
            for n, *row in query.result.rows():
                rule = _fired_rule(row)
                if rule.id not in self.failing:
                    delta = None if template.is_set_oriented else query.deltas[int(n or 0)]
                    firing[rule.id, delta] = template, rule, delta
        return list(firing.values())

    def _queries(self, template: LoadedTemplate) -> TemplateQueries:
        return template.queries if template.id not in self._one_by_one else template.one_rule_queries

    def _queue(
        self,
        pipeline: Pipeline,
        template: LoadedTemplate,
        deltas: list[Delta],
        sql: str,
        bad: str | None,
        parameters: Mapping[str, object],
    ) -> list[_Query]:
        """Queue a query of a template, or one for each of its rules; and the query of the rules that fail."""
        values = {"deltas": self._deltas[id(deltas)], **parameters}
        rules = self._one_by_one.get(template.id)
        queued: list[_Query] = []
        for text, is_bad in ((sql, False), (bad, True)):
            if text is None:
                continue
            if rules is None:
                queued.append(_Query(template, deltas, pipeline.queue_named(text, **values), None, is_bad))
                continue
            for some in _chunks(rules, SEPARATE_RULES_PER_MESSAGE):
                sent = [
                    _Query(template, deltas, pipeline.queue_named(text, rule=rule, **values), rule, is_bad)
                    for rule in some
                ]
                self._send(pipeline, sent)
                self._check_time()
                queued += sent
        return queued

    def _send(self, pipeline: Pipeline, pending: Sequence[_Query]) -> None:
        try:
            pipeline.send()
        except QueryCanceled:
            for query in pending:
                if query.result is pipeline.failed:
                    raise RuleTimedOut(query.template.id, query.rule, SlowPart(self._seconds)) from None
            raise

    def _separate(self) -> None:
        """Find the rules of templates that are evaluated rule by rule. Those that were too slow alone fail."""
        for template, _ in self._triggered:
            if template.id not in self._slow.templates:
                continue
            with Pipeline(self._tx.connection) as pipeline:
                found = pipeline.queue_named(running_rules(template.id))
            rules = [_fired_rule(row[1:]) for row in found.rows()]
            parts = {rule.id: part for rule in rules if (part := self._slow.part(rule.id)) is not None}
            self.failing |= {
                rule.id: RuleFailure(template, rule, parts[rule.id].reason) for rule in rules if rule.id in parts
            }
            self._one_by_one[template.id] = [rule.id for rule in rules if rule.id not in parts]

    def _note_bad(self, query: _Query) -> None:
        for _, *row in query.result.rows():
            rule = _fired_rule(row)
            self.failing.setdefault(rule.id, RuleFailure(query.template, rule, NO_COLLECTION))


def _chunks(rules: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (rules[start : start + size] for start in range(0, len(rules), size))


def _fired_rule(row: Sequence[str | None]) -> FiredRule:
    number, name, rule_set, state, rank, constants, resources, documents = row
    return FiredRule(
        int(number or 0), name, rule_set or "", state or "", tuple(json.loads(rank or "[]")),
        tuple(json.loads(constants or "[]")), WriteLimits(prefixes_of(documents), prefixes_of(resources)),
    )  # fmt: skip
