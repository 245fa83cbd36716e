"""IDs of event-condition-action rules: the highest that was given, so that none is used again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "mdp_state",
        sa.Column(
            "last_eca_rule",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("0"),
            comment="the highest ID that an ECA rule has had",
        ),
    )
    op.execute(
        """
        update mdp_state set last_eca_rule = greatest(
            (select max(id) from eca_rules), (select max(rule_id) from eca_changes),
            (select max(one) from eca_runs, unnest(rules) one), 0)
        """
    )


def downgrade() -> None:
    op.drop_column("mdp_state", "last_eca_rule")
