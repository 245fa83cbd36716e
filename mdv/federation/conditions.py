"""Evaluate a condition on fragments at several sites, step by step.

A condition is evaluated with the answers that are known. What is missing is asked, and the condition is evaluated
again. The answer to a question is the union of the answers of all sites.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import product
from typing import Any

from mdv.federation.fragment import FoundTerm, StepQuestion
from mdv.model import RDF, RDF_TYPE, Term
from mdv.rdf.validate import ValueTyper
from mdv.rdf.values import ValueKind, parse_boolean, parse_instant, parse_number
from mdv.rdftl.model import (
    AllNodes,
    AllOf,
    Always,
    AnyOf,
    Axis,
    Condition,
    ConstantValue,
    ContextNode,
    Delta,
    DeltaField,
    DeltaValue,
    Exists,
    NamedNode,
    Negation,
    NodePath,
    NodeStep,
    Operand,
    ValueComparison,
)

Answers = Mapping[StepQuestion, frozenset[FoundTerm]]

_COLLECTIONS = frozenset(RDF + name for name in ("Bag", "Seq", "Alt"))
_KINDS = (ValueKind.NUMBER, ValueKind.INSTANT, ValueKind.TRUTH)


class NoCollection(Exception):
    """A STRICT rule applies `element` to something that is no collection."""


class SiteEvaluation:
    """One evaluation with the answers so far. `missing`: the questions that have no answer yet; if there are any, the
    result does not count."""

    def __init__(self, answers: Answers, typer: ValueTyper, delta: Delta | None, strict: bool = False) -> None:
        self.answers, self.typer, self.delta, self.strict = answers, typer, delta, strict
        self.missing: set[StepQuestion] = set()

    def holds(self, condition: Condition, context: FoundTerm | None = None) -> bool:
        """True if the condition holds. All parts are evaluated, so that their questions are asked together."""
        match condition:
            case Always():
                return True
            case Exists(path):
                return bool(self.select(path, context))
            case Negation(part):
                return not self.holds(part, context)
            case AllOf(parts):
                return False not in [self.holds(part, context) for part in parts]
            case AnyOf(parts):
                return True in [self.holds(part, context) for part in parts]
            case ValueComparison(left, operator, right, kind):
                pairs = product(self._operand(left, context), self._operand(right, context))
                return any(
                    operator.holds(value, other)
                    for one, two in pairs
                    for value in self.values(one, two, kind)
                    for other in self.values(two, one, kind)
                )

    def select(self, path: NodePath, context: FoundTerm | None = None) -> set[FoundTerm]:
        """Return the terms that a path selects."""
        found = self._qualified(self._start(path, context), path.qualifiers)
        for step in path.steps:
            after = {target for one in found for target in self._step(one.term, step)}
            found = self._qualified(after, step.qualifiers)
        return found

    def _operand(self, operand: Operand, context: FoundTerm | None) -> Collection[FoundTerm | ConstantValue]:
        return [operand] if isinstance(operand, ConstantValue) else self.select(operand, context)

    def _start(self, path: NodePath, context: FoundTerm | None) -> set[FoundTerm]:
        match path.head:
            case ContextNode():
                assert context is not None
                return {context}
            case DeltaValue(name):
                return {_delta_term(self.delta, name)}
            case AllNodes():
                return set(self._ask(StepQuestion("nodes")))
            case NamedNode(uri):
                itself = Term.uri(uri)
                if path.steps and not path.qualifiers and path.steps[0].axis is not Axis.ELEMENT:
                    return {FoundTerm(itself)}  # a step from a node that is nowhere leads nowhere
                return {FoundTerm(itself)} if self._ask(StepQuestion("node", itself)) else set()

    def _qualified(self, found: set[FoundTerm], qualifiers: Iterable[Condition]) -> set[FoundTerm]:
        for condition in qualifiers:
            found = {one for one in found if self.holds(condition, one)}
        return found

    def _step(self, start: Term, step: NodeStep) -> Collection[FoundTerm]:
        if step.axis is Axis.SOURCE:
            return self._ask(StepQuestion("source", start, step.property))
        if not start.is_uri:
            return ()
        if step.axis is Axis.TARGET:
            return self._ask(StepQuestion("target", start, step.property))
        if not self._is_collection(start, step.index):
            return ()
        return self._ask(StepQuestion("element", start, None, step.index))

    def _is_collection(self, term: Term, index: int | None) -> bool:
        question = StepQuestion("target", term, RDF_TYPE)
        classes = {one.term.value for one in self._ask(question)}
        found = bool(classes & (_COLLECTIONS if index is None else {RDF + "Seq"}))
        if not found and self.strict and question in self.answers:
            raise NoCollection(f"{term.value} is no collection")
        return found

    def _ask(self, question: StepQuestion) -> frozenset[FoundTerm]:
        known = self.answers.get(question)
        if known is None:
            self.missing.add(question)
            return frozenset()
        return known

    def values(self, value: FoundTerm | ConstantValue, other: FoundTerm | ConstantValue, kind: ValueKind) -> set[Any]:
        """Return the values of a term or constant, compared as `kind`."""
        if kind is ValueKind.TEXT:
            if isinstance(value, FoundTerm):
                return {value.term.value}
            # The text also stands for the URI that it makes together with BASE.
            is_meant = isinstance(other, FoundTerm) and other.term == Term.uri(value.uri)
            return {value.uri if is_meant else value.text}
        number = _KINDS.index(kind)
        if isinstance(value, ConstantValue):
            return {(parse_number, parse_instant, parse_boolean)[number](value.text)} - {None}
        return {self.typer.typed_values(name, value.term)[number] for name in value.properties} - {None}


def _delta_term(delta: Delta | None, name: DeltaField) -> FoundTerm:
    assert delta is not None
    match name:
        case DeltaField.SOURCE:
            return FoundTerm(Term.uri(delta.source))
        case DeltaField.ARC_NAME:
            return FoundTerm(Term.uri(delta.arc_name))
        case DeltaField.NEW_TARGET:
            term = delta.new_target
        case DeltaField.TARGET | DeltaField.OLD_TARGET:
            term = delta.target
    assert term is not None
    return FoundTerm(term, None, frozenset((delta.arc_name,)))


def united(answers: Iterable[frozenset[FoundTerm]]) -> frozenset[FoundTerm]:
    """Return the union of the answers of several sites. The same term on the same arc is typed by all of them."""
    found: dict[tuple[Term, object], FoundTerm] = {}
    for one in (term for answer in answers for term in answer):
        known = found.get(one[:2])
        found[one[:2]] = one if known is None else one._replace(properties=one.properties | known.properties)
    return frozenset(found.values())


def without_arcs(found: Iterable[FoundTerm]) -> frozenset[FoundTerm]:
    """Return the terms alone, each typed by all arcs on which it was found."""
    return united([frozenset(one._replace(arc=None) for one in found)]) if found else frozenset()
