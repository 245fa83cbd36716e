"""Layered layout of a directed acyclic graph: sources at the bottom, every other node above all of its inputs.

An edge over several layers passes each layer in between at a dummy, which has its own place there. Edges are sloped
only between layers, where there are no boxes. Therefore no edge crosses a box that is not one of its ends.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

MARGIN = 16.0
BOX_GAP = 28.0
"""The horizontal distance between two boxes."""
LINE_GAP = 16.0
"""The horizontal distance between an edge and a box or another edge that pass the same layer."""
LAYER_GAP = 64.0
GROUP_PADDING = 12.0
GROUP_LABEL_HEIGHT = 18.0
ORDER_SWEEPS = 12
PLACE_SWEEPS = 12
DUMMY_WEIGHT = 4.0
"""How much straighter long edges are than short ones."""


class LayoutPoint(NamedTuple):
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class LayoutBox:
    """A node with the size of its box. `group_width`: how wide the label of its group is."""

    id: str
    width: float
    height: float
    group: str | None = None
    group_width: float = 0.0


@dataclass(frozen=True, slots=True)
class LayeredLayout:
    """The centres of the boxes, the corners of the edges from source to target, and the groups: the members of a group
    that are in the same layer are neighbours."""

    width: float
    height: float
    places: Mapping[str, LayoutPoint]
    lines: Mapping[tuple[str, str], tuple[LayoutPoint, ...]]
    groups: Sequence[tuple[str, tuple[str, ...]]]


class _Item(NamedTuple):
    """A box in a layer, or the dummy of an edge."""

    key: Hashable
    box: LayoutBox | None = None

    @property
    def half(self) -> float:
        return self.box.width / 2 if self.box is not None else 0.0

    @property
    def block(self) -> Hashable:
        """Items of the same block are neighbours."""
        return ("group", self.box.group) if self.box is not None and self.box.group is not None else self.key


def layered_layout(boxes: Sequence[LayoutBox], edges: Iterable[tuple[str, str]]) -> LayeredLayout:
    """Lay out a graph. Edges are pairs of source and target.

    >>> found = layered_layout([LayoutBox("a", 50, 20), LayoutBox("b", 50, 20)], [("a", "b")])
    >>> found.places["a"].y > found.places["b"].y, len(found.lines["a", "b"])
    (True, 2)
    """
    known = {box.id: box for box in boxes}
    drawn = list(dict.fromkeys((a, b) for a, b in edges if a != b and a in known and b in known))
    depth = _depths(known, drawn)
    items, paths = _layers(known, drawn, depth)
    neighbours = _neighbours(paths.values())
    layers = _ordered(items, neighbours)
    x = _horizontal(layers, neighbours)
    y, bands, height = _vertical(layers)
    places = {name: LayoutPoint(x[name], y[depth[name]]) for name in known}
    lines = _lines(paths, known, places, x, bands, depth)
    groups = [
        (name, tuple(item.box.id for item in layer if item.box is not None and item.box.group == name))
        for layer in layers
        for name in dict.fromkeys(item.box.group for item in layer if item.box is not None and item.box.group)
    ]
    right = max((x[name] + box.width / 2 for name, box in known.items()), default=0.0)
    right = max([right, *(value for value in x.values())])
    return LayeredLayout(right + MARGIN + GROUP_PADDING, height, places, lines, groups)


def _depths(known: Mapping[str, LayoutBox], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return the layer of each node: the length of the longest path to it."""
    inputs: dict[str, list[str]] = {name: [] for name in known}
    for source, target in edges:
        inputs[target].append(source)
    depth: dict[str, int] = {}
    for name in TopologicalSorter(inputs).static_order():
        depth[name] = max((depth[source] + 1 for source in inputs[name]), default=0)
    return depth


Paths = dict[tuple[str, str], list[Hashable]]


