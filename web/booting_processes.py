"""Which web processes are still booting, shared by all processes of one server."""

from __future__ import annotations

import mmap
import os
import struct

MAX_BOOTING = 1024
"""Number of processes whose boot is tracked at the same time."""


class BootingProcesses:
    """The processes that were started and do not serve yet, in memory that is created in the parent and shared by all
    processes. A process is known by its gunicorn age. One that died while booting does not count.

    >>> booting = BootingProcesses()
    >>> for age in (1, 2):
    ...     booting.start(age)
    >>> booting.serve(2)
    >>> booting.is_any
    True
    >>> booting.serve(1)
    >>> booting.is_any
    False
    """

    _SERVING, _STARTED = 0, -1  # any other value is the id of a booting process

    def __init__(self) -> None:
        self._format = struct.Struct(f"{MAX_BOOTING}q")
        self._shared = mmap.mmap(-1, self._format.size)

    def start(self, age: int) -> None:
        """In the parent, before the process exists."""
        self._note(age, self._STARTED)

    def boot(self, age: int, pid: int) -> None:
        self._note(age, pid)

    def serve(self, age: int) -> None:
        self._note(age, self._SERVING)

    def _note(self, age: int, state: int) -> None:
        struct.pack_into("q", self._shared, 8 * (age % MAX_BOOTING), state)

    @property
    def is_any(self) -> bool:
        states = self._format.unpack_from(self._shared)
        return any(state == self._STARTED or (state != self._SERVING and _is_alive(state)) for state in states)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
