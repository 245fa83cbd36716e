"""Limits of event-condition-action rules: documents and resources are limited separately."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0022"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "eca_rules",
        sa.Column(
            "document_prefixes",
            postgresql.ARRAY(sa.Text()),
            nullable=True,
            comment="URI prefixes of the documents that its actions may write; NULL: no limit",
        ),
    )
    op.alter_column(
        "eca_rules",
        "prefixes",
        comment="URI prefixes of the resources that its actions may describe; NULL: no limit",
        existing_comment="URI prefixes that its actions are limited to; NULL: no limit",
    )


def downgrade() -> None:
    op.alter_column(
        "eca_rules",
        "prefixes",
        comment="URI prefixes that its actions are limited to; NULL: no limit",
        existing_comment="URI prefixes of the resources that its actions may describe; NULL: no limit",
    )
    op.drop_column("eca_rules", "document_prefixes")
