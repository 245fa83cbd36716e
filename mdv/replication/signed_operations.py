"""Operations are signed by their origin, so that a member that relays them cannot change or invent one."""

from __future__ import annotations

from mdv.backbone.membership import MemberTable
from mdv.backbone.operation import LIFE, LogRow, Operation
from mdv.replication.keys import verify_operation


def is_signed_by_origin(table: MemberTable, row: LogRow, operation: Operation) -> bool:
    """True if the member that the life of an operation belongs to has signed it, and the row is that of the operation.

    The first operation of a new life names its member. An operation of a life that no member is known to have is
    dropped, and asked for again.
    """
    if (operation.life, operation.seq) != (row.life, row.seq):
        return False
    owner = table.owner_of(row.life)
    if operation.kind == LIFE:
        named = (operation.data or {}).get("member")
        if owner is None and row.seq == 1 and (operation.data or {}).get("life") == row.life:
            owner = named
        elif named != owner:
            return False
    member = table.members.get(owner) if owner is not None else None
    return member is not None and verify_operation(member.key, row.life, row.seq, row.chain, row.signature)
