"""Carry out changes of rules without blocking other writers for long.

1. Try the change under the lock, with a short time limit for the evaluation.
2. If it takes longer, evaluate on a database snapshot, without the lock (precompute).
3. Try again, catching up with what others wrote meanwhile. After several attempts, refuse it as too costly.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from mdv.db.engine import try_exclusive_lock
from mdv.db.filter import SlowUnderLock
from mdv.db.rule_graph import RuleGraph
from mdv.db.suspensions import Suspensions
from mdv.errors import TooCostly
from mdv.mdp.precompute import MAX_EVALUATION_SECONDS, TOO_COSTLY_MESSAGE, Outdated, Precomputed, RuleChange, precompute
from mdv.mdp.provider import Provider
from mdv.mdp.rules.add import MAX_RESULTS_PER_TRANSACTION, add_rules
from mdv.mdp.rules.change import change_rule
from mdv.mdp.rules.chunked_publish import add_pending_rule, publish_in_chunks
from mdv.mdp.rules.planning import AddedRule, RuleDraft, plan_change, plan_new_rules
from mdv.mdp.rules.remove import remove_rules
from mdv.mdp.rules.suspend import suspend_rules
from mdv.mdp.schemas import SchemaInForce

MAX_ATTEMPTS = 5
"""How often a change is tried with precomputed results."""

MAX_REMOVAL_SECONDS = 120
"""How long finding the matches of a removed rule may take."""

Result = TypeVar("Result")
Covariant = TypeVar("Covariant", covariant=True)


class RuleOperation(Protocol[Covariant]):
    """A change of rules: one of the classes below."""

    def carry_out(self, connection: Connection, provider: Provider, precomputed: Precomputed | None) -> Covariant:
        """Carry it out under the lock, with precomputed results if there are any."""

    def plan(self, connection: Connection, provider: Provider, schema: SchemaInForce) -> RuleChange:
        """Return the rules that are removed and added, without the lock."""

    def prepare(self, provider: Provider) -> None:
        """Do what is necessary before the results are precomputed."""

    def publish_most(
        self, provider: Provider, schema: SchemaInForce, precomputed: Precomputed
    ) -> RuleOperation[Covariant]:
        """Publish most of a large result in several transactions. Return the change that remains to be carried out."""


class PrecomputeBusy(Exception):
    """Another process is precomputing. Try the change again later."""


def carry_out(connection: Connection, change: RuleOperation[Result], provider: Provider) -> Result:
    """Carry out a change in the transaction of `connection`, which must not hold the lock yet."""
    try:
        return _attempt(connection, change, provider, None)
    except SlowUnderLock:
        pass
    with try_exclusive_lock(provider.engine, "precompute") as acquired:
        if not acquired:
            raise PrecomputeBusy
        return _precomputed(connection, change, provider)


def _precomputed(connection: Connection, change: RuleOperation[Result], provider: Provider) -> Result:
    _discard_pending(provider)  # a process may have died while adding a rule
    try:
        return _finish(connection, change, provider)
    except BaseException:
        _discard_pending(provider)
        raise


def _discard_pending(provider: Provider) -> None:
    """Remove rules that were not added completely. Only one process adds rules in this way at a time."""
    with provider.engine.connect() as reader:
        pending = Suspensions(reader).pending()
    if pending:
        with provider.engine.begin() as connection:  # keep it short: it holds the lock
            _finish(connection, RemoveRules(pending), provider)


def _finish(connection: Connection, change: RuleOperation[Result], provider: Provider) -> Result:
    change.prepare(provider)
    precomputed: Precomputed | None = None
    is_chunked = False
    for _ in range(MAX_ATTEMPTS):
        try:
            with provider.engine.connect() as reader:
                schema = provider.schemas.now(reader)
            if precomputed is None or precomputed.basis.schema_version != schema.version:
                precomputed = _precompute(change, provider, schema)
            else:
                precomputed.catch_up_without_lock(provider.engine, schema, provider.vocabulary)
            if len(precomputed.totals) > MAX_RESULTS_PER_TRANSACTION and not is_chunked:
                is_chunked = True
                change = change.publish_most(provider, schema, precomputed)
                precomputed = _precompute(change, provider, schema)
            return _attempt(connection, change, provider, precomputed)
        except Outdated:
            precomputed = None
        except SlowUnderLock:
            continue
    raise TooCostly(TOO_COSTLY_MESSAGE)


def _precompute(change: RuleOperation[Result], provider: Provider, schema: SchemaInForce) -> Precomputed:
    with provider.engine.connect() as reader:
        planned = change.plan(reader, provider, schema)
    precomputed = precompute(
        provider.engine,
        planned,
        schema,
        provider.vocabulary,
        MAX_EVALUATION_SECONDS if planned.new else MAX_REMOVAL_SECONDS,
    )
    precomputed.catch_up_without_lock(provider.engine, schema, provider.vocabulary)
    return precomputed


def _attempt(
    connection: Connection, change: RuleOperation[Result], provider: Provider, precomputed: Precomputed | None
) -> Result:
    with connection.begin_nested():  # an error releases the lock
        return change.carry_out(connection, provider, precomputed)


@dataclass(frozen=True)
class AddRules:
    """Add rules, all or none."""

    drafts: Sequence[RuleDraft]

    def carry_out(self, connection: Connection, provider: Provider, precomputed: Precomputed | None) -> list[AddedRule]:
        return add_rules(connection, self.drafts, provider, precomputed)

    def plan(self, connection: Connection, provider: Provider, schema: SchemaInForce) -> RuleChange:
        return RuleChange((), plan_new_rules(connection, self.drafts, schema, provider.rules))

    def prepare(self, provider: Provider) -> None:
        """Do nothing."""

    def publish_most(
        self, provider: Provider, schema: SchemaInForce, precomputed: Precomputed
    ) -> RuleOperation[list[AddedRule]]:
        """Make a single rule pending and publish its matches in chunks. Several rules are added in one transaction."""
        if len(self.drafts) > 1 or any(delta.more < 0 for delta in precomputed.deltas):
            return self
        with provider.engine.connect() as reader:
            (planned,) = self.plan(reader, provider, schema).new
        (draft,) = self.drafts
        number = add_pending_rule(provider, draft, planned, precomputed)
        publish_in_chunks(provider, [number], precomputed, schema, growing=True)
        return FinishAdding(ChangeRule(number, draft.text))


@dataclass(frozen=True)
class FinishAdding:
    """Finish adding a pending rule, after its matches were published."""

    change: ChangeRule

    def carry_out(self, connection: Connection, provider: Provider, precomputed: Precomputed | None) -> list[AddedRule]:
        return [self.change.carry_out(connection, provider, precomputed)]

    def plan(self, connection: Connection, provider: Provider, schema: SchemaInForce) -> RuleChange:
        return self.change.plan(connection, provider, schema)

    def prepare(self, provider: Provider) -> None:
        """Do nothing."""

    def publish_most(
        self, provider: Provider, schema: SchemaInForce, precomputed: Precomputed
    ) -> RuleOperation[list[AddedRule]]:
        return self


@dataclass(frozen=True)
class ChangeRule:
    """Change a rule, or evaluate it again if the text is the same."""

    rule_id: int
    text: str
    by: str | None = None

    def carry_out(self, connection: Connection, provider: Provider, precomputed: Precomputed | None) -> AddedRule:
        return change_rule(connection, self.rule_id, self.text, provider, precomputed, self.by)

    def plan(self, connection: Connection, provider: Provider, schema: SchemaInForce) -> RuleChange:
        planned = plan_change(RuleGraph(connection), self.rule_id, self.text, schema, provider.rules).rules
        return RuleChange([item.rule_id for item in planned], planned)

    def prepare(self, provider: Provider) -> None:
        """Do nothing."""

    def publish_most(
        self, provider: Provider, schema: SchemaInForce, precomputed: Precomputed
    ) -> RuleOperation[AddedRule]:
        """Do nothing: a rule must never match less than both texts do, so the difference is one transaction."""
        return self


@dataclass(frozen=True)
class RemoveRules:
    """Remove rules, all or none."""

    ids: Collection[int]

    def carry_out(self, connection: Connection, provider: Provider, precomputed: Precomputed | None) -> int:
        return remove_rules(connection, self.ids, provider, precomputed=precomputed)

    def plan(self, connection: Connection, provider: Provider, schema: SchemaInForce) -> RuleChange:
        return RuleChange(self.ids, ())

    def prepare(self, provider: Provider) -> None:
        """Suspend the rules, so that their matches do not change while they are computed."""
        with provider.engine.begin() as connection:
            suspend_rules(
                connection, self.ids, "The rule is being removed.", None, provider, without_notices=True,
            )  # fmt: skip

    def publish_most(self, provider: Provider, schema: SchemaInForce, precomputed: Precomputed) -> RuleOperation[int]:
        """Subtract the matches in chunks, unless they are counted together with those of other rules."""
        if all(delta.more < 0 and delta.past is not None for delta in precomputed.deltas):
            publish_in_chunks(provider, self.ids, precomputed, schema, growing=False)
        return self
