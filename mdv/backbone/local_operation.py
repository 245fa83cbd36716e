"""Operations of changes that are made here, by the transaction of an MDP.

    net change of each document → operation → log row

It does what `BackboneMember.change` does, on what a transaction knows: the statements that came and went, and their
hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from mdv.backbone.document_state import ReplicatedDocument, advance, without_stable
from mdv.backbone.operation import (
    DOCUMENTS,
    LogRow,
    NumberedStatement,
    Operation,
    ReplicatedChange,
    encode_operation,
    next_chain,
)
from mdv.backbone.vector import Life

Signer = Callable[[Life, int, bytes], bytes]
"""Returns the signature of an operation: its life, its number and its chain."""


def no_signature(life: Life, seq: int, chain: bytes) -> bytes:
    return b""


class LocalFacts(NamedTuple):
    """What a local change must know of the backbone. Stored with the state of the MDP, which every change reads.

    `is_returning`: the member is in a new life without the state of the others, so changes are drafts. `epoch`: that of
    the MDP when the life began; another one means that the database was restored. `stable`: what every member has.
    `schema`: the one that is stored here, which the documents are validated by. `held_until`: until when they are also
    validated by the next one.
    """

    mode: str
    life: Life
    is_returning: bool
    chain: bytes
    vector: Mapping[Life, int]
    clock: int
    schema: tuple[int, int]
    drafts: int
    epoch: str
    stable: Mapping[Life, int]
    held_until: int | None = None

    @property
    def seq(self) -> int:
        return self.vector.get(self.life, 0)

    def to_json(self) -> dict[str, Any]:
        return {
            "mode": self.mode, "life": self.life, "returning": self.is_returning, "chain": self.chain.hex(),
            "vector": dict(self.vector), "clock": self.clock, "schema": list(self.schema), "drafts": self.drafts,
            "epoch": self.epoch, "stable": dict(self.stable), "held_until": self.held_until,
        }  # fmt: skip

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> LocalFacts:
        """
        >>> facts = LocalFacts("orset", "a", False, bytes(32), {"a": 3}, 17, (1, 1), 0, "e", {})
        >>> LocalFacts.from_json(facts.to_json()) == facts
        True
        """
        term, number = fields["schema"]
        return cls(
            fields["mode"], fields["life"], fields["returning"], bytes.fromhex(fields["chain"]), fields["vector"],
            fields["clock"], (term, number), fields["drafts"], fields["epoch"],
            fields["stable"], fields.get("held_until"),
        )  # fmt: skip


class NetChange(NamedTuple):
    """The net change of a document. `document`: before it. `more`: by how much the number of visible statements grows.
    `difference`: by how much the digest grows. `prefixes`: None if they do not change."""

    uri: str
    document: ReplicatedDocument
    inserted: tuple[NumberedStatement, ...]
    deleted: tuple[NumberedStatement, ...]
    more: int
    difference: int
    prefixes: Mapping[str, str] | None


class LocalOperation(NamedTuple):
    """An operation that is made here. `row`: its log row; None for a draft, which is `draft`. `documents`: after it."""

    operation: Operation
    facts: LocalFacts
    documents: dict[str, ReplicatedDocument]
    row: LogRow | None
    draft: bytes | None


def make_local_operation(
    facts: LocalFacts, changes: Iterable[NetChange], now: int, signer: Signer = no_signature
) -> LocalOperation:
    """Return the operation of a transaction. `now`: in microseconds."""
    at, drafts = max(facts.clock + 1, now), facts.drafts if facts.is_returning else 0
    deps = dict(facts.vector)
    if drafts:
        deps[facts.life] = facts.seq + drafts
    operation = Operation(facts.life, facts.seq + drafts + 1, deps, at, DOCUMENTS, facts.schema)
    made, after = [], {}
    for uri, document, inserted, deleted, more, difference, prefixes in changes:
        content = (document.digest + difference) % 2**64
        change = ReplicatedChange(uri, document.version + 1, document.digest, content, prefixes, inserted, deleted)
        after[uri] = advance(without_stable(document, facts.stable), change, operation, more, content)
        made.append(change)
    operation = operation._replace(documents=tuple(made))
    body = encode_operation(operation)
    if facts.is_returning:
        return LocalOperation(operation, facts._replace(clock=at, drafts=drafts + 1), after, None, body)
    chain = next_chain(facts.chain, body)
    row = LogRow(facts.life, operation.seq, chain, body, signer(facts.life, operation.seq, chain))
    vector = {**facts.vector, facts.life: operation.seq}
    return LocalOperation(operation, facts._replace(chain=chain, vector=vector, clock=at), after, row, None)
