"""Compile the text of global rules: rules that a federation distributes."""

from __future__ import annotations

from mdv.rdf.schema import Schema
from mdv.rdftl.compile import compile_rules
from mdv.rdftl.model import AbortDependency, EcaRule
from mdv.rdftl.parse import parse_rules
from mdv.rules.ast import Span
from mdv.rules.text_errors import Mark, rule_errors


def compile_global_rules(text: str, schema: Schema) -> tuple[EcaRule, ...]:
    """Return the global rules of a text, without those that are LOCAL. Raise `InvalidRule`.

    ABORT is mandatory for every coupling mode: parents and children commit independently of each other.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> rule = "on insert resource() if true do delete $delta"
    >>> [one.abort.value for one in compile_global_rules(f"abort Independent {rule};; local {rule}", EMPTY_SCHEMA)]
    ['Independent']
    """
    compiled = [one.rule for one in compile_rules(text, schema)]
    modes = ", ".join(one.value for one in AbortDependency)
    marks, start = [], 0
    for written in parse_rules(text):
        start = max(text.find(written.text, start), 0)
        if not written.local and not written.states_abort:
            hint = f"write ABORT and one of {modes}, or LOCAL"
            marks.append(Mark(Span(start, start + 1), "a global rule needs ABORT", hint))
        start += len(written.text)
    if marks:
        raise rule_errors(text, marks)
    return tuple(rule for rule in compiled if not rule.local)
