"""Event-condition-action rules, and locks against programs, are the same at all members of a backbone.

    change here → register → operation → register elsewhere → carried out there, in a transaction of its own

A register has the value of a rule or lock under a key that is the same everywhere; the last writer decides. A named
rule has its name as the key: so of two rules that are added with one name at the same time, the later one remains. A
rule fires only where the change that triggers it was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import structlog
from sqlalchemy import Connection

from mdv.db.eca.rules import StoredEcaRule, find_rule_id, list_eca_rules
from mdv.db.replica.facts import read_local_facts
from mdv.db.replica.rules import ReplicatedRule, list_new_rules, list_rules, note_rule
from mdv.errors import MdvError, NotFound
from mdv.mdp.eca.change_rules import QUARANTINED, EcaDraft, add_drafts, change_state, remove_rule, replace_rule
from mdv.mdp.provider import Provider
from mdv.mdp.real.write_locks import LockPattern, StoredLock, add_lock, list_locks, remove_lock
from mdv.mdp.replica import Replica, now_in_microseconds
from mdv.mdp.write_limits import WriteLimits

log = structlog.get_logger()

NAMED, UNNAMED, LOCK = "eca:name:", "eca:id:", "lock:"
"""The beginnings of keys."""
_PAGE = 1000

Value = dict[str, Any]


class _Local(NamedTuple):
    """A rule or lock that is stored here. `key`: None if it gets a new one."""

    id: int
    key: str | None
    value: Value


def announce_rules(connection: Connection, provider: Provider) -> None:
    """Tell the backbone what has changed of the rules and locks here. The caller commits. Without a backbone, nothing
    is done."""
    if read_local_facts(connection) is None:
        return
    with Replica(provider).member(connection) as member:
        stored = {one.key: one for one in list_rules(connection)}
        values: dict[str, Value | None] = {}
        ids: dict[str, int] = {}
        for local in (*_local_rules(connection, stored), *_local_locks(connection, stored)):
            key = local.key or (LOCK if "state" not in local.value else UNNAMED) + str(uuid4())
            ids[key] = local.id
            if _is_changed(stored.get(key), local.value):
                values[key] = local.value
        for key, one in stored.items():
            if one.local_id is not None and key not in ids and one.register.value is not None:
                values[key] = None
        if values:
            member.change_rules(values, now_in_microseconds())
            for key in values:
                note_rule(connection, key, ids.get(key))


def _is_changed(known: ReplicatedRule | None, value: Value) -> bool:
    if known is None or (known.is_new and known.local_id is None):
        return True
    return not known.is_new and known.register.value != value


def _local_rules(connection: Connection, stored: dict[str, ReplicatedRule]) -> Iterator[_Local]:
    keys = {one.local_id: key for key, one in stored.items() if key.startswith(UNNAMED)}
    after = 0
    while rules := list_eca_rules(connection, after, _PAGE):
        for rule in rules:
            key = NAMED + rule.name if rule.name is not None else keys.get(rule.id)
            known = stored.get(key) if key is not None else None
            before = known.register.value if known is not None else None
            yield _Local(rule.id, key, _rule_value(rule, before or {}))
        after = rules[-1].id


def _rule_value(rule: StoredEcaRule, before: Value) -> Value:
    """Return a rule as it is replicated. That it is quarantined concerns this member alone."""
    state = rule.state if rule.state != QUARANTINED else before.get("state", "active")
    return {
        "text": rule.text,
        "set": rule.rule_set,
        "name": rule.name,
        "state": state,
        "documents": None if rule.document_prefixes is None else list(rule.document_prefixes),
        "resources": None if rule.prefixes is None else list(rule.prefixes),
        "by": rule.by,
    }


def _local_locks(connection: Connection, stored: dict[str, ReplicatedRule]) -> Iterator[_Local]:
    keys = {one.local_id: key for key, one in stored.items() if key.startswith(LOCK)}
    after = 0
    while locks := list_locks(connection, after, _PAGE):
        for lock in locks:
            yield _Local(lock.id, keys.get(lock.id), _lock_value(lock))
        after = locks[-1].id


def _lock_value(lock: StoredLock) -> Value:
    return {**lock.pattern._asdict(), "by": lock.by}


# At the other members


def carry_out_rules(connection: Connection, provider: Provider) -> list[str]:
    """Carry out what other members have changed of rules and locks. The caller commits. Return the keys of those that
    are invalid here, for example because the schema does not have their names yet: they are tried again later."""
    failed = []
    for rule in list_new_rules(connection):
        savepoint = connection.begin_nested()
        try:
            carry_out = _carry_out_lock if rule.key.startswith(LOCK) else _carry_out_rule
            note_rule(connection, rule.key, carry_out(connection, rule, provider))
            savepoint.commit()
        except MdvError as error:
            savepoint.rollback()
            failed.append(rule.key)
            log.warning("a rule of the backbone is invalid here", key=rule.key, reason=error.detail)
    return failed


def _carry_out_rule(connection: Connection, rule: ReplicatedRule, provider: Provider) -> int | None:
    value: Value | None = rule.register.value
    stored = _find_rule(connection, rule)
    if value is None:
        if stored is not None:
            remove_rule(connection, str(stored.id), provider)
        return None
    limits = WriteLimits(_prefixes(value["documents"]), _prefixes(value["resources"]))
    draft = EcaDraft(value["text"], value["set"], value["state"], limits, value["by"])
    if stored is None:
        (added,) = add_drafts(connection, [draft], provider)
        return added.id
    if (stored.text, stored.document_prefixes, stored.prefixes) != (value["text"], *limits):
        replace_rule(connection, str(stored.id), draft, provider)
        stored = stored._replace(state=stored.state if stored.state != QUARANTINED else "active")
    if stored.state not in (value["state"], QUARANTINED):
        change_state(connection, str(stored.id), value["state"], value["by"], provider)
    return stored.id


def _find_rule(connection: Connection, rule: ReplicatedRule) -> StoredEcaRule | None:
    number = rule.local_id
    if number is None and rule.key.startswith(NAMED):
        number = find_rule_id(connection, rule.key.removeprefix(NAMED))
    found = list_eca_rules(connection, number=number) if number is not None else []
    return found[0] if found else None


def _prefixes(given: list[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)


def _carry_out_lock(connection: Connection, lock: ReplicatedRule, provider: Provider) -> int | None:
    value: Value | None = lock.register.value
    if value is None:
        if lock.local_id is not None:
            try:
                remove_lock(connection, lock.local_id)
            except NotFound:
                """It was removed here, too."""
        return None
    if lock.local_id is not None:
        return lock.local_id
    pattern = {name: value[name] for name in LockPattern._fields}
    return add_lock(connection, LockPattern(**pattern), value["by"]).id


class RuleArrivals:
    """Carries out the rules of other members. Those that are invalid here are tried again when something changes."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._failed: object = None

    def carry_out(self) -> None:
        with self._provider.engine.connect() as connection:
            new = list_new_rules(connection)
            tried = self._provider.schemas.now(connection).version, new
        if not new or tried == self._failed:
            return
        with self._provider.engine.begin() as connection:
            failed = carry_out_rules(connection, self._provider)
        self._failed = (tried[0], [one for one in new if one.key in failed]) if failed else None
