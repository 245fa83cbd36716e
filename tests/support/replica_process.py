"""A process that applies everything that one member has to another: `python -m tests.support.replica_process A B`.

`MDV_DIE_AT` kills it at a failpoint. The arguments are the URLs of two databases: the origin, and the one that applies.
"""

from __future__ import annotations

import sys

from mdv.db.engine import make_engine
from tests.support.replicas import ReplicaMdp, Replicas


def main(origin_url: str, url: str) -> None:
    origin, member = ReplicaMdp(make_engine(origin_url), "a"), ReplicaMdp(make_engine(url), "b")
    Replicas([origin, member]).pull("b", "a")
    for one in (origin, member):
        one.engine.dispose()


if __name__ == "__main__":
    main(*sys.argv[1:])
