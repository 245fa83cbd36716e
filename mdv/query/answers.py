"""Answers to queries, and how large they may be: alike at an MDP and at an LMR."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mdv.errors import BadRequest
from mdv.model import Statement, Term
from mdv.rules.returns import NormalQuery

DEFAULT_ROWS = 1000
MAX_CHARACTERS = 32 * 1024 * 1024
"""Of all rows of an answer together."""
DEFAULT_RESOURCES, MAX_RESOURCES = 100, 1000


@dataclass(frozen=True, slots=True)
class Rows:
    """The answer to a query with `return`; `truncated`: there are more rows than these."""

    columns: tuple[str, ...]
    rows: list[tuple[Term | None, ...]]
    truncated: bool


@dataclass(frozen=True, slots=True)
class Resources:
    """The answer to a rule: a page of URIs with their direct classes, and after which one the next page begins."""

    items: list[tuple[str, list[str]]]
    next: str | None
    statements: list[Statement]
    """What is said of them, where that was asked for."""


def too_costly(seconds: int) -> str:
    """What is said of a query that took longer."""
    return (
        f"The query took longer than {seconds} s, and was given up. Compare something with a constant, join the"
        " variables by =, or search a smaller class."
    )


def most_rows(query: NormalQuery, limit: int | None) -> int:
    """How many rows are told: of `limit` and the query's own limit the smaller counts."""
    return min(limit or query.limit or DEFAULT_ROWS, query.limit or limit or DEFAULT_ROWS)


def refuse_pages(after: str | None) -> None:
    """Rows have no pages."""
    if after is not None:
        raise BadRequest("`after` pages through resources; rows have `order by` and `limit` in the query.")


def page_size(limit: int | None) -> int:
    """How many resources a page has."""
    if limit is not None and limit > MAX_RESOURCES:
        raise BadRequest(f"A page has at most {MAX_RESOURCES:,} resources; `after` takes the `next` of the page.")
    return limit or DEFAULT_RESOURCES


def gather_rows(query: NormalQuery, found: Iterable[Sequence[str | None]], most: int, room: int) -> Rows:
    """The answer out of the rows that were found, one more than `most` where there are more; `room` is for so many
    characters."""
    columns = tuple(path.shown for path in query.returns)
    rows: list[tuple[Term | None, ...]] = []
    for row in found:
        room -= sum(len(text) for text in row if text is not None)
        if len(rows) == most or (room < 0 and rows):
            return Rows(columns, rows, True)
        rows.append(tuple(_term(*row[at : at + 4]) for at in range(0, len(row), 4)))
    return Rows(columns, rows, False)


def _term(uri: str | None, value: str | None, lang: str | None, datatype: str | None) -> Term | None:
    """A value as it comes: URI, text, language and datatype."""
    if uri is not None:
        return Term.uri(uri)
    return None if value is None else Term.literal(value, lang, datatype)
