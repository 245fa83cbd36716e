"""Allowed webhook URLs: http or https, to hosts on the public internet.

A registered URL makes MDV connect to its host. To prevent requests into MDV's own network (SSRF), the name is resolved
here, every address is checked, and the connection is made to one of the checked addresses.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from threading import Thread

import httpx2
import idna
import structlog

from mdv.errors import BadRequest

log = structlog.get_logger()

MAX_URL_CHARACTERS = 2000
RESOLVE_TIMEOUT_SECONDS = 5.0

Resolve = Callable[[str, int], list[str]]
"""Returns the IP addresses of a host name and port, as text."""

BLOCKED_NETWORKS = tuple(map(ip_network, (
    # Metadata services of clouds that are not at link-local addresses.
    "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254",
    # Tunnels to IPv4 addresses that cannot be checked.
    "2001::/32", "64:ff9b:1::/48", "::ffff:0:0:0/96",
)))  # fmt: skip
NON_PUBLIC_NETWORKS = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))
"""Networks that the module ipaddress treats as global but that are not public."""
_PUBLIC = ip_network("2000::/3")
"""The only IPv6 network with public addresses."""

_PRIVATE_HINT = "In a private network, start the MDP with MDV_WEBHOOK_PRIVATE=true."

_NAT64, _COMPATIBLE = ip_network("64:ff9b::/96"), ip_network("::/96")


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL."""

    text: str
    scheme: str
    host: str
    port: int
    authority: bytes
    path: bytes


def parse_url(text: str) -> Target:
    """Parse a webhook URL. `BadRequest` if it cannot be used.

    >>> parse_url("https://hooks.example/mdv?x=1").port
    443
    """
    if len(text) > MAX_URL_CHARACTERS:
        raise BadRequest(f"The URL is longer than {MAX_URL_CHARACTERS:,} characters.")
    try:
        url = httpx2.URL(text)
        host = url.raw_host.decode()
        for label in host.split("."):
            if label.startswith("xn--"):
                idna.decode(label)  # raises a ValueError for invalid names such as xn--a
        text.encode()
    except (httpx2.InvalidURL, ValueError) as error:
        raise BadRequest(f"The URL is invalid: {error}.") from None
    if url.scheme not in ("http", "https"):
        raise BadRequest("The URL must begin with https:// or http://.")
    if url.userinfo:
        raise BadRequest("The URL contains a user or password: remove it; messages are signed instead.")
    if not host:
        raise BadRequest("The URL has no host.")
    if url.fragment:
        raise BadRequest("The URL has a fragment (the part after #), which is not sent: remove it.")
    port = url.port if url.port is not None else {"http": 80, "https": 443}[url.scheme]
    if not 0 < port < 65536:
        raise BadRequest(f"The URL has the port {port}; ports are 1 to 65535.")
    return Target(str(url), url.scheme, host, port, url.netloc, url.raw_path)


def resolve(host: str, port: int) -> list[str]:
    """Return the IP addresses of a host name. Times out after some seconds, because the system resolver may be slow."""
    found: list[str] = []
    reasons: list[str] = []

    def resolve_in_thread() -> None:
        try:
            found.extend(str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            reasons.append(getattr(error, "strerror", None) or str(error))

    thread = Thread(target=resolve_in_thread, name="resolve", daemon=True)
    thread.start()
    thread.join(RESOLVE_TIMEOUT_SECONDS)
    if not found:
        why = reasons[0] if reasons else f"no answer within {RESOLVE_TIMEOUT_SECONDS:g} s"
        raise BadRequest(f"The host {host} cannot be resolved: {why}.")
    return list(dict.fromkeys(found))


def allowed_addresses(target: Target, private: bool = False, resolve: Resolve = resolve) -> list[str]:
    """Return the current IP addresses of a target. `BadRequest` if any of them is not allowed."""
    found = resolve(target.host, target.port)
    for address in found:
        if not is_allowed(address, private):
            # Only the operator may see the address: callers must not be able to resolve names of an internal network.
            log.warning("webhook address refused", host=target.host, address=address)
            if private:
                raise BadRequest(f"The host {target.host} has an address that webhooks must not use.")
            raise BadRequest(
                f"The host {target.host} has an address that is not on the public internet. {_PRIVATE_HINT}"
            )
    return found


def is_allowed(address: str, private: bool = False) -> bool:
    """True if webhooks may use this IP address. With `private`, addresses of private networks are allowed, too.

    >>> [is_allowed(address) for address in ("93.184.215.14", "10.0.0.1", "::ffff:10.0.0.1", "169.254.169.254")]
    [True, False, False, False]
    >>> [is_allowed(address, private=True) for address in ("10.0.0.1", "::1", "169.254.169.254", "0.0.0.0")]
    [True, True, False, False]
    """
    ip = _embedded(ip_address(address.partition("%")[0]))
    if ip.is_multicast or ip.is_unspecified or ip.is_link_local or any(ip in network for network in BLOCKED_NETWORKS):
        return False
    return private or _is_public(ip)


def _is_public(ip: IPv4Address | IPv6Address) -> bool:
    if isinstance(ip, IPv6Address) and ip not in _PUBLIC:
        return False
    return ip.is_global and not any(ip in network for network in NON_PUBLIC_NETWORKS)


def _embedded(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that is embedded in an IPv6 address, if any; otherwise the address itself."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64 or (ip in _COMPATIBLE and int(ip) > 1):
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or ip
