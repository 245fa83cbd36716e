"""Neighbourhood: a resource with some of what refers to it and of what it refers to, as places on a drawing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mdv.db.browse import Bounded, Neighbour
from web.words import cut, short

MOST_LEFT, MOST_RIGHT = 6, 8
WIDTH, BOX, MIDDLE = 960, 230, 220
ROW, HEIGHT = 46, 34
"""From one box to the next, and of one."""
LABEL = 21
"""Characters that fit beside a curve;"""
NAME = 31
"""and into a box."""


@dataclass(frozen=True, slots=True)
class Box:
    """A neighbour, and the curve between it and the middle."""

    x: int
    y: int
    uri: str
    name: str
    label: str
    property: str
    strong: bool
    described: bool
    curve: str
    label_x: int
    incoming: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """Where everything is."""

    height: int
    middle_x: int
    middle_y: int
    name: str
    boxes: list[Box]
    more_left: Bounded | None
    more_right: Bounded | None

    @property
    def nothing_left(self) -> bool:
        return not any(box.incoming for box in self.boxes)

    @property
    def nothing_right(self) -> bool:
        return all(box.incoming for box in self.boxes)


def draw(
    uri: str,
    incoming: tuple[Sequence[Neighbour], Bounded],
    outgoing: tuple[Sequence[Neighbour], Bounded],
    is_strong: Callable[[str, str], bool],
) -> Drawing:
    """The drawing of a resource among its neighbours, given those of the first pages and how many there are."""
    left = _chosen(incoming[0], MOST_LEFT, lambda one: is_strong(one.property, uri))
    right = _chosen(outgoing[0], MOST_RIGHT, lambda one: is_strong(one.property, one.uri))
    rows = max(len(left) + (incoming[1].count > len(left)), len(right) + (outgoing[1].count > len(right)), 2)
    height = rows * ROW + 8
    middle_y = height // 2
    boxes = [
        _box(one, place, strong, _top(height, len(left), incoming[1]), middle_y, is_incoming=True)
        for place, (one, strong) in enumerate(left)
    ] + [
        _box(one, place, strong, _top(height, len(right), outgoing[1]), middle_y, is_incoming=False)
        for place, (one, strong) in enumerate(right)
    ]
    return Drawing(
        height, (WIDTH - MIDDLE) // 2, middle_y - HEIGHT // 2, cut(short(uri), NAME), boxes,
        _rest(incoming[1], len(left)), _rest(outgoing[1], len(right)),
    )  # fmt: skip


def _chosen(
    some: Sequence[Neighbour], most: int, is_strong: Callable[[Neighbour], bool]
) -> list[tuple[Neighbour, bool]]:
    """Strong ones first, and of each property one before the second of any."""
    turns: dict[str, int] = {}
    ranked = []
    for one in some:
        turns[one.property] = turns.get(one.property, 0) + 1
        ranked.append((turns[one.property], not is_strong(one), one))
    ranked.sort(key=lambda item: (item[0] > 1 and item[1], item[0], item[1], item[2].property))
    chosen = [(one, not weak) for _, weak, one in ranked[:most]]
    return sorted(chosen, key=lambda item: (not item[1], item[0].property))


def _rest(count: Bounded, shown: int) -> Bounded | None:
    return Bounded(count.count - shown, count.more) if count.count > shown else None


def _top(height: int, shown: int, count: Bounded) -> int:
    """Where a column begins, so that it stands in the middle; what is left out takes a row, too."""
    return (height - (shown + (count.count > shown)) * ROW) // 2


def _box(one: Neighbour, place: int, strong: bool, top: int, middle_y: int, is_incoming: bool) -> Box:
    x = 0 if is_incoming else WIDTH - BOX
    y = top + place * ROW + (ROW - HEIGHT) // 2
    at = y + HEIGHT // 2
    begin, end = (BOX, (WIDTH - MIDDLE) // 2) if is_incoming else ((WIDTH + MIDDLE) // 2, WIDTH - BOX)
    half = (begin + end) // 2
    first, last = (at, middle_y) if is_incoming else (middle_y, at)
    curve = f"M {begin} {first} C {half} {first}, {half} {last}, {end} {last}"
    return Box(
        x, y, one.uri, cut(short(one.uri), NAME), cut(short(one.property), LABEL), one.property, strong,
        one.described, curve, begin + 6 if is_incoming else end - 6, is_incoming,
    )  # fmt: skip
