"""The layered layout of rule graphs: edges cross no boxes but their own ends."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from web.layered_layout import LayeredLayout, LayoutBox, LayoutPoint, layered_layout

Graph = tuple[list[LayoutBox], list[tuple[str, str]]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A random directed acyclic graph: edges go from lower to higher numbers."""
    count = draw(st.integers(1, 14))
    size = st.integers(20, 300)
    group = st.sampled_from([None, None, "g", "h"])
    boxes = [LayoutBox(str(n), draw(size), draw(st.integers(20, 90)), draw(group), 150) for n in range(count)]
    pairs = [(str(a), str(b)) for b in range(count) for a in range(b)]
    return boxes, draw(st.lists(st.sampled_from(pairs), max_size=30)) if pairs else []


def crosses(one: LayoutPoint, other: LayoutPoint, centre: LayoutPoint, box: LayoutBox) -> bool:
    """Return True if a segment has a point inside a box (Liang and Barsky)."""
    low, high = 0.0, 1.0
    for start, end, middle, half in (
        (one.x, other.x, centre.x, box.width / 2),
        (one.y, other.y, centre.y, box.height / 2),
    ):
        if abs(end - start) < 1e-9:
            if not middle - half + 1e-6 < start < middle + half - 1e-6:
                return False
            continue
        first, second = sorted(((middle - half - start) / (end - start), (middle + half - start) / (end - start)))
        low, high = max(low, first), min(high, second)
    return high - low > 1e-6


def check(graph: Graph) -> LayeredLayout:
    boxes, edges = graph
    found = layered_layout(boxes, edges)
    known = {box.id: box for box in boxes}
    assert set(found.lines) == set(edges)
    for (source, target), line in found.lines.items():
        assert found.places[source].y > found.places[target].y
        for box in boxes:
            hit = any(crosses(one, other, found.places[box.id], box) for one, other in pairwise(line))
            assert not hit, f"{source} to {target} crosses {box.id}"
        for name, point in ((source, line[0]), (target, line[-1])):
            box, centre = known[name], found.places[name]
            assert abs(point.x - centre.x) <= box.width / 2 and abs(abs(point.y - centre.y) - box.height / 2) < 1e-6
    for number, box in enumerate(boxes):
        centre = found.places[box.id]
        assert centre.x - box.width / 2 >= 0 and centre.x + box.width / 2 <= found.width
        assert centre.y - box.height / 2 >= 0 and centre.y + box.height / 2 <= found.height
        for other in boxes[:number]:
            far = found.places[other.id]
            assert (
                abs(centre.x - far.x) >= (box.width + other.width) / 2 - 1e-6
                or abs(centre.y - far.y) >= (box.height + other.height) / 2 - 1e-6
            )
    return found


@settings(deadline=None, max_examples=200)
@given(graphs())
def test_no_edge_crosses_a_box_that_is_not_its_end(graph: Graph) -> None:
    check(graph)


@settings(deadline=None, max_examples=100)
@given(graphs())
def test_the_members_of_a_group_in_a_layer_are_neighbours(graph: Graph) -> None:
    found, known = check(graph), {box.id: box for box in graph[0]}
    for name, members in found.groups:
        places = [found.places[member] for member in members]
        assert len({place.y for place in places}) == 1
        left, right = min(place.x for place in places), max(place.x for place in places)
        between = [one for one, at in found.places.items() if at.y == places[0].y and left < at.x < right]
        assert all(known[one].group == name for one in between)
    assert sorted(member for _, members in found.groups for member in members) == sorted(
        box.id for box in graph[0] if box.group is not None
    )


def test_a_long_edge_passes_beside_the_boxes_between_its_ends() -> None:
    """1 is an input of 6 and of 10, which is above 6: the edge from 1 to 10 does not run behind 6."""
    boxes = [LayoutBox(name, 120, 40) for name in ("1", "2", "6", "10")]
    found = check((boxes, [("1", "6"), ("2", "6"), ("6", "10"), ("1", "10")]))
    line, six = found.lines["1", "10"], found.places["6"]
    assert all(abs(point.x - six.x) > 60 for point in line if abs(point.y - six.y) <= 20)


def test_an_empty_graph_has_no_size() -> None:
    assert layered_layout([], []).places == {}
