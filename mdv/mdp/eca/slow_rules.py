"""Rules that exceed the time limit of one query: how a process finds the rule, and what it does about it.

A cancelled query ends its database transaction, so the change is tried again:

    first attempt    the rules of a template are evaluated together, and the query is cancelled
    second attempt   the rules of that template are evaluated one by one, and the query of one is cancelled
    third attempt    that rule fails, as its ABORT says, and is quarantined in the same transaction
"""

from __future__ import annotations

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
    by the next transaction that triggers them.

    A transaction that is rolled back takes its quarantines with it, so rules are known until jobs have ended.
    """

    def __init__(self) -> None:
        self.templates: set[int] = set()
        self.rules: dict[int, dict[int | None, SlowPart]] = {}
        """By rule and action, or None for its event and condition."""

    def part(self, rule: int, action: int | None = None) -> SlowPart | None:
        """Return the part of a rule that was too slow, if it is this one."""
        return self.rules.get(rule, {}).get(action)

    def reason(self, rule: int) -> str | None:
        """Return why a rule is too slow, if it is: the first part that was found."""
        return next((part.reason for part in self.rules.get(rule, {}).values()), None)

    def note(self, error: RuleTimedOut) -> None:
        """Take a rule into account in the next attempt."""
        if error.rule is None:
            self.templates.add(error.template)
        else:
            self.rules.setdefault(error.rule, {})[error.part.action] = error.part

    def forget_rules(self) -> None:
        """Forget the rules once jobs have ended: those that failed are quarantined. Others of their templates are
        evaluated together again."""
        if self.rules:
            self.rules.clear()
            self.templates.clear()
