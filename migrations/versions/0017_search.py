"""The search index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

TABLES = ("search_texts", "search_pending", "search_state")


def upgrade() -> None:
    op.create_table(
        "search_state",
        sa.Column("one", sa.Boolean(), server_default=sa.text("true"), nullable=False, comment="there is one row"),
        sa.Column(
            "position",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="changes up to here are indexed, or in search_pending",
        ),
        sa.Column(
            "label_properties",
            postgresql.JSONB(),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
            comment="the label properties when resources were indexed",
        ),
        sa.PrimaryKeyConstraint("one"),
        comment="How far the search index is up to date.",
    )
    op.create_table(
        "search_pending",
        sa.Column("resource_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("resource_id"),
        comment="Changed resources that are not indexed yet.",
    )
    op.create_table(
        "search_texts",
        sa.Column("resource_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "words",
            postgresql.TSVECTOR(),
            nullable=False,
            comment="words of the URI and the literals; with =, words of labels; with @, IDs of classes",
        ),
        sa.PrimaryKeyConstraint("resource_id"),
        comment="The search index. It is updated after registrations, not by them.",
    )
    op.create_index("search_texts_words", "search_texts", ["words"], postgresql_using="gin")
    op.execute("insert into search_state default values")


def downgrade() -> None:
    for table in TABLES:
        op.drop_table(table)
