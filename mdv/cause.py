"""Causes: why a version of a document exists, and who caused it. Kept with each version, and shown in its history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class CauseKind:
    """A kind of cause. `label`: its name on pages. `description`: what the agent of such a cause is."""

    name: str
    label: str
    description: str


NO_REACTIONS = "eca=off"
"""The agent of a registration or an update whose caller wanted no event-condition-action rules to run."""

REGISTRATION = CauseKind(
    "registration", "Registration",
    "a document was registered or deleted; the agent is `eca=off` if no event-condition-action rules were run",
)  # fmt: skip
UPDATE = CauseKind(
    "update", "Update",
    "single statements were edited; the agent is `eca=off` if no event-condition-action rules were run",
)  # fmt: skip
RULE = CauseKind("rule", "Rule", "an event-condition-action rule; the agent is the rule")
PROGRAM = CauseKind("program", "Program", "a program; the agent is its process")
COMPENSATION = CauseKind("compensation", "Compensation", "changes of a rule were undone; the agent is the rule")
REPLICA = CauseKind("replica", "Replica", "another provider made the change; the agent is that provider")
SCHEMA = CauseKind("schema", "Schema", "the schema was changed; there is no agent")

CAUSE_KINDS = {kind.name: kind for kind in (REGISTRATION, UPDATE, RULE, PROGRAM, COMPENSATION, REPLICA, SCHEMA)}
"""All kinds by name. A version has one of these names as its `cause`."""


class Cause(NamedTuple):
    """The cause of a change of documents.

    `agent`: what made the change: a rule, a process, another provider. `by`: the caller: a user, a token, a batch.

    >>> Cause(UPDATE, by="user anna").kind.label
    'Update'
    """

    kind: CauseKind
    agent: str | None = None
    by: str | None = None


REGISTERED = Cause(REGISTRATION)
"""A registration by an unknown caller."""
