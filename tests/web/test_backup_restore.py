"""`mdv backup` of a running `mdv up`, restored into another one: everything is equal over HTTP, and its LMR follows."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mdv.client import Client
from mdv.errors import MustRefetch
from mdv.rdf.syntax import N_TRIPLES, TURTLE
from tests.support.catalogues import BASE, NAMES, RULES, SCHEMA, catalogue
from tests.support.eventually import eventually
from tests.support.listed_documents import MEDIA_TYPES
from tests.support.whole_system import MDV, Up, environment, started

pytestmark = pytest.mark.full

LOCAL = "http://me.example/notes"


def run(up: Up, *arguments: object, given: str = "", **settings: str) -> subprocess.CompletedProcess[str]:
    argv = [str(MDV), *map(str, arguments), "--data", str(up.folder)]
    return subprocess.run(argv, env=environment(**settings), input=given, capture_output=True, text=True, timeout=200)


def done(ran: subprocess.CompletedProcess[str]) -> Any:
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout) if ran.stdout.startswith("{") else ran.stdout


class Both:
    """The clients of a system."""

    def __init__(self, up: Up) -> None:
        self.mdp, self.lmr = Client(up.system), Client(up.lmr_system)

    def register(self, name: str, text: bytes) -> int:
        return int(self.mdp.register(BASE + name, text, MEDIA_TYPES[name[name.rindex(".") :]])["position"])

    def shown(self, position: int) -> dict[str, Any]:
        """Return what the MDP shows over HTTP: documents with all versions up to a position, schema, rules, LMRs."""
        documents = {}
        for item in self.mdp.items("/documents"):
            versions = [v for v in self.mdp.items("/documents/history", uri=item["uri"]) if v["position"] <= position]
            texts = [
                sorted(self._version(item["uri"], version["version"]).splitlines())
                for version in versions
                if version["present"]
            ]
            if versions:
                documents[item["uri"]] = versions, texts
        lmrs = {item["name"]: item["created_at"] for item in self.mdp.items("/lmrs")}
        return {
            "documents": documents,
            "schema": sorted(self.mdp.rdf("/schema", N_TRIPLES.media_type).splitlines()),
            "lmrs": lmrs,
            "subscriptions": {name: list(self.mdp.items(f"/lmrs/{name}/subscriptions")) for name in lmrs},
            "webhooks": list(self.mdp.items("/lmrs/reader/webhooks")),
        }

    def _version(self, uri: str, version: int) -> bytes:
        return self.mdp.rdf("/documents/history", N_TRIPLES.media_type, uri=uri, version=version)

    def local(self) -> dict[str, list[bytes]]:
        return {
            item["uri"]: sorted(self.lmr.rdf("/local/documents", N_TRIPLES.media_type, uri=item["uri"]).splitlines())
            for item in self.lmr.items("/local/documents")
        }

    def is_exact(self) -> bool:
        """True if the cache of the LMR has the checksum of the MDP."""
        verified = self.lmr.change("POST", "/verify", seconds=60)
        return bool(verified["mended"] == [] and self.lmr.get("/status")["up_to_date"])


@contextmanager
def registrations_going_on(both: Both) -> Iterator[list[int]]:
    positions: list[int] = []
    enough = threading.Event()
    files = list(catalogue(6, edition=3).items())

    def go_on() -> None:
        number = 0
        while not enough.is_set():
            name, text = files[number % len(files)]
            positions.append(both.register(f"busy/{number}{name[name.rindex('.') :]}", text))
            number += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        eventually(lambda: len(positions) > 5)
        yield positions
    finally:
        enough.set()
        thread.join()


def fill(up: Up) -> Both:
    both = Both(up)
    both.mdp.put_schema(SCHEMA.encode(), "text/turtle")
    for rule in RULES:
        both.lmr.change("POST", "/subscriptions", {"rule": rule}, seconds=60)
    for edition in (1, 2):
        for name, text in catalogue(8, edition).items():
            both.register(name, text)
    both.mdp.delete(BASE + "00002.ttl")
    both.mdp.put_schema((SCHEMA + f"\n<{NAMES}added> a rdf:Property .").encode(), "text/turtle")
    both.mdp.change("POST", "/lmrs", {"name": "reader"})
    both.mdp.change("POST", "/lmrs/reader/subscriptions", {"rule": RULES[0]})
    both.mdp.change("POST", "/lmrs/reader/webhooks", {"url": "https://8.8.8.8/mdv"})
    note = f"<{BASE}book/1> <{NAMES}note> <{LOCAL}#n> . <{LOCAL}#n> a <{NAMES}Note> ; <{NAMES}text> 'mine' .".encode()
    both.lmr.request("PUT", "/local/documents", params={"uri": LOCAL}, content=note,
                     headers={"Content-Type": TURTLE.media_type})  # fmt: skip
    return both


def test_a_running_system_is_backed_up_and_restored_into_another(tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    with started(Up(tmp_path / "one")) as one, started(Up(tmp_path / "two")) as two:
        before = fill(one)
        done(run(one, "user", "create", "ada", "--password-stdin", given="correct horse battery"))
        token = done(run(one, "token", "create", "auditor", "--role", "viewer")).split()[-1]
        with registrations_going_on(before) as positions:
            first = positions[-1]
            told = done(run(one, "backup", folder, "--json"))
            last = positions[-1]
            count = len(positions)
            eventually(lambda: len(positions) > count + 3)
        assert first <= told["position"] <= last + 1 and told["local_documents"] == 1
        cursor = before.lmr.get("/status")["cursor"]

        # A restore that is killed leaves an empty database, which accepts the restore again.
        killed = run(two, "restore", folder, MDV_DIE_AT="before the commit:1")
        assert killed.returncode == -signal.SIGKILL
        after = Both(two)
        assert after.mdp.get("/status")["position"] == 0
        restored = done(run(two, "restore", folder, "--json"))
        assert restored["position"] == told["position"]

        assert after.shown(told["position"]) == before.shown(told["position"])
        assert done(run(two, "user", "list", "--json"))["items"] == done(run(one, "user", "list", "--json"))["items"]
        waited = after.mdp.get("/status")["position"] - told["position"]
        assert waited in (0, 1), "at most the one registration that waited in the snapshot has been carried out"
        eventually(after.is_exact)
        assert after.local() == before.local() != {}
        with pytest.raises(MustRefetch):
            after.mdp.get("/lmrs/local/feed", after=cursor)
        with Client(replace(two.system, token=token)) as auditor:  # the tokens are those of the backup
            assert auditor.get("/status")["position"] - told["position"] in (0, 1)
        assert run(two, "restore", folder).returncode == 1  # it is not empty now

        # Work continues, in processes that know only the restored content.
        position = after.register("later.ttl", catalogue(4, 5)["00002.ttl"])
        assert position - told["position"] in (1, 2)
        after.lmr.get("/status", after=position, wait=30)
        assert after.is_exact()

        # The same system again, in place: it forgets what came after the backup, and so does its LMR.
        done(run(two, "restore", folder, "--replace"))
        assert after.shown(told["position"]) == before.shown(told["position"])
        assert not [uri for uri in after.shown(told["position"] + 9)["documents"] if uri.endswith("later.ttl")]
        eventually(after.is_exact)
        position = after.register("later.ttl", catalogue(4, 6)["00002.ttl"])
        assert position - told["position"] in (1, 2)
        after.lmr.get("/status", after=position, wait=30)
        assert after.is_exact() and after.local() == before.local()
        with psycopg.connect(two.system.database_url) as connection:
            assert connection.execute("select count(*) from jobs where state in ('failed', 'dead')").fetchone() == (0,)
