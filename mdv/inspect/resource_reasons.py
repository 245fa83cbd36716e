"""The explanation of why a resource is, or is not, at an LMR: as values, as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class FoundValue:
    """A value of a resource; without a property, its URI. `value` is None if there are too many values to search."""

    resource: str
    property: str | None
    value: str | None
    is_uri: bool = False

    def as_dict(self) -> dict[str, Any]:
        kind = None if self.value is None else "uri" if self.is_uri else "literal"
        return {"resource": self.resource, "property": self.property, "value": self.value, "type": kind}


@dataclass(frozen=True, slots=True)
class SatisfiedPredicate:
    """A satisfied predicate with the value that satisfies it; with two values if it compares two variables."""

    predicate: str
    operator: str
    constant: str | None
    found: FoundValue
    other: FoundValue | None = None

    def as_dict(self) -> dict[str, Any]:
        body = {"predicate": self.predicate, **self.found.as_dict(), "operator": self.operator}
        return body | ({"constant": self.constant} if self.other is None else {"other": self.other.as_dict()})


@dataclass(frozen=True, slots=True)
class SelectingRule:
    """A rule that selects the resource, with the resources of its variables and the satisfied predicates."""

    id: int
    name: str | None
    rule: str
    binding: Mapping[str, str] = field(default_factory=dict)
    predicates: tuple[SatisfiedPredicate, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "rule": self.rule,
            "binding": dict(self.binding),
            "predicates": [predicate.as_dict() for predicate in self.predicates],
        }


@dataclass(frozen=True, slots=True)
class SuspendedRule:
    """A suspended rule of the LMR. `selects`: whether it still selects the resource, because it did when it was
    suspended; None if this is not known."""

    id: int
    name: str | None
    rule: str
    position: int
    reason: str
    selects: bool | None
    pending: bool = False
    """True while the rule is being added and its first matches are being published."""

    @property
    def sentence(self) -> str:
        """
        >>> SuspendedRule(7, None, "search Book b register b", 12, "It took too long.", True).sentence
        'rule 7 has been suspended since position 12; its matches at that position still count'
        """
        named = _rule_name({"id": self.id, "name": self.name})
        if self.pending:
            return f"{named} is being added; its first matches are being published"
        return f"{named} has been suspended since position {self.position}; its matches at that position still count"

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "rule": self.rule,
            "position": self.position,
            "reason": self.reason,
            "selects": self.selects,
            "pending": self.pending,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True)
class FailingRule:
    """A rule that does not select the resource, and the predicates that fail.

    `predicate`: the first of them, None if a class fails. `failed`: all of them, with those that refer to a resource
    that was not found. `sentences`: why they fail. `satisfied`: how many predicates of the rule's text are satisfied,
    out of `of`; in a rule with `or`, of one side. `part`: the index of the conjunction in the normal form. `stages`:
    how many of its first stages are satisfied together.
    """

    id: int
    name: str | None
    rule: str
    predicate: str | None
    sentences: tuple[str, ...]
    satisfied: int
    of: int
    part: int = 0
    found: tuple[FoundValue, ...] = ()
    failed: tuple[str, ...] = ()
    stages: int = 0

    @property
    def sentence(self) -> str:
        return "; ".join(self.sentences)

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "rule": self.rule,
            "predicate": self.predicate,
            "failed": list(self.failed),
            "sentence": self.sentence,
            "satisfied": self.satisfied,
            "of": self.of,
            "part": self.part,
            "found": [found.as_dict() for found in self.found],
        }


@dataclass(frozen=True, slots=True)
class ChainStep:
    """A strong reference."""

    resource: str
    property: str
    target: str

    def as_dict(self) -> dict[str, str]:
        return {"resource": self.resource, "property": self.property, "target": self.target}


@dataclass(frozen=True, slots=True)
class NamedRule:
    """The id of a rule, and its name, if any."""

    id: int
    name: str | None

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name}


@dataclass(frozen=True, slots=True)
class ReferenceChain:
    """A chain of strong references from a selected resource, and rules that select it. `more`: there are more rules."""

    rules: tuple[NamedRule, ...]
    more: bool
    steps: tuple[ChainStep, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "rules": [rule.as_dict() for rule in self.rules],
            "more": self.more,
            "steps": [step.as_dict() for step in self.steps],
        }


@dataclass(frozen=True, slots=True)
class ResourceExplanation:
    """Why a resource is, or is not, at an LMR, at one position.

    `held`: the LMR has it, or gets it with the feed up to that position. `more`: there are more rules that select it.
    """

    resource: str
    lmr: int
    position: int
    held: bool
    selected: bool
    described: bool
    sentence: str
    documents: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    rules: tuple[SelectingRule, ...] = ()
    more: bool = False
    chain: ReferenceChain | None = None
    nearest: tuple[FailingRule, ...] = ()
    suspended: tuple[SuspendedRule, ...] = ()
    suspended_more: bool = False
    """True if there are more suspended rules."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "resource": self.resource,
            "lmr": self.lmr,
            "position": self.position,
            "held": self.held,
            "selected": self.selected,
            "described": self.described,
            "sentence": self.sentence,
            "documents": list(self.documents),
            "classes": list(self.classes),
            "rules": [rule.as_dict() for rule in self.rules],
            "more": self.more,
            "chain": self.chain.as_dict() if self.chain is not None else None,
            "nearest": [rule.as_dict() for rule in self.nearest],
            "suspended": [rule.as_dict() for rule in self.suspended],
            "suspended_more": self.suspended_more,
        }


