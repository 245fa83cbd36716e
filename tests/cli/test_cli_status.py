"""`mdv status`: the MDP and its LMR on one screen."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Callable

import psycopg

from tests.support.eventually import eventually
from tests.support.whole_system import MDV, Up, environment


def test_the_status_shows_the_mdp_and_its_lmr(running: Up, mdv: Callable) -> None:
    ran = mdv("status", "--data", running.folder)
    assert ran.code == 0, ran.err
    facts = dict(line.split("\t") for line in ran.out.splitlines())
    assert re.match(r"[\d.a-z]+, at position [\d,]+, epoch [0-9a-f-]{36}$", facts["MDV"])
    assert re.match(r"[\d,]+ documents, [\d,]+ resources, [\d,]+ statements, [\d,]+ rules$", facts["stored"])
    assert facts["waiting"] and facts["dead letters"] == "0"
    assert re.match(r"(up to date|catching up) at position [\d,]+", facts["local LMR"])


def test_workers_are_shown_with_their_last_heartbeat(running: Up, mdv: Callable) -> None:
    heard = re.compile(r"^workers\t\S+ \(1 process, last heartbeat \d+ s ago\)$", re.MULTILINE)
    eventually(lambda: heard.search(mdv("status", "--data", running.folder).out))


def test_the_status_names_the_lmrs_that_are_behind(running: Up, mdv: Callable) -> None:
    name = "one that is slow"
    assert mdv("lmr", "create", name, "--data", running.folder).code == 0
    try:
        with psycopg.connect(running.system.database_url, autocommit=True) as connection:
            number = connection.execute("select id from lmrs where name = %s", [name]).fetchone()
            connection.execute("insert into feed select %s, n, 1, 0 from generate_series(1000000, 1001550) n", number)
        out = mdv("status", "--data", running.folder).out
        assert "LMRs\t2, 1 behind: one that is slow (1,551 events)" in out.splitlines()
    finally:
        assert mdv("lmr", "delete", name, "--yes", "--data", running.folder).code == 0


def test_the_status_is_printed_as_json(running: Up, mdv: Callable) -> None:
    found = json.loads(mdv("status", "--json", "--data", running.folder).out)
    assert found["lmrs"] == 1 and found["lmr"]["mdp"] == running.system.url
    assert found["counts"].keys() == {"documents", "resources", "statements", "rules"}


def test_an_unreachable_lmr_is_reported_beside_the_status_of_the_mdp(
    running: Up, mdv: Callable, monkeypatch: object
) -> None:
    monkeypatch.setenv("MDV_URL", running.system.url)  # type: ignore[attr-defined]
    monkeypatch.setenv("MDV_TOKEN", running.system.token)  # type: ignore[attr-defined]
    without = json.loads(mdv("status", "--json").out)
    assert "lmr" not in without
    monkeypatch.setenv("MDV_LMR_URL", "http://127.0.0.1:9")  # type: ignore[attr-defined]
    found = json.loads(mdv("status", "--json").out)
    assert "is not running" in found["lmr"]["problem"]
    assert found["position"] == without["position"] and found.keys() == without.keys() | {"lmr"}


def test_watching_needs_a_terminal(running: Up, mdv: Callable) -> None:
    ran = mdv("status", "--watch", "--data", running.folder)
    assert ran.code == 2 and "terminal" in ran.err


def test_watching_redraws_until_ctrl_c(running: Up) -> None:
    terminal, end = pty.openpty()
    argv = [str(MDV), "status", "--watch", "--data", str(running.folder)]
    own = environment(TERM="xterm", COLUMNS="200", LINES="50")
    child = subprocess.Popen(argv, stdin=end, stdout=end, stderr=end, env=own, start_new_session=True)
    os.close(end)
    seen = b""

    def drawn_twice() -> bool:
        nonlocal seen
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 65536)
        return seen.count(b"dead letters") >= 2

    try:
        eventually(drawn_twice, detail=lambda: seen)
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
    finally:
        child.kill()
        child.wait()
        os.close(terminal)
