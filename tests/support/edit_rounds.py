"""Changes of documents as rounds of edits in one transaction, instead of a registration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from mdv.cause import RULE, Cause
from mdv.mdp.edit import Edit
from mdv.mdp.transaction import Transaction, TransactionOutcome
from mdv.model import Statement
from tests.support.mdp import Mdp

Said = frozenset[Statement]


class Round(NamedTuple):
    """One call of `Transaction.edit`."""

    additions: list[Edit]
    deletions: list[Edit]


def rounds_to(store: Mapping[str, Said], after: Mapping[str, Said | None], noise: Collection[Statement]) -> list[Round]:
    """Return rounds that change documents to their new statements (None: they lose all).

    Without `noise`, there is one round. Otherwise the first round also adds `noise` to each document, and the second
    removes it again, where it does not belong.
    """
    if not noise:
        return [_whole_change(store, after)]
    first, second = Round([], []), Round([], [])
    for uri, wanted in after.items():
        old, new = store.get(uri, frozenset()), wanted or frozenset()
        removed, added = sorted(old - new), sorted(new - old)
        half = len(removed) // 2
        first.deletions.extend(Edit(statement, uri) for statement in removed[:half])
        first.additions.extend(Edit(statement, uri) for statement in (*sorted(noise), *added[::2]))
        second.deletions.extend(Edit(statement, uri) for statement in (*removed[half:], *sorted({*noise} - new)))
        second.additions.extend(Edit(statement, uri) for statement in sorted(new - old | new & {*noise}))
    return [first, second]


def _whole_change(store: Mapping[str, Said], after: Mapping[str, Said | None]) -> Round:
    one = Round([], [])
    for uri, wanted in after.items():
        old, new = store.get(uri, frozenset()), wanted or frozenset()
        one.additions.extend(Edit(statement, uri) for statement in sorted(new - old))
        one.deletions.extend(Edit(statement, uri) for statement in sorted(old - new))
    return one


def edit_in_rounds(mdp: Mdp, rounds: Collection[Round], flush: bool) -> TransactionOutcome:
    """Carry out rounds in one transaction. With `flush`, each is written before the next."""
    with mdp.engine.begin() as connection:
        tx = Transaction(mdp.provider, connection)
        for one in rounds:
            tx.edit(Cause(RULE, "a rule"), one.additions, one.deletions)
            if flush:
                tx.flush()
        return tx.finish()
