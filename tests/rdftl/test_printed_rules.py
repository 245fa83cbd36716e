"""Every rule and fragment that the two papers print is read as printed: 17 texts beside their normal forms.

`x.rule`, `x.update` or `x.event` is beside `x.normal`, which has the warnings too, or `x.error`. The departures of the
papers from their own grammar are listed in the specification (rdftl.md, section 1).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mdv.rdftl.compile import compile_rules, compile_update
from tests.support.rdftl_texts import FOLDER, outcome, rdftl_schema

PRINTED = sorted(path for path in (FOLDER / "printed").iterdir() if path.suffix in (".rule", ".update", ".event"))
ERRORS = sorted(path for path in (FOLDER / "errors").iterdir() if path.suffix in (".rule", ".update"))


def test_all_printed_texts_are_here() -> None:
    assert len(PRINTED) == 17


@pytest.mark.parametrize("path", PRINTED, ids=lambda path: path.stem)
def test_a_printed_text_has_its_normal_form(path: Path) -> None:
    suffix, content = outcome(path)
    assert content == path.with_suffix(suffix).read_text("utf-8")


def test_only_the_scheme_with_dots_is_refused() -> None:
    assert [path.stem for path in (FOLDER / "printed").glob("*.error")] == ["language_b1_sequence"]
    scheme = (FOLDER / "printed" / "language_b1_sequence.rule").read_text("utf-8")
    (rule,) = compile_rules(scheme.replace("...\n", ""), rdftl_schema())
    assert len(rule.rule.actions) == 2 and not rule.warnings


@pytest.mark.parametrize("path", sorted((FOLDER / "printed").glob("*.normal")), ids=lambda path: path.stem)
def test_a_normal_form_is_its_own_normal_form(path: Path) -> None:
    text = path.read_text("utf-8")
    if path.with_suffix(".update").exists():
        update = compile_update(text, rdftl_schema())
        normal, warnings = update.normal, update.warnings
    else:
        (rule,) = compile_rules(text, rdftl_schema())
        normal, warnings = rule.normal, rule.warnings
    assert text.startswith(normal + "\n") and not warnings


@pytest.mark.parametrize("path", ERRORS, ids=lambda path: path.stem)
def test_an_error_has_its_golden_message(path: Path) -> None:
    suffix, content = outcome(path)
    assert suffix == ".error" and content == path.with_suffix(suffix).read_text("utf-8")
