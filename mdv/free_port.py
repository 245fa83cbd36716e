"""Choose a port for a server that is started a moment later."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from mdv.errors import MdvError

LOWEST_PORT = 10_000
EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
MAX_ATTEMPTS = 100


def free_port() -> int:
    """Return a free port of 127.0.0.1, if possible one that the kernel does not assign by itself.

    The kernel may assign an ephemeral port to another program before the server listens, or while it is restarted.

    >>> LOWEST_PORT <= free_port() < 65536
    True
    """
    ports = _assigned_by_hand()
    for _ in range(MAX_ATTEMPTS):
        with socket.socket() as probe:
            try:
                # Not the shared generator: processes with the same seed would choose the same ports.
                probe.bind(("127.0.0.1", random.SystemRandom().choice(ports) if ports else 0))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise MdvError(f"No free port was found in {MAX_ATTEMPTS} attempts.")


def free_ports(count: int, distance: int) -> int:
    """Return a port so that it and others at this distance are free.

    >>> LOWEST_PORT <= free_ports(3, 10) < 65536
    True
    """
    for _ in range(MAX_ATTEMPTS):
        first = free_port()
        if all(_is_free(first + distance * number) for number in range(count)):
            return first
    raise MdvError(f"No {count} free ports were found in {MAX_ATTEMPTS} attempts.")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


def _assigned_by_hand() -> range:
    """Return the ports below those that the kernel assigns; none if these are unknown."""
    try:
        first, _ = EPHEMERAL_PORTS.read_text().split()
    except (OSError, ValueError):
        return range(0)
    return range(LOWEST_PORT, int(first))
