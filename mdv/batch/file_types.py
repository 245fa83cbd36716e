"""Recognize file types by name: documents, archives of documents, and dumps."""

from __future__ import annotations

import re

from mdv.batch.decompress import split_compression_suffix
from mdv.rdf.syntax import SYNTAXES, Syntax, syntax_of_name

DOCUMENT_SUFFIXES = sorted(suffix for syntax in SYNTAXES for suffix in syntax.suffixes)

_COMPRESSION = r"(\.(gz|bz2|xz))?"
DOCUMENT_PATTERN = rf"(?i)({'|'.join(map(re.escape, DOCUMENT_SUFFIXES))}){_COMPRESSION}$"
ARCHIVE_PATTERN = r"(?i)\.(tar|tar\.(gz|bz2|xz)|tgz|tbz2|txz|zip)$"
DUMP_PATTERN = rf"(?i)\.(nt|nq){_COMPRESSION}$"
"""Regular expressions for the end of a path, valid in Python and in Spark. N-Triples files match two of them; without
--syntax they are dumps."""


def syntax_of_file(name: str, given: str | None) -> Syntax:
    """Return the given syntax, or the syntax of the file's suffix.

    >>> syntax_of_file("books/pg84.RDF.gz", None).label
    'RDF/XML'
    """
    return syntax_of_name(given or split_compression_suffix(name)[0])
