"""Find which suspended rules of an LMR matched a resource when they were suspended.

A suspended rule is evaluated for one resource, as of the position at which it was suspended, within a time limit.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from mdv.db.filter import CompiledStatement, compile_statement, limit_time, statements_as_of
from mdv.db.rule_graph import RuleGraph
from mdv.db.suspensions import KeptEnd, Suspensions
from mdv.inspect.match_origins import select_if_matching
from mdv.inspect.sql.explain_resource import EvidenceReader, stop_when_slow
from mdv.inspect.sql.explain_rule import ReadOnlyVocabulary
from mdv.mdp.groups import read_names, statement_states
from mdv.query.compile import StatementView
from mdv.rdf.schema import Schema
from mdv.rules.pattern import Pattern


def suspended_matches(
    connection: Connection, resource: int, rules: Collection[int], schema: Schema, seconds: float, some: bool
) -> dict[int, bool | None]:
    """Return for each of these suspended rules whether it selects a resource; None if unknown within the time limit.

    `some`: at least one of them is known to select it.
    """
    ends: dict[int, list[KeptEnd]] = defaultdict(list)
    for end in Suspensions(connection).kept_ends(rules):
        if end.rule_id in rules:
            ends[end.rule_id].append(end)
    matched = [rule for rule in rules if rule in ends]
    answers: dict[int, bool | None] = {rule: None if rule in ends else False for rule in rules}
    if some and len(matched) == 1:
        answers[matched[0]] = True
        return answers
    deadline = time.monotonic() + seconds
    past = _PastEvaluation(connection, [end for of_rule in ends.values() for end in of_rule], schema)
    for rule in matched:
        found = [past.matches(end, resource, deadline - time.monotonic()) for end in ends[rule]]
        answers[rule] = True if True in found else None if None in found else False
    return answers


class _PastEvaluation:
    """Evaluates end rules of suspended rules as of their positions. Those with the same pattern are compiled once."""

    def __init__(self, connection: Connection, ends: Sequence[KeptEnd], schema: Schema) -> None:
        self._connection, self._evidence = connection, EvidenceReader(connection)
        patterns = {Pattern.from_json(end.pattern) for end in ends}
        names = read_names(RuleGraph(connection), patterns, schema, ReadOnlyVocabulary(connection), None)
        self._state: StatementView = replace(statement_states(names)[0], make=statements_as_of)
        self._compiled: dict[Pattern, CompiledStatement] = {}

    def matches(self, end: KeptEnd, resource: int, seconds: float) -> bool | None:
        if resource <= end.after or (end.up_to is not None and resource > end.up_to):
            return False  # its matches are being added or subtracted in chunks
        if seconds <= 0:
            return None
        pattern = Pattern.from_json(end.pattern)
        if pattern not in self._compiled:
            self._compiled[pattern] = compile_statement(select_if_matching(self._state, pattern))
        constants = {f"constant{number}": value for number, value in enumerate(end.constants)}
        with stop_when_slow(self._connection, seconds):
            limit_time(self._connection, seconds)
            return bool(self._evidence.run(self._compiled[pattern], root=resource, position=end.as_of, **constants))
        return None
