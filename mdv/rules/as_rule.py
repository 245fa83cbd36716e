"""A query's text made into another text: the rule that registers what the query finds, the same query in another order.

Law: what the author wrote of `search` and `where` stays as it is, to the letter.
"""

from __future__ import annotations

import re

from mdv.rules.ast import ParsedQuery

_RETURN = len("return")
_DIRECTION = re.compile(r"\s*(?ai:asc|desc)(?![\w-])")


def registrable(query: ParsedQuery) -> list[str]:
    """The variables that a rule could register: those that are returned first, in that order.

    >>> from mdv.rules.parse import parse_query
    >>> registrable(parse_query("search A a, B b, C c where a.p = b return c.q, b, c"))
    ['c', 'b', 'a']
    """
    returned = [path.variable.text for path in query.returns]
    searched = [extension.variable.text for extension in query.search]
    return [name for name in dict.fromkeys([*returned, *searched]) if name in searched]


def as_rule(query: ParsedQuery, register: str | None = None) -> str:
    """The rule that registers what a variable stands for in the rows of a query; without one, the first returned.

    >>> from mdv.rules.parse import parse_query
    >>> as_rule(parse_query("search X c where c.h = 'return' return c, c.h order by c.h limit 5"))
    "search X c register c where c.h = 'return'"
    """
    end = query.search[-1].variable.span.end
    search, between = query.text[:end].lstrip(), query.text[end : query.returns[0].span.start]
    # Before the first path there is the word `return`, and before that the whole of `where`, if there is one.
    where = between.rstrip()[:-_RETURN].strip()
    space = "\n" if "\n" in between else " "
    return space.join(part for part in (search, f"register {register or registrable(query)[0]}", where) if part)


def ordered_by(query: ParsedQuery, column: int, descending: bool) -> str:
    """The same query in the order of one of its columns alone.

    >>> from mdv.rules.parse import parse_query
    >>> ordered_by(parse_query("search X c return c, c.h order by c asc limit 5"), 1, True)
    'search X c return c, c.h order by c.h desc limit 5'
    """
    text, end = query.text, query.returns[-1].span.end
    rest, space = text[end:], "\n" if "\n" in text[:end] else " "
    if query.order:
        after = query.order[-1].path.span.end
        said = _DIRECTION.match(text, after)
        rest = text[said.end() if said else after :]
    path = query.returns[column].span
    order = f"{text[:end]}{space}order by {text[path.start : path.end]}{' desc' if descending else ''}"
    rest = rest.strip()
    return f"{order}{space}{rest}" if rest else order
