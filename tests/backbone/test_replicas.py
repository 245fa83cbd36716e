"""Several MDPs that replicate: real databases, messages delivered by the test."""

from __future__ import annotations

import pytest

from tests.support.replicas import NewDatabase, ReplicaMdp, Replicas

SCHEMA = "open"


def put(member: ReplicaMdp, uri: str, text: str | None) -> None:
    member.put_one(uri, text)


@pytest.fixture
def three(new_database: NewDatabase) -> Replicas:
    replicas = Replicas.found(new_database, ["a", "b", "c"])
    for member in replicas.members.values():
        member.put_schema(":Book a rdfs:Class . :title a rdf:Property . :tag a rdf:Property ; mdv:setValued true .")
    return replicas


def test_a_document_reaches_every_member(three: Replicas) -> None:
    put(three["a"], "http://d/1", "<http://d/1#x> :title 'one' ; :tag 'a', 'b' .")
    three.rest()
    for member in three.members.values():
        assert member.rows("select uri, version, present, statements from documents") == [("http://d/1", 1, True, 3)]
