"""What has passed the gate, and the words in which the gate refuses."""

from __future__ import annotations

from dataclasses import dataclass, field

from lxml import etree

from mdv.errors import Flaw, NotWellFormed
from mdv.rdf.syntax import Syntax

MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Gated:
    """A text that has passed: UTF-8, and for RDF/XML the tree it was read as (to find lines in later)."""

    text: bytes
    syntax: Syntax
    tree: etree._Element | None = None
    prefixes: dict[str, str] = field(default_factory=dict)


def count_flaws(flaws: list[Flaw], what: str) -> str:
    """One flaw in full, or how many there are.

    >>> count_flaws([Flaw("no such thing", line=3)], "The Turtle")
    'The Turtle has an error: line 3: no such thing.'
    """
    return f"{what} has an error: {flaws[0]}." if len(flaws) == 1 else f"{what} has {len(flaws)} errors."


def place(before: str) -> tuple[int, int]:
    """Line and column, counted from 1, of what follows `before`."""
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def not_well_formed(syntax: Syntax, reason: str, line: int | None, column: int | None) -> NotWellFormed:
    flaw = Flaw(reason, line, column)
    return NotWellFormed(f"The {syntax.label} is not well-formed: {flaw}.", [flaw])


def too_deep(syntax: Syntax, line: int | None, column: int | None) -> NotWellFormed:
    flaw = Flaw(f"more than {MAX_DEPTH} levels of nesting", line, column)
    return NotWellFormed(
        f"The {syntax.label} is nested more than {MAX_DEPTH} levels deep. Refer to inner resources by their URI.",
        [flaw],
    )
