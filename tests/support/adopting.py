"""Members of a backbone that adopt LMRs, without a network. `python -m tests.support.adopting` does it in a process of
its own, which `MDV_DIE_AT` kills at a failpoint."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from mdv.backbone.vector import covers
from mdv.db.engine import make_engine
from mdv.db.lmrs import Lmr
from mdv.errors import Behind
from mdv.lmr.cache import Cache
from mdv.lmr.change_home import get_adopted
from mdv.mdp.adopt_lmr import adopt_lmr, follow_definitions
from mdv.mdp.lmr_definitions import announce_lmrs
from mdv.mdp.lmrs import list_lmrs
from tests.support.in_process_source import Near
from tests.support.replicas import ReplicaMdp


class NearHome(Near):
    """A member that can become the home of the only LMR."""

    def __init__(self, member: ReplicaMdp) -> None:
        super().__init__(member, the_lmr(member))
        self.member, self.url = member, member.name
        self.received_bytes = 0

    def adopt(
        self, term: int, vector: Mapping[str, int], sums: Sequence[int], accept_older: bool = False, wait: float = 0
    ) -> dict[str, Any]:
        if not accept_older and not covers(self.member.facts.vector, vector):
            raise Behind()
        with self.member.engine.begin() as connection:
            adopted = adopt_lmr(connection, self.lmr, self.member.provider, term)
        cursor, position, buckets = self.member.feeds.take_differences(self.lmr, sums)
        return {"term": adopted.term, "cursor": cursor, "position": position, "buckets": buckets}


def the_lmr(member: ReplicaMdp) -> Lmr:
    """Return the only LMR that a member knows, as it is now."""
    with member.engine.connect() as connection:
        (found,) = list_lmrs(connection, 0, 2)
    return found


def follow(member: ReplicaMdp) -> None:
    """Announce the LMRs of a member, and do what the definitions of all LMRs say."""
    announce_lmrs(member.provider)
    assert follow_definitions(member.provider, member.name, None) == set()


def main(url: str, name: str, cache_url: str) -> None:
    member = ReplicaMdp(make_engine(url), name)
    with Cache.open(cache_url) as cache:
        get_adopted(cache, "", NearHome(member), accept_older=False)
    member.engine.dispose()


if __name__ == "__main__":
    main(*sys.argv[1:])
