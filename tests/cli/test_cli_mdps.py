"""`mdv up --mdps 3` as real processes: it converges, survives kills, and finds everything again."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mdv.errors import BadCommand
from mdv.free_port import free_port
from mdv.mdp_places import Mdps, choose_mdps, find_mdp, list_places, write_mdps
from mdv.system import System, read_system
from tests.support.documentation import ROOT
from tests.support.eventually import eventually
from tests.support.local_http import local_client
from tests.support.server import SCHEMA, Api, provider
from tests.support.whole_system import Up, command_line, descendants


def free_ports(count: int, distance: int = 10) -> int:
    """Return a port so that it and others at this distance are free."""
    while True:
        first = free_port()
        taken = []
        try:
            for number in range(count):
                probe = socket.socket()
                taken.append(probe)
                probe.bind(("127.0.0.1", first + distance * number))
            return first
        except OSError:
            continue
        finally:
            for probe in taken:
                probe.close()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    up = Up(tmp_path_factory.mktemp("mdps") / "data", port=free_ports(3), lmr_port=free_ports(3))
    up.options, up.settings = ["--mdps", "3"], {"MDV_LMR_HOME_SECONDS": "5"}
    try:
        yield up.start()
        assert up.end(signal.SIGTERM) == 0, up.output
    finally:
        if up.process is not None and up.process.poll() is None:
            up.end(signal.SIGKILL)


def system_of(up: Up, number: int) -> System:
    found = read_system(find_mdp(up.folder, number))
    assert found is not None
    return found


def apis(up: Up) -> list[Api]:
    systems = [system_of(up, number) for number in (1, 2, 3)]
    return [Api(local_client(base_url=one.url, headers={"Authorization": f"Bearer {one.token}"}, timeout=90))
            for one in systems]  # fmt: skip


def at_rest(members: list[Api]) -> bool:
    vectors = [api.get("/backbone").json()["vector"] for api in members]
    return all(vector == vectors[0] for vector in vectors)


def kill(up: Up, *words: bytes, number: signal.Signals = signal.SIGKILL) -> list[int]:
    """Kill the processes of the system whose command line contains all words, or send them another signal."""
    assert up.process is not None
    found = [pid for pid in descendants(up.process.pid) if all(word in command_line(pid) for word in words)]
    for pid in found:
        os.kill(pid, number)
    return found


@pytest.mark.full
def test_three_mdps_converge_survive_kills_and_are_found_again(up: Up, mdv: Callable[..., Any]) -> None:
    members = apis(up)
    assert members[0].put_schema(SCHEMA).status_code == 200
    eventually(lambda: all("serverPort" in api.get("/schema").text for api in members))
    uris = [f"http://docs.example/{number}" for number in range(3)]
    for api, uri in zip(members, uris, strict=True):
        assert api.put(uri, provider()).status_code == 201
    eventually(lambda: at_rest(members))

    rule = up.folder.parent / "all.rule"
    rule.write_text("search CycleProvider c register c")
    lmr = mdv("subscribe", rule, "--data", up.folder, "--mdp", "3")
    assert lmr.code == 0, lmr.err
    eventually(lambda: "3 selected" in mdv("lmr", "status", "--data", up.folder, "--mdp", "3").out)

    assert len(kill(up, b"workers.replicate")) == 3
    assert kill(up, b"celery")
    for number, (api, uri) in enumerate(zip(members, uris, strict=True), 7):
        assert api.put(uri, provider(number)).status_code == 200
    eventually(lambda: at_rest(members), 120)
    for uri in uris:
        assert len({api.get("/documents", uri=uri).headers["ETag"] for api in members}) == 1
    assert "equal" in mdv("lmr", "verify", "--data", up.folder, "--mdp", "3").out
    assert mdv("peer", "list", "--data", up.folder, "--mdp", "2").out.count("active") == 3

    id_ = members[0].get("/backbone").json()["id"]
    assert up.end(signal.SIGTERM) == 0, up.output
    up.options = []
    up.start()
    again = apis(up)
    assert len(again) == 3 and {api.get("/backbone").json()["id"] for api in again} == {id_}
    assert again[2].put(uris[0], provider(99)).status_code == 200
    eventually(lambda: at_rest(again))


@pytest.mark.full
def test_an_lmr_changes_its_home_when_the_web_server_of_its_mdp_stops(up: Up, mdv: Callable[..., Any]) -> None:
    members = apis(up)
    assert members[0].put_schema(SCHEMA).status_code == 200
    eventually(lambda: all("serverPort" in api.get("/schema").text for api in members))
    rule = up.folder.parent / "roaming.rule"
    rule.write_text("search CycleProvider c register c where c.serverPort = 4711")
    assert mdv("subscribe", rule, "--data", up.folder).code == 0
    uris = [f"http://docs.example/roaming/{number}" for number in range(3)]
    assert members[2].put(uris[0], provider(4711)).status_code == 201

    def resources() -> set[str]:
        system = system_of(up, 1)
        headers = {"Authorization": f"Bearer {system.token}"}
        with local_client(base_url=system.lmr_url, headers=headers, timeout=60) as lmr:
            items = lmr.get("/api/v1/resources", params={"class": "CycleProvider"}).json()["items"]
        return {item["uri"] for item in items if "/roaming/" in item["uri"]}

    def status() -> dict[str, Any]:
        found = mdv("lmr", "status", "--data", up.folder, "--json")
        assert found.code == 0, found.err
        return dict(json.loads(found.out))

    eventually(lambda: resources() == {f"{uris[0]}#host"}, detail=status)
    assert len(status()["mdps"]) == 3 and status()["mdp"] == system_of(up, 1).url
    eventually(lambda: all(api.get("/lmrs/local@m1").status_code == 200 for api in members[1:]))
    port = f":{up.port}".encode()
    stopped = kill(up, b"gunicorn", b"web.wsgi", port, number=signal.SIGSTOP)
    try:
        eventually(lambda: status()["adoptions"], 120, detail=status)
        token = members[1].put(uris[1], provider(4711)).json()["token"]
        eventually(lambda: resources() == {f"{uri}#host" for uri in uris[:2]}, detail=status)
        assert token
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert members[0].put(uris[2], provider(4711)).status_code == 201
    eventually(lambda: resources() == {f"{uri}#host" for uri in uris}, 120, detail=status)
    eventually(lambda: "equal" in mdv("lmr", "verify", "--data", up.folder).out, 120, detail=status)


@pytest.mark.full
def test_the_commands_of_the_howto_do_what_it_says(
    up: Up, mdv: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All commands with --mdp on the page, from top to bottom."""
    if up.process is None or up.process.poll() is not None:
        up.start()
    members = apis(up)
    assert members[0].put_schema(SCHEMA).status_code == 200
    eventually(lambda: all("serverPort" in api.get("/schema").text for api in members))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.ttl").write_text(provider(1))
    (tmp_path / "other-notes.ttl").write_text(provider(2))
    lines = (ROOT / "docs" / "howto" / "backbone.md").read_text().splitlines()
    commands = [line.removeprefix("$ mdv ") for line in lines if line.startswith("$ mdv ") and "--mdp " in line]
    outputs = {}
    for command in commands:
        ran = mdv(*command.split(), "--data", up.folder)
        assert ran.code == 0, (command, ran.err)
        outputs[command] = ran.out
        if command in ("register notes.ttl --uri http://example.org/notes --mdp 2", "peer resume m2 --mdp 3"):
            eventually(lambda: at_rest(members))
    assert "http://example.org/notes" in outputs["documents --mdp 3"]
    listed = outputs["conflicts --mdp 3"]
    assert "remnant" in listed and "http://example.org/notes" in listed
    assert all(api.get("/documents", uri="http://example.org/notes").status_code == 200 for api in members)


