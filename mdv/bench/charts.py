"""The paper's Figures 11 to 15 out of what was measured, with the floor and the peers in them; and what comes beside.

In the paper's axes: from left to right the documents registered in one batch, upwards the average cost of registering
one; a curve for each rule base, or for each percentage of rules that match.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mdv.bench.paper import FILTER, STORE
from mdv.bench.report import Result

OURS, ALONE, FLOOR, PEER = "ours", "filter alone", "floor", "peer"
"""Kinds of curves: registration, the filter's share of it, the least that it could cost, another system."""

BATCH, COST = "documents registered in one batch", "average registration cost of a document [ms]"

FIGURES = {
    "OID": ("figure-11", "Figure 11. OID rules"),
    "PATH": ("figure-12", "Figure 12. PATH rules"),
    "COMP 10 %": ("figure-13", "Figure 13. COMP rules (10 % of the rule base match)"),
    "JOIN": ("figure-14", "Figure 14. JOIN rules"),
    "contains": ("contains", "Beside the paper: contains"),
    "ne": ("not-equal", "Beside the paper: !="),
}
"""By rule type: the name of the picture's file, and its title."""
_COMP = re.compile(r"COMP ([\d.]+) %")


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through points, and what it stands for."""

    label: str
    kind: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture, its axes logarithmic."""

    name: str
    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]


def charts(results: Sequence[Result]) -> list[Chart]:
    """All that can be drawn of these results, in the paper's order.

    >>> [chart.name for chart in charts([Result("PATH: store and filter", 10, size, 9.0, 3.0) for size in (1, 10)])]
    ['figure-12']
    """
    found = [_of_type(kind, results) for kind in FIGURES]
    return [chart for chart in (*found, _by_percentage(results)) if chart.curves]


def _of_type(kind: str, results: Sequence[Result]) -> Chart:
    """Batches of all sizes, for each rule base."""
    name, title = FIGURES[kind]
    stored = [result for result in results if result.name == f"{kind}: {STORE}"]
    alone = [result for result in results if result.name == f"{kind}: {FILTER}"]
    return Chart(name, title, BATCH, COST, (
        *_by_rules(stored, "{rules:,} rules", OURS),
        *_by_rules(alone, "{rules:,} rules, the filter alone", ALONE),
        *_floor(stored),
        *_peers([*stored, *alone]),
    ))  # fmt: skip


def _by_percentage(results: Sequence[Result]) -> Chart:
    """Batches of all sizes, for each percentage of rules that match, with the rule base that has most of them."""
    stored = [result for result in results if _COMP.match(result.name) and result.name.endswith(STORE)]
    bases = {rules: {r.name for r in stored if r.rules == rules} for rules in {r.rules for r in stored}}
    rules = max(bases, key=lambda size: (len(bases[size]), -size), default=0)
    stored = [result for result in stored if result.rules == rules]
    title = f"Figure 15. {rules:,} COMP rules, varying batches and percentage of rules that match"
    if len(bases.get(rules, ())) < 2:
        return Chart("figure-15", title, BATCH, COST, ())
    curves = []
    for name in sorted(bases[rules], key=_percentage):
        mine = [result for result in stored if result.name == name]
        curves.append(Curve(f"{_percentage(name):g} % match", OURS, _points(mine)))
    return Chart("figure-15", title, BATCH, COST, (*curves, *_floor(stored)))


def _percentage(name: str) -> float:
    found = _COMP.match(name)
    return float(found[1]) if found else 0.0


def _by_rules(results: Sequence[Result], label: str, kind: str) -> Iterator[Curve]:
    for rules in sorted({result.rules for result in results}):
        mine = [result for result in results if result.rules == rules]
        yield Curve(label.format(rules=rules), kind, _points(mine))


def _floor(results: Sequence[Result]) -> Iterator[Curve]:
    """One floor: that of the largest rule base, for it knows of no rules."""
    if results:
        largest = max(result.rules for result in results)
        points = sorted({result.batch: result.floor_us / 1000 for result in results if result.rules == largest}.items())
        yield Curve("floor: COPY and commit", FLOOR, tuple(points))


def _peers(results: Sequence[Result]) -> Iterator[Curve]:
    """What else was measured in the same run, on the largest rule base that it was measured on."""
    for peer in dict.fromkeys(name for result in results for name in result.peers):
        mine = [result for result in results if peer in result.peers]
        largest = max(result.rules for result in mine)
        points = {result.batch: result.peers[peer] / 1000 for result in mine if result.rules == largest}
        yield Curve(f"{peer}, {largest:,} rules", PEER, tuple(sorted(points.items())))


def _points(results: Sequence[Result]) -> tuple[tuple[float, float], ...]:
    """
    >>> _points([Result("OID: store and filter", 10, size, 2000.0, 1.0) for size in (10, 1)])
    ((1, 2.0), (10, 2.0))
    """
    return tuple(sorted((result.batch, result.ours_us / 1000) for result in results))
