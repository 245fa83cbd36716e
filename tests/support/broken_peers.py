"""Peers that are wrong, slow or gone, for separate processes."""

from __future__ import annotations

import os
import time
from typing import Any

from mdv.bench.peers import PeerResult
from mdv.bench.peers.oxigraph import Oxigraph, OxigraphQueries


class Forgetful(Oxigraph):
    """Drops one match."""

    def take(self, rows: Any) -> PeerResult:
        taken = super().take(rows)
        first, *others = taken.found.items()
        return taken._replace(found=dict([*others, (first[0], first[1][1:])]))


class Inventive(Oxigraph):
    """Finds one additional rule for a resource."""

    def take(self, rows: Any) -> PeerResult:
        taken = super().take(rows)
        first, *others = taken.found.items()
        return taken._replace(found=dict([*others, (first[0], [*first[1], 49])]))


class Repeating(Oxigraph):
    """Reports one match twice."""

    def take(self, rows: Any) -> PeerResult:
        taken = super().take(rows)
        first, *others = taken.found.items()
        return taken._replace(found=dict([*others, (first[0], [*first[1], first[1][0]])]))


class Unasking(OxigraphQueries):
    """Does not query its sample."""

    def take(self, rows: Any) -> PeerResult:
        return super().take(rows)._replace(found={})


class Slow(Oxigraph):
    def take(self, rows: Any) -> PeerResult:
        time.sleep(60)
        return super().take(rows)


class Dying(Oxigraph):
    def take(self, rows: Any) -> PeerResult:
        os._exit(7)
