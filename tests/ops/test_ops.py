"""The files in `ops`: every metric and label of the dashboard and the alerts exists in a running system."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from mdv.cli import cli
from mdv.client import Client
from mdv.free_port import free_port
from tests.support.eventually import eventually
from tests.support.local_http import local_client
from tests.support.whole_system import Up, started

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "ops" / "grafana" / "mdv.json"
ALERTS = ROOT / "ops" / "prometheus" / "alerts.yaml"
OPERATIONS = ROOT / "docs" / "operations.md"
OF_PROMETHEUS = {"up"}
"""Metrics that Prometheus adds for each target."""
TARGET_LABELS = {"job", "instance"}
"""Labels that Prometheus adds to each series."""
DEMO_RULE = "search CycleProvider c register c where c.serverPort > 0"
DOCUMENT = "<#one> a <http://mdv.example/schema#CycleProvider> ; <http://mdv.example/schema#serverPort> 80 ."
WIDTH = 24
"""The columns of a dashboard."""


@cache
def dashboard() -> dict[str, Any]:
    return dict(json.loads(DASHBOARD.read_text("utf-8")))


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


@cache
def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    assert len({group["name"] for group in groups}) == len(groups)
    return [rule for group in groups for rule in group["rules"]]


@dataclass(frozen=True)
class Selector:
    """A metric of an expression. `values`: labels that must have a value; `labels`: all labels that are used."""

    where: str
    metric: str
    values: tuple[tuple[str, str], ...]
    labels: frozenset[str]


class _Reader:
    """Reads the selectors of an expression, with the labels by which they are grouped."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.found: list[Selector] = []
        self.grouped: set[str] = set()

    def read(self, expression: str) -> _Reader:
        # Grafana puts a duration here.
        self._visit(promql_parser.parse(expression.replace("$__rate_interval", "5m").replace("$__range", "1h")), set())
        return self

    def _visit(self, node: Any, grouped: set[str]) -> None:
        match node:
            case promql_parser.VectorSelector():
                self._add(node, grouped)
            case promql_parser.MatrixSelector():
                self._add(node.vector_selector, grouped)
            case promql_parser.AggregateExpr():
                assert node.modifier is None or node.modifier.type is promql_parser.AggModifierType.By, self.where
                labels = set(node.modifier.labels) if node.modifier else set()
                self.grouped |= labels
                self._visit(node.expr, grouped | labels)
            case promql_parser.Call():
                for argument in node.args:
                    self._visit(argument, grouped)
            case promql_parser.BinaryExpr():
                self._visit(node.lhs, grouped)
                self._visit(node.rhs, grouped)
            case promql_parser.ParenExpr() | promql_parser.UnaryExpr() | promql_parser.SubqueryExpr():
                self._visit(node.expr, grouped)
            case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
                pass
            case _:
                raise AssertionError(f"{self.where}: {type(node)}")

    def _add(self, selector: Any, grouped: set[str]) -> None:
        matchers = selector.matchers.matchers
        equal = tuple((m.name, m.value) for m in matchers if m.op == promql_parser.MatchOp.Equal)
        labels = frozenset({m.name for m in matchers} | grouped)
        self.found.append(Selector(self.where, selector.name, equal, labels))


def expressions() -> Iterator[tuple[str, str]]:
    """Return all expressions, each with where it is."""
    for panel in panels():
        for target in panel["targets"]:
            yield f"panel {panel['title']}", target["expr"]
    for rule in alerts():
        yield f"alert {rule['alert']}", rule["expr"]


def used() -> list[Selector]:
    return [selector for where, text in expressions() for selector in _Reader(where).read(text).found]


# The running system

Series = dict[str, list[dict[str, str]]]
"""The labels of each series by metric."""


def read_series(url: str) -> Series:
    found: Series = {}
    with local_client(base_url=url, timeout=60) as http:
        answer = http.get("/metrics")
    assert answer.status_code == 200, answer.text
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    """The series of the web server, the worker and the LMR of a system with the demo data."""
    worker = f"127.0.0.1:{free_port()}"
    up = Up(tmp_path_factory.mktemp("ops") / "data", demo=True, settings={"MDV_WORKER_METRICS": worker})
    with started(up):
        with Client(up.system) as mdp:
            mdp.change("POST", "/lmrs", {"name": "never read"})
            mdp.change("POST", "/lmrs/never read/subscriptions", [{"rule": DEMO_RULE}], seconds=60)
            mdp.register("http://ops.example/one.ttl", DOCUMENT.encode(), "text/turtle")

        def all_series() -> Series | None:
            merged: Series = {}
            for url in (up.system.url, f"http://{worker}", up.system.lmr_url):
                for name, labels in read_series(url).items():
                    merged.setdefault(name, []).extend(labels)
            behind = [labels["lmr"] for labels in merged.get("mdv_feed_lag_seconds", [])]
            return merged if "never read" in behind else None

        yield eventually(all_series)


