"""An index of the jobs that check or repair the backbone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("jobs_checks", "jobs", ["number"], postgresql_where=sa.text("kind in ('verify', 'repair')"))


def downgrade() -> None:
    op.drop_index("jobs_checks", "jobs")
