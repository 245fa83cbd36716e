"""Readers: copies of later transactions that may have read what a compensation undoes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cache

from sqlalchemy import Connection

from mdv.db.eca.rules import read_normal_texts
from mdv.db.eca.runs import StoredRun, read_later_runs
from mdv.errors import InvalidRule
from mdv.mdp.eca.abort_graph import AbortGraph, CopyKey
from mdv.mdp.eca.run import CopyState
from mdv.model import Statement
from mdv.rdf.schema import Schema
from mdv.rdftl.compile import compile_rules
from mdv.rdftl.footprint import Footprint, footprint
from mdv.rdftl.readers import may_read, statement_accesses

MAX_LATER_RUNS = 1_000
"""Later runs in which readers are searched."""

StatementsOf = Callable[[Collection[CopyKey]], Iterable[Statement]]


def find_readers(
    connection: Connection,
    schema: Schema,
    graph: AbortGraph,
    selected: Collection[CopyKey],
    statements_of: StatementsOf,
    most: int,
) -> tuple[set[CopyKey], int]:
    """Return the copies that may have read what `selected` changed, with those that are compensated with them, and how
    many are left out because there are more than `most`.

    A copy whose event an undone update raised is no reader: its ABORT says what becomes of it. `statements_of` returns
    the statements that copies changed.
    """

    @cache
    def footprint_of(rule: int) -> Footprint | None:
        texts = read_normal_texts(connection, [rule])
        try:
            return footprint(compile_rules(texts[rule], schema)[0].rule, schema) if rule in texts else None
        except InvalidRule:
            return None

    first = min(graph.runs[key.run].position or 0 for key in selected)
    later = read_later_runs(connection, first, MAX_LATER_RUNS)
    found: set[CopyKey] = set()
    left_out: set[CopyKey] = set()
    todo = set(selected)
    while todo:
        accesses = statement_accesses(statements_of(todo), schema)
        known = set(selected) | found
        readers = []
        for run in later:
            for number, copy in enumerate(run.copies):
                key = CopyKey(run.id, number)
                if key in known or number in run.compensated or copy.state != CopyState.DONE:
                    continue
                rule = footprint_of(copy.rule)
                if _is_later(run, number, todo, graph) and rule is not None and may_read(rule, accesses):
                    readers.append(key)
        taken = readers[: max(0, most - len(found))]
        left_out.update(readers[len(taken) :])
        todo = graph.closure(taken) - known
        found |= todo
    return found, len(left_out - found)


def _is_later(run: StoredRun, copy: int, keys: Collection[CopyKey], graph: AbortGraph) -> bool:
    """True if a copy ran after one of `keys`, and no update of these triggered it."""
    parent = CopyKey(run.id, run.copies[copy].parent)
    if parent in keys:
        return False
    here = (run.position or 0, run.id, copy)
    return any((graph.runs[key.run].position or 0, key.run, key.copy) < here for key in keys)
