"""Draw charts as SVG and PNG files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mdv.bench.charts import ALONE, FLOOR, OURS, PEER, CurveChart
from mdv.errors import BadRequest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {
    OURS: ("#0b6e64", "#4457b8", "#1b9e77", "#7570b3", "#2a9dc4"),
    ALONE: ("#0b6e64", "#4457b8", "#1b9e77", "#7570b3", "#2a9dc4"),
    FLOOR: ("#7a7a7a",),
    PEER: ("#b8561b", "#d95f9c", "#a8862c", "#8c2d19", "#5b5b5b", "#c98a3a"),
}
STYLES = {OURS: ("-", "o", 2.0), ALONE: ("--", "o", 1.2), FLOOR: (":", "s", 1.4), PEER: ("-.", "^", 1.4)}
"""Line style, marker and line width of each kind of curve."""


def require_matplotlib() -> None:
    """Raise an error with installation instructions if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BadRequest("Charts need matplotlib. Install it with .venv/bin/uv pip install '.[bench]'.") from None


def draw_charts(charts: Iterable[CurveChart], folder: Path) -> list[str]:
    """Draw each chart as NAME.svg and NAME.png. Return the names."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    names = []
    # The same results give the same file. Text stays text, for search and screen readers.
    with mpl.rc_context({"svg.hashsalt": "mdv", "svg.fonttype": "none", "font.size": 9}):
        for chart in charts:
            figure = Figure(figsize=(7.2, 4.2), layout="constrained", facecolor="white")
            _draw(figure.add_subplot(), chart)
            figure.savefig(folder / f"{chart.name}.svg", metadata={"Date": None, "Title": chart.title})
            figure.savefig(folder / f"{chart.name}.png", dpi=144)
            names.append(chart.name)
    return names


def _draw(axes: Axes, chart: CurveChart) -> None:
    drawn = dict.fromkeys(COLORS, 0)
    for curve in chart.curves:
        line, marker, width = STYLES[curve.kind]
        colours = COLORS[curve.kind]
        colour = colours[drawn[curve.kind] % len(colours)]
        drawn[curve.kind] += 1
        axes.plot([x for x, _ in curve.points], [y for _, y in curve.points], line, marker=marker, markersize=3.5,
                  linewidth=width, color=colour, label=curve.label)  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    axes.set_title(chart.title, loc="left", fontweight="bold", fontsize=10)
    axes.xaxis.set_major_formatter(_plain)
    axes.yaxis.set_major_formatter(_plain)
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _plain(value: float, _place: float) -> str:
    """Format a number with thousands separators.

    >>> _plain(0.1, 0), _plain(1000.0, 3)
    ('0.1', '1,000')
    """
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
