"""Rewrite the text of a query: as a rule that registers what the query finds, or with another order.

Law: the text of `search` and `where` is not changed.
"""

from __future__ import annotations

import re

from mdv.rules.ast import ParsedQuery

_RETURN = len("return")
_DIRECTION = re.compile(r"\s*(?ai:asc|desc)(?![\w-])")


def registrable_variables(query: ParsedQuery) -> list[str]:
    """Return the variables that a rule can register, with the returned ones first.

    >>> from mdv.rules.parse import parse_query
    >>> registrable_variables(parse_query("search A a, B b, C c where a.p = b return c.q, b, c"))
    ['c', 'b', 'a']
    """
    returned = [path.variable.text for path in query.returns]
    searched = [extension.variable.text for extension in query.search]
    return [name for name in dict.fromkeys([*returned, *searched]) if name in searched]


def query_to_rule(query: ParsedQuery, register: str | None = None) -> str:
    """Return the rule that registers the values of a variable in the rows of a query. Defaults to the first returned.

    >>> from mdv.rules.parse import parse_query
    >>> query_to_rule(parse_query("search X c where c.h = 'return' return c, c.h order by c.h limit 5"))
    "search X c register c where c.h = 'return'"
    """
    end = query.search[-1].variable.span.end
    search, between = query.text[:end].lstrip(), query.text[end : query.returns[0].span.start]
    # Before the first path is the keyword `return`, and before that the `where` part, if there is one.
    where = between.rstrip()[:-_RETURN].strip()
    space = "\n" if "\n" in between else " "
    return space.join(
        part for part in (search, f"register {register or registrable_variables(query)[0]}", where) if part
    )


def reorder_query(query: ParsedQuery, column: int, descending: bool) -> str:
    """Return the same query ordered by one of its columns only.

    >>> from mdv.rules.parse import parse_query
    >>> reorder_query(parse_query("search X c return c, c.h order by c asc limit 5"), 1, True)
    'search X c return c, c.h order by c.h desc limit 5'
    """
    text, end = query.text, query.returns[-1].span.end
    rest, space = text[end:], "\n" if "\n" in text[:end] else " "
    if query.order:
        after = query.order[-1].path.span.end
        direction = _DIRECTION.match(text, after)
        rest = text[direction.end() if direction else after :]
    path = query.returns[column].span
    order = f"{text[:end]}{space}order by {text[path.start : path.end]}{' desc' if descending else ''}"
    rest = rest.strip()
    return f"{order}{space}{rest}" if rest else order
