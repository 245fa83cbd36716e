"""The inbox of operations that logical replication brings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "replica_inbox",
        sa.Column("number", sa.BigInteger(), sa.Identity(), primary_key=True),
        sa.Column("subscription", sa.Text(), nullable=False, comment="the subscription that has brought it"),
        sa.Column("life", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("chain", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        comment="Operations that logical replication has brought, until they are processed.",
    )


def downgrade() -> None:
    op.execute("drop trigger if exists divert_operation on replica_log")
    op.execute("drop function if exists mdv_divert_operation()")
    op.drop_table("replica_inbox")
