"""URIs made from the places of files."""

from __future__ import annotations

import os
from urllib.parse import quote

_ENDS = ("/", "#", ":", "=", "?", "-", "_")
"""A base that ends so is complete; any other is a folder."""


def below(base: str, relative: str) -> str:
    """The URI of a file below a base.

    >>> below("http://example.org", "a b.ttl"), below("urn:books:", "1.rdf")
    ('http://example.org/a%20b.ttl', 'urn:books:1.rdf')
    """
    return base + ("" if base.endswith(_ENDS) else "/") + quoted(relative)


def quoted(path: str) -> str:
    """A path as it stands in a URI; names that are no UTF-8 keep their bytes."""
    return quote(os.fsencode(path), safe="/")
