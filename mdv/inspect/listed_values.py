"""Bounded counts and shortened literals, for lists of values at the MDP and in the cache of an LMR."""

from __future__ import annotations

from dataclasses import dataclass

from mdv.model import Term

MAX_LITERAL_CHARACTERS = 400
"""Longer literals are shortened in lists."""


@dataclass(frozen=True, slots=True)
class BoundedCount:
    """A number, or a lower bound if `more` is set."""

    count: int
    more: bool


@dataclass(frozen=True, slots=True)
class ListedLiteral:
    """A literal of a resource, shortened unless it is `whole`. The property and the `hash` identify it among the
    literals of the resource."""

    property: str
    hash: int
    text: str
    bytes: int
    whole: bool
    lang: str | None
    datatype: str | None

    def term(self) -> Term:
        """Return the possibly shortened value as a term, for sorting."""
        return Term.literal(self.text, self.lang, self.datatype)
