"""Operations are signed by their origin: a member that relays them can neither change nor invent one."""

from __future__ import annotations

from mdv.backbone.membership import MemberLives, MemberTable
from mdv.backbone.operation import (
    DOCUMENTS,
    FIRST_CHAIN,
    LIFE,
    LogRow,
    Operation,
    decode_operation,
    encode_operation,
    next_chain,
)
from mdv.replication.keys import make_private_key, public_key, sign_operation
from mdv.replication.signed_operations import is_signed_by_origin

KEYS = {name: make_private_key() for name in ("m1", "m2")}
TABLE = MemberTable({name: MemberLives({f"{name}.1"}, key=public_key(key)) for name, key in KEYS.items()})


def row_of(operation: Operation, signer: str, before: bytes = FIRST_CHAIN) -> LogRow:
    body = encode_operation(operation)
    chain = next_chain(before, body)
    return LogRow(
        operation.life, operation.seq, chain, body, sign_operation(KEYS[signer], operation.life, operation.seq, chain)
    )


def is_accepted(row: LogRow) -> bool:
    return is_signed_by_origin(TABLE, row, decode_operation(row.body))


def test_an_operation_of_its_origin_is_accepted() -> None:
    assert is_accepted(row_of(Operation("m1.1", 1, {}, 17, DOCUMENTS), "m1"))


def test_a_relay_cannot_make_or_change_operations_of_others() -> None:
    operation = Operation("m1.1", 1, {}, 17, DOCUMENTS)
    row = row_of(operation, "m1")
    assert not is_accepted(row_of(operation, "m2"))
    later = row_of(operation._replace(at=18), "m2")
    assert not is_accepted(later._replace(signature=row.signature))
    assert not is_accepted(row._replace(seq=2))
    assert not is_accepted(row._replace(life="m2.1"))
    assert not is_accepted(row._replace(signature=b""))
    other = encode_operation(operation._replace(seq=2))
    assert not is_accepted(row._replace(body=other))


def test_a_new_life_is_signed_by_its_member() -> None:
    begin = Operation("m1.2", 1, {}, 17, LIFE, data={"member": "m1", "life": "m1.2", "after": ["m1.1"]})
    assert is_accepted(row_of(begin, "m1"))
    assert not is_accepted(row_of(begin, "m2"))
    assert not is_accepted(row_of(begin._replace(seq=2), "m1"))
    stranger = begin._replace(data={"member": "m3", "life": "m1.2", "after": []})
    assert not is_accepted(row_of(stranger, "m1"))


def test_a_member_cannot_begin_or_end_lives_of_another() -> None:
    taken = Operation("m2.1", 1, {}, 17, LIFE, data={"member": "m1", "life": "m2.1", "after": ["m1.1"]})
    assert not is_accepted(row_of(taken, "m2"))


def test_operations_of_an_unknown_life_are_dropped() -> None:
    assert not is_accepted(row_of(Operation("m9.1", 1, {}, 17, DOCUMENTS), "m1"))
