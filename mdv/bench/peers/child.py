"""A peer in a process of its own: it is built, and takes batch after batch, until nothing more comes.

Started as `python -m mdv.bench.peers.child FD`; the descriptor is a connection on which values come and go. What peers
print is not among them.
"""

from __future__ import annotations

import importlib
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

from mdv.bench.peers import Peer


def child(wire: Connection) -> None:
    """Serve what the other end asks for."""
    home, rule_type, rules = wire.recv()
    module, _, name = home.partition(":")
    made = cast("type[Peer]", getattr(importlib.import_module(module), name))
    peer = made(rule_type, rules)
    wire.send(None)
    while True:
        try:
            batch = wire.recv()
        except EOFError:
            return
        taken = peer.take(peer.prepare(batch))
        wire.send((taken, _peak_mib()))


def _peak_mib() -> float:
    """The most memory that this process has had. What `getrusage` tells began with that of the one that started it."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    child(Connection(int(sys.argv[1])))
    sys.stderr.flush()
    os._exit(0)  # engines with threads of their own would not let go
