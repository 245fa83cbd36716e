"""Found the backbone of `mdv up --mdps`, and let its MDPs join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mdv.cli.peer import wait_until_active
from mdv.errors import Conflict, MdvError, NotFound
from mdv.mdp_places import MdpPlace
from mdv.system import System

if TYPE_CHECKING:
    from mdv.client import Client

READY_SECONDS = 60.0


def connect_mdps(places: Sequence[MdpPlace], systems: Sequence[System], clients: Sequence[Client], crdt: str) -> None:
    """Make the MDPs members of one backbone, unless they are already. The first one founds it."""
    first = clients[0]
    for place, system, mdp in zip(places, systems, clients, strict=True):
        known = _find(mdp)
        if known is not None:
            _check_url(known, system)
        elif place.number == 1:
            first.change("POST", "/backbone", {"name": place.name, "url": system.url, "mode": crdt})
        else:
            code = first.change("POST", "/backbone/invitations")["code"]
            entry = {"name": place.name, "url": system.url, "code": code, "merge": True}
            mdp.change("POST", "/backbone/entry", entry, READY_SECONDS)
        if wait_until_active(mdp, READY_SECONDS)["state"] != "active":
            raise MdvError(f"{place.name} did not become a member of the backbone: see {place.folder / 'logs'}.")


def _find(mdp: Client) -> dict[str, object] | None:
    try:
        return mdp.get("/backbone")
    except NotFound:
        return None


def _check_url(known: dict[str, object], system: System) -> None:
    members = known["members"]
    assert isinstance(members, list)
    url = next(one["url"] for one in members if one["name"] == known["name"])
    if url != system.url:
        raise Conflict(
            f"The other members know {known['name']} as {url}, not as {system.url}: start with the same --port."
        )


def logical_settings(count: int) -> dict[str, str]:
    """Return the settings of one Postgres whose databases replicate their logs to each other."""
    links = count * (count - 1)
    return {
        "wal_level": "logical",
        "max_replication_slots": str(links + 4),
        "max_wal_senders": str(links + 4),
        "max_active_replication_origins": str(links + 4),
        "max_logical_replication_workers": str(links + 4),
        "max_worker_processes": str(links + 12),
    }


def peer_databases(urls: Sequence[str]) -> list[str]:
    """Return MDV_BACKBONE_DATABASES of each MDP.

    >>> peer_databases(["postgresql:///a", "postgresql:///b"])
    ['m2=postgresql:///b', 'm1=postgresql:///a']
    """
    named = {f"m{number}": url for number, url in enumerate(urls, 1)}
    return [" ".join(f"{name}={url}" for name, url in named.items() if name != own) for own in named]


def is_member(database_url: str) -> bool:
    """True if the MDP of this database is in a backbone."""
    from mdv.db.engine import make_engine
    from mdv.db.state import read_state

    engine = make_engine(database_url)
    try:
        with engine.connect() as connection:
            return read_state(connection).replica is not None
    finally:
        engine.dispose()
