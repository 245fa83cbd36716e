"""The open connections of one web process. At the limit, connections that wait for their client are closed first.

A connection waits for its client while request headers or body arrive and while a response is sent. Otherwise the
server is working on it. A slow or stalled client therefore cannot lock out others, and requests in progress are never
closed. Used by one thread only, that of the gevent hub.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv6Address, ip_address


class Connection:
    """One open connection."""

    def __init__(self, connections: Connections, sock: socket.socket, group: str) -> None:
        self._connections = connections
        self.socket = sock
        self.group = group
        self.is_between_requests = True
        self.is_closed = False

    def wait_for_client(self) -> None:
        """Mark the connection as waiting for its client: it may be closed to make room."""
        if not self.is_closed:
            self._connections.waiting.setdefault(self.group, {})[self] = None

    def work(self) -> None:
        """Mark the connection as busy: the server is working on a request."""
        self.is_between_requests = False
        group = self._connections.waiting.get(self.group, {})
        group.pop(self, None)
        if not group:
            self._connections.waiting.pop(self.group, None)

    def assign_to_client(self, address: str) -> None:
        """Assign the connection to the client that a proxy reports."""
        self.work()
        self.group = address_group(address)
        self.wait_for_client()

    def finish_request(self) -> None:
        """Mark the response as sent: the client may send another request."""
        self.is_between_requests = True
        self.wait_for_client()

    def close(self) -> None:
        """Shut the connection down. The greenlet that reads or writes it wakes up and ends."""
        self.is_closed = True
        self.work()
        # Through a duplicate: gevent raises an error if its own socket is being waited for.
        with suppress(OSError), socket.socket(fileno=os.dup(self.socket.fileno())) as copy:
            copy.shutdown(socket.SHUT_RDWR)


class Connections:
    """At most `limit` connections, by socket."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting: dict[str, dict[Connection, None]] = {}
        """Connections that wait for their client, by address group, longest waiting first."""
        self._open: dict[socket.socket, Connection] = {}
        self._closed = 0
        """Open connections that were closed here but whose greenlets have not ended yet."""

    def __getitem__(self, sock: socket.socket) -> Connection:
        return self._open[sock]

    @contextmanager
    def open(self, sock: socket.socket, address: str) -> Iterator[bool]:
        """Track a connection while it is handled. Yields False if it must be rejected: the limit is reached and no
        other connection can be closed."""
        if len(self._open) - self._closed >= self.limit and not self._close_one():
            yield False
            return
        connection = self._open[sock] = Connection(self, sock, address_group(address))
        connection.wait_for_client()
        try:
            yield True
        finally:
            self._closed -= connection.is_closed
            connection.work()  # removes it from the waiting connections
            del self._open[sock]

    def close_between_requests(self) -> None:
        """Close all idle connections: this process is about to exit."""
        for connection in list(self._open.values()):
            if connection.is_between_requests and not connection.is_closed:
                self._close(connection)

    def _close_one(self) -> bool:
        """Close the longest waiting connection of the address group with the most waiting connections."""
        if not self.waiting:
            return False
        group = max(self.waiting.values(), key=len)
        self._close(next(iter(group)))
        return True

    def _close(self, connection: Connection) -> None:
        self._closed += 1
        connection.close()


def address_group(address: str) -> str:
    """Return the group of addresses that one client can use: an IPv4 address or an IPv6 /64 network.

    >>> address_group("192.0.2.1"), address_group("::ffff:192.0.2.1"), address_group("2001:db8::1:2:3:4%eth0")
    ('192.0.2.1', '192.0.2.1', '2001:db8::/64')
    """
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:  # a Unix socket
        return address
    if not isinstance(ip, IPv6Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return f"{IPv6Address(int(ip) >> 64 << 64)}/64"
