"""Event-condition-action rules and locks are the same at all members; a rule fires where the change was made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection

from mdv.db.eca.rules import StoredEcaRule, list_eca_rules
from mdv.mdp.eca.change_rules import EcaDraft, add_rules, change_state, remove_rule, replace_rule
from mdv.mdp.real.write_locks import LockPattern, add_lock, list_locks, remove_lock
from mdv.mdp.replica import Replica
from mdv.mdp.replicated_rules import announce_rules, carry_out_rules
from mdv.mdp.transaction import Transaction, stop_failing_rules
from mdv.mdp.write_limits import WriteLimits
from tests.support.replicas import NewDatabase, ReplicaMdp, Replicas

SCHEMA = ":title a rdf:Property . :tag a rdf:Property ; mdv:setValued true ."
COPY = "RULE copy ON INSERT (_, title, _) IF TRUE DO INSERT ($delta, tag, 'copied')"
MARK = "RULE copy ON INSERT (_, title, _) IF TRUE DO INSERT ($delta, tag, 'marked')"
UNNAMED = "ON INSERT (_, title, _) IF TRUE DO INSERT ($delta, tag, 'unnamed')"
D = "http://d/1"


@pytest.fixture
def pair(new_database: NewDatabase) -> Replicas:
    replicas = Replicas.found(new_database, "ab")
    replicas["a"].announce(SCHEMA)
    replicas.rest()
    return replicas


@contextmanager
def changing(member: ReplicaMdp) -> Iterator[Connection]:
    """A change of rules, as a worker makes it."""
    with member.engine.begin() as connection:
        carry_out_rules(connection, member.provider)
        yield connection
        announce_rules(connection, member.provider)


def add(member: ReplicaMdp, text: str, **given: object) -> int:
    with changing(member) as connection:
        (added,) = add_rules(connection, EcaDraft(text, by="anna", **given), member.provider)  # type: ignore[arg-type]
    return added.id


def rules(member: ReplicaMdp) -> list[StoredEcaRule]:
    with member.engine.connect() as connection:
        return list_eca_rules(connection)


def told(member: ReplicaMdp) -> list[tuple[object, ...]]:
    return sorted((one.name or "", one.text, one.state, one.rule_set, one.by, one.prefixes) for one in rules(member))


def test_a_rule_is_the_same_at_every_member_and_fires_once(pair: Replicas) -> None:
    a, b = pair["a"], pair["b"]
    add(a, COPY, rule_set="own", limits=WriteLimits(resources=("http://d/",)))
    add(a, UNNAMED)
    pair.rest()
    assert told(b) == told(a)
    assert len(told(b)) == 2
    b.put_one(D, f"<{D}#x> :title 'one' .")
    pair.rest()
    assert [member.one("select count(*) from eca_runs") for member in (a, b)] == [0, 1]
    for member in (a, b):
        assert member.one("select count(*) from filter_data where value in ('copied', 'unnamed')") == 2


def test_changes_of_a_rule_reach_the_others(pair: Replicas) -> None:
    a, b = pair["a"], pair["b"]
    number = add(a, COPY)
    other = add(a, UNNAMED)
    pair.rest()
    with changing(b) as connection:
        change_state(connection, "copy", "disabled", "bert", b.provider)
    pair.rest()
    assert [one.state for one in rules(a)] == ["disabled", "active"]
    with changing(a) as connection:
        replace_rule(connection, "copy", EcaDraft(MARK, by="anna"), a.provider)
        remove_rule(connection, str(other), a.provider)
    pair.rest()
    assert [(one.text, one.state) for one in rules(b)] == [(MARK, "disabled")]
    assert [one.id for one in rules(a)] == [number]
    with changing(b) as connection:
        replace_rule(connection, "copy", EcaDraft(MARK.replace("copy", "mark"), by="bert"), b.provider)
    pair.rest()
    assert told(a) == told(b)
    assert [one.name for one in rules(a)] == ["mark"]


def test_the_last_writer_of_a_name_decides(pair: Replicas) -> None:
    """Two members add a rule of the same name at the same time."""
    a, b = pair["a"], pair["b"]
    add(a, COPY)
    add(b, MARK)
    pair.rest()
    assert told(a) == told(b)
    assert [one.text for one in rules(a)] == [MARK]


def test_a_later_change_wins_over_a_removal(pair: Replicas) -> None:
    a, b = pair["a"], pair["b"]
    add(a, COPY)
    pair.rest()
    with changing(a) as connection:
        remove_rule(connection, "copy", a.provider)
    with changing(b) as connection:
        change_state(connection, "copy", "shadow", "bert", b.provider)
    pair.rest()
    assert [one.state for one in rules(a)] == [one.state for one in rules(b)] == ["shadow"]


def test_a_quarantine_concerns_one_member(pair: Replicas) -> None:
    a, b = pair["a"], pair["b"]
    number = add(a, COPY)
    pair.rest()
    with a.engine.begin() as connection:
        tx = Transaction(a.provider, connection)
        tx.lock()
        assert stop_failing_rules(connection, [number], 100, tx.position, a.provider.slow_rules)
    add(a, UNNAMED)
    pair.rest()
    assert [one.state for one in rules(a)] == ["quarantined", "active"]
    assert [one.state for one in rules(b)] == ["active", "active"]


def test_a_rule_that_is_invalid_here_is_tried_again(pair: Replicas) -> None:
    """It arrives before the schema with its property is stored."""
    a, b = pair["a"], pair["b"]
    a.announce(f"{SCHEMA} :more a rdf:Property .")
    add(a, COPY.replace("tag", "more"))
    pair.pull("b", "a")
    assert b.carry_out_rules() == ["eca:name:copy"]
    assert rules(b) == []
    assert b.store_schema() and b.carry_out_rules() == []
    assert told(b) == told(a)


def test_locks_against_programs_are_replicated(pair: Replicas) -> None:
    a, b = pair["a"], pair["b"]
    term = {"type": "literal", "value": "x"}
    with changing(a) as connection:
        add_lock(connection, LockPattern("http://d/", None, "http://v/tag", term), "anna")
        add_lock(connection, LockPattern("http://e/"), "anna")
    pair.rest()
    with b.engine.connect() as connection:
        found = sorted(list_locks(connection, 0, 10), key=lambda lock: lock.pattern[0] or "")
    assert [one.pattern for one in found] == [
        LockPattern("http://d/", None, "http://v/tag", term), LockPattern("http://e/")
    ]  # fmt: skip
    with changing(b) as connection:
        remove_lock(connection, found[1].id)
    pair.rest()
    with a.engine.connect() as connection:
        assert [one.pattern.document_prefix for one in list_locks(connection, 0, 10)] == ["http://d/"]


def test_a_member_that_joins_gets_the_rules_and_brings_its_own(pair: Replicas, new_database: NewDatabase) -> None:
    add(pair["a"], COPY)
    pair.rest()
    late = ReplicaMdp(new_database(), "late")
    late.put_schema(SCHEMA)
    add(late, UNNAMED)
    pair.join(late, "orset")
    with late.engine.begin() as connection:
        announce_rules(connection, late.provider)
    pair.rest()
    assert told(late) == told(pair["a"]) == told(pair["b"])
    assert len(told(late)) == 2


def test_rules_need_no_backbone(new_database: NewDatabase) -> None:
    alone = ReplicaMdp(new_database(), "alone")
    alone.put_schema(SCHEMA)
    add(alone, COPY)
    assert alone.rows("select * from replicated_rules") == []
    with alone.engine.connect() as connection:
        assert Replica(alone.provider).facts(connection) is None
