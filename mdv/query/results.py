"""Results of queries and their limits. The same for MDPs and LMRs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from mdv.errors import BadRequest, TooCostly
from mdv.model import Statement, Term
from mdv.rules.normalise_query import NormalQuery

DEFAULT_ROWS = 1000
MAX_RESULT_CHARACTERS = 32 * 1024 * 1024
"""Characters of all rows of a result together."""
DEFAULT_RESOURCES_PER_PAGE, MAX_RESOURCES_PER_PAGE = 100, 1000
MAX_STATEMENTS_PER_PAGE = 50_000
"""Statements of all resources of a page together, if statements are requested."""


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The result of a query with `return`. `truncated` means that there are more rows."""

    columns: tuple[str, ...]
    rows: list[tuple[Term | None, ...]]
    truncated: bool


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """The result of a rule: a page of URIs with their direct classes. The next page starts after the URI `next`."""

    items: list[tuple[str, list[str]]]
    next: str | None
    statements: list[Statement]
    """The statements of the resources, if requested."""


def timeout_message(seconds: int) -> str:
    """Return the error text for a query that exceeded its time limit."""
    return (
        f"The query timed out after {seconds} s. Add a predicate with a constant, join the variables by =, or search a"
        " smaller class."
    )


def check_statement_count(found: list[Statement] | None) -> list[Statement]:
    """Return the statements of a page in order. Raise `TooCostly` if there are too many (`found` is None)."""
    if found is None:
        raise TooCostly(
            f"The resources of this page have more than {MAX_STATEMENTS_PER_PAGE:,} statements. Request fewer resources"
            " with `limit`, their URIs as JSON, or a single resource with GET /resources."
        )
    return sorted(found, key=Statement.sort_key)


@contextmanager
def refuse_deep_queries() -> Iterator[None]:
    """Turn a `RecursionError` into `TooCostly`. The SQL compiler is recursive, and a query within the limits of the
    language can still be nested too deeply for it."""
    try:
        yield
    except RecursionError:
        raise TooCostly(
            "The query has a chain of joins that is too long. Shorten its paths, or split it into several queries."
        ) from None


def row_limit(query: NormalQuery, limit: int | None) -> int:
    """Return the number of rows to return: the smaller of `limit` and the limit in the query."""
    return min(limit or query.limit or DEFAULT_ROWS, query.limit or limit or DEFAULT_ROWS)


def refuse_paging(after: str | None) -> None:
    """Raise `BadRequest` if a query with `return` is paged with `after`."""
    if after is not None:
        raise BadRequest("`after` is for pages of resources. For rows, use `order by` and `limit` in the query.")


def page_size(limit: int | None) -> int:
    """Return the number of resources of a page."""
    if limit is not None and limit > MAX_RESOURCES_PER_PAGE:
        raise BadRequest(
            f"A page has at most {MAX_RESOURCES_PER_PAGE:,} resources. For the next page, set `after` to `next`."
        )
    return limit or DEFAULT_RESOURCES_PER_PAGE


def collect_rows(
    query: NormalQuery, found: Iterable[Sequence[str | None]], most: int, max_characters: int
) -> QueryRows:
    """Return the result for the rows found, with at most `most` rows and `max_characters` characters.

    `found` has one row more than `most` if there are more rows.
    """
    characters_left = max_characters
    columns = tuple(path.shown for path in query.returns)
    rows: list[tuple[Term | None, ...]] = []
    for row in found:
        characters_left -= sum(len(text) for text in row if text is not None)
        if len(rows) == most or (characters_left < 0 and rows):
            return QueryRows(columns, rows, True)
        rows.append(tuple(_term(*row[at : at + 4]) for at in range(0, len(row), 4)))
    return QueryRows(columns, rows, False)


def _term(uri: str | None, value: str | None, lang: str | None, datatype: str | None) -> Term | None:
    """Return the term for the columns URI, text, language and datatype."""
    if uri is not None:
        return Term.uri(uri)
    return None if value is None else Term.literal(value, lang, datatype)
