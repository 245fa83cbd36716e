"""LMRs that change their home: where each is at home, and the definitions of all LMRs of the backbone."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def columns() -> list[sa.Column[Any]]:
    """Return the new columns of lmrs."""
    return [
        sa.Column("lasting_id", sa.Text(), comment="its ID at all members of the backbone"),
        sa.Column(
            "term",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("0"),
            comment="the number of its last adoption",
        ),
        sa.Column("home", sa.Text(), comment="the member where it is at home, which alone filters for it; NULL: here"),
        sa.Column(
            "announced",
            sa.Boolean(),
            nullable=False,
            server_default=sa.text("false"),
            comment="the other members know its name and its tokens",
        ),
    ]


def upgrade() -> None:
    for column in columns():
        op.add_column("lmrs", column)
    op.create_unique_constraint("lmrs_lasting_id_key", "lmrs", ["lasting_id"])
    op.create_table(
        "lmr_registers",
        sa.Column("key", sa.Text(collation="C"), primary_key=True, comment="an LMR, or an LMR and a rule"),
        sa.Column(
            "at", sa.BigInteger(), nullable=False, comment="for a rule: hybrid time; for an LMR: by adoption and change"
        ),
        sa.Column("life", sa.Text(), nullable=False),
        sa.Column("value", postgresql.JSONB(), comment="NULL: removed"),
        comment="The LMRs of all members of the backbone, and their rules. The last writer decides.",
    )
    op.create_table(
        "lmr_rules",
        sa.Column("lmr_id", sa.BigInteger(), sa.ForeignKey("lmrs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("rule_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("lasting_id", sa.BigInteger(), nullable=False, comment="its ID at all members"),
        sa.UniqueConstraint("lmr_id", "lasting_id", name="lmr_rules_lasting"),
        comment="The IDs that rules of LMRs keep when the LMR changes its home. Those of removed rules remain.",
    )


def downgrade() -> None:
    op.drop_table("lmr_rules")
    op.drop_table("lmr_registers")
    op.execute("delete from lmrs where home is not null")
    op.drop_constraint("lmrs_lasting_id_key", "lmrs")
    for column in columns():
        op.drop_column("lmrs", column.name)
