"""Addresses that may be sent to: http or https, on the public internet.

Whoever registers an address lets MDV connect to it. So that nobody reaches into MDV's own network by that, the name is
resolved here, every address behind it is looked at, and the connection goes to one of these very addresses.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from threading import Thread

import httpx

from mdv.errors import BadRequest

MOST_CHARACTERS = 2000
RESOLVE_SECONDS = 5.0

Resolve = Callable[[str, int], list[str]]
"""The addresses of a host name, as text."""

NEVER = tuple(map(ip_network, (
    # Where clouds tell a machine its secrets, beyond those at link-local addresses.
    "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254",
    # Ways to IPv4 addresses that cannot be looked at.
    "2001::/32", "64:ff9b:1::/48", "::ffff:0:0:0/96",
)))  # fmt: skip
NOT_PUBLIC = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))
"""What ipaddress takes for global, and is not."""
_PUBLIC = ip_network("2000::/3")
"""Of IPv6, nothing else has been given out."""

_NAT64, _COMPATIBLE = ip_network("64:ff9b::/96"), ip_network("::/96")


@dataclass(frozen=True, slots=True)
class Target:
    """An address, taken apart."""

    text: str
    scheme: str
    host: str
    port: int
    authority: bytes
    path: bytes


def read_url(text: str) -> Target:
    """Take an address apart, if it is one that can be sent to.

    >>> read_url("https://hooks.example/mdv?x=1").port
    443
    """
    if len(text) > MOST_CHARACTERS:
        raise BadRequest(f"The address is longer than {MOST_CHARACTERS:,} characters.")
    try:
        url = httpx.URL(text)
        host = url.host  # where a name such as xn--a is found to be none
        text.encode()
    except (httpx.InvalidURL, ValueError) as error:
        raise BadRequest(f"The address cannot be read: {error}.") from None
    if url.scheme not in ("http", "https"):
        raise BadRequest("The address has to begin with https:// or http://.")
    if url.userinfo:
        raise BadRequest("The address holds a user or password: take them out; messages are signed instead.")
    if not host:
        raise BadRequest("The address names no host.")
    if url.fragment:
        raise BadRequest("The address has a part after #, which is sent to nobody: take it out.")
    port = url.port if url.port is not None else {"http": 80, "https": 443}[url.scheme]
    if not 0 < port < 65536:
        raise BadRequest(f"The address names the port {port}; ports are 1 to 65535.")
    return Target(str(url), url.scheme, url.raw_host.decode(), port, url.netloc, url.raw_path)


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host name; given up after some seconds, since the system's resolver may take its time."""
    found: list[str] = []
    reasons: list[str] = []

    def look() -> None:
        try:
            found.extend(str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            reasons.append(getattr(error, "strerror", None) or str(error))

    thread = Thread(target=look, name="resolve", daemon=True)
    thread.start()
    thread.join(RESOLVE_SECONDS)
    if not found:
        why = reasons[0] if reasons else f"no answer within {RESOLVE_SECONDS:g} s"
        raise BadRequest(f"The host {host} cannot be found: {why}.")
    return list(dict.fromkeys(found))


def allowed_addresses(target: Target, private: bool = False, resolve: Resolve = resolve) -> list[str]:
    """The addresses that a target stands for now; refused if any of them may not be sent to."""
    found = resolve(target.host, target.port)
    for address in found:
        if not is_allowed(address, private):
            what = "which is never sent to" if private else "which is not on the public internet"
            raise BadRequest(f"The host {target.host} is at {address}, {what}.")
    return found


def is_allowed(address: str, private: bool = False) -> bool:
    """Whether an IP address may be sent to. `private`: those of private networks may, too.

    >>> [is_allowed(address) for address in ("93.184.215.14", "10.0.0.1", "::ffff:10.0.0.1", "169.254.169.254")]
    [True, False, False, False]
    >>> [is_allowed(address, private=True) for address in ("10.0.0.1", "::1", "169.254.169.254", "0.0.0.0")]
    [True, True, False, False]
    """
    ip = _embedded(ip_address(address.partition("%")[0]))
    if ip.is_multicast or ip.is_unspecified or ip.is_link_local or any(ip in network for network in NEVER):
        return False
    return private or _is_public(ip)


def _is_public(ip: IPv4Address | IPv6Address) -> bool:
    if isinstance(ip, IPv6Address) and ip not in _PUBLIC:
        return False
    return ip.is_global and not any(ip in network for network in NOT_PUBLIC)


def _embedded(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 address leads to, if it does."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64 or (ip in _COMPATIBLE and int(ip) > 1):
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or ip
