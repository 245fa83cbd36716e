"""The names and URLs of members."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from mdv.errors import BadRequest

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_member_name(name: str) -> str:
    """Return the name of a member. Raise `BadRequest` if it is none.

    >>> check_member_name("m1")
    'm1'
    """
    if not _NAME.fullmatch(name):
        raise BadRequest(f"{name[:80]!r} is not a name: use up to 64 letters, digits and the characters . _ -")
    return name


def check_member_url(url: str, allows_plain: bool = False) -> str:
    """Return the URL of a member without a final slash. Raise `BadRequest` if members must not use it.

    >>> check_member_url("http://127.0.0.1:8080/"), check_member_url("https://mdp.example")
    ('http://127.0.0.1:8080', 'https://mdp.example')
    >>> check_member_url("http://mdp.example")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    mdv.errors.BadRequest: 'http://mdp.example' has no TLS: use https://, or set ...
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    is_plain_text = url.isascii() and url.isprintable() and len(url) <= 1000
    if not (is_plain_text and host and parts.scheme in ("http", "https") and not (parts.query or parts.fragment)) or (
        parts.username is not None
    ):
        raise BadRequest(f"{url[:200]!r} is not the URL of an MDP: use one such as https://mdp.example:8080.")
    if parts.scheme == "http" and not (allows_plain or _is_loopback(host)):
        raise BadRequest(f"{url!r} has no TLS: use https://, or set MDV_BACKBONE_PLAIN=true in a private network.")
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
