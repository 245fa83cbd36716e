"""The address of the client: the peer or, behind trusted proxies, the address that they forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from mdv.config import Network

Environ = dict[str, Any]
Application = Callable[[Environ, Any], Iterable[bytes]]


class BehindProxies:
    """WSGI middleware that sets `REMOTE_ADDR` and `wsgi.url_scheme` from the headers of trusted proxies.

    The headers are used only if the connection comes from a trusted proxy, since any client could send them.
    """

    def __init__(self, application: Application, proxies: Sequence[Network]) -> None:
        self._application = application
        self._proxies = proxies

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        if _is_trusted(_parsed(environ.get("REMOTE_ADDR", "")), self._proxies):
            environ["REMOTE_ADDR"] = client_address(environ, self._proxies)
            scheme = environ.get("HTTP_X_FORWARDED_PROTO", "").rpartition(",")[2].strip().lower()
            if scheme in ("http", "https"):
                environ["wsgi.url_scheme"] = scheme
        return self._application(environ, start_response)


def client_address(environ: Environ, proxies: Sequence[Network]) -> str:
    """Return the last address in X-Forwarded-For that is not a trusted proxy. Each proxy appends its peer, so entries
    before an untrusted address may be forged.

    >>> from ipaddress import ip_network
    >>> def client(peer, header):
    ...     return client_address({"REMOTE_ADDR": peer, "HTTP_X_FORWARDED_FOR": header}, [ip_network("10.0.0.0/8")])
    >>> client("10.0.0.1", "203.0.113.9, 192.0.2.7, 10.0.0.2"), client("192.0.2.1", "203.0.113.9")
    ('192.0.2.7', '192.0.2.1')
    >>> client("10.0.0.1", "203.0.113.9, nonsense"), client("10.0.0.1", "[2001:db8::1]:4711"), client("10.0.0.1", "")
    ('10.0.0.1', '2001:db8::1', '10.0.0.1')
    """
    peer: str = environ.get("REMOTE_ADDR", "")
    found = _parsed(peer)
    for hop in reversed(environ.get("HTTP_X_FORWARDED_FOR", "").split(",")):
        if not _is_trusted(found, proxies) or (previous := _parsed(hop)) is None:
            break
        found = previous
    return peer if found is None else str(found)


def _is_trusted(address: IPv4Address | IPv6Address | None, proxies: Sequence[Network]) -> bool:
    return address is not None and any(address in network for network in proxies)


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an IP address that may have a port or brackets."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
