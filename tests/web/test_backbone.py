"""Three MDPs over HTTP: they converge, also when connections fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.eventually import eventually
from tests.support.http_backbone import HttpBackbone, http_backbone
from tests.support.server import SCHEMA, provider

FIRST = "http://docs.example/first.rdf"


@pytest.fixture(scope="module")
def backbone(new_database: Callable[[], str], new_queue: Callable[[], str]) -> Iterator[HttpBackbone]:
    """Three members; the schema was put at the first."""
    with http_backbone(new_database, new_queue) as backbone:
        first = backbone.found("m1")
        assert first.api.put_schema(SCHEMA).status_code == 200
        assert first.api.put(FIRST, provider()).status_code == 201
        backbone.join("m2")
        backbone.join("m3")
        yield backbone


def documents(backbone: HttpBackbone, *uris: str) -> None:
    """Check that all members have equal documents, versions and ETags."""
    for uri in uris:
        answers = [member.api.get("/documents", uri=uri, headers={"Accept": "application/n-triples"})
                   for member in backbone.members.values()]  # fmt: skip
        found = {
            (one.status_code, one.headers.get("ETag"), "\n".join(sorted(one.text.splitlines()))) for one in answers
        }
        assert len(found) == 1, found


def test_changes_of_each_member_reach_all(backbone: HttpBackbone) -> None:
    uris = [f"http://docs.example/by-{name}" for name in backbone.members]
    for (name, member), uri in zip(backbone.members.items(), uris, strict=True):
        assert member.api.put(uri, provider(name=name)).status_code == 201
    backbone.rest()
    documents(backbone, FIRST, *uris)
    for uri in uris:
        assert all(member.api.get("/documents", uri=uri).status_code == 200 for member in backbone.members.values())
