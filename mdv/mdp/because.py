"""Because: the reasons that a resource is, or is not, at an LMR, as values and as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Found:
    """What a resource has there; with no property, its URI. Without a value: it has too many to be looked through."""

    resource: str
    property: str | None
    value: str | None
    is_uri: bool = False

    def as_dict(self) -> dict[str, Any]:
        kind = None if self.value is None else "uri" if self.is_uri else "literal"
        return {"resource": self.resource, "property": self.property, "value": self.value, "type": kind}


@dataclass(frozen=True, slots=True)
class Satisfied:
    """A predicate that holds, with the value that satisfies it; between two variables, with the other's, too."""

    predicate: str
    operator: str
    constant: str | None
    found: Found
    other: Found | None = None

    def as_dict(self) -> dict[str, Any]:
        body = {"predicate": self.predicate, **self.found.as_dict(), "operator": self.operator}
        return body | ({"constant": self.constant} if self.other is None else {"other": self.other.as_dict()})


@dataclass(frozen=True, slots=True)
class Selecting:
    """A rule that selects the resource: which resources its variables stand for, and what holds of them."""

    id: int
    name: str | None
    rule: str
    binding: Mapping[str, str] = field(default_factory=dict)
    predicates: tuple[Satisfied, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "rule": self.rule,
            "binding": dict(self.binding),
            "predicates": [predicate.as_dict() for predicate in self.predicates],
        }


@dataclass(frozen=True, slots=True)
class Failing:
    """A rule that does not select the resource, and the first predicate that fails.

    `predicate` is None where it is a class. `satisfied` counts what holds before it, the class of what is registered
    included, out of `of`; `part` says in which conjunction of the normal form.
    """

    id: int
    name: str | None
    rule: str
    predicate: str | None
    sentence: str
    satisfied: int
    of: int
    part: int = 0
    found: tuple[Found, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "rule": self.rule,
            "predicate": self.predicate,
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
    """A rule by its number, and its name if it has one."""

    id: int
    name: str | None

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name}


@dataclass(frozen=True, slots=True)
class Chain:
    """Strong references from a selected resource, and rules that select that one; with `more` there are others."""

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
class Why:
    """Why a resource is, or is not, at an LMR, at one position.

    `held`: the LMR has it, or gets it with the feed up to that position. With `more`, other rules select it, too.
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
    rules: tuple[Selecting, ...] = ()
    more: bool = False
    chain: Chain | None = None
    nearest: tuple[Failing, ...] = ()

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
        }


def why_lines(why: Why | Mapping[str, Any]) -> list[str]:
    """The reasons for people, from what was found or from its JSON.

    >>> why_lines(Why("http://a/b", 1, 7, False, False, False, "Nothing is said of <http://a/b>."))
    ['Nothing is said of <http://a/b>.']
    """
    return list(_lines(why.as_dict() if isinstance(why, Why) else why))


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
        yield "  and others"
    if body["chain"] is not None:
        others = " and others" if body["chain"]["more"] else ""
        names = ", ".join(map(_rule_name, body["chain"]["rules"])) or "no rule"
        for number, step in enumerate(body["chain"]["steps"]):
            start = f"<{step['resource']}> (selected by {names}{others})" if number == 0 else f"<{step['resource']}>"
            yield f"  {start} refers by {step['property']} to"
        yield f"  <{body['resource']}>"
    if body["nearest"]:
        yield "The rules that come nearest:"
    for rule in body["nearest"]:
        yield f"  {_rule_name(rule)}: {rule['sentence']}"


def _rule_name(rule: Mapping[str, Any]) -> str:
    return f"rule {rule['id']}" + (f" ({rule['name']})" if rule["name"] else "")


def _one_line(text: str) -> str:
    return " ".join(text.split())
