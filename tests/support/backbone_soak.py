"""A soak of a backbone: three MDPs with six LMRs and writers, as real processes, under kills, partitions and restores.

    make soak-backbone FAULTS=1000

Faults are kills of processes without notice, separations of a member, and backups and restores of running members.

At the end, everything that was acknowledged and that another member had is there, all members are equal, and every LMR
is equal to its MDP. A restored member may lose what no other member had yet: that is what a backup means.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from mdv.free_port import free_port
from mdv.mdp_places import find_mdp
from mdv.system import System, read_system
from tests.support.eventually import eventually
from tests.support.local_http import local_client
from tests.support.server import SCHEMA, Api, V, turtle
from tests.support.whole_system import MDV, Up, command_line, descendants, environment

MEMBERS = (1, 2, 3)
DOCUMENTS = 12
KINDS = ("kill", "kill", "kill", "pause", "pause", "restore")
"""Faults by how often they are chosen."""
KILLED = (b"gunicorn", b"celery", b"workers.replicate", b"lmr")
"""Words in the command lines of the processes that are killed."""
REST_SECONDS = 300.0


def uri_of(number: int) -> str:
    return f"http://soak.example/{number}"


@dataclass
class Acknowledged:
    """What was acknowledged: notes of documents, and whether another member had them when that was answered."""

    replicated: set[tuple[int, str]] = field(default_factory=set)
    alone: set[tuple[int, str]] = field(default_factory=set)
    refused: int = 0


class SoakWriter:
    """Adds notes to documents at one member. Requests that fail may or may not have an effect."""

    def __init__(self, number: int, api: Callable[[], Api], seed: int) -> None:
        self.number, self.acknowledged = number, Acknowledged()
        self._api, self._random = api, random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        count = 0
        while not self._stop.is_set():
            count += 1
            self._add(self._random.randrange(DOCUMENTS), f"n{self.number}-{count}")
            self._stop.wait(self._random.random() * 0.3)

    def _add(self, document: int, note: str) -> None:
        uri = uri_of(document)
        edit = {"add": [[f"{uri}#x", f"{V}note", {"type": "literal", "value": note}]]}
        try:
            with self._api().http as http:
                answer = http.patch(
                    "/api/v1/documents", params={"uri": uri}, content=json.dumps(edit),
                    headers={"Content-Type": "application/json", "Prefer": "wait=5, replicas=1"},
                )  # fmt: skip
        except httpx2.HTTPError:
            return
        if answer.status_code != 200:
            self.acknowledged.refused += 1
            return
        has_replica = answer.json().get("replicas", 0) >= 1
        (self.acknowledged.replicated if has_replica else self.acknowledged.alone).add((document, note))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)


class BackboneSoak:
    """The system under test."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.up = Up(folder / "data", port=free_ports(3), lmr_port=free_ports(3))
        self.up.options = ["--mdps", "3"]
        self.counts: Counter[str] = Counter()
        self.backups: dict[int, list[Path]] = {number: [] for number in MEMBERS}
        self.restored: set[int] = set()
        self.lmrs: list[tuple[int, dict[str, str]]] = []
        self.said = ""
        """What the last command printed."""
        self._stack = ExitStack()

    def system(self, number: int) -> System:
        found = read_system(find_mdp(self.up.folder, number))
        assert found is not None
        return found

    def api(self, number: int) -> Api:
        one = self.system(number)
        return Api(local_client(base_url=one.url, headers={"Authorization": f"Bearer {one.token}"}, timeout=20))

    def start(self) -> None:
        self.up.start()
        first = self.api(1)
        assert first.put_schema(SCHEMA).status_code == 200
        eventually(lambda: all("note" in self.api(one).get("/schema").text for one in MEMBERS), 120)
        for document in range(DOCUMENTS):
            assert first.put(uri_of(document), turtle("<#x> a ex:CycleProvider .")).status_code == 201
        self.rest()
        for number in MEMBERS:
            self._start_lmr(number)

    def _start_lmr(self, number: int) -> None:
        """Subscribe the LMR of `mdv up`, and start another one."""
        system, port, name = self.system(number), free_port(), f"second{number}"
        with self.api(number).http as http:
            made = http.post("/api/v1/lmrs", json={"name": name}).json()
            for lmr in ("local", name):
                rule = {"rule": "search CycleProvider c register c"}
                assert http.post(f"/api/v1/lmrs/{lmr}/subscriptions", json=rule).status_code == 201
        settings = {"MDV_URL": system.url, "MDV_LMR_TOKEN": made["token"]}
        store = f"sqlite:///{self.folder / name}.db"
        argv = [str(MDV), "lmr", "serve", "--port", str(port), "--store", store]
        log = self._stack.enter_context((self.folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(argv, env=environment(**settings), stdout=log, stderr=log, start_new_session=True)
        self._stack.callback(stop, process)
        self.lmrs.append((number, {**settings, "MDV_LMR_URL": f"http://127.0.0.1:{port}"}))

    # Faults

    def fault(self) -> None:
        """Inject one fault."""
        kind = self.random.choice(KINDS)
        number = self.random.choice(MEMBERS)
        if kind == "kill":
            kind = self._kill()
        elif kind == "pause":
            self._partition(number)
        else:
            self._restore(number)
        self.counts[kind] += 1

    def _kill(self) -> str:
        """Kill a process of the system without notice. It is started again."""
        assert self.up.process is not None
        word = self.random.choice(KILLED)
        found = [pid for pid in descendants(self.up.process.pid) if word in command_line(pid)]
        if found:
            with suppress(ProcessLookupError):
                os.kill(self.random.choice(found), signal.SIGKILL)
        return f"kill {word.decode()}"

    def _partition(self, number: int) -> None:
        """Separate a member from the others for a while."""
        for paused in (True, False):
            for one in MEMBERS:
                for other in MEMBERS:
                    if one != other and number in (one, other):
                        self._set_paused(one, f"m{other}", paused)
            if paused:
                time.sleep(self.random.random() * 2)

    def _set_paused(self, number: int, peer: str, paused: bool) -> None:
        def done() -> bool:
            with suppress(httpx2.HTTPError), self.api(number).http as http:
                answer = http.patch(f"/api/v1/backbone/members/{peer}", json={"paused": paused})
                return answer.status_code == 200
            return False

        eventually(done, 120)

    def _restore(self, number: int) -> None:
        """Make a backup of a member, or restore one of its backups while it runs."""
        backups = self.backups[number]
        if len(backups) < 2 or self.random.random() < 0.3:
            folder = self.folder / f"backup-{number}-{len(backups)}"
            self._mdv(number, "backup", str(folder))
            backups.append(folder)
            return
        self.restored.add(number)
        self._mdv(number, "restore", str(self.random.choice(backups)), "--replace")
        self.counts["restored"] += 1
        self.rest()  # so that not all members are restored at once

    def _mdv(self, number: int, *arguments: str) -> None:
        system = self.system(number)
        settings = {"MDV_DATABASE_URL": system.database_url, "MDV_REDIS_URL": system.redis_url}
        argv = [str(MDV), *arguments]
        ran = subprocess.run(argv, env=environment(**settings), capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, ran.stderr

    # Checks

    def rest(self) -> None:
        """Wait until all members are active and have the same vector."""

        def is_at_rest() -> bool:
            with suppress(httpx2.HTTPError, ValueError, KeyError):
                found = [self._get(one, "/backbone") for one in MEMBERS]
                return all(one["vector"] == found[0]["vector"] and one["state"] == "active" for one in found)
            return False

        eventually(is_at_rest, REST_SECONDS, detail=lambda: [self._get(one, "/backbone") for one in MEMBERS])

    def _get(self, number: int, path: str, **query: Any) -> Any:
        with self.api(number).http as http:
            answer = http.get(f"/api/v1{path}", params=query)
            answer.raise_for_status()
            return answer.json()

    def check(self, writers: list[SoakWriter]) -> dict[str, Any]:
        """Check that all members are equal, that nothing is lost, and that every LMR is equal to its MDP."""
        self.rest()
        sums = [self._get(one, "/backbone/checksum") for one in MEMBERS]
        assert sums[0] == sums[1] == sums[2], "the members differ"
        texts = {document: self._notes(document) for document in range(DOCUMENTS)}
        lost = []
        for writer in writers:
            done = writer.acknowledged
            kept = done.replicated | (done.alone if writer.number not in self.restored else set())
            lost += [(document, note) for document, note in kept if note not in texts[document]]
        assert not lost, f"{len(lost)} acknowledged additions are lost: {sorted(lost)[:5]}"
        for number in MEMBERS:
            self._verify_lmr("--data", str(self.up.folder), "--mdp", str(number))
        for _, settings in self.lmrs:
            self._verify_lmr(**settings)
        return {
            "faults": dict(self.counts), "notes": sum(map(len, texts.values())),
            "acknowledged": sum(len(w.acknowledged.replicated) + len(w.acknowledged.alone) for w in writers),
        }  # fmt: skip

    def _notes(self, document: int) -> set[str]:
        with self.api(1).http as http:
            headers, query = {"Accept": "application/n-triples"}, {"uri": uri_of(document)}
            text = http.get("/api/v1/documents", params=query, headers=headers).text
        return {line.split('"')[1] for line in text.splitlines() if '"' in line}

    def _verify_lmr(self, *arguments: str, **settings: str) -> None:
        def is_equal() -> bool:
            ran = subprocess.run([str(MDV), "lmr", "verify", *arguments], env=environment(**settings),
                                 capture_output=True, text=True, timeout=120)  # fmt: skip
            self.said = ran.stdout + ran.stderr
            return ran.returncode == 0 and "equal" in ran.stdout

        eventually(is_equal, REST_SECONDS, detail=lambda: self.said)

    def close(self) -> None:
        self._stack.close()
        if self.up.process is not None and self.up.process.poll() is None:
            self.up.end(signal.SIGTERM)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
        return
    process.kill()


def free_ports(count: int, distance: int = 10) -> int:
    """Return a port so that it and others at this distance are free."""
    while True:
        first = free_port()
        with ExitStack() as stack, suppress(OSError):
            for number in range(count):
                probe = stack.enter_context(socket.socket())
                probe.bind(("127.0.0.1", first + distance * number))
            return first


@contextmanager
def running(seed: int) -> Iterator[BackboneSoak]:
    with tempfile.TemporaryDirectory() as folder:
        soak = BackboneSoak(Path(folder), seed)
        try:
            soak.start()
            yield soak
        finally:
            soak.close()


def run_soak(faults: int, seed: int, minutes: float) -> dict[str, Any]:
    """Inject faults until there were enough, or the time is over. Return what was done."""
    with running(seed) as soak:
        writers = [SoakWriter(one, lambda one=one: soak.api(one), seed + one) for one in MEMBERS]  # type: ignore[misc]
        until = time.monotonic() + 60 * minutes
        for number in range(faults):
            soak.fault()
            time.sleep(0.2)
            if number % 25 == 24:
                print(f"{number + 1} faults: {dict(soak.counts)}", flush=True)
            if time.monotonic() > until:
                break
        for writer in writers:
            writer.stop()
        return soak.check(writers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(json.dumps(run_soak(given.faults, given.seed, given.minutes), indent=2))


if __name__ == "__main__":
    sys.exit(main())
