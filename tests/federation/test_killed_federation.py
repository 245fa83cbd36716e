"""Three superpeers and five peers as processes, which are killed between messages, and within transactions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mdv.failpoints import FEDERATION_FAILPOINTS
from mdv.model import RDF_TYPE, Statement
from mdv.rdftl.compile import compile_rules
from tests.support.eventually import eventually
from tests.support.http_federation import HttpFederation, http_federation
from tests.support.rdftl_oracle import Registration, State, exec_sched
from tests.support.rdftl_rules import V, schema_of_turtle, turtle
from tests.support.server import Api

pytestmark = pytest.mark.full

SCHEMA = """
:start rdfs:range xsd:string ; mdv:setValued true . :copied rdfs:range xsd:string ; mdv:setValued true .
:again rdfs:range xsd:string ; mdv:setValued true . :failing rdfs:range xsd:string ; mdv:setValued true .
:topic rdfs:range xsd:string ; mdv:setValued true .
"""
PREFIXES = (
    "@prefix : <http://v/> . @prefix mdv: <urn:mdv:schema#> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> ."
    " @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> ."
    " @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .\n"
)
SUPERPEERS = {"S1": "p1", "S2": "p2", "S3": "p3"}
PEERS = {"p1": "S1", "p2": "S1", "p3": "S2", "p4": "S3", "p5": "S3"}
COPY = "ABORT Independent ON INSERT (_, start, _) IF $delta/target(topic) = 'a' DO INSERT ($delta.source, copied, 'c')"
"""Its condition reads a statement of S2, and its action runs at p4."""
AGAIN = "ABORT Independent ON INSERT (_, copied, _) IF TRUE DO INSERT ($delta.source, again, 'd')"
"""Its event happens at p4, and its action runs at p2."""
COUNT = "ABORT Independent ON INSERT (_, again, 'd') IF TRUE DO INSERT (resource(http://v/log), seq++, $delta.source)"
"""It would add a member twice if its action ran twice."""
FAIL = (
    "ABORT Mutual ON INSERT (_, failing, _) IF TRUE"
    " DO INSERT ($delta.source, again, 'undone'); INSERT (resource(http://v/none), seq++, $delta.source)"
)
"""It fails at p2 with its second action, so that the change that triggered it is compensated."""
STATED = {
    "S1": ':x :start "x" .', "S2": ':u1 :topic "a" . :u3 :topic "a" .', "S3": ':x :failing "x" .',
    "p1": ':y :start "x" .', "p2": ':x :again "x" . :bag a rdf:Bag . :none :topic "x" . :log a rdf:Seq .',
    "p3": ':z :start "x" .', "p4": ':x :copied "x" .',
    "p5": ':y :failing "x" .',
}  # fmt: skip
CHANGES = [("p1", ':u1 :start "1" .'), ("S3", ':u2 :start "2" .'), ("p3", ':u3 :start "3" .')]
FAILING = [("p5", ':w1 :failing "1" .'), ("S3", ':w2 :failing "2" .')]


@pytest.fixture(scope="module")
def federation(
    new_database_url: Callable[[], str], new_queue: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HttpFederation]:
    """S1, S2 and S3 in a line, with five peers."""
    with http_federation(new_database_url, new_queue, tmp_path_factory.mktemp("federation")) as federation:
        schema = PREFIXES + SCHEMA
        for name, before in (("S1", []), ("S2", ["S1"]), ("S3", ["S2"])):
            federation.superpeer(name, schema, documents(name), before)
        for name, superpeer in PEERS.items():
            federation.peer(name, superpeer, schema, documents(name))
        federation.rest()
        for name, text in (("S1", COPY), ("S3", AGAIN), ("S2", COUNT), ("S2", FAIL)):
            federation[name].call("POST", "/eca/rules", {"text": text})
        federation.rest()
        yield federation


def documents(name: str) -> dict[str, str]:
    return {f"http://d/{name}": PREFIXES + STATED[name]}


def union(federation: HttpFederation) -> frozenset[Statement]:
    """Return all statements of all sites."""
    found: set[Statement] = set()
    for site in federation.sites.values():
        for one in site.api.all("/documents", 100):
            found |= statements(site.api, one["uri"])
    return frozenset(found)


def statements(api: Api, uri: str) -> frozenset[Statement]:
    answer = api.get("/documents", uri=uri, headers={"Accept": "text/turtle"})
    assert answer.status_code == 200, answer.text
    return turtle(answer.text)


def central(changes: list[tuple[str, str]]) -> frozenset[Statement]:
    """Return what one central engine makes of the same changes."""
    schema = schema_of_turtle(SCHEMA)
    rules = {n: compile_rules(text, schema)[0].rule for n, text in enumerate((COPY, AGAIN))}
    state = State({f"http://d/{name}": turtle(text) for name, text in STATED.items()}, schema)
    for number, (_, text) in enumerate(changes):
        done = exec_sched(Registration(f"http://d/new-{number}", turtle(text)), rules, state)
        state = State(done.documents, schema)
    return state.stated


def change(federation: HttpFederation, name: str, text: str, number: int, prefix: str) -> None:
    answer = federation[name].api.put(f"http://d/{prefix}-{number}", PREFIXES + text)
    assert answer.status_code == 201, answer.text


def test_nothing_runs_twice_and_nothing_is_lost_if_processes_are_killed_between_messages(
    federation: HttpFederation,
) -> None:
    rng = random.Random(25)
    died = 0
    for number, (name, text) in enumerate(CHANGES):
        change(federation, name, text, number, "new")
        died += federation.kill_at_random(rng, 2, FEDERATION_FAILPOINTS)
    died += settle(federation)
    check_union(federation)
    close_ring(federation)
    for number, (name, text) in enumerate(FAILING):
        change(federation, name, text, number, "failing")
        died += federation.kill_at_random(rng, 2, FEDERATION_FAILPOINTS)
    died += settle(federation)
    assert died > 10, "processes died at failpoints, too"
    check_union(federation)  # the failing copies, and what triggered them, are undone
    assert compensated(federation) == closure(federation)
    assert len(compensated(federation)) == 2 * len(FAILING)


def check_union(federation: HttpFederation) -> None:
    """Compare the statements of all sites with those of one central engine, and count what `COUNT` has done."""
    found = union(federation)
    members = {one for one in found if one.subject == V + "log" and one.property != RDF_TYPE}
    assert found - members == central(CHANGES)
    assert sorted(one.object.value for one in members) == [V + "u1", V + "u3"], "each action ran once"


def settle(federation: HttpFederation) -> int:
    """Start the processes again that die, until nothing is left to do. Return how many died."""
    died: list[int] = []

    def is_at_rest() -> bool:
        died.append(federation.revive())
        return federation.is_at_rest()

    eventually(is_at_rest, 240, detail=lambda: [site.status() for site in federation.sites.values()])
    return sum(died)


def close_ring(federation: HttpFederation) -> None:
    """Connect the ends of the line."""
    federation.revive()
    federation.connect("S3", "S1")
    settle(federation)


def transactions(federation: HttpFederation) -> dict[str, dict[str, Any]]:
    """Return all transactions of the superpeers as trees."""
    found = {}
    for name in SUPERPEERS:
        for one in federation[name].transactions():
            path = "/federation/transactions/" + one["id"].replace("#", "%23")
            found[one["id"]] = federation[name].api.get(path).json()
    return found


def compensated(federation: HttpFederation) -> set[str]:
    return {id_ for id_, one in transactions(federation).items() if one["state"] == "compensated"}


def closure(federation: HttpFederation) -> set[str]:
    """Return what failed itself, with all that its arcs of the abort graph lead to."""
    every = transactions(federation)
    runs = {copy: id_ for id_ in every for copy in [id_.partition("@")[0]]}
    todo = [id_ for id_, one in every.items() if "no collection" in (one["reason"] or "")]
    found: set[str] = set()
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += [runs.get(arc["target"], arc["target"]) for arc in every[one]["aborts"]]
    return found & every.keys()
