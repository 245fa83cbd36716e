"""The examples of programs that the console offers: those of the paper, on the works of art of the demo."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

ART = "http://mdv.example/art#"
EXAMPLES = ("example-5", "example-6", "example-6b", "example-6c", "count", "what-if", "hand-over")
COMPARED = ("example-6", "example-6b", "example-6c")
"""Examples that are shown side by side: three ways to give Bill Viola's works another creator."""
PRESENT_ARTIST, ABSENT_ARTIST = "ex:BillViola", "ex:AnnHamilton"
"""An artist with works, and one without."""


class ProgramExample(NamedTuple):
    """An example: the name of its file, its title, and its code without the title."""

    name: str
    title: str
    code: str


@cache
def program_examples() -> dict[str, ProgramExample]:
    """Return the examples by name, in the order in which they are offered.

    >>> program_examples()["example-5"].title
    '(5) The works of Bill Viola'
    """
    found = {}
    for name in EXAMPLES:
        text = files("mdv").joinpath("demo", "art", f"{name}.real").read_text("utf-8")
        title, _, code = text.partition("\n")
        found[name] = ProgramExample(name, title.removeprefix("//").strip(), code.strip())
    return found
