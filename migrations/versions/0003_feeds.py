"""LMRs, their closures and their feeds."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "doubtful_resources",
        sa.Column("lmr_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("resource_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("lmr_id", "resource_id"),
        comment="What may have lost its last reason to be at an LMR. Empty between transactions.",
        prefixes=["UNLOGGED"],
    )
    op.create_table(
        "feed",
        sa.Column("lmr_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("offset", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("tx", sa.BigInteger(), nullable=False, comment="the position of the transaction that it belongs to"),
        sa.Column("kind", sa.SmallInteger(), nullable=False, comment="0 schema, 1 delete, 2 put, 3 unmatch, 4 match"),
        sa.Column("resource_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("lmr_id", "offset"),
        comment="What each LMR is told. What a resource was at that position, the store knows.",
    )
    op.create_table(
        "lmr_ranges",
        sa.Column("group_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("lmr_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("operator", sa.String(length=12), nullable=False),
        sa.Column("least", sa.Numeric(), nullable=True),
        sa.Column("greatest", sa.Numeric(), nullable=True),
        sa.Column("least_text", sa.Text(collation="C"), nullable=True),
        sa.Column("greatest_text", sa.Text(collation="C"), nullable=True),
        sa.PrimaryKeyConstraint("group_id", "lmr_id"),
        comment="Of rules that match stretches of constants, an LMR's least and greatest constant: no other one counts.",
    )
    op.create_index("lmr_ranges_greatest", "lmr_ranges", ["group_id", "greatest"], unique=False)
    op.create_index("lmr_ranges_least", "lmr_ranges", ["group_id", "least"], unique=False)
    op.create_table(
        "lmr_resources",
        sa.Column("lmr_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("resource_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "reasons",
            sa.Integer(),
            nullable=False,
            comment="how many of the LMR's rules select it (of rules that match stretches of constants: groups)",
        ),
        sa.PrimaryKeyConstraint("lmr_id", "resource_id"),
        comment="What each LMR holds: what its rules select, and what that reaches over strong references, said or unsaid.",
    )
    op.create_index("lmr_resources_resource", "lmr_resources", ["resource_id", "lmr_id"], unique=False)
    op.create_table(
        "lmrs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column(
            "kept_after",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="offset up to which events are not kept: a cursor before it cannot go on",
        ),
        sa.Column("cursor", sa.BigInteger(), nullable=True, comment="the offset that it last asked from"),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True, comment="when that was, to some seconds"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        comment="Local metadata repositories.",
    )
    op.create_table(
        "news",
        sa.Column("lmr_id", sa.BigInteger(), nullable=False),
        sa.Column("resource_id", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False, comment="as in the feed; 0: it entered"),
        comment="What the last publication found.",
        prefixes=["UNLOGGED"],
    )
    op.create_index("news_resource", "news", ["resource_id"], unique=False)
    op.create_table(
        "publications",
        sa.Column("tx", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_offset", sa.BigInteger(), nullable=False),
        sa.Column("lmrs", postgresql.ARRAY(sa.BigInteger()), nullable=False, comment="those that it concerns"),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("tx"),
        comment="The transactions that some LMR was told of.",
    )
    op.create_table(
        "reason_changes",
        sa.Column("lmr_id", sa.BigInteger(), nullable=False),
        sa.Column("resource_id", sa.BigInteger(), nullable=False),
        sa.Column("more", sa.Integer(), nullable=False),
        comment="Reasons that came or went with rules. Empty between transactions.",
        prefixes=["UNLOGGED"],
    )
    op.create_table(
        "snapshots",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("lmr_id", sa.BigInteger(), nullable=False),
        sa.Column("tx", sa.BigInteger(), nullable=False),
        sa.Column("first_offset", sa.BigInteger(), nullable=False, comment="of its first event"),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("whole", sa.Boolean(), nullable=False, comment="false: of some buckets alone"),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        comment="Snapshots that are being fetched, page by page.",
    )
    op.create_index(op.f("ix_snapshots_lmr_id"), "snapshots", ["lmr_id"], unique=False)
    op.create_table(
        "snapshot_events",
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("resource_id", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["snapshot_id"], ["snapshots.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("snapshot_id", "number"),
    )
    op.add_column(
        "filter_data",
        sa.Column(
            "blank",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="the object is a blank node: the reference is strong, whatever the schema says",
        ),
    )
    op.add_column(
        "filter_data_history",
        sa.Column(
            "blank",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="the object is a blank node: the reference is strong, whatever the schema says",
        ),
    )
    op.create_index("filter_data_history_past", "filter_data_history", ["resource_id", "until_position"], unique=False)
    op.add_column(
        "mdp_state",
        sa.Column("last_offset", sa.BigInteger(), server_default=sa.text("0"), nullable=False, comment="of the feeds"),
    )
    op.add_column(
        "mdp_state",
        sa.Column("lmrs", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="how many LMRs there are"),
    )
    op.add_column(
        "mdp_state",
        sa.Column(
            "home",
            sa.Text(),
            nullable=True,
            comment="the database that this is: another one was restored from a backup",
        ),
    )
    op.add_column("rule_ends", sa.Column("owner", sa.BigInteger(), nullable=True, comment="the rule's"))
    op.add_column("tokens", sa.Column("lmr_id", sa.BigInteger(), nullable=True, comment="whose token it is"))
    op.alter_column(
        "tokens",
        "role",
        existing_type=sa.TEXT(),
        comment="admin, viewer or lmr",
        existing_comment="admin or viewer",
        existing_nullable=False,
    )
    op.create_index(op.f("ix_tokens_lmr_id"), "tokens", ["lmr_id"], unique=False)
    op.create_foreign_key(None, "tokens", "lmrs", ["lmr_id"], ["id"], ondelete="CASCADE")

    op.execute("update rule_ends e set owner = r.owner from rules r where r.id = e.rule_id")
    op.alter_column("rule_ends", "owner", nullable=False)
    op.drop_index("rule_ends_end", table_name="rule_ends")
    op.create_index("rule_ends_end", "rule_ends", ["end_id"], postgresql_include=["owner"])
    op.execute("update filter_data f set blank = true from resources r where r.id = f.target_id and r.uri ~ '#_:'")
    op.execute(
        "update filter_data_history f set blank = true from resources r where r.id = f.target_id and r.uri ~ '#_:'"
    )


def downgrade() -> None:
    # An LMR's token would grant read access, and a new LMR with the same ID would own its rules.
    op.execute("delete from tokens where role = 'lmr'")
    op.execute("delete from rule_searches where rule_id in (select id from rules where owner > 0)")
    op.execute("delete from rule_ends where owner > 0")
    op.execute("delete from rules where owner > 0")
    op.drop_index("rule_ends_end", table_name="rule_ends")
    op.create_index("rule_ends_end", "rule_ends", ["end_id"])
    op.drop_index(op.f("ix_tokens_lmr_id"), table_name="tokens")
    op.alter_column(
        "tokens",
        "role",
        existing_type=sa.TEXT(),
        comment="admin or viewer",
        existing_comment="admin, viewer or lmr",
        existing_nullable=False,
    )
    op.drop_column("tokens", "lmr_id")
    op.drop_column("rule_ends", "owner")
    op.drop_column("mdp_state", "home")
    op.drop_column("mdp_state", "lmrs")
    op.drop_column("mdp_state", "last_offset")
    op.drop_index("filter_data_history_past", table_name="filter_data_history")
    op.drop_column("filter_data_history", "blank")
    op.drop_column("filter_data", "blank")
    op.drop_table("snapshot_events")
    op.drop_index(op.f("ix_snapshots_lmr_id"), table_name="snapshots")
    op.drop_table("snapshots")
    op.drop_table("reason_changes")
    op.drop_table("publications")
    op.drop_index("news_resource", table_name="news")
    op.drop_table("news")
    op.drop_table("lmrs")
    op.drop_index("lmr_resources_resource", table_name="lmr_resources")
    op.drop_table("lmr_resources")
    op.drop_index("lmr_ranges_least", table_name="lmr_ranges")
    op.drop_index("lmr_ranges_greatest", table_name="lmr_ranges")
    op.drop_table("lmr_ranges")
    op.drop_table("feed")
    op.drop_table("doubtful_resources")
