"""The run: one series after the other, its fits, and what they mean at a size that nobody has measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mdv.bench.scale.depth import depth
from mdv.bench.scale.documents import documents
from mdv.bench.scale.lmrs import lmrs
from mdv.bench.scale.rules import rules
from mdv.bench.scale.series import Found, Plan, Say
from mdv.bench.scale.sets import sets
from mdv.db.bench import Databases

SERIES: dict[str, Callable[[Databases, Plan, Say], Iterator[Found]]] = {
    "documents": documents,
    "rules": rules,
    "lmrs": lmrs,
    "sets": sets,
    "depth": depth,
}


def run(databases: Databases, names: Sequence[str], plan: Plan, say: Say) -> Iterator[Found]:
    """Measure the series of these names."""
    for name in names:
        for found in SERIES[name](databases, plan, say):
            fit = found.fit()
            say(f"  {fit.name}: exponent {fit.exponent:.2f}, {fit.verdict}")
            yield found
