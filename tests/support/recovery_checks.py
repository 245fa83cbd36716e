"""Checks after a fault: nothing lost, nothing repeated, no gaps, and every LMR correct."""

from __future__ import annotations

from collections import Counter

from tests.support.eventually import eventually
from tests.support.faulty_system import System
from tests.support.ledger import Content, Ledger
from tests.support.lmr_server import Lmr
from tests.support.local_http import local_client
from tests.support.server import ADMIN, N_TRIPLES, Api


def prove(system: System) -> None:
    """Compare everything that a system returns with the acknowledged changes."""
    jobs_are_as_asked_for(system)
    ((count, last, state),) = system.rows(
        "select count(*), max(position), (select position from mdp_state) from transactions"
    )
    assert count == last == state, f"{count} transactions, the last at {last}, and the MDP stands at {state}"
    position = int(str(last))

    versions = system.ledger.versions()
    with local_client(base_url=system.urls()[0], headers={"Authorization": f"Bearer {ADMIN}"}, timeout=60) as http:
        api = Api(http)
        known = {item["uri"]: item["version"] for item in api.all("/documents", 1000)}
        assert known == {uri: len(every) for uri, every in versions.items() if every[-1] is not None}
        for uri, every in versions.items():
            if system.proven.get(uri) != len(every):
                document_is_as_acknowledged(api, uri, every)
    system.proven = {uri: len(every) for uri, every in versions.items()}
    for lmr in system.lmrs.values():
        cache_is_as_it_should_be(lmr, system.ledger, position)
    system.follower.has_come_to(position)
    followed = {uri: len(said) for uri, said in system.follower.copy.resources.items()}
    assert followed == {uri: len(lines) for uri, lines in system.ledger.held("watcher").items()}


def jobs_are_as_asked_for(system: System) -> None:
    """Check that each requested change is one job, however often it was sent, and that all jobs succeeded."""
    eventually(lambda: not system.rows("select from jobs where state not in ('done', 'failed', 'dead')"))
    jobs = system.rows("select idempotency_key, state, uri, problem from jobs where kind <> 'schema'")
    assert not [job for job in jobs if job[1] != "done"]
    assert Counter(key for key, *_ in jobs) == Counter(system.ledger.keys)


def document_is_as_acknowledged(api: Api, uri: str, versions: list[Content | None]) -> None:
    """Check that it has the last acknowledged content, and as many versions as there were changes."""
    content = versions[-1]
    found = api.get("/documents", {"Accept": N_TRIPLES}, uri=uri)
    if content is None:
        assert found.status_code == 404, f"{uri} was deleted, but exists"
    else:
        assert found.status_code == 200, f"{uri} is lost: {found.text}"
        wanted = {line for lines in content.resources(uri).values() for line in lines}
        assert set(found.text.splitlines()) == wanted, uri
    told = [(version["version"], version["present"]) for version in api.all("/documents/history", 100, uri=uri)]
    assert told[::-1] == [(n, version is not None) for n, version in enumerate(versions, 1)], uri


def cache_is_as_it_should_be(lmr: Lmr, ledger: Ledger, position: int) -> None:
    """Check that it holds the resources that follow from the acknowledged changes, with their statements."""
    lmr.is_at(position, 60)
    assert {item["id"] for item in lmr.get("/subscriptions").json()["items"]} == ledger.rules(lmr.name).keys()
    wanted = ledger.held(lmr.name)
    with lmr.own.http as http:
        held = {item["uri"] for item in Api(http).all("/resources", 1000)}
    assert held == wanted.keys(), f"{lmr.name} lacks {wanted.keys() - held} and has unexpected {held - wanted.keys()}"
    told: set[str] = set()
    for name in ("CycleProvider", "ServerInformation"):
        answer = lmr.query(f"search {name} x register x", N_TRIPLES, limit=1000)
        assert answer.status_code == 200, answer.text
        told.update(answer.text.splitlines())
    assert told == {line for lines in wanted.values() for line in lines}, lmr.name
    lmr.assert_like_the_mdp()
