"""Peers that are wrong, slow or gone, for processes of their own."""

from __future__ import annotations

import os
import time
from typing import Any

from mdv.bench.peers import Taken
from mdv.bench.peers.oxigraph import Oxigraph, OxigraphQueries


class Forgetful(Oxigraph):
    """It drops one match."""

    def take(self, rows: Any) -> Taken:
        taken = super().take(rows)
        first, *others = taken.found.items()
        return taken._replace(found=dict([*others, (first[0], first[1][1:])]))


class Inventive(Oxigraph):
    """It finds one rule more for a resource."""

    def take(self, rows: Any) -> Taken:
        taken = super().take(rows)
        first, *others = taken.found.items()
        return taken._replace(found=dict([*others, (first[0], [*first[1], 49])]))


class Repeating(Oxigraph):
    """It tells one match twice."""

    def take(self, rows: Any) -> Taken:
        taken = super().take(rows)
        first, *others = taken.found.items()
        return taken._replace(found=dict([*others, (first[0], [*first[1], first[1][0]])]))


class Unasking(OxigraphQueries):
    """It asks its sample nothing."""

    def take(self, rows: Any) -> Taken:
        return super().take(rows)._replace(found={})


class Slow(Oxigraph):
    def take(self, rows: Any) -> Taken:
        time.sleep(60)
        return super().take(rows)


class Dying(Oxigraph):
    def take(self, rows: Any) -> Taken:
        os._exit(7)
