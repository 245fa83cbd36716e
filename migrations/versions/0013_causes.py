"""Causes and callers: why each version of a document exists, and who changed documents, rules, LMRs and the schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

TABLES = ("document_versions", "rules", "lmrs", "schema_versions")
CHANGED_BY = "the caller: a user, a token, an LMR, a batch; NULL: not recorded"


def upgrade() -> None:
    op.add_column(
        "document_versions",
        sa.Column(
            "cause",
            sa.Text(),
            server_default=sa.text("'registration'"),
            nullable=False,
            comment="a name of mdv.cause.CAUSE_KINDS",
        ),
    )
    op.add_column(
        "document_versions",
        sa.Column("agent", sa.Text(), comment="the rule, process or provider that made the change"),
    )
    for table in TABLES:
        op.add_column(table, sa.Column("changed_by", sa.Text(), comment=CHANGED_BY))


def downgrade() -> None:
    for table in TABLES:
        op.drop_column(table, "changed_by")
    op.drop_column("document_versions", "agent")
    op.drop_column("document_versions", "cause")
