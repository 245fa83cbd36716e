"""Webhooks and their messages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "webhooks",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("lmr_id", sa.BigInteger(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False, comment="needed to sign, and so kept as it is"),
        sa.Column("old_secret", sa.Text(), comment="of before the last rotation: signs, too, for a while"),
        sa.Column("old_secret_until", moment),
        sa.Column(
            "state", sa.String(length=6), server_default=sa.text("'active'"), nullable=False, comment="active or paused"
        ),
        sa.Column("reason", sa.Text(), comment="why it is paused"),
        sa.Column("told_offset", sa.BigInteger(), nullable=False, comment="up to which the receiver was told"),
        sa.Column(
            "made_offset", sa.BigInteger(), nullable=False, comment="up to which messages were made, also if they died"
        ),
        sa.Column(
            "failures",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="since anything was delivered",
        ),
        sa.Column("failing_since", moment, comment="when the first of them was"),
        sa.Column(
            "dead", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="messages that died since then"
        ),
        sa.Column("created_at", moment, server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["lmr_id"], ["lmrs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        comment="Addresses that are told when an LMR's feed goes on.",
    )
    op.create_index("ix_webhooks_lmr_id", "webhooks", ["lmr_id"], unique=False)
    op.create_index("webhooks_active", "webhooks", ["id"], unique=False, postgresql_where=sa.text("state = 'active'"))
    op.create_table(
        "webhook_deliveries",
        sa.Column(
            "id",
            sa.Uuid(),
            server_default=sa.text("gen_random_uuid()"),
            nullable=False,
            comment="the message's webhook-id",
        ),
        sa.Column(
            "number", sa.BigInteger(), sa.Identity(), nullable=False, comment="the order in which they were made"
        ),
        sa.Column("webhook_id", sa.BigInteger(), nullable=False),
        sa.Column(
            "offset", sa.BigInteger(), nullable=False, comment="what it tells: there is something new up to here"
        ),
        sa.Column("position", sa.BigInteger(), nullable=False, comment="of the transaction that this is part of"),
        sa.Column(
            "state",
            sa.String(length=9),
            server_default=sa.text("'waiting'"),
            nullable=False,
            comment="waiting, delivered or dead",
        ),
        sa.Column("attempts", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "not_before",
            moment,
            nullable=False,
            comment="of the next attempt; of one that is being made, when it is given up for lost",
        ),
        sa.Column("status", sa.SmallInteger(), comment="what the receiver answered last"),
        sa.Column("reason", sa.Text(), comment="why that was no success"),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("tried_at", moment, comment="when the last attempt began"),
        sa.Column("ended_at", moment),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        comment="Messages to receivers: for each webhook at most one that waits, and those that ended lately.",
    )
    waiting = sa.text("state = 'waiting'")
    op.create_index(
        "webhook_deliveries_one", "webhook_deliveries", ["webhook_id"], unique=True, postgresql_where=waiting
    )
    op.create_index(
        "webhook_deliveries_due", "webhook_deliveries", ["not_before"], unique=False, postgresql_where=waiting
    )
    op.create_index("webhook_deliveries_number", "webhook_deliveries", ["webhook_id", "number"], unique=False)
    op.create_index(
        "webhook_deliveries_ended",
        "webhook_deliveries",
        ["ended_at"],
        unique=False,
        postgresql_where=sa.text("ended_at is not null"),
    )


def downgrade() -> None:
    op.drop_table("webhook_deliveries")
    op.drop_table("webhooks")
