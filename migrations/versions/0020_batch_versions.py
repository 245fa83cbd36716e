"""An index of the versions that a batch registered."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "document_versions_batch",
        "document_versions",
        ["changed_by", "document_id"],
        postgresql_where=sa.text("changed_by like 'batch %'"),
    )


def downgrade() -> None:
    op.drop_index("document_versions_batch", "document_versions")
