"""Detached copies: the actions of a rule that run in a transaction of their own, as jobs.

A job has the text of the rule as it was when it fired, so that a later change of the rule does not change it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from mdv.db.eca.runs import DetachedJob, ParentCopy, run_uri
from mdv.mdp.eca.evaluation import FiredRule
from mdv.mdp.eca.run import RuleCopy, delta_json
from mdv.mdp.eca.templates import write_plain
from mdv.mdp.write_limits import WriteLimits
from mdv.model import Term
from mdv.rdf.schema import Schema
from mdv.rdftl.model import Delta
from mdv.rdftl.template import bind_slots


@dataclass(frozen=True, slots=True)
class DetachedCopy:
    """A detached copy, as its job stores it. `text`: the rule with its constants. `parent`: the number of the copy
    whose update triggered it, in the run where it fired. `depth`: its causal depth. `origin`: the first run of the
    chain."""

    text: str
    rule: int
    name: str | None
    rule_set: str
    limits: WriteLimits
    delta: dict[str, Any] | None
    parent: int
    abort: str
    depth: int
    origin: int

    @property
    def aborts_parent(self) -> bool:
        return self.abort in ("ChildParent", "Mutual")

    @property
    def aborts_with_parent(self) -> bool:
        return self.abort in ("ParentChild", "Mutual")

    def as_fired(self, constants: tuple[str, ...]) -> FiredRule:
        """Return the rule as the scheduler knows it."""
        return FiredRule(self.rule, self.name, self.rule_set, "active", (), constants, self.limits)

    def parent_copy(self, run: int, copy: int) -> ParentCopy:
        """Return the place of the copy in the run where its rule fired."""
        return ParentCopy(run, copy, self.origin, self.parent if self.aborts_parent else None)


def encode_detached(copy: RuleCopy, run: int, origin: int, schema: Schema) -> DetachedJob:
    """Return a detached copy of a run as a job."""
    assert copy.rule is not None and copy.template is not None and copy.parent is not None
    text = write_plain(bind_slots(copy.template, copy.constants), schema)
    rule = copy.rule
    detached = DetachedCopy(
        text, rule.id, rule.name, rule.rule_set, copy.limits, delta_json(copy.delta), copy.parent.number,
        copy.abort.value, copy.depth, origin,
    )  # fmt: skip
    body = json.dumps(asdict(detached), ensure_ascii=False)
    return DetachedJob(f"{run_uri(run)}:{copy.number}", copy.number, copy.by, body)


def decode_detached(body: bytes) -> DetachedCopy:
    """Return the detached copy of a job."""
    found = json.loads(body)
    limits = (None if prefixes is None else tuple(prefixes) for prefixes in found.pop("limits"))
    return DetachedCopy(**found, limits=WriteLimits(*limits))


def decode_delta(found: dict[str, Any] | None) -> Delta | None:
    """Return an instantiation of `$delta` from JSON.

    >>> decode_delta(delta_json(Delta("http://a", "http://p", Term.uri("http://b"))))
    Delta(source='http://a', arc_name='http://p', target=Term(type='uri', value='http://b', lang=None, datatype=None),
          new_target=None)
    """
    if found is None:
        return None
    target, new_target = (_term(found.get(name)) for name in ("target", "new_target"))
    return Delta(found["source"], found.get("arc_name", ""), target, new_target)


def _term(found: dict[str, Any] | None) -> Term | None:
    if found is None:
        return None
    return Term(found["type"], found["value"], found.get("lang"), found.get("datatype"))
