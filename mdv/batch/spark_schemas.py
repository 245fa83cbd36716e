"""The columns of the tables in Spark: input documents, and refused documents."""

from __future__ import annotations

DOCUMENT_COLUMNS = "source string, uri string, media_type string, content binary, rank string, problem string"
"""A document: its source, URI, media type and text, its rank in the input order (of several documents with one URI, the
last one that is not refused counts), and the problem, as JSON, if it is refused already."""

LISTING_COLUMNS = "source string, uri string, rank string"
"""The same without the texts: the list of documents before any of them is read."""

REJECT_COLUMNS = (
    "document string, source string, reason string, type string, line int, column int, "
    "flaws array<struct<message string, line int, column int>>, problem string"
)
"""A refused document: the reason, its place in the text, every flaw, and the whole problem as JSON."""
