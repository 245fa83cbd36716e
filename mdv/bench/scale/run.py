"""Run the series one after the other, and fit them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mdv.bench.scale.depth import measure_depth
from mdv.bench.scale.documents import measure_documents
from mdv.bench.scale.lmrs import measure_lmrs
from mdv.bench.scale.rules import measure_rules
from mdv.bench.scale.series import PrintProgress, ScalePlan, ScaleResult
from mdv.bench.scale.sets import measure_sets
from mdv.bench.sql.bench_store import BenchDatabases

SERIES: dict[str, Callable[[BenchDatabases, ScalePlan, PrintProgress], Iterator[ScaleResult]]] = {
    "documents": measure_documents,
    "rules": measure_rules,
    "lmrs": measure_lmrs,
    "sets": measure_sets,
    "depth": measure_depth,
}


def run_series(
    databases: BenchDatabases, names: Sequence[str], plan: ScalePlan, print_progress: PrintProgress
) -> Iterator[ScaleResult]:
    """Measure the named series."""
    for name in names:
        for found in SERIES[name](databases, plan, print_progress):
            fit = found.fit()
            print_progress(f"  {fit.name}: exponent {fit.exponent:.2f}, {fit.verdict}")
            yield found
