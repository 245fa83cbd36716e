"""Drawings of atomic rules: the paper's Figures 5 to 9, and how many rules fit."""

from __future__ import annotations

from pathlib import Path

import pytest

import mdv
from mdv.inspect.drawing import Drawing, draw_atomic_rules, draw_replay, draw_rule, draw_rules
from mdv.inspect.explain_rule import explain_rule
from mdv.inspect.filter_replay import replay_filter
from mdv.mdp.register import prepare
from tests.support.mdp import Mdp

GOLDEN = Path(__file__).parents[1] / "golden"
SCHEMA = (Path(mdv.__file__).parent / "demo" / "schema.ttl").read_text("utf-8")
PAPER = (GOLDEN / "rules" / "demo" / "section_3_3_1.rule").read_text("utf-8")
DOC = "http://mdv.example/doc.rdf"
EITHER = "search CycleProvider c register c where c.serverInformation.memory > 64 or c.serverInformation.cpu > 500"


@pytest.fixture
def paper(mdp: Mdp) -> Mdp:
    mdp.PREFIXES = ""
    mdp.put_schema(SCHEMA)
    return mdp


def of_text(mdp: Mdp, text: str) -> Drawing:
    with mdp.engine.connect() as connection:
        return draw_rule(explain_rule(connection, text, mdp.schemas, mdp.rules))


def dependencies(drawing: Drawing) -> list[tuple[object, object, int, object]]:
    return sorted((row.source, row.target, row.param, row.group) for row in drawing.dependencies)


def operands(drawing: Drawing) -> list[tuple[object, ...]]:
    return sorted((row.table, row.rule, row.class_iri.rpartition("#")[2], (row.property or "").rpartition("#")[2],
                   row.value or "") for row in drawing.operands)  # fmt: skip


FIGURE_7 = [(1, 4, 1, 1), (2, 4, 2, 1), (3, 5, 2, 2), (4, 5, 1, 2)]
FIGURE_8 = [
    ("filter_rules_con", 3, "CycleProvider", "serverHost", "uni-passau.de"),
    ("filter_rules_gt", 1, "ServerInformation", "memory", "64"),
    ("filter_rules_gt", 2, "ServerInformation", "cpu", "500"),
]


def test_a_registered_rule_is_drawn_as_in_figures_5_7_and_8(paper: Mdp) -> None:
    paper.add_rules([PAPER])
    for drawing in (of_text(paper, PAPER), _of_rules(paper)):
        assert dependencies(drawing) == FIGURE_7
        assert operands(drawing) == FIGURE_8
        assert [part.id for part in drawing.parts if part.is_end] == [5]
        assert sorted((part.id, part.kind) for part in drawing.parts) == [
            (1, "triggering"), (2, "triggering"), (3, "triggering"), (4, "join"), (5, "join")]  # fmt: skip
        assert [(group.id, group.members) for group in drawing.groups] == [(1, 1), (2, 1)]
        assert not any(part.is_new for part in drawing.parts)


def _of_rules(mdp: Mdp) -> Drawing:
    with mdp.engine.connect() as connection:
        return draw_rules(connection, [1])[0]


def test_two_rules_of_one_group_are_in_one_box_as_in_figure_6(paper: Mdp) -> None:
    drawing = of_text(paper, EITHER)
    joins = [part for part in drawing.parts if part.kind == "join"]
    assert len(joins) == 2
    assert {part.group for part in joins} == {"new 1"}
    assert [(group.id, group.is_new, group.members) for group in drawing.groups] == [("new 1", True, 0)]
    assert sorted(part.kind for part in drawing.parts) == ["join", "join", "triggering", "triggering", "triggering"]
    assert all(part.is_new for part in drawing.parts)
    assert all(part.is_end for part in joins)


def test_existing_atomic_rules_are_distinguished_from_new_ones(paper: Mdp) -> None:
    paper.add_rules(["search CycleProvider c register c where c.serverInformation.memory > 64"])
    drawing = of_text(paper, EITHER)
    assert {part.text for part in drawing.parts if not part.is_new} == {
        "search CycleProvider c register c", "search ServerInformation s register s where s.memory > 64",
        "search view(1, ServerInformation) a, view(2, CycleProvider) c register c where c.serverInformation = a",
    }  # fmt: skip
    group = {part.group for part in drawing.parts if part.kind == "join"}
    assert len(group) == 1, "the new join rule is in the existing group"


def test_as_many_rules_as_fit_are_drawn_and_always_the_first(paper: Mdp) -> None:
    paper.add_rules([f"search ServerInformation s register s where s.memory = {number}" for number in range(10)]
                    + [PAPER])  # fmt: skip
    with paper.engine.connect() as connection:
        drawing, fitting = draw_rules(connection, range(1, 12), most=7)
        assert (len(drawing.parts), fitting, drawing.more) == (7, 7, True)
        drawing, fitting = draw_rules(connection, [11, 1], most=3)
        assert (len(drawing.parts), fitting, drawing.more) == (1, 1, True), "in the order of their numbers"
        drawing, fitting = draw_rules(connection, [11], most=3)
        assert (len(drawing.parts), fitting, drawing.more) == (5, 1, False)
        drawing, fitting = draw_rules(connection, range(1, 12))
        assert (len(drawing.parts), fitting, drawing.more) == (15, 11, False)
        assert draw_rules(connection, []) == (Drawing(), 0)


def test_an_atomic_rule_is_drawn_with_its_parts(paper: Mdp) -> None:
    paper.add_rules([PAPER])
    with paper.engine.connect() as connection:
        assert [part.id for part in draw_atomic_rules(connection, [4]).parts] == [1, 2, 4]


def test_a_run_is_drawn_with_the_rules_it_evaluated_and_those_it_nearly_reached(paper: Mdp) -> None:
    nearly = "search CycleProvider c register c where c.serverHost contains 'uni-passau.de' and c.serverPort = 1"
    paper.add_rules([PAPER, nearly, "search ServerInformation s register s where s.cpu = 1"])
    with paper.engine.connect() as connection:
        schema = paper.schemas.now(connection)
    paper.register_batch([prepare(DOC, (GOLDEN / "figure1.rdf").read_bytes(), "application/rdf+xml", schema)])
    with paper.engine.connect() as connection:
        run = replay_filter(connection, DOC, paper.schemas)
        drawing = draw_replay(connection, run)
        touched = {row.rule for rows in run.iterations for row in rows}
        drawn = {part.id: part.text for part in drawing.parts}
        assert touched <= set(drawn)
        assert any("serverPort = 1" in text for text in drawn.values()), "the rule that was nearly reached"
        assert not any("s.cpu = 1" in text for text in drawn.values()), "an unrelated rule"
        alone = draw_replay(connection, run, [1])
        assert len(alone.parts) == 5, "the first rule alone"
        assert not any("serverPort" in part.text for part in alone.parts)
