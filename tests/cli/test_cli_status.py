"""`mdv status`: the MDP and its LMR on one screen."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable

import psycopg
from systems import MDV, Up, environment, eventually


def test_it_tells_of_the_mdp_and_of_its_lmr(running: Up, mdv: Callable) -> None:
    ran = mdv("status", "--data", running.folder)
    assert ran.code == 0, ran.err
    facts = dict(line.split("\t") for line in ran.out.splitlines())
    assert re.match(r"[\d.a-z]+, at position [\d,]+, life [0-9a-f-]{36}$", facts["MDV"])
    assert re.match(r"[\d,]+ documents, [\d,]+ resources, [\d,]+ statements, [\d,]+ rules$", facts["holds"])
    assert facts["waiting"] and facts["dead letters"] == "0"
    assert "up to date at position" in facts["LMR here"] or "catching up" in facts["LMR here"]


def test_a_worker_is_told_with_when_it_was_last_heard(running: Up, mdv: Callable) -> None:
    heard = re.compile(r"^workers\t\S+ \(1 process, last heard \d+ s ago\)$", re.MULTILINE)
    assert eventually(lambda: heard.search(mdv("status", "--data", running.folder).out))


def test_it_names_the_lmrs_that_are_behind(running: Up, mdv: Callable) -> None:
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


def test_for_machines_it_is_json(running: Up, mdv: Callable) -> None:
    found = json.loads(mdv("status", "--json", "--data", running.folder).out)
    assert found["lmrs"] == 1 and found["lmr"]["mdp"] == running.system.url
    assert found["counts"].keys() == {"documents", "resources", "statements", "rules"}


def test_an_lmr_that_is_away_is_told_and_the_rest_is_shown(running: Up, mdv: Callable, monkeypatch: object) -> None:
    monkeypatch.setenv("MDV_URL", running.system.url)  # type: ignore[attr-defined]
    monkeypatch.setenv("MDV_TOKEN", running.system.token)  # type: ignore[attr-defined]
    assert "lmr" not in json.loads(mdv("status", "--json").out)
    monkeypatch.setenv("MDV_LMR_URL", "http://127.0.0.1:9")  # type: ignore[attr-defined]
    found = json.loads(mdv("status", "--json").out)
    assert "is not running" in found["lmr"]["problem"] and found["position"] >= 0


def test_watching_needs_a_terminal(running: Up, mdv: Callable) -> None:
    ran = mdv("status", "--watch", "--data", running.folder)
    assert ran.code == 2 and "terminal" in ran.err


def test_watching_draws_again_until_ctrl_c(running: Up) -> None:
    terminal, end = pty.openpty()
    argv = [str(MDV), "status", "--watch", "--data", str(running.folder)]
    own = environment(TERM="xterm", COLUMNS="200", LINES="50")
    child = subprocess.Popen(argv, stdin=end, stdout=end, stderr=end, env=own, start_new_session=True)
    os.close(end)
    seen = b""
    deadline = time.monotonic() + 60
    try:
        while seen.count(b"dead letters") < 2 and time.monotonic() < deadline:
            if select.select([terminal], [], [], 1)[0]:
                seen += os.read(terminal, 65536)
        assert seen.count(b"dead letters") >= 2, seen
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 130
    finally:
        child.kill()
        child.wait()
        os.close(terminal)
