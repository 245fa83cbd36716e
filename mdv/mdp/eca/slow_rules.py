"""Rules that exceed the time limit of one query: how a process finds the rule, and what it does about it.

A cancelled query ends its database transaction, so the change is tried again:

    first attempt    the rules of a template are evaluated together, and the query is cancelled
    second attempt   the rules of that template are evaluated one by one, and the query of one is cancelled
    third attempt    that rule fails, as its ABORT says, and is quarantined in the same transaction
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class SlowPart(NamedTuple):
    """The part of a rule that was too slow: an action, or its event or condition. `seconds`: the limit."""

    seconds: float
    action: int | None = None

    @property
    def reason(self) -> str:
        part = "its event or condition" if self.action is None else f"action {self.action + 1}"
        return f"{part} took longer than {self.seconds:g} s"


class RuleTimedOut(Exception):
    """A query of a rule exceeded its time limit. The transaction has failed: call `note`, and try again."""

    def __init__(self, template: int, rule: int | None, part: SlowPart) -> None:
        super().__init__(f"A rule of template {template}: {part.reason}.")
        self.template, self.rule, self.part = template, rule, part


class SlowRules:
    """What a process knows about slow rules. `templates` are evaluated rule by rule. `rules` fail, and are quarantined
    by the next transaction that triggers them."""

    def __init__(self) -> None:
        self.templates: set[int] = set()
        self.rules: dict[int, SlowPart] = {}

    def part(self, rule: int, action: int | None = None) -> SlowPart | None:
        """Return the part of a rule that was too slow, if it is this one."""
        part = self.rules.get(rule)
        return part if part is not None and part.action == action else None

    def note(self, error: RuleTimedOut) -> None:
        """Take a rule into account in the next attempt."""
        if error.rule is None:
            self.templates.add(error.template)
        else:
            self.rules[error.rule] = error.part

    def forget(self, rules: Iterable[int]) -> None:
        """Forget rules that are quarantined. Others of their templates are evaluated together again."""
        known = [rule for rule in rules if self.rules.pop(rule, None) is not None]
        if known and not self.rules:
            self.templates.clear()
