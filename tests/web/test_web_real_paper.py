"""The examples (1) to (6c) of the ReAL paper, run over HTTP on documents, by a worker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process_server import serve_in_process
from tests.support.real_texts import PAPER
from tests.support.server import Api, start_server, start_worker, stopping

RDF, RDFS = "http://www.w3.org/1999/02/22-rdf-syntax-ns#", "http://www.w3.org/2000/01/rdf-schema#"
SCHEMA = """
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix mdv: <urn:mdv:schema#> .
<urn:mdv:schema> mdv:world mdv:open .
<http://museum.example/3#VideoArt> rdfs:subClassOf <http://museum.example/3#Artwork> .
<http://museum.example/3#Artwork> a rdfs:Class .
"""
WORKS = (
    ":v1 a :ArtWork ; :creator :BillViola . :v2 a :ArtWork ; :creator :Other . :v3 a :ArtWork ; :creator :BillViola ."
)
"""Three works, two of them by Bill Viola."""

_numbers = itertools.count(10)


@pytest.fixture(scope="module")
def museum(
    request: pytest.FixtureRequest, new_database: Callable[[], str], new_queue: Callable[[], str], folder: Path
) -> Iterator[Api]:
    """A system of its own: the examples read the statements of all documents."""
    database, queue = new_database(), new_queue()
    with ExitStack() as stack:
        if request.config.getoption("quick"):
            server = stack.enter_context(serve_in_process(database, queue))
        else:
            worker = start_worker(folder, database, queue)
            stack.enter_context(stopping(worker))
            server = start_server(folder, database, queue)
            stack.enter_context(stopping(server))
        assert server.api().put_schema(SCHEMA).status_code == 200
        yield server.api()


@dataclass
class Room:
    """Names that no other test uses, and a document about them."""

    api: Api
    name: str

    def hang(self, turtle: str) -> Room:
        body = f"@prefix : <{self.name}#> . {turtle}"
        assert self.api.put(self.name, body).status_code == 201
        return self

    def run(self, key: str, **more: Any) -> dict[str, Any]:
        body = {"code": PAPER[key], "prefixes": {"ex": f"{self.name}#"}, "mode": "run", "into": self.name + "/new"}
        answer = self.api.http.post("/api/v1/real", json=body | more)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def bindings(self, found: dict[str, Any]) -> list[dict[str, str]]:
        return sorted(
            ({name: self.short(term["value"]) for name, term in one.items()} for one in found["solutions"]), key=str
        )  # fmt: skip

    def said(self) -> set[str]:
        """Return the statements of the documents of this room."""
        found = set()
        for uri in (self.name, self.name + "/new"):
            answer = self.api.get("/documents", headers={"Accept": "application/n-triples"}, uri=uri)
            for line in answer.text.splitlines() if answer.status_code == 200 else ():
                parts = [self.short(part.strip('<>"')) for part in line.rstrip(" .").split(" ", 2)]
                found.add(" ".join(parts))
        return found

    def short(self, text: str) -> str:
        fresh = f"{self.name}/new#"
        if text.startswith(fresh):
            return "fresh" + text.rpartition("-")[2]
        return text.removeprefix(f"{self.name}#").removeprefix(RDF).removeprefix(RDFS)


@pytest.fixture
def room(museum: Api) -> Room:
    return Room(museum, f"http://museum.example/{next(_numbers)}")


def test_example_1_streams_a_binding_for_each_statement(room: Room) -> None:
    room.hang(WORKS)
    found = [one for one in room.bindings(room.run("1")) if one["class"] == "ArtWork"]
    assert found == [{"class": "ArtWork", "sub": name} for name in ("v1", "v2", "v3")]


def test_example_2_takes_what_it_reads(room: Room) -> None:
    room.hang(":n a :Artwork . :m a :Artwork . :o a :Other .")
    found = room.run("2")
    assert room.bindings(found) == [{"sub": "m"}, {"sub": "n"}]
    assert found["effects"] == {"added": 0, "removed": 2} and room.said() == {"o type Other"}


def test_example_3_infers_with_the_schema(museum: Api) -> None:
    room = Room(museum, "http://museum.example/3").hang(":v a :VideoArt . :w a :Artwork . :x a :Other .")
    assert room.bindings(room.run("3")) == [{"sub": "v"}, {"sub": "w"}]


def test_example_4_writes_once(room: Room) -> None:
    first, again = room.run("4"), room.run("4")
    assert first["solutions"] == [{}] and first["effects"] == {"added": 1, "removed": 0}
    assert again["solutions"] == [] and again["effects"] == {"added": 0, "removed": 0}
    assert room.said() == {"nantes-Triptych type Artwork"}


def test_example_5_joins(room: Room) -> None:
    room.hang(WORKS)
    assert room.bindings(room.run("5")) == [{"sub": "v1"}, {"sub": "v3"}]


def test_example_6_leaves_its_label_when_it_fails(room: Room) -> None:
    found = room.run("6")
    assert found["solutions"] == [] and found["effects"] == {"added": 1, "removed": 0}
    assert room.said() == {"fresh1 label Bill Viola"}


@pytest.mark.parametrize("key", ["6b", "6c"])
def test_examples_6b_and_6c_change_nothing_when_they_fail(room: Room, key: str) -> None:
    found = room.run(key)
    assert found["solutions"] == [] and found["effects"] == {"added": 0, "removed": 0} and room.said() == set()


@pytest.mark.parametrize("key", ["6", "6c"])
def test_examples_6_and_6c_rename_every_creator(room: Room, key: str) -> None:
    room.hang(WORKS)
    found = room.run(key)
    assert {one["sub"] for one in room.bindings(found)} == {"v1", "v3"}
    assert found["effects"] == {"added": 3, "removed": 2}
    creators = {line for line in room.said() if "creator" in line}
    assert creators == {"v1 creator fresh1", "v2 creator Other", "v3 creator fresh1"}


def test_example_6b_makes_a_creator_for_each_work(room: Room) -> None:
    room.hang(WORKS)
    found = room.run("6b")
    assert found["effects"] == {"added": 4, "removed": 2}
    creators = {line.split()[2] for line in room.said() if "creator" in line}
    assert creators == {"fresh1", "fresh2", "Other"}


def test_example_6c_commits_at_each_solution(room: Room) -> None:
    room.hang(WORKS)
    found = room.run("6c", limit=1)
    assert len(found["solutions"]) == 1 and found["effects"] == {"added": 2, "removed": 1}
    assert sum("BillViola" in line for line in room.said()) == 1
