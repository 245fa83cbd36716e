"""The main program of a peer's process: it builds the peer and processes batches until the connection is closed.

It is started as `python -m mdv.bench.peers.peer_main FD`. FD is the file descriptor of a connection for Python values.
Output of the peer does not interfere with it.
"""

from __future__ import annotations

import importlib
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

from mdv.bench.peers import Peer


def serve_peer(connection: Connection) -> None:
    """Build a peer and process its batches."""
    class_path, rule_type, rules = connection.recv()
    module, _, name = class_path.partition(":")
    peer_class = cast("type[Peer]", getattr(importlib.import_module(module), name))
    peer = peer_class(rule_type, rules)
    connection.send(None)
    while True:
        try:
            batch = connection.recv()
        except EOFError:
            return
        result = peer.take(peer.prepare(batch))
        connection.send((result, _peak_mib()))


def _peak_mib() -> float:
    """Return the peak memory of this process. `getrusage` would include that of its parent."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    serve_peer(Connection(int(sys.argv[1])))
    sys.stderr.flush()
    os._exit(0)  # engines with threads would not exit
