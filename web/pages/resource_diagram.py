"""Layout of the diagram of a resource with its neighbours: incoming references left, outgoing references right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mdv.inspect.listed_values import BoundedCount
from mdv.inspect.sql.browse import LinkedResource
from web.template_filters import cut, short

MAX_INCOMING, MAX_OUTGOING = 6, 8
DIAGRAM_WIDTH, BOX_WIDTH, CENTRE_WIDTH = 960, 230, 220
ROW_HEIGHT, BOX_HEIGHT = 46, 34
"""Vertical distance of boxes, and height of a box."""
LABEL_CHARS = 21
"""Characters of a label beside a curve."""


@dataclass(frozen=True, slots=True)
class NeighbourBox:
    """The box of a neighbour and its curve to the centre."""

    x: int
    y: int
    uri: str
    label: str
    property: str
    strong: bool
    described: bool
    curve: str
    label_x: int
    incoming: bool


@dataclass(frozen=True, slots=True)
class ResourceDiagram:
    """The layout of the diagram."""

    height: int
    middle_x: int
    middle_y: int
    boxes: list[NeighbourBox]
    more_left: BoundedCount | None
    more_right: BoundedCount | None

    @property
    def nothing_left(self) -> bool:
        return not any(box.incoming for box in self.boxes)

    @property
    def nothing_right(self) -> bool:
        return all(box.incoming for box in self.boxes)


def lay_out_diagram(
    uri: str,
    incoming: tuple[Sequence[LinkedResource], BoundedCount],
    outgoing: tuple[Sequence[LinkedResource], BoundedCount],
    is_strong: Callable[[str, str], bool],
) -> ResourceDiagram:
    """Lay out a resource with its neighbours, given the first of them and their number."""
    left = _choose(incoming[0], MAX_INCOMING, lambda one: is_strong(one.property, uri))
    right = _choose(outgoing[0], MAX_OUTGOING, lambda one: is_strong(one.property, one.uri))
    rows = max(len(left) + (incoming[1].count > len(left)), len(right) + (outgoing[1].count > len(right)), 2)
    height = rows * ROW_HEIGHT + 8
    middle_y = height // 2
    boxes = [
        _box(one, index, strong, _top(height, len(left), incoming[1]), middle_y, is_incoming=True)
        for index, (one, strong) in enumerate(left)
    ] + [
        _box(one, index, strong, _top(height, len(right), outgoing[1]), middle_y, is_incoming=False)
        for index, (one, strong) in enumerate(right)
    ]
    return ResourceDiagram(
        height, (DIAGRAM_WIDTH - CENTRE_WIDTH) // 2, middle_y - BOX_HEIGHT // 2, boxes,
        _omitted(incoming[1], len(left)), _omitted(outgoing[1], len(right)),
    )  # fmt: skip


def _choose(
    some: Sequence[LinkedResource], limit: int, is_strong: Callable[[LinkedResource], bool]
) -> list[tuple[LinkedResource, bool]]:
    """Choose neighbours: strong references first, and one of each property before a second one."""
    rank_by_property: dict[str, int] = {}
    ranked = []
    for one in some:
        rank_by_property[one.property] = rank_by_property.get(one.property, 0) + 1
        ranked.append((rank_by_property[one.property], not is_strong(one), one))
    ranked.sort(key=lambda item: (item[0] > 1 and item[1], item[0], item[1], item[2].property))
    chosen = [(one, not weak) for _, weak, one in ranked[:limit]]
    return sorted(chosen, key=lambda item: (not item[1], item[0].property))


def _omitted(count: BoundedCount, shown: int) -> BoundedCount | None:
    return BoundedCount(count.count - shown, count.more) if count.count > shown else None


def _top(height: int, shown: int, count: BoundedCount) -> int:
    """Return the top of a vertically centred column. The line for omitted neighbours counts as a row."""
    return (height - (shown + (count.count > shown)) * ROW_HEIGHT) // 2


def _box(one: LinkedResource, index: int, strong: bool, top: int, middle_y: int, is_incoming: bool) -> NeighbourBox:
    x = 0 if is_incoming else DIAGRAM_WIDTH - BOX_WIDTH
    y = top + index * ROW_HEIGHT + (ROW_HEIGHT - BOX_HEIGHT) // 2
    at = y + BOX_HEIGHT // 2
    begin, end = (
        (BOX_WIDTH, (DIAGRAM_WIDTH - CENTRE_WIDTH) // 2)
        if is_incoming
        else ((DIAGRAM_WIDTH + CENTRE_WIDTH) // 2, DIAGRAM_WIDTH - BOX_WIDTH)
    )
    half = (begin + end) // 2
    first, last = (at, middle_y) if is_incoming else (middle_y, at)
    curve = f"M {begin} {first} C {half} {first}, {half} {last}, {end} {last}"
    return NeighbourBox(
        x, y, one.uri, cut(short(one.property), LABEL_CHARS), one.property, strong,
        one.described, curve, begin + 6 if is_incoming else end - 6, is_incoming,
    )  # fmt: skip
