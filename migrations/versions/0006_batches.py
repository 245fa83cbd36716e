"""Batch runs, staging, and digests of the texts of registered documents."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "batch_runs",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("what", sa.Text(), nullable=False, comment="what it registers, for people"),
        sa.Column("dry_run", sa.Boolean(), nullable=False),
        sa.Column(
            "state",
            sa.String(length=7),
            server_default=sa.text("'running'"),
            nullable=False,
            comment="running, done or failed",
        ),
        sa.Column("documents", sa.BigInteger(), nullable=True, comment="that it has to look at, once they are counted"),
        sa.Column(
            "registered",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="documents promoted that were not registered before",
        ),
        sa.Column(
            "changed",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="documents promoted that say something else now",
        ),
        sa.Column(
            "unchanged",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="documents promoted that say what they said",
        ),
        sa.Column(
            "refused",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="documents that could not be promoted",
        ),
        sa.Column(
            "statements",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="of the documents promoted",
        ),
        sa.Column(
            "transactions", sa.BigInteger(), server_default=sa.text("0"), nullable=False, comment="in which they were"
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("heard_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        comment="Runs of `mdv batch`. One that is not heard of any more has died.",
    )
    op.create_table(
        "document_sources",
        sa.Column("document_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False, comment="of the text"),
        sa.Column("content", sa.LargeBinary(), nullable=False, comment="of what the text says, as in documents"),
        sa.Column("run_id", sa.Uuid(), nullable=False, comment="the last run that registered it"),
        sa.PrimaryKeyConstraint("document_id"),
        comment="The texts from which batches registered documents: who meets one again need not parse it.",
    )
    op.create_table(
        "batch_chunks",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("chunk", sa.Integer(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False, comment="bytes of the texts"),
        sa.Column(
            "body", sa.LargeBinary(), nullable=False, comment="prepared documents, as mdv/batch/pack.py packs them"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["batch_runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "partition", "attempt", "chunk"),
        comment="Staging: documents that are prepared and not yet registered.",
    )
    op.create_table(
        "batch_partitions",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False, comment="the latest, and the only one that counts"),
        sa.Column(
            "chunk",
            sa.Integer(),
            server_default=sa.text("-1"),
            nullable=False,
            comment="the last one that is counted here",
        ),
        sa.Column(
            "prepared",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="documents that were staged or, in a dry run, would be",
        ),
        sa.Column("statements", sa.BigInteger(), server_default=sa.text("0"), nullable=False, comment="of those"),
        sa.Column(
            "fresh",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="in a dry run: of those, the documents that are not registered yet",
        ),
        sa.Column(
            "same",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="in a dry run: of those, the documents that say what is stored",
        ),
        sa.Column(
            "unchanged",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="documents whose very text was registered already",
        ),
        sa.Column("refused", sa.BigInteger(), server_default=sa.text("0"), nullable=False, comment="documents"),
        sa.Column(
            "bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False, comment="of the texts that were read"
        ),
        sa.Column(
            "preparing",
            sa.Float(),
            server_default=sa.text("0"),
            nullable=False,
            comment="seconds from texts to statements",
        ),
        sa.Column(
            "staging", sa.Float(), server_default=sa.text("0"), nullable=False, comment="seconds with the database"
        ),
        sa.Column(
            "waiting",
            sa.Float(),
            server_default=sa.text("0"),
            nullable=False,
            comment="seconds for promotion to catch up",
        ),
        sa.Column(
            "examples", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False, comment="the first refusals"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["batch_runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "partition"),
        comment="The parts of a run that Spark's executors work on, and what each came to.",
    )


def downgrade() -> None:
    op.drop_table("batch_partitions")
    op.drop_table("batch_chunks")
    op.drop_table("document_sources")
    op.drop_table("batch_runs")
