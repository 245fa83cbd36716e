"""Run a detached copy: the actions of a rule, in a transaction after the one that triggered it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection

from mdv.db.eca.runs import count_detached, read_runs
from mdv.db.state import LockPurpose
from mdv.errors import InvalidRule, RuleFailed, RulesDoNotEnd
from mdv.failpoints import BEFORE_DETACHED, hit_failpoint
from mdv.mdp.eca.detached import DetachedCopy, decode_delta
from mdv.mdp.eca.run import RULES_DOCUMENT, RuleCopy
from mdv.mdp.eca.templates import compile_template
from mdv.mdp.provider import Provider
from mdv.mdp.transaction import Transaction
from mdv.rdf.schema import Schema
from mdv.rdftl.model import AbortDependency


@dataclass(frozen=True, slots=True)
class DetachedRequest:
    """A detached copy to be run: `copy` is its number in `run`."""

    run: int
    copy: int
    detached: DetachedCopy
    by: str | None = None


@dataclass(frozen=True, slots=True)
class DetachedOutcome:
    """The effect of a detached copy. `dropped`: it did not run, because the transaction that triggered it was
    compensated before."""

    position: int
    run: int | None
    fired: int = 0
    matched: int = 0
    lmrs: int = 0
    dropped: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def run_detached(connection: Connection, request: DetachedRequest, provider: Provider) -> DetachedOutcome:
    """Run a detached copy. Raise `RuleFailed` or `RulesDoNotEnd` if it fails: then nothing is changed, and
    `record_refusal` handles its ABORT dependency."""
    hit_failpoint(BEFORE_DETACHED)
    detached = request.detached
    tx = Transaction(provider, connection)
    with tx.locking(LockPurpose.DOCUMENTS):
        """There are no look-ups."""
    parents = read_runs(connection, [request.run])
    if detached.aborts_with_parent and any(detached.parent in parent.compensated for parent in parents):
        return DetachedOutcome(tx.state.position, None, dropped=True)
    with tx.detached_copy(detached.parent_copy(request.run, request.copy), request.by):
        _check_chain(connection, detached, provider)
        root = _root(request, tx.schema.schema)
        tx.number_classes()
        tx.execute_copy(root)
    done = tx.finish()
    return DetachedOutcome(
        done.position, done.run, len(tx.scheduler.run.fired), sum(one.matched for one in done.documents.values()),
        len(list(done.publication.names())),
    )  # fmt: skip


def _check_chain(connection: Connection, detached: DetachedCopy, provider: Provider) -> None:
    """Raise `RulesDoNotEnd` if too many detached copies have run because of one change."""
    most = provider.run_limits.steps
    if count_detached(connection, detached.origin) >= most:
        name = detached.name or f"rule {detached.rule}"
        raise RulesDoNotEnd(
            f"More than {most:,} detached copies ran because of run {detached.origin}, so the next one was refused. The"
            f" last rule is {name}. Detached rules trigger each other: change one of them, or raise MDV_ECA_STEPS.",
            rules=[name], times=most, limit=f"more than {most:,} detached copies",
        )  # fmt: skip


def _root(request: DetachedRequest, schema: Schema) -> RuleCopy:
    detached, delta = request.detached, decode_delta(request.detached.delta)
    try:
        compiled = compile_template(detached.text, schema)
    except InvalidRule as error:
        name = detached.name or f"rule {detached.rule}"
        raise RuleFailed(
            f"The detached copy of {name} does not fit the schema any more: {error.detail}",
            rule=detached.rule, name=detached.name, delta=detached.delta, action=None, reason=error.detail,
        ) from None  # fmt: skip
    return RuleCopy(
        compiled.template.actions, compiled.constants, detached.as_fired(compiled.constants),
        AbortDependency(detached.abort), delta, depth=detached.depth, document=RULES_DOCUMENT + detached.rule_set,
        limits=detached.limits, by=request.by,
    )  # fmt: skip
