"""Suspended rules."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

KINDS = "0 schema, 1 delete, 2 put, 3 unmatch, 4 match"


def upgrade() -> None:
    op.create_table(
        "suspended_rules",
        sa.Column("rule_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.BigInteger(), nullable=False, comment="the rule's"),
        sa.Column("position", sa.BigInteger(), nullable=False, comment="of the transaction that suspended it"),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True, comment="the time limit that it exceeded"),
        sa.Column(
            "pending",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="it is being added: its matches are published in several transactions",
        ),
        sa.Column(
            "counted_after",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="of its matches, those with greater numbers count",
        ),
        sa.Column(
            "counted_up_to", sa.BigInteger(), nullable=True, comment="and those with no greater numbers; NULL: all"
        ),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["rule_id"], ["rules.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("rule_id"),
        comment="Rules that the filter does not evaluate, since they took too long. They have no part in the graph.",
    )
    op.create_index("suspended_rules_owner", "suspended_rules", ["owner"])
    op.create_table(
        "suspended_ends",
        sa.Column("rule_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("end_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.BigInteger(), nullable=False, comment="the rule's"),
        sa.Column(
            "as_of", sa.BigInteger(), nullable=False, comment="the position whose matches still count for the owner"
        ),
        sa.Column(
            "unit", sa.BigInteger(), nullable=False, comment="of ranged ends: those of one unit are counted together"
        ),
        sa.Column("ranged", sa.Boolean(), nullable=False, comment="whether its rules match stretches of constants"),
        sa.Column("pattern", postgresql.JSONB(), nullable=False, comment="of its whole group"),
        sa.Column(
            "constants",
            postgresql.JSONB(),
            nullable=False,
            comment='in the order of the pattern: {"number": …} or {"text": …}',
        ),
        sa.ForeignKeyConstraint(["rule_id"], ["suspended_rules.rule_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("rule_id", "end_id"),
        comment="What the matches of suspended rules can be computed from: they stay as they were at `as_of`.",
    )
    op.create_index("suspended_ends_unit", "suspended_ends", ["owner", "unit", "as_of"])
    op.create_table(
        "rule_notices",
        sa.Column("rule_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "kind",
            sa.SmallInteger(),
            autoincrement=False,
            nullable=False,
            comment="as in the feed: 5 suspended, 6 resumed",
        ),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("rule_id", "position", "kind"),
        comment="Why rules were suspended and resumed: the text of these events in feeds.",
    )
    op.alter_column("feed", "kind", existing_type=sa.SmallInteger(), existing_nullable=False,
                    comment=f"{KINDS}, 5 suspended, 6 resumed", existing_comment=KINDS)  # fmt: skip
    op.alter_column("feed", "resource_id", existing_type=sa.BigInteger(), existing_nullable=True,
                    comment="of 5 and 6, the number of the rule", existing_comment=None)  # fmt: skip


def downgrade() -> None:
    """Delete notices from the feeds. Suspended rules must be resumed or removed before."""
    op.execute("delete from feed where kind in (5, 6)")
    op.execute("delete from snapshots s using snapshot_events e where e.snapshot_id = s.id and e.kind in (5, 6)")
    op.alter_column("feed", "resource_id", existing_type=sa.BigInteger(), existing_nullable=True, comment=None)
    op.alter_column("feed", "kind", existing_type=sa.SmallInteger(), existing_nullable=False, comment=KINDS)
    op.drop_table("rule_notices")
    op.drop_table("suspended_ends")
    op.drop_table("suspended_rules")
