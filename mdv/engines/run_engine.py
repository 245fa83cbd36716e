"""Run an inference engine in a process of its own, with limits of time, memory and statements.

Files instead of pipes, and no `subprocess`: programs also run in threads of a web server, where gevent has replaced the
functions of `os` by ones that work in its main thread alone. Those of `posix` are the original ones.
"""

from __future__ import annotations

import json
import os
import posix
import signal
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from threading import Lock
from typing import BinaryIO

from mdv.engines.registry import engine_names
from mdv.model import Statement
from mdv.rdf.term_json import read_term, write_statement

MAX_STATEMENTS = 50_000
"""Facts that an engine reads, and statements that it may infer."""
MAX_SECONDS = 5.0
MAX_KEPT = 4
"""Results that a process keeps, so that an inference within a join runs once."""

_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "HOME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
_kept: OrderedDict[tuple[str, bytes], tuple[Statement, ...]] = OrderedDict()
_lock = Lock()


class EngineFailed(Exception):
    """An inference that has failed or reached a limit."""


def run_engine(name: str, facts: Iterable[Statement], seconds: float = MAX_SECONDS) -> tuple[Statement, ...]:
    """Return what an engine infers from facts, without the facts. Raise `LookupError` if there is no such engine, or
    `EngineFailed`."""
    if name not in engine_names():
        raise LookupError(name)
    lines: list[bytes] = []
    digest = blake2b(digest_size=16)
    for statement in facts:
        if len(lines) == MAX_STATEMENTS:
            raise EngineFailed(f"it would read more than {MAX_STATEMENTS:,} statements. Limit it to documents with IN")
        lines.append(json.dumps(write_statement(statement), ensure_ascii=False).encode() + b"\n")
    lines.sort()
    for line in lines:
        digest.update(line)
    key = name, digest.digest()
    with _lock:
        if (found := _kept.get(key)) is not None:
            _kept.move_to_end(key)
            return found
    found = tuple(_run(name, lines, seconds))
    with _lock:
        _kept[key] = found
        while len(_kept) > MAX_KEPT:
            _kept.popitem(last=False)
    return found


def _run(name: str, lines: list[bytes], seconds: float) -> Iterator[Statement]:
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as answer:
        given.writelines(lines)
        given.flush()
        given.seek(0)
        _wait(_spawn(name, seconds, given, answer), seconds)
        answer.seek(0)
        found = [json.loads(line) for line in answer if line.endswith(b"\n")]
    end = found.pop() if found and isinstance(found[-1], dict) else {"error": "its process ended without an answer"}
    if "error" in end:
        raise EngineFailed(str(end["error"]))
    if len(found) > MAX_STATEMENTS:
        raise EngineFailed(f"it infers more than {MAX_STATEMENTS:,} statements. Limit it to documents with IN")
    for subject, property_, term in found:
        yield Statement(subject, property_, read_term(term))


def _spawn(name: str, seconds: float, given: BinaryIO, answer: BinaryIO) -> int:
    command = [sys.executable, "-m", "mdv.engines.engine_process", name, str(seconds), str(MAX_STATEMENTS)]
    environment = {key: os.environ[key] for key in _KEPT_VARIABLES if key in os.environ}
    environment["PYTHONIOENCODING"] = "utf-8"
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        moved = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in
                 ((given.fileno(), 0), (answer.fileno(), 1), (null, 2))]  # fmt: skip
        return posix.posix_spawn(sys.executable, command, environment, file_actions=moved, setsigmask=[])
    finally:
        os.close(null)


def _wait(process: int, seconds: float) -> None:
    """Wait for the end of a process, and kill it at its time limit."""
    until, pause = time.monotonic() + seconds, 0.002
    while True:
        try:
            ended, _ = posix.waitpid(process, os.WNOHANG)
        except ChildProcessError:  # a watcher of gevent has taken its status
            return
        if ended:
            return
        if time.monotonic() > until:
            os.kill(process, signal.SIGKILL)
            posix.waitpid(process, 0)
            raise EngineFailed(f"it took longer than {seconds:g} s")
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)
