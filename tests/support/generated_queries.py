"""Queries over the schema of `generated_rules`."""

from __future__ import annotations

import re

from hypothesis import strategies as st

from tests.support.generated_rules import _HEADS, ANYTHING, INSTANTS, NUMBERS, REFERENCES, TEXTS, TRUTHS, rule_texts

LASTS = [*NUMBERS, *INSTANTS, *TRUTHS, *TEXTS, *REFERENCES, *REFERENCES, *ANYTHING, "rdf:type?"]


WAYS = ["author", "author", "sequel", "source", "home", "sequel.author", "about?"]


@st.composite
def paths(draw: st.DrawFn, variables: list[str], ways: list[str]) -> str:
    """A variable, a path, or a path that shares its beginning or its whole with others of the query."""
    variable = draw(st.sampled_from(variables))
    kind = draw(st.integers(0, 8))
    if kind == 0:
        return variable
    way = draw(st.sampled_from(ways)).split(".")
    if kind == 1:
        return ".".join([variable, *way])
    head = way if kind < 7 else draw(st.sampled_from(_HEADS))
    return ".".join([variable, *head, draw(st.sampled_from(LASTS))])


@st.composite
def query_texts(draw: st.DrawFn) -> str:
    rule = draw(rule_texts(small=True))
    search = re.match(r"search (.*) register \w+", rule.text)
    assert search is not None
    variables = [extension.split()[1] for extension in search[1].split(", ")]
    passed = re.findall(r"\b[abc]((?:\.[a-z]+\??)+)\.", rule.text)
    ways = [way.removeprefix(".") for way in passed] or [draw(st.sampled_from(WAYS))]
    returned = draw(st.lists(paths(variables, ways), min_size=1, max_size=3))
    ordered = draw(st.lists(st.one_of(paths(variables, ways), st.sampled_from(returned)), max_size=2))
    order = ", ".join(path + draw(st.sampled_from(["", " asc", " desc"])) for path in ordered)
    text = re.sub(r" register \w+", "", rule.text) + f" return {', '.join(returned)}"
    return text + (f" order by {order}" if order else "")
