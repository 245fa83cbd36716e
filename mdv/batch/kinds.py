"""Kinds: what a file's name says it is: a document, an archive of documents, a dump, or none of them."""

from __future__ import annotations

import re

from mdv.batch.unpack import without_packing
from mdv.rdf.syntax import SYNTAXES, Syntax, syntax_of_name

SUFFIXES = sorted(suffix for syntax in SYNTAXES for suffix in syntax.suffixes)

_PACKING = r"(\.(gz|bz2|xz))?"
DOCUMENT = rf"(?i)({'|'.join(map(re.escape, SUFFIXES))}){_PACKING}$"
ARCHIVE = r"(?i)\.(tar|tar\.(gz|bz2|xz)|tgz|tbz2|txz|zip)$"
DUMP = rf"(?i)\.(nt|nq){_PACKING}$"
"""Regular expressions for the end of a path, the same in Python and in Spark. N-Triples may be either: without --syntax
they are a dump."""


def syntax_of_file(name: str, said: str | None) -> Syntax:
    """The syntax that was said, or that of the file's suffix.

    >>> syntax_of_file("books/pg84.RDF.gz", None).label
    'RDF/XML'
    """
    return syntax_of_name(said or without_packing(name)[0])