def with_subscription_ids(why: ResourceExplanation, ids: Mapping[int, int]) -> ResourceExplanation:
    """Return an explanation with the IDs of subscriptions instead of those of their rules, where they differ."""
    if not ids:
        return why
    chain = why.chain
    if chain is not None:
        chain = replace(chain, rules=tuple(replace(rule, id=ids.get(rule.id, rule.id)) for rule in chain.rules))
    return replace(
        why,
        rules=tuple(replace(rule, id=ids.get(rule.id, rule.id)) for rule in why.rules),
        nearest=tuple(replace(rule, id=ids.get(rule.id, rule.id)) for rule in why.nearest),
        suspended=tuple(replace(rule, id=ids.get(rule.id, rule.id)) for rule in why.suspended),
        chain=chain,
    )


def explanation_lines(why: ResourceExplanation | Mapping[str, Any]) -> list[str]:
    """Return an explanation, or its JSON, as lines of text.

    >>> explanation_lines(ResourceExplanation("http://a/b", 1, 7, False, False, False, "No document describes it."))
    ['No document describes it.']
    """
    return list(_lines(why.as_dict() if isinstance(why, ResourceExplanation) else why))


def _lines(body: Mapping[str, Any]) -> Iterator[str]:
    yield body["sentence"]
    for rule in body["rules"]:
        yield f"  {_rule_name(rule)}: {_one_line(rule['rule'])}"
        for name, uri in rule["binding"].items():
            yield f"    {name} is <{uri}>"
        for held in rule["predicates"]:
            other = f" and {held['other']['value']}" if held.get("other") else ""
            yield f"    {held['predicate']}: {held['value']}{other}"
    if body["more"]:
        yield "  and more rules"
    if body["chain"] is not None:
        others = " and more rules" if body["chain"]["more"] else ""
        unknown = "a suspended rule" if body["suspended"] else "no rule"
        names = ", ".join(map(_rule_name, body["chain"]["rules"])) or unknown
        for number, step in enumerate(body["chain"]["steps"]):
            start = f"<{step['resource']}> (selected by {names}{others})" if number == 0 else f"<{step['resource']}>"
            yield f"  {start} refers by {step['property']} to"
        yield f"  <{body['resource']}>"
    if body["nearest"]:
        yield "The rules that come nearest:"
    for rule in body["nearest"]:
        yield f"  {_rule_name(rule)}: {rule['sentence']}"
    for rule in body["suspended"]:
        sentence = rule["sentence"]
        yield f"{sentence[0].upper()}{sentence[1:]}.{' It selected this resource.' if rule['selects'] else ''}"
        yield f"  {rule['reason']}"
    if body["suspended_more"]:
        yield "More rules are suspended."


def _rule_name(rule: Mapping[str, Any]) -> str:
    return f"rule {rule['id']}" + (f" ({rule['name']})" if rule["name"] else "")


def _one_line(text: str) -> str:
    return " ".join(text.split())
