"""Make the charts of the paper's Figures 11 to 15 from results, with the floor and the peers, and some more charts.

The axes are those of the paper: documents per batch, and the average cost of registering a document. There is a curve
for each rule base, or for each percentage of matching rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mdv.bench.paper import FILTER, STORE
from mdv.bench.report import BenchResult

OURS, ALONE, FLOOR, PEER = "ours", "filter alone", "floor", "peer"
"""Kinds of curves: registration, the filter's part of it, the lower bound, another system."""

BATCH, COST = "documents registered in one batch", "average registration cost of a document [ms]"

FIGURES = {
    "OID": ("figure-11", "Figure 11. OID rules"),
    "PATH": ("figure-12", "Figure 12. PATH rules"),
    "COMP 10 %": ("figure-13", "Figure 13. COMP rules (10 % of the rule base match)"),
    "JOIN": ("figure-14", "Figure 14. JOIN rules"),
    "contains": ("contains", "Not in the paper: contains"),
    "startswith": ("startswith", "Not in the paper: startswith"),
    "endswith": ("endswith", "Not in the paper: endswith"),
    "ne": ("not-equal", "Not in the paper: !="),
}
"""File name and title of the chart for each rule type."""
_COMP = re.compile(r"COMP ([\d.]+) %")


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through points, with its label and kind."""

    label: str
    kind: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class CurveChart:
    """A chart with logarithmic axes."""

    name: str
    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]


def make_charts(results: Sequence[BenchResult]) -> list[CurveChart]:
    """Return all charts that the results allow, in the paper's order.

    >>> [c.name for c in make_charts([BenchResult("PATH: store and filter", 10, n, 9.0, 3.0) for n in (1, 10)])]
    ['figure-12']
    """
    found = [_of_type(kind, results) for kind in FIGURES]
    return [chart for chart in (*found, _by_percentage(results)) if chart.curves]


def _of_type(kind: str, results: Sequence[BenchResult]) -> CurveChart:
    """Return the chart of a rule type: all batch sizes, one curve per rule base."""
    name, title = FIGURES[kind]
    stored = [result for result in results if result.name == f"{kind}: {STORE}"]
    alone = [result for result in results if result.name == f"{kind}: {FILTER}"]
    return CurveChart(name, title, BATCH, COST, (
        *_by_rules(stored, "{rules:,} rules", OURS),
        *_by_rules(alone, "{rules:,} rules, filter alone", ALONE),
        *_floor(stored),
        *_peers([*stored, *alone]),
    ))  # fmt: skip


def _by_percentage(results: Sequence[BenchResult]) -> CurveChart:
    """Return the chart of all batch sizes, one curve per percentage of matching rules, for the rule base with most
    percentages."""
    stored = [result for result in results if _COMP.match(result.name) and result.name.endswith(STORE)]
    bases = {rules: {r.name for r in stored if r.rules == rules} for rules in {r.rules for r in stored}}
    rules = max(bases, key=lambda size: (len(bases[size]), -size), default=0)
    stored = [result for result in stored if result.rules == rules]
    title = f"Figure 15. {rules:,} COMP rules, varying batches and percentage of rules that match"
    if len(bases.get(rules, ())) < 2:
        return CurveChart("figure-15", title, BATCH, COST, ())
    curves = []
    for name in sorted(bases[rules], key=_percentage):
        mine = [result for result in stored if result.name == name]
        curves.append(Curve(f"{_percentage(name):g} % match", OURS, _points(mine)))
    return CurveChart("figure-15", title, BATCH, COST, (*curves, *_floor(stored)))


def _percentage(name: str) -> float:
    found = _COMP.match(name)
    return float(found[1]) if found else 0.0


def _by_rules(results: Sequence[BenchResult], label: str, kind: str) -> Iterator[Curve]:
    for rules in sorted({result.rules for result in results}):
        mine = [result for result in results if result.rules == rules]
        yield Curve(label.format(rules=rules), kind, _points(mine))


def _floor(results: Sequence[BenchResult]) -> Iterator[Curve]:
    """Yield one floor, that of the largest rule base: it does not depend on the rules."""
    if results:
        largest = max(result.rules for result in results)
        points = sorted({result.batch: result.floor_us / 1000 for result in results if result.rules == largest}.items())
        yield Curve("floor: COPY and commit", FLOOR, tuple(points))


def _peers(results: Sequence[BenchResult]) -> Iterator[Curve]:
    """Yield the other systems of the same run, each on its largest rule base."""
    for peer in dict.fromkeys(name for result in results for name in result.peers):
        mine = [result for result in results if peer in result.peers]
        largest = max(result.rules for result in mine)
        points = {result.batch: result.peers[peer] / 1000 for result in mine if result.rules == largest}
        yield Curve(f"{peer}, {largest:,} rules", PEER, tuple(sorted(points.items())))


def _points(results: Sequence[BenchResult]) -> tuple[tuple[float, float], ...]:
    """
    >>> _points([BenchResult("OID: store and filter", 10, size, 2000.0, 1.0) for size in (10, 1)])
    ((1, 2.0), (10, 2.0))
    """
    return tuple(sorted((result.batch, result.ours_us / 1000) for result in results))
