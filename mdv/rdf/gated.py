"""The text that has passed the gate, and the errors of the gate."""

from __future__ import annotations

from dataclasses import dataclass, field

from lxml import etree

from mdv.errors import Flaw, NotWellFormed
from mdv.rdf.syntax import Syntax

MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Gated:
    """A text that has passed the gate, as UTF-8. For RDF/XML also its tree, which is used to find line numbers.

    `long_values` maps placeholders in `text` to strings that are too long for the JSON-LD parser.
    """

    text: bytes
    syntax: Syntax
    tree: etree._Element | None = None
    prefixes: dict[str, str] = field(default_factory=dict)
    long_values: dict[str, str] = field(default_factory=dict)


def summarise_flaws(flaws: list[Flaw], what: str) -> str:
    """Return a sentence with the only error, or with the number of errors.

    >>> summarise_flaws([Flaw("no such thing", line=3)], "The Turtle")
    'The Turtle has an error: line 3: no such thing.'
    """
    return f"{what} has an error: {flaws[0]}." if len(flaws) == 1 else f"{what} has {len(flaws)} errors."


def line_and_column(before: str) -> tuple[int, int]:
    """Return the line and column, counted from 1, of the position after `before`."""
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def not_well_formed(syntax: Syntax, reason: str, line: int | None, column: int | None) -> NotWellFormed:
    flaw = Flaw(reason, line, column)
    return NotWellFormed(f"The {syntax.label} is not well-formed: {flaw}.", [flaw])


def too_deep(syntax: Syntax, line: int | None, column: int | None) -> NotWellFormed:
    flaw = Flaw(f"more than {MAX_DEPTH} levels of nesting", line, column)
    return NotWellFormed(
        f"The {syntax.label} is nested more than {MAX_DEPTH} levels deep. Refer to inner resources by URI.",
        [flaw],
    )
