"""Benchmark figures as drawings: the paper's, with floor and peers, on a page that describes the machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from lxml import etree, html

from mdv.bench.charts import ALONE, FLOOR, OURS, PEER, CurveChart, make_charts
from mdv.bench.plot import draw_charts
from mdv.bench.report import BenchResult, write_json
from mdv.bench.report_page import write_report_page
from mdv.cli import cli
from mdv.cli.errors import run_for_exit_code

SVG = "{http://www.w3.org/2000/svg}"


def measured(kind: str, rules: int, batch: int, us: float, **peers: float) -> list[BenchResult]:
    return [
        BenchResult(f"{kind}: store and filter", rules, batch, us, us / 3),
        BenchResult(f"{kind}: filter alone", rules, batch, us / 4, us / 3, peers),
    ]


RESULTS = [
    *(row for rules in (100, 200) for batch in (1, 10) for row in measured("OID", rules, batch, 900.0, CLIPS=rules)),
    *(
        row
        for percent in (1, 10, 20)
        for batch in (1, 10)
        for row in measured(f"COMP {percent} %", 100, batch, percent)
    ),
]


def chart(name: str) -> CurveChart:
    (found,) = [one for one in make_charts(RESULTS) if one.name == name]
    return found


def test_a_figure_has_a_curve_for_each_rule_base_one_floor_and_each_peer() -> None:
    kinds = [(curve.kind, curve.label) for curve in chart("figure-11").curves]
    assert kinds == [
        (OURS, "100 rules"),
        (OURS, "200 rules"),
        (ALONE, "100 rules, filter alone"),
        (ALONE, "200 rules, filter alone"),
        (FLOOR, "floor: COPY and commit"),
        (PEER, "CLIPS, 200 rules"),
    ]
    (peer,) = [curve for curve in chart("figure-11").curves if curve.kind == PEER]
    assert peer.points == ((1, 0.2), (10, 0.2))


def test_figure_15_has_a_curve_per_percentage_of_matches() -> None:
    labels = [curve.label for curve in chart("figure-15").curves]
    assert labels == ["1 % match", "10 % match", "20 % match", "floor: COPY and commit"]


def test_only_measured_figures_are_drawn() -> None:
    assert [one.name for one in make_charts(RESULTS)] == ["figure-11", "figure-13", "figure-15"]
    assert [one.name for one in make_charts(measured("COMP 10 %", 100, 1, 5.0))] == ["figure-13"]
    assert make_charts([BenchResult("HTTP: a document registered", 0, 1, 2.0, 1.0)]) == []


def test_figures_contain_readable_text_and_are_reproducible(tmp_path: Path) -> None:
    names = draw_charts(make_charts(RESULTS), tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(first) == sorted(f"{name}.{kind}" for name in names for kind in ("svg", "png"))
    words = {"".join(text.itertext()).strip() for text in etree.fromstring(first["figure-11.svg"]).iter(f"{SVG}text")}
    assert words >= {"Figure 11. OID rules", "documents registered in one batch", "200 rules", "CLIPS, 200 rules"}
    draw_charts(make_charts(RESULTS), tmp_path)
    assert first["figure-11.svg"] == (tmp_path / "figure-11.svg").read_bytes()


def test_the_page_shows_the_command_machine_and_results_of_every_run(tmp_path: Path) -> None:
    write_json(tmp_path / "paper.json", "mdv bench paper --rules 100", RESULTS,
               goals=[{"what": "store <and> filter", "most": 3.5, "least": None, "stretch": 2.5, "measured": 3.0,
                       "at": "here", "met": True}], growth=[{"name": "OID", "ratio": 1.25}])  # fmt: skip
    write_json(
        tmp_path / "quick.json", "mdv bench quick", [BenchResult("HTTP: a document registered", 0, 1, 2000.0, 500.0)]
    )
    tree = html.fromstring(write_report_page(tmp_path).read_text("utf-8"))
    assert [heading.text for heading in tree.iter("h2")] == ["paper", "quick"]
    assert [code.text for code in tree.iter("code")] == ["mdv bench paper --rules 100", "mdv bench quick"]
    pictures = [image.get("src") for image in tree.iter("img")]
    assert pictures == ["paper-figure-11.svg", "paper-figure-13.svg", "paper-figure-15.svg"]
    assert all((tmp_path / name).is_file() for name in pictures)
    rows = [[cell.text_content() for cell in row.iter("td")] for row in tree.iter("tr")]
    assert ["HTTP: a document registered", "0", "1", "2,000", "500", "4.00"] in rows
    assert ["store <and> filter", "≤ 3.5", "≤ 2.5", "3", "here", "yes"] in rows
    assert ["OID", "1.25"] in rows
    machine = json.loads((tmp_path / "quick.json").read_text("utf-8"))["machine"]
    assert {str(value) for value in machine.values()} <= {item.text for item in tree.iter("dd")}
    assert not tree.xpath("//script") and not tree.xpath("//@src[contains(., '//')]")


def test_without_matplotlib_the_command_fails_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    line = ["bench", "paper", "--plots", str(tmp_path / "plots")]
    assert run_for_exit_code(lambda: cli.main(line, prog_name="mdv", standalone_mode=False)) != 0
    assert "matplotlib" in capsys.readouterr().err
    assert not (tmp_path / "plots").exists()
