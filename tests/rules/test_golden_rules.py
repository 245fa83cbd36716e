"""Golden pairs: `x.rule` beside its normal form `x.normal`, or its error `x.error`."""

from __future__ import annotations

from pathlib import Path

import pytest

from mdv.errors import InvalidRule
from mdv.rules.normalise import normalise
from mdv.rules.parse import parse
from mdv.rules.show import format_rule
from mdv.rules.template import Templates
from tests.support.rule_schemas import GOLDEN, library, world

RULES = sorted(GOLDEN.glob("*/*.rule"))


def outcome(path: Path) -> tuple[str, str]:
    name = path.parent.name
    try:
        rule = normalise(parse(path.read_text("utf-8")), world(name), library(name).get)
        return ".normal", format_rule(rule, world(name)) + "\n"
    except InvalidRule as error:
        return ".error", error.detail + "\n"


@pytest.mark.parametrize("path", RULES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_rule_normalises_to_its_golden_pair(path: Path) -> None:
    kind, text = outcome(path)
    assert text == path.with_suffix(kind).read_text("utf-8")


def test_every_golden_file_has_its_partner() -> None:
    for folder in ("demo", "gutenberg", "kinds"):
        names = [path.stem for path in (GOLDEN / folder).glob("*.rule")]
        told = [path.stem for path in (GOLDEN / folder).iterdir() if path.suffix in (".normal", ".error")]
        assert sorted(names) == sorted(told)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/*.error")), ids=lambda path: path.stem)
def test_every_error_points_at_a_place(path: Path) -> None:
    with pytest.raises(InvalidRule) as caught:
        rule = parse(path.with_suffix(".rule").read_text("utf-8"))
        normalise(rule, world(path.parent.name), library(path.parent.name).get)
    (flaw,) = caught.value.flaws
    assert flaw.line and flaw.column
    head, blank, source, carets = caught.value.detail.split("\n")
    assert head.startswith(f"The rule has an error at line {flaw.line}, column {flaw.column}: {flaw.message}")
    assert not blank and set(carets.strip()) == {"^"} and len(source) < 110
    assert caught.value.problem()["type"] == "urn:mdv:problem:invalid-rule"


@pytest.mark.parametrize("path", RULES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_templates_give_the_same_result_as_the_parser(path: Path) -> None:
    text, name = path.read_text("utf-8"), path.parent.name
    templates = Templates(world(name), library(name).get)
    for _ in range(2):
        try:
            template, constants = templates.match(text)
            shown = format_rule(template.rule, world(name))
            assert all(constant.slot == slot for slot, constant in enumerate(constants))
        except InvalidRule as error:
            shown = error.detail
        assert shown + "\n" == outcome(path)[1]
