"""An index for the turns of processes that were not spawned.

A process that spawns others without an end must not delay them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "real_processes_started",
        "real_processes",
        ["priority", "ready_at"],
        postgresql_where=sa.text("state = 'ready' and parent is null"),
    )


def downgrade() -> None:
    op.drop_index("real_processes_started", table_name="real_processes")
