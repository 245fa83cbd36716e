"""Tokens: expiry, time of last use, and who created them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.add_column("tokens", sa.Column("expires_at", moment, comment="NULL: never"))
    op.add_column("tokens", sa.Column("used_at", moment, comment="last use, exact to a minute"))
    op.add_column("tokens", sa.Column("created_by", sa.Text(), comment="the caller who created it"))


def downgrade() -> None:
    # A downgraded system does not check the expiry.
    op.execute("update tokens set revoked_at = now() where expires_at <= now() and revoked_at is null")
    for column in ("created_by", "used_at", "expires_at"):
        op.drop_column("tokens", column)
