"""The backbone: the log of operations, and the replicated state of documents and statements."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def columns() -> dict[str, list[sa.Column[Any]]]:
    """Return the new columns by table."""
    return {
        "mdp_state": [
            sa.Column(
                "replica",
                postgresql.JSONB(),
                comment="what a change needs to know of the backbone; NULL: the MDP is in none",
            ),
            sa.Column(
                "marks",
                sa.BigInteger(),
                nullable=False,
                server_default=sa.text("0"),
                comment="number of rows of statement_marks",
            ),
        ],
        "documents": [
            sa.Column(
                "digest", sa.BigInteger(), comment="sum of the hashes of its statements; NULL without a backbone"
            ),
            sa.Column("statements", sa.Integer(), comment="their number; NULL without a backbone"),
            sa.Column(
                "replica",
                postgresql.JSONB(),
                comment="its last operations, as far as they are not stable; NULL without a backbone",
            ),
        ],
        "document_versions": [
            sa.Column("origin_life", sa.Text(), comment="the life whose operation it is; NULL without a backbone"),
            sa.Column("origin_seq", sa.BigInteger(), comment="the number of this operation"),
            sa.Column(
                "digest", sa.BigInteger(), comment="sum of the hashes of its statements; NULL without a backbone"
            ),
        ],
    }


def upgrade() -> None:
    for table, added in columns().items():
        for column in added:
            op.add_column(table, column)
    op.create_index("documents_merged", "documents", ["uri"], postgresql_where=sa.text("replica ? 'merged_at'"))
    op.create_table(
        "backbone",
        sa.Column(
            "one",
            sa.Boolean(),
            primary_key=True,
            server_default=sa.text("true"),
            comment="there is one row at most",
        ),
        sa.Column("name", sa.Text(), nullable=False, comment="of this member"),
        sa.Column("url", sa.Text(), nullable=False, comment="where the other members find it"),
        sa.Column("mode", sa.Text(), nullable=False, comment="orset or cset"),
        sa.Column(
            "private_key",
            sa.LargeBinary(),
            comment="Ed25519 key that signs the operations and requests of this member",
        ),
        sa.Column(
            "facts",
            postgresql.JSONB(),
            nullable=False,
            comment="members, reports, chains, …; see mdv/backbone/facts_json.py",
        ),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        comment="What this MDP knows about its backbone. What every change needs is in mdp_state.",
    )
    op.create_table(
        "replica_log",
        sa.Column("life", sa.Text(), primary_key=True),
        sa.Column("seq", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column(
            "number",
            sa.BigInteger(),
            sa.Identity(),
            nullable=False,
            comment="the order in which operations were applied",
        ),
        sa.Column("chain", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False, comment="a line of JSON, compressed"),
        sa.Column("signature", sa.LargeBinary(), nullable=False, comment="of its origin"),
        comment="The operations of all members, until they are stable.",
    )
    op.create_table(
        "replica_drafts",
        sa.Column("number", sa.BigInteger(), sa.Identity(), primary_key=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        comment="Changes in a new life, until the state was transferred.",
    )
    op.create_table(
        "statement_marks",
        sa.Column("document_id", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.BigInteger(), nullable=False),
        sa.Column("statement", sa.Text(), nullable=False, comment="[subject, property, object] as JSON"),
        sa.Column(
            "state",
            postgresql.JSONB(),
            nullable=False,
            comment="a counter, or the operations that inserted it: [[life, seq], …]",
        ),
        comment="The statements whose replicated state does not follow from their row.",
    )
    op.create_index("statement_marks_statement", "statement_marks", ["document_id", "hash"])
    # The bodies are compressed already.
    op.execute("alter table replica_log alter column body set storage external")


def downgrade() -> None:
    for table in ("statement_marks", "replica_drafts", "replica_log", "backbone"):
        op.drop_table(table)
    op.drop_index("documents_merged", "documents")
    for table, added in columns().items():
        for column in added:
            op.drop_column(table, column.name)