@pytest.mark.full
def test_every_metric_label_and_value_exists_in_a_running_system(series: Series) -> None:
    missing = []
    for selector in used():
        if selector.metric in OF_PROMETHEUS:
            assert selector.labels <= TARGET_LABELS, selector
            continue
        found = series.get(selector.metric, [])
        labels = {name for one in found for name in one}
        values = {item for one in found for item in one.items()}
        own = {item for item in selector.values if item[0] not in TARGET_LABELS}
        if not found or not selector.labels <= labels | TARGET_LABELS or not own <= values:
            missing.append(selector)
    assert not missing


@pytest.mark.full
def test_every_metric_is_documented_and_every_documented_metric_exists(series: Series) -> None:
    documented = set(re.findall(r"\bmdv_(?!backbone_)\w+", OPERATIONS.read_text("utf-8")))
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in series if name.startswith("mdv_")}
    assert families == documented


# The files alone


def test_the_expressions_use_many_metrics() -> None:
    names = {selector.metric for selector in used()}
    assert len(names) > 30 and {"mdv_position", "mdv_lmr_position", "mdv_job_waited_seconds_bucket"} <= names


@pytest.mark.parametrize(
    "text", ["sum by (", "rate(mdv_position[5m]", "mdv_position{job=~'('}", "nonsense(mdv_position)"]
)
def test_a_wrong_expression_is_found(text: str) -> None:
    with pytest.raises(ValueError):
        _Reader("here").read(text)


def test_selectors_and_labels_of_an_expression_are_read() -> None:
    (one, other) = _Reader("here").read('sum by (lmr) (rate(a{state="done",job=~"$job"}[$__rate_interval])) / b').found
    assert one == Selector("here", "a", (("state", "done"),), frozenset({"state", "job", "lmr"}))
    assert other == Selector("here", "b", (), frozenset())


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in alerts()}) == len(alerts()) > 15
    for rule in alerts():
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert rule["labels"].keys() == {"severity"} and rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "description", "action"}, rule["alert"]
        assert re.fullmatch(r"Mdv[A-Za-z]+", rule["alert"])
        if "for" in rule:
            assert promql_parser.parse_duration(rule["for"]).total_seconds() > 0


def test_labels_in_texts_of_alerts_exist_in_their_expressions() -> None:
    for rule in alerts():
        reader = _Reader(rule["alert"]).read(rule["expr"])
        matched = {label for selector in reader.found for label in selector.labels}
        named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        known = reader.grouped if reader.grouped else matched | TARGET_LABELS
        assert named <= known, rule["alert"]


def test_commands_named_by_alerts_exist() -> None:
    commands = [text for rule in alerts() for text in re.findall(r"`(mdv [^`]+)`", rule["annotations"]["action"])]
    assert len(commands) > 5
    for text in commands:
        command: click.Command = cli
        for word in itertools.takewhile(lambda word: not word.startswith("-"), shlex.split(text)[1:]):
            if isinstance(command, click.Group):
                found = command.get_command(click.Context(command), word)
                assert found is not None, text
                command = found
        options = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"--[\w-]+", text)) <= options, text


def test_the_dashboard_has_a_row_for_each_part() -> None:
    rows = [panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row"]
    assert rows == ["Registrations", "Jobs and queue", "Filter", "Publication and feeds", "LMRs", "Webhooks",
                    "Rules suspended", "Database and processes"]  # fmt: skip


def test_panels_use_the_chosen_data_source_and_jobs() -> None:
    variables = {variable["name"]: variable for variable in dashboard()["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource" and variables["datasource"]["query"] == "prometheus"
    assert promql_parser.parse(re.sub(r"label_values\((.+), job\)", r"\1", variables["job"]["definition"]))
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels():
        assert panel["datasource"] == source and panel["targets"], panel["title"]
        assert all(target["datasource"] == source for target in panel["targets"])
    for where, text in expressions():
        if where.startswith("panel"):
            for selector in _Reader(where).read(text).found:
                assert "job" in selector.labels, f"{where}: {text}"


def test_labels_in_legends_exist_in_their_expressions() -> None:
    for panel in panels():
        for target in panel["targets"]:
            reader = _Reader(panel["title"]).read(target["expr"])
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert named <= (reader.grouped or TARGET_LABELS), panel["title"]


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    every = dashboard()["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    cells: set[tuple[int, int]] = set()
    for panel in every:
        place = panel["gridPos"]
        own = set(
            itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"]))
        )
        assert place["x"] + place["w"] <= WIDTH and not own & cells, panel["title"]
        cells |= own
