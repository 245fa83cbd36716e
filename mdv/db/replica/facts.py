"""What an MDP knows about its backbone. What every change needs is in `mdp_state`, and comes with the lock."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.backbone.facts_json import facts_from_json, facts_to_json, local_facts
from mdv.backbone.local_operation import LocalFacts
from mdv.backbone.operation import Operation, decode_operation, encode_operation
from mdv.backbone.replica_store import MemberFacts
from mdv.backbone.vector import Life
from mdv.db.engine import driver
from mdv.db.load_sql import load_sql
from mdv.db.replica.lmrs import forget_backbone_lmrs

LogBases = dict[Life, tuple[int, bytes]]
"""The last operation of each life that is no longer in the log, and its chain."""


class StoredFacts(NamedTuple):
    """The facts of this member, with its URL, the kind of its set, and the epoch of the MDP now."""

    facts: MemberFacts
    url: str
    mode: str
    epoch: str
    local: LocalFacts
    bases: LogBases
    text: str
    """The JSON of the slow facts, to see whether they have changed."""


def read_facts(connection: Connection) -> StoredFacts | None:
    """Return the facts; None if this MDP is in no backbone."""
    row = _execute(connection, "read_backbone_state").fetchone()
    if row is None or row[0] is None:
        return None
    replica, epoch, name, url, mode, given = row
    local = LocalFacts.from_json(json.loads(replica))
    has_drafts = local.is_returning or given["drafts"]
    drafts = (
        [decode_operation(body) for (body,) in _execute(connection, "list_drafts").fetchall()] if has_drafts else []
    )
    facts = facts_from_json(name, given, local, drafts)
    bases = {life: (seq, bytes.fromhex(chain)) for life, (seq, chain) in given["bases"].items()}
    return StoredFacts(facts, url, mode, epoch, local, bases, _text(facts, bases))


def read_local_facts(connection: Connection) -> LocalFacts | None:
    """Return the facts that change with every operation; None if this MDP is in no backbone."""
    row = _execute(connection, "read_local_facts").fetchone()
    return None if row is None or row[0] is None else LocalFacts.from_json(json.loads(row[0]))


def create_facts(connection: Connection, name: str, url: str, mode: str, epoch: str) -> None:
    """Store the facts of a new member, without members. Give all documents their digests."""
    facts = MemberFacts(name, epoch)
    _execute(connection, "insert_backbone", name=name, url=url, mode=mode, facts=_text(facts, {}))
    _execute(connection, "store_replica", replica=replica_text(facts, mode, epoch))
    _execute(connection, "add_digests")


def forget_backbone(connection: Connection) -> None:
    """Delete all that concerns the backbone, and the digests of the documents."""
    _execute(connection, "forget_backbone")
    forget_backbone_lmrs(connection)


def changed_facts(stored: StoredFacts, bases: LogBases) -> str | None:
    """Return the JSON of the facts besides those in `mdp_state`; None if they have not changed."""
    now = _text(stored.facts, bases)
    return now if now != stored.text else None


def store_facts(connection: Connection, facts: str) -> None:
    """Store the facts besides those in `mdp_state`."""
    _execute(connection, "store_facts", facts=facts)


def store_replica(connection: Connection, replica: str) -> None:
    """Store the facts that every change needs."""
    _execute(connection, "store_replica", replica=replica)


def replace_drafts(connection: Connection, drafts: Iterable[Operation]) -> None:
    _execute(connection, "delete_drafts")
    for draft in drafts:
        _execute(connection, "insert_draft", body=encode_operation(draft))


def replica_text(facts: MemberFacts, mode: str, epoch: str) -> str:
    """Return the JSON of `mdp_state.replica`."""
    return json.dumps(local_facts(facts, mode, epoch).to_json())


def _text(facts: MemberFacts, bases: LogBases) -> str:
    given = facts_to_json(facts) | {
        "bases": {life: [seq, chain.hex()] for life, (seq, chain) in bases.items()},
        "drafts": bool(facts.drafts),
    }
    return json.dumps(given, sort_keys=True)


def _execute(connection: Connection, query: str, /, **values: object) -> Any:
    return driver(connection).execute(load_sql("replica")[query], values, prepare=True)
