"""Saved queries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "saved_queries",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("text", sa.Text(), nullable=False, comment="as it was written"),
        sa.Column("saved_by", sa.Text(), nullable=False, comment="who wrote it last"),
        sa.Column("saved_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        comment="Queries that people keep under a name.",
    )


def downgrade() -> None:
    op.drop_table("saved_queries")