def _layers(
    known: Mapping[str, LayoutBox], edges: Sequence[tuple[str, str]], depth: Mapping[str, int]
) -> tuple[list[list[_Item]], Paths]:
    """Return the items of each layer, and for each edge the items that it passes, with its ends."""
    layers: list[list[_Item]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name, box in known.items():
        layers[depth[name]].append(_Item(name, box))
    paths: Paths = {}
    for source, target in edges:
        between = [(source, target, layer) for layer in range(depth[source] + 1, depth[target])]
        for dummy in between:
            layers[dummy[2]].append(_Item(dummy))
        paths[source, target] = [source, *between, target]
    return layers, paths


class _Neighbours(NamedTuple):
    """The neighbours of each item in the layer below and in the layer above."""

    below: Mapping[Hashable, list[Hashable]]
    above: Mapping[Hashable, list[Hashable]]


def _neighbours(paths: Iterable[Sequence[Hashable]]) -> _Neighbours:
    below: dict[Hashable, list[Hashable]] = defaultdict(list)
    above: dict[Hashable, list[Hashable]] = defaultdict(list)
    for path in paths:
        for one, other in pairwise(path):
            above[one].append(other)
            below[other].append(one)
    return _Neighbours(below, above)


# Order


def _ordered(layers: list[list[_Item]], neighbours: _Neighbours) -> list[list[_Item]]:
    """Order each layer by the mean places of the neighbours, in sweeps up and down. Keep the order with the fewest
    crossings."""
    now = [_sorted(layer, {item.key: n for n, item in enumerate(layer)}.__getitem__) for layer in layers]
    best, fewest = now, _crossings(now, neighbours)
    for sweep in range(ORDER_SWEEPS):
        if fewest == 0:
            break
        now = list(now)
        up = sweep % 2 == 0
        sides = neighbours.below if up else neighbours.above
        for at in range(1, len(now)) if up else range(len(now) - 2, -1, -1):
            now[at] = _by_neighbours(now[at], now[at - 1 if up else at + 1], sides)
        crossings = _crossings(now, neighbours)
        if crossings < fewest:
            best, fewest = now, crossings
    return best


def _by_neighbours(
    layer: Sequence[_Item], fixed: Sequence[_Item], sides: Mapping[Hashable, Sequence[Hashable]]
) -> list[_Item]:
    """Order a layer by the mean places of the neighbours in the fixed layer."""
    places = {item.key: n for n, item in enumerate(fixed)}
    means = {item.key: float(n) for n, item in enumerate(layer)}
    for key in means:
        if near := [places[other] for other in sides.get(key, ())]:
            means[key] = sum(near) / len(near)
    return _sorted(layer, means.__getitem__)


def _sorted(layer: Sequence[_Item], key: Callable[[Hashable], float]) -> list[_Item]:
    blocks: dict[Hashable, list[_Item]] = defaultdict(list)
    for item in layer:
        blocks[item.block].append(item)
    ordered = sorted(blocks.values(), key=lambda block: sum(key(item.key) for item in block) / len(block))
    return [item for block in ordered for item in sorted(block, key=lambda item: key(item.key))]


def _crossings(layers: Sequence[Sequence[_Item]], neighbours: _Neighbours) -> int:
    count = 0
    for lower, upper in pairwise(layers):
        place = {item.key: n for n, item in enumerate(upper)}
        seen: list[int] = []
        for item in lower:
            ends = [place[other] for other in neighbours.above.get(item.key, ())]
            count += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return count


# Coordinates


def _horizontal(layers: Sequence[Sequence[_Item]], neighbours: _Neighbours) -> dict[Hashable, float]:
    """Place the items of each layer near their neighbours, in their order and without overlaps."""
    x: dict[Hashable, float] = {}
    gaps = [_gaps(layer) for layer in layers]
    for layer, apart in zip(layers, gaps, strict=True):
        at = 0.0
        for number, item in enumerate(layer):
            at += apart[number - 1] if number else 0.0
            x[item.key] = at
    for sweep in range(PLACE_SWEEPS):
        sides = [neighbours.below, neighbours.above][sweep % 2]
        order = range(len(layers)) if sweep % 2 == 0 else range(len(layers) - 1, -1, -1)
        for at in order:
            wanted, weights = [], []
            for item in layers[at]:
                near = [x[other] for other in sides.get(item.key, ())]
                wanted.append(sum(near) / len(near) if near else x[item.key])
                weights.append(DUMMY_WEIGHT if item.box is None else max(1.0, len(near)) if near else 0.1)
            for item, place in zip(layers[at], _apart(wanted, weights, gaps[at]), strict=True):
                x[item.key] = place
    left = min((x[item.key] - item.half for layer in layers for item in layer), default=0.0)
    return {key: value - left + MARGIN + GROUP_PADDING for key, value in x.items()}


def _gaps(layer: Sequence[_Item]) -> list[float]:
    """Return the least distances between the centres of neighbours."""
    extra = _label_room(layer)
    found = []
    for one, other in pairwise(layer):
        gap = BOX_GAP if one.box is not None and other.box is not None else LINE_GAP
        if one.block != other.block:
            gap += sum(GROUP_PADDING + extra[item.block] for item in (one, other) if item.block in extra)
        found.append(one.half + gap + other.half)
    return found


def _label_room(layer: Sequence[_Item]) -> dict[Hashable, float]:
    """Return for each group how much its label exceeds its boxes on each side."""
    boxes: dict[Hashable, list[LayoutBox]] = defaultdict(list)
    for item in layer:
        if item.box is not None and item.box.group is not None:
            boxes[item.block].append(item.box)
    return {
        block: max(0.0, max(box.group_width for box in some) - sum(box.width for box in some)) / 2
        for block, some in boxes.items()
    }


def _apart(wanted: Sequence[float], weights: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """Return the places nearest to the wanted ones (weighted least squares) with at least these gaps between them.

    >>> _apart([0, 0], [1, 1], [10])
    [-5.0, 5.0]
    """
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap)
    blocks: list[tuple[float, float, int]] = []  # weighted sum, weight, number of items
    for place, weight, offset in zip(wanted, weights, offsets, strict=False):
        blocks.append(((place - offset) * weight, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            total, mass, count = blocks.pop()
            before = blocks.pop()
            blocks.append((before[0] + total, before[1] + mass, before[2] + count))
    placed = [total / mass for total, mass, count in blocks for _ in range(count)]
    return [base + offset for base, offset in zip(placed, offsets, strict=False)]


def _vertical(layers: Sequence[Sequence[_Item]]) -> tuple[list[float], list[tuple[float, float]], float]:
    """Return the centre of each layer, its top and bottom, and the height of all. The last layer is at the top."""
    centres = [0.0] * len(layers)
    bands = [(0.0, 0.0)] * len(layers)
    top = MARGIN
    for at in range(len(layers) - 1, -1, -1):
        boxes = [item.box for item in layers[at] if item.box is not None]
        if any(box.group is not None for box in boxes):
            top += GROUP_PADDING + GROUP_LABEL_HEIGHT
        height = max(box.height for box in boxes)
        centres[at], bands[at] = top + height / 2, (top, top + height)
        top += height + LAYER_GAP
    return centres, bands, max(0.0, top - LAYER_GAP + MARGIN)


# Edges


def _lines(
    paths: Paths,
    known: Mapping[str, LayoutBox],
    places: Mapping[str, LayoutPoint],
    x: Mapping[Hashable, float],
    bands: Sequence[tuple[float, float]],
    depth: Mapping[str, int],
) -> dict[tuple[str, str], tuple[LayoutPoint, ...]]:
    starts = _ports({edge: (edge[0], x[path[1]]) for edge, path in paths.items()}, known, places)
    ends = _ports({edge: (edge[1], x[path[-2]]) for edge, path in paths.items()}, known, places)
    lines = {}
    for edge, path in paths.items():
        (source, target), first, last = edge, starts[edge], ends[edge]
        points = [LayoutPoint(first, places[source].y - known[source].height / 2)]
        points.append(LayoutPoint(first, bands[depth[source]][0]))
        for layer, dummy in enumerate(path[1:-1], depth[source] + 1):
            top, bottom = bands[layer]
            points += [LayoutPoint(x[dummy], bottom), LayoutPoint(x[dummy], top)]
        points.append(LayoutPoint(last, bands[depth[target]][1]))
        points.append(LayoutPoint(last, places[target].y + known[target].height / 2))
        lines[edge] = tuple(_corners(points))
    return lines


def _corners(points: Sequence[LayoutPoint]) -> list[LayoutPoint]:
    """Return the ends and the points where a line changes its direction.

    >>> _corners([LayoutPoint(0, 0), LayoutPoint(0, 0), LayoutPoint(0, 5), LayoutPoint(0, 9)])
    [LayoutPoint(x=0, y=0), LayoutPoint(x=0, y=9)]
    """
    kept: list[LayoutPoint] = []
    for point in points:
        if kept and point == kept[-1]:
            continue
        while len(kept) > 1 and _is_straight(kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    return kept


def _is_straight(first: LayoutPoint, middle: LayoutPoint, last: LayoutPoint) -> bool:
    turn = (middle.x - first.x) * (last.y - middle.y) - (middle.y - first.y) * (last.x - middle.x)
    return abs(turn) < 1e-6


def _ports(
    edges: Mapping[tuple[str, str], tuple[str, float]],
    known: Mapping[str, LayoutBox],
    places: Mapping[str, LayoutPoint],
) -> dict[tuple[str, str], float]:
    """Return where each edge meets its box: side by side, in the order of the places that they come from."""
    at_box: dict[str, list[tuple[float, tuple[str, str]]]] = defaultdict(list)
    for edge, (name, toward) in edges.items():
        at_box[name].append((toward, edge))
    found = {}
    for name, some in at_box.items():
        step = known[name].width * 0.8 / (len(some) + 1)
        for number, (_, edge) in enumerate(sorted(some)):
            found[edge] = places[name].x + (number - (len(some) - 1) / 2) * step
    return found