def test_the_number_of_mdps_is_kept_and_can_only_grow(tmp_path: Path) -> None:
    assert choose_mdps(tmp_path, None, None) == Mdps(1, "")
    assert choose_mdps(tmp_path, 3, None) == Mdps(3, "orset")
    write_mdps(tmp_path, Mdps(3, "cset"))
    assert json.loads((tmp_path / "mdps.json").read_text()) == {"mdps": 3, "crdt": "cset"}
    assert choose_mdps(tmp_path, None, None) == Mdps(3, "cset")
    assert choose_mdps(tmp_path, 4, "cset") == Mdps(4, "cset")
    for count, crdt in ((2, None), (3, "orset")):
        with pytest.raises(BadCommand):
            choose_mdps(tmp_path, count, crdt)
    assert find_mdp(tmp_path, 1) == tmp_path and find_mdp(tmp_path, 3) == tmp_path / "m3"
    with pytest.raises(BadCommand, match="has the MDPs 1 to 3"):
        find_mdp(tmp_path, 4)


def test_a_replicated_set_needs_several_mdps(tmp_path: Path) -> None:
    with pytest.raises(BadCommand, match="--mdps"):
        choose_mdps(tmp_path, None, "cset")
    assert [place.label("web") for place in list_places(tmp_path, 8080, 8081, 1)] == ["web"]
