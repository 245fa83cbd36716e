"""One page of all that was measured into a folder: the machine, the command, the pictures, the goals, every figure.

Each run leaves its figures there as NAME.json; the page is made anew from all of them. It needs nothing else: no
script, nothing from another host.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2

from mdv.bench.charts import Chart, charts
from mdv.bench.draw import draw
from mdv.bench.report import Result

_TEMPLATES = Path(__file__).parent


def write_page(folder: Path) -> Path:
    """Draw what the folder's figures can be drawn of, and write index.html."""
    runs = [_run(path, folder) for path in sorted(folder.glob("*.json"))]
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    written = templates.get_template("page.html").render(runs=runs, shown=_shown)
    page = folder / "index.html"
    page.write_text(written, "utf-8")
    return page


def _run(path: Path, folder: Path) -> dict[str, Any]:
    """What the page says of one run."""
    body = json.loads(path.read_text("utf-8"))
    results = [_result(row) for row in body["results"]]
    drawn = [_named(chart, path.stem) for chart in charts(results)]
    draw(drawn, folder)
    return {
        "name": path.stem,
        "machine": body["machine"],
        "command": body["command"],
        "charts": [(chart.name, chart.title) for chart in drawn],
        "results": results,
        "peers": list(dict.fromkeys(peer for result in results for peer in result.peers)),
        "goals": body.get("goals", []),
        "tables": _tables(body),
    }


def _named(chart: Chart, run: str) -> Chart:
    """The chart, with a file of its run's own."""
    return replace(chart, name=f"{run}-{chart.name}")


def _result(row: Mapping[str, Any]) -> Result:
    return Result(row["name"], row["rules"], row["batch"], row["ours_us"], row["floor_us"], dict(row["peers"]))


def _tables(body: Mapping[str, Any]) -> Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]]:
    """Whatever else a run tells as a list of rows with the same names."""
    found = []
    for name, rows in body.items():
        if name in ("results", "goals") or not isinstance(rows, list) or not rows or not isinstance(rows[0], dict):
            continue
        columns = [key for key, value in rows[0].items() if not isinstance(value, dict | list)]
        found.append((name, columns, [[row.get(column) for column in columns] for row in rows]))
    return found


def _shown(value: Any) -> str:
    """
    >>> _shown(1234.5), _shown(0.1234), _shown(None), _shown("x"), _shown(12345)
    ('1,234', '0.123', '', 'x', '12,345')
    """
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)
