"""What the members of a backbone know of each other's LMRs: name, tokens, home, and rules with lasting IDs.

    change of an LMR or its rules → registers → operation of the kind `lmr` → registers of the other members

The register of an LMR is ordered by its term, the number of its last adoption, and then by its changes. That of a rule
is ordered by hybrid time. An LMR that is not at home here is dormant: it has a row and its tokens, but no rules.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import Connection

from mdv.backbone.etag import token_of
from mdv.backbone.registers import Register, Registers
from mdv.backbone.vector import Life
from mdv.db.lmrs import Lmr, find_lmr
from mdv.db.replica.lmrs import (
    AnnouncedRule,
    insert_lasting_ids,
    list_announced_rules,
    list_token_hashes,
    list_unannounced,
    name_lmr,
    note_announced,
    read_place,
    read_registers,
    read_rule_registers,
)
from mdv.db.state import lock_state
from mdv.errors import NotHome
from mdv.mdp.provider import Provider
from mdv.mdp.replica import Replica, now_in_microseconds
from mdv.mdp.rules.planning import PROVIDER_OWNER

CHANGES_OF_A_TERM = 2**20
"""The order of the register of an LMR: its term times this, and the number of its changes."""

LASTING_BASES = 2**21
"""Rules of an LMR that were added at another home than its first have lasting IDs from 2³² on, at most 2⁵³."""

Values = dict[str, tuple[int | None, Any]]


class LmrDefinition(NamedTuple):
    """What all members know of an LMR. `tokens`: their hashes. `home`: the name of a member. `origin`: the life that
    announced it, and `member`, its member then."""

    lasting_id: str
    name: str
    tokens: tuple[str, ...]
    home: str
    term: int
    origin: Life
    member: str

    def name_at(self, member: str) -> str:
        """Return its name at a member: with that of the member that announced it, unless that is the same.

        >>> LmrDefinition("x", "local", (), "m2", 1, "a", "m1").name_at("m2")
        'local@m1'
        """
        return self.name if member == self.member else f"{self.name}@{self.member}"

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "tokens": list(self.tokens), "home": self.home, "term": self.term, "origin": self.origin,
            "member": self.member,
        }  # fmt: skip


class RuleDefinition(NamedTuple):
    """A rule of an LMR as all members know it."""

    lasting_id: int
    name: str | None
    text: str


def read_definition(lasting_id: str, register: Register | None) -> LmrDefinition | None:
    """Return the LMR that a register defines; None if it was removed."""
    if register is None or register.value is None:
        return None
    value = register.value
    return LmrDefinition(
        lasting_id,
        value["name"],
        tuple(value["tokens"]),
        value["home"],
        value["term"],
        value["origin"],
        value["member"],
    )


def find_definition(connection: Connection, lasting_id: str | None) -> LmrDefinition | None:
    """Return the definition of an LMR; None if there is none."""
    if lasting_id is None:
        return None
    return read_definition(lasting_id, read_registers(connection, [lasting_id]).get(lasting_id))


def list_definitions(
    connection: Connection, lasting_ids: Collection[str] | None = None
) -> dict[str, LmrDefinition | None]:
    """Return LMRs by lasting ID: all, or some. None for those that were removed."""
    registers = read_registers(connection, lasting_ids)
    return {key: read_definition(key, one) for key, one in registers.items() if "/" not in key}


def list_rule_definitions(connection: Connection, lasting_id: str) -> list[RuleDefinition]:
    """Return the rules of an LMR in the order of their lasting IDs. Of several with one name, the first has it."""
    return _rule_definitions(read_rule_registers(connection, lasting_id))


def _rule_definitions(registers: Registers) -> list[RuleDefinition]:
    found = sorted(
        RuleDefinition(int(key.rpartition("/")[2]), one.value["name"], one.value["text"])
        for key, one in registers.items() if one.value is not None
    )  # fmt: skip
    names: set[str] = set()
    rules = []
    for rule in found:
        is_taken = rule.name in names
        names.add(rule.name or "")
        rules.append(rule._replace(name=None) if is_taken else rule)
    return rules


def refuse_unless_home(connection: Connection, lmr: Lmr, provider: Provider) -> None:
    """Raise `NotHome` with the name and the URL of the home of an LMR, unless that is here."""
    if lmr.home is None:
        return
    facts = Replica(provider).facts(connection)
    member = facts.table.members.get(lmr.home) if facts is not None else None
    url = member.url if member is not None else ""
    raise NotHome(
        f"The LMR {lmr.name} is at home at {lmr.home}, {url or 'whose URL is unknown'}: send the request there.",
        home=lmr.home, url=url, term=lmr.term,
    )  # fmt: skip


# Announcing


def announce_rules(
    connection: Connection, lmr: Lmr, provider: Provider, changed: Collection[int] = (), removed: Collection[int] = ()
) -> str | None:
    """Let the other members know rules of an LMR that this transaction has added, changed or removed; all rules, if
    they do not know the LMR yet. The lock is taken. Return the token of the operation; None if there is none.
    `removed`: lasting IDs."""
    if not provider.is_in_backbone or lmr.id == PROVIDER_OWNER:
        return None
    values: Values = {}
    with Replica(provider).member(connection) as member:
        facts = member.store.facts
        known = find_definition(connection, read_place(connection, lmr.id).lasting_id)
        definition = _ensure_definition(connection, lmr, facts.name, facts.life, values)
        is_first_home = definition.origin == facts.life
        rules = list_announced_rules(connection, lmr.id, None if known is None else changed)
        fresh = [rule for rule in rules if rule.lasting_id is None]
        ids = {rule.id: rule.id if is_first_home else lasting_id(facts.life, rule.id) for rule in fresh}
        insert_lasting_ids(connection, lmr.id, ids)
        for rule in rules:
            values[f"{definition.lasting_id}/{rule.lasting_id or ids[rule.id]}"] = None, _rule_value(rule)
        values |= {f"{definition.lasting_id}/{number}": (None, None) for number in removed}
        if not values:
            return None
        return token_of(member.change_lmrs(values, now_in_microseconds()).dot)


def lasting_id(life: Life, rule: int) -> int:
    """Return the lasting ID of a rule that was added at another home than the first one.

    >>> lasting_id("a", 7) % 2**32, lasting_id("a", 7) == lasting_id("b", 7)
    (7, False)
    """
    base = int.from_bytes(blake2b(life.encode(), digest_size=3).digest()) % (LASTING_BASES - 1)
    return (base + 1 << 32) + rule


def announce_lmrs(provider: Provider) -> bool:
    """Let the other members know the LMRs that are at home here, as far as they do not. Return True if there were
    any."""
    with provider.engine.connect() as connection:
        waiting = list_unannounced(connection)
    for number in waiting:
        with provider.engine.begin() as connection:
            provider.is_in_backbone = lock_state(connection).replica is not None
            lmr = find_lmr(connection, str(number))
            if lmr is not None and lmr.home is None:
                announce_rules(connection, lmr, provider)
    return bool(waiting)


def announce_removal(connection: Connection, lmr: Lmr, provider: Provider) -> str | None:
    """Let the other members remove an LMR. The lock is taken."""
    place = read_place(connection, lmr.id)
    if not provider.is_in_backbone or place.lasting_id is None:
        return None
    with Replica(provider).member(connection) as member:
        order = _order(read_registers(connection, [place.lasting_id]).get(place.lasting_id), place.term)
        rules = read_rule_registers(connection, place.lasting_id)
        values: Values = {key: (None, None) for key, one in rules.items() if one.value is not None}
        values[place.lasting_id] = order, None
        return token_of(member.change_lmrs(values, now_in_microseconds()).dot)


def announce_home(connection: Connection, definition: LmrDefinition, provider: Provider) -> str:
    """Let the other members know the new home of an LMR. The lock is taken. Return the token of the operation."""
    with Replica(provider).member(connection) as member:
        key = definition.lasting_id
        order = _order(read_registers(connection, [key]).get(key), definition.term)
        values: Values = {key: (order, definition.to_json())}
        return token_of(member.change_lmrs(values, now_in_microseconds()).dot)


def _ensure_definition(connection: Connection, lmr: Lmr, member: str, life: Life, values: Values) -> LmrDefinition:
    """Return the definition of an LMR that is at home here. Add it to the values if it is new or has changed."""
    place = read_place(connection, lmr.id)
    key = place.lasting_id or str(uuid4())
    register = read_registers(connection, [key]).get(key)
    known = read_definition(key, register)
    tokens = tuple(list_token_hashes(connection, lmr.id))
    if known is None:
        name_lmr(connection, lmr.id, key)
        wanted = LmrDefinition(key, lmr.name, tokens, member, place.term, life, member)
    else:
        wanted = known._replace(tokens=tokens)
    if wanted != known:
        values[key] = _order(register, place.term), wanted.to_json()
    note_announced(connection, lmr.id)
    return wanted


def _order(register: Register | None, term: int) -> int:
    """Return the order of the next change of the register of an LMR.

    >>> _order(None, 3) == 3 * CHANGES_OF_A_TERM, _order(Register(7, "a", None), 0)
    (True, 8)
    """
    return max(term * CHANGES_OF_A_TERM, register.at + 1 if register is not None else 0)


def _rule_value(rule: AnnouncedRule) -> Mapping[str, Any]:
    return {"name": rule.name, "text": rule.text}
