"""The shape of what travels through Spark: documents on their way in, and those that are refused."""

from __future__ import annotations

DOCUMENTS = "source string, uri string, media_type string, content binary, rank string, problem string"
"""A document: where it came from, its URI, its syntax and text, its place in the order of the input (of
several with one URI the last counts that is not refused), and the problem, as JSON, that refuses it already."""

LISTING = "source string, uri string, rank string"
"""The same without the texts: what is there, before any of it is read."""

REJECTS = (
    "document string, source string, reason string, type string, line int, column int, "
    "flaws array<struct<message string, line int, column int>>, problem string"
)
"""A document that was refused: why, where in its text, every flaw, and the whole problem as JSON."""
