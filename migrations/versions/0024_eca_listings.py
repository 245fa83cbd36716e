"""Listings of event-condition-action rules: changes by document, and runs by every rule that took part in them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0024"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("eca_changes_document", "eca_changes", ["document", "id"])
    op.add_column(
        "eca_runs",
        sa.Column(
            "rules",
            postgresql.ARRAY(sa.BigInteger()),
            nullable=False,
            server_default=sa.text("'{}'"),
            comment="the rules that fired or failed in it",
        ),
    )
    op.execute(
        """
        update eca_runs u set rules = array(
            select distinct (one->>'rule')::bigint
            from jsonb_array_elements((u.trace->'fired') || (u.trace->'failed')) one where one->>'rule' is not null
            union select c.rule_id from eca_changes c
            where c.run_id = u.id and c.rule_id is not null and u.cause <> 'compensation')
        """
    )
    op.create_index("eca_runs_rules", "eca_runs", ["rules"], postgresql_using="gin")


def downgrade() -> None:
    op.drop_index("eca_runs_rules", "eca_runs")
    op.drop_column("eca_runs", "rules")
    op.drop_index("eca_changes_document", "eca_changes")
