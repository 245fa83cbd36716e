"""Rules and locks of the backbone, and what a schema that no member can refuse leaves behind."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

SUSPENDED = "Rules that the filter does not evaluate because they took too long"


def upgrade() -> None:
    op.create_table(
        "replicated_rules",
        sa.Column(
            "key",
            sa.Text(collation="C"),
            primary_key=True,
            comment="eca:… is an event-condition-action rule, lock:… a lock",
        ),
        sa.Column("at", sa.BigInteger(), nullable=False, comment="hybrid time of its last change, in microseconds"),
        sa.Column("life", sa.Text(), nullable=False, comment="the life that made the change"),
        sa.Column("value", postgresql.JSONB(), comment="NULL: it was removed"),
        sa.Column("local_id", sa.BigInteger(), comment="the ID of the rule or lock here; NULL: there is none"),
        sa.Column("is_new", sa.Boolean(), nullable=False, comment="it is not carried out here yet"),
        comment="Rules and locks of the backbone: the last writer decides.",
    )
    op.create_index("replicated_rules_new", "replicated_rules", ["key"], postgresql_where=sa.text("is_new"))
    op.create_table(
        "refused_documents",
        sa.Column("document_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        comment="Documents that may have statements which the schema of the backbone refuses.",
    )
    op.add_column(
        "suspended_rules",
        sa.Column(
            "broken",
            sa.Boolean(),
            nullable=False,
            server_default=sa.text("false"),
            comment="it is invalid under the schema; it is resumed when it is valid again",
        ),
    )
    op.add_column(
        "eca_rules",
        sa.Column(
            "broken_state",
            sa.String(11),
            comment="its state before a schema made it invalid; it returns to it when it is valid again",
        ),
    )
    _comment(f"{SUSPENDED}, or are invalid. They are not in the rule graph.")


def downgrade() -> None:
    _comment(f"{SUSPENDED}. They are not in the rule graph.")
    op.drop_column("eca_rules", "broken_state")
    op.drop_column("suspended_rules", "broken")
    op.drop_table("refused_documents")
    op.drop_index("replicated_rules_new", "replicated_rules")
    op.drop_table("replicated_rules")


def _comment(text: str) -> None:
    op.create_table_comment("suspended_rules", text)
