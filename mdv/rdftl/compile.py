"""Compile the text of RDFTL: parse it, resolve it with the schema, and write its normal form."""

from __future__ import annotations

from dataclasses import dataclass

from mdv.errors import Flaw
from mdv.rdf.schema import Schema
from mdv.rdftl.model import Action, EcaRule
from mdv.rdftl.names import FlawReport
from mdv.rdftl.parse import parse_rules, parse_update
from mdv.rdftl.resolve import resolve_rule, resolve_update
from mdv.rdftl.syntax import WrittenRule, WrittenUpdate
from mdv.rdftl.write import write_rule, write_update
from mdv.rules.text_errors import flaw_of, quoted


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule with its part of the text, its normal text, and warnings with their place in the whole text."""

    rule: EcaRule
    text: str
    normal: str
    warnings: tuple[Flaw, ...]


@dataclass(frozen=True, slots=True)
class CompiledUpdate:
    """The actions of an update with their normal text, and warnings."""

    actions: tuple[Action, ...]
    normal: str
    warnings: tuple[Flaw, ...]


def compile_rules(text: str, schema: Schema) -> tuple[CompiledRule, ...]:
    """Return the rules of a text under a schema. Raise `InvalidRule` with all flaws of the text.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> rule, = compile_rules("on insert resource() if $delta/target(label) = 'a' do delete $delta", EMPTY_SCHEMA)
    >>> print(rule.normal)
    ON INSERT resource()
    IF $delta/target(rdfs:label) = 'a'
    DO DELETE $delta
    """
    report = FlawReport(text, "rule")
    written = parse_rules(text)
    _check_names(written, report)
    resolved: list[tuple[EcaRule, tuple[Flaw, ...]]] = []
    for one in written:
        report.warnings.clear()
        _take_over(one, report)
        rule = resolve_rule(one, schema, report)
        resolved.append((rule, _warnings(report)))
    if report.flaws:
        raise report.error()
    return tuple(
        CompiledRule(rule, one.text, write_rule(rule, schema), warnings)
        for one, (rule, warnings) in zip(written, resolved, strict=True)
    )


def compile_update(text: str, schema: Schema) -> CompiledUpdate:
    """Return the actions of an update under a schema. Raise `InvalidRule` with all flaws of the text.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> compile_update("insert (resource(http://a/b), rdfs:label, 'x'@en)", EMPTY_SCHEMA).normal
    "INSERT (resource(<http://a/b>), rdfs:label, 'x'@en)"
    """
    report = FlawReport(text, "update")
    written = parse_update(text)
    _take_over(written, report)
    actions = resolve_update(written, schema, report)
    if report.flaws:
        raise report.error()
    return CompiledUpdate(actions, write_update(actions, schema), _warnings(report))


def _check_names(rules: tuple[WrittenRule, ...], report: FlawReport) -> None:
    seen: set[str] = set()
    for name in (rule.name for rule in rules if rule.name is not None):
        if name.text in seen:
            report.flaw(name.span, f"two rules have the name {quoted(name.text)}", "give each its own name")
        seen.add(name.text)


def _take_over(written: WrittenRule | WrittenUpdate, report: FlawReport) -> None:
    """Add the flaws and warnings of the parser to the report."""
    for flaw in written.flaws:
        report.flaw(*flaw)
    report.warnings.extend(written.warnings)


def _warnings(report: FlawReport) -> tuple[Flaw, ...]:
    marks = sorted(dict.fromkeys(report.warnings), key=lambda mark: (mark.span.start, mark.span.end))
    return tuple(flaw_of(report.text, mark) for mark in marks)
