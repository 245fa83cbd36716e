"""URIs made from file paths, and the check for dot segments."""

from __future__ import annotations

import os
import re
from urllib.parse import quote

_ENDS = ("/", "#", ":", "=", "?", "-", "_")
"""A base with one of these endings is used as it is; to any other, a slash is appended."""


def join_uri(base: str, relative: str) -> str:
    """Return the URI of a file below a base.

    >>> join_uri("http://example.org", "a b.ttl"), join_uri("urn:books:", "1.rdf")
    ('http://example.org/a%20b.ttl', 'urn:books:1.rdf')
    """
    return base + ("" if base.endswith(_ENDS) else "/") + quote_path(relative)


def quote_path(path: str) -> str:
    """Return a path percent-encoded for a URI. The bytes of names that are not UTF-8 are kept."""
    return quote(os.fsencode(path), safe="/")


_DOT_SEGMENT = re.compile(r"(?:/|%2f|%5c)(?:\.|%2e){1,2}(?:/|%2f|%5c|$)", re.IGNORECASE)


def has_dot_segments(uri: str) -> bool:
    """True if the path of a URI has a segment `.` or `..`, plain or percent-encoded (RFC 3986, section 5.2.4).

    >>> [has_dot_segments(uri) for uri in ("http://a/x/../y", "http://a/x/%2E.", "http://a/x%2f..%2Fy", "http://a/./y")]
    [True, True, True, True]
    >>> [has_dot_segments(uri) for uri in ("http://a/x..y/.z/...", "http://a/x?y=/../", "http://a/x#/../y")]
    [False, False, False]
    """
    return _DOT_SEGMENT.search(re.split("[?#]", uri, maxsplit=1)[0]) is not None
