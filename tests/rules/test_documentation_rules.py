"""The rules and the grammar in the documentation are correct."""

from __future__ import annotations

import re
from pathlib import Path

import lark
import pytest

from mdv.cli.demo import SCHEMAS
from mdv.errors import InvalidRule
from mdv.rules.ast import ParsedQuery
from mdv.rules.normalise import normalise
from mdv.rules.normalise_query import normalise_query
from mdv.rules.parse import KEYWORDS, parse, parse_query
from tests.support.documentation import PAGES, ROOT, blocks
from tests.support.rule_schemas import DEMO, GOLDEN, schema_of

REFERENCE = ROOT / "docs" / "reference" / "rules.md"
EXAMPLES = [pytest.param(text, id=f"{page.stem}-{number}") for page in PAGES
            for number, text in enumerate(blocks(page, "rule"), 1)]  # fmt: skip
WRONG = (
    "search Book register b", "search Book b", "register b search Book b", "search Book b register b where",
    "search Book b register b where b.title", "search Book b register b where b.title = ", "search Book b, register b",
    "search Book b register b where (b.title = 'x'", "search Book b register b where b.title ? = 'x' 'y'",
    "search Book b register b where b.title like 'x'", "search Book b return b order b.title",
    "search Book b return b limit x", "search Book b register b order by b", "search Book b register b where b..x = 1",
)  # fmt: skip


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_are_valid_with_the_schema_of_the_demo(text: str) -> None:
    schema = schema_of(*(DEMO.parent / name for name in SCHEMAS))
    parsed = parse_query(text)
    if isinstance(parsed, ParsedQuery):
        assert normalise_query(parsed, schema)
    else:
        assert normalise(parsed, schema)


@pytest.fixture(scope="module")
def grammar() -> str:
    return next(text for text in blocks(REFERENCE, "text") if text.startswith("rule:"))


@pytest.fixture(scope="module")
def documented(grammar: str) -> lark.Lark:
    """A parser made from the grammar on the page. Names cannot be keywords, as the text below it says."""
    keywords = "|".join(sorted(KEYWORDS))
    text = re.sub(r"\n +", " ", grammar)
    text = re.sub(r'"([a-z]+)"', r'"\1"i', text)
    text = re.sub(r"^(VARIABLE: +/)", rf"\1(?!(?i:{keywords})(?![\\w-]))", text, flags=re.MULTILINE)
    return lark.Lark(f"start: rule | query\n{text}\n%ignore /\\s+/", parser="earley")


def accepted(text: str, documented: lark.Lark) -> bool:
    try:
        documented.parse(text)
    except lark.exceptions.LarkError:
        return False
    return True


def test_the_grammar_has_the_keywords_of_the_language(grammar: str) -> None:
    assert {word.lower() for word in re.findall(r'"([a-z]+)"', grammar)} == KEYWORDS


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/*.rule")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_grammar_accepts_the_rules_that_the_parser_accepts(path: Path, documented: lark.Lark) -> None:
    text = path.read_text("utf-8")
    try:
        parse(text)
    except InvalidRule:
        return
    assert accepted(text, documented)


@pytest.mark.parametrize("text", WRONG)
def test_the_grammar_refuses_what_the_parser_refuses(text: str, documented: lark.Lark) -> None:
    with pytest.raises(InvalidRule):
        parse_query(text)
    assert not accepted(text, documented)


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_grammar_accepts_the_examples(text: str, documented: lark.Lark) -> None:
    assert accepted(text, documented)
