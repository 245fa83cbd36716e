"""Write one page of all results in a folder: machine, command, charts, goals and every measurement.

Each run stores its results as NAME.json; the page is built again from all of them. It needs no script and nothing from
other hosts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2

from mdv.bench.charts import CurveChart, make_charts
from mdv.bench.plot import draw_charts
from mdv.bench.report import BenchResult

_TEMPLATES = Path(__file__).parent


def write_report_page(folder: Path) -> Path:
    """Draw all charts of the folder's results, and write index.html. Return its path."""
    runs = [_run(path, folder) for path in sorted(folder.glob("*.json"))]
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    written = templates.get_template("page.html").render(runs=runs, format_value=_format_value)
    page = folder / "index.html"
    page.write_text(written, "utf-8")
    return page


def _run(path: Path, folder: Path) -> dict[str, Any]:
    """Return the page's data for one run."""
    body = json.loads(path.read_text("utf-8"))
    results = [_result(row) for row in body["results"]]
    drawn = [_with_run_name(chart, path.stem) for chart in make_charts(results)]
    draw_charts(drawn, folder)
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


def _with_run_name(chart: CurveChart, run: str) -> CurveChart:
    """Return the chart with a file name that includes the run."""
    return replace(chart, name=f"{run}-{chart.name}")


def _result(row: Mapping[str, Any]) -> BenchResult:
    return BenchResult(row["name"], row["rules"], row["batch"], row["ours_us"], row["floor_us"], dict(row["peers"]))


def _tables(body: Mapping[str, Any]) -> Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]]:
    """Return all other lists of rows in a result, as tables."""
    found = []
    for name, rows in body.items():
        if name in ("results", "goals") or not isinstance(rows, list) or not rows or not isinstance(rows[0], dict):
            continue
        columns = [key for key, value in rows[0].items() if not isinstance(value, dict | list)]
        found.append((name, columns, [[row.get(column) for column in columns] for row in rows]))
    return found


def _format_value(value: Any) -> str:
    """
    >>> _format_value(1234.5), _format_value(0.1234), _format_value(None), _format_value("x"), _format_value(12345)
    ('1,234', '0.123', '', 'x', '12,345')
    """
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)
