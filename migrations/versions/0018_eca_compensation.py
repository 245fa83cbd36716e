"""Event-condition-action rules: the copies of a run, detached runs, and compensation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0018"
down_revision = "0020"
branch_labels = None
depends_on = None

COLUMNS = ("copies", "compensated", "parent_run", "parent_copy", "origin")


CAUSES_BEFORE = "registration, update or compensation"
CAUSES = "registration, update, detached or compensation"


def upgrade() -> None:
    op.alter_column(
        "eca_runs", "cause", existing_type=sa.Text(), existing_nullable=False, comment=CAUSES,
        existing_comment=CAUSES_BEFORE,
    )  # fmt: skip
    op.add_column(
        "eca_changes",
        sa.Column("copy", sa.Integer(), comment="number of the copy in the run; NULL: the transaction itself"),
    )
    op.add_column(
        "eca_changes",
        sa.Column(
            "change", sa.Integer(), comment="number of the change in the update; equal for both parts of an UPDATE"
        ),
    )
    op.add_column(
        "eca_runs",
        sa.Column(
            "copies",
            JSONB(),
            nullable=False,
            server_default=sa.text("'[]'"),
            comment="the copies that fired, in order: number of the parent, rule, its name, ABORT, and state",
        ),
    )
    op.add_column(
        "eca_runs",
        sa.Column(
            "compensated",
            ARRAY(sa.Integer()),
            nullable=False,
            server_default=sa.text("'{}'"),
            comment="numbers of the copies that were compensated; -1: the transaction itself",
        ),
    )
    op.add_column("eca_runs", sa.Column("parent_run", sa.BigInteger(), comment="the run that a detached copy is of"))
    op.add_column("eca_runs", sa.Column("parent_copy", sa.Integer(), comment="the number of the detached copy there"))
    op.add_column(
        "eca_runs",
        sa.Column("origin", sa.BigInteger(), comment="the run that the first of a chain of detached copies is of"),
    )
    op.create_index("eca_runs_parent", "eca_runs", ["parent_run"])
    op.create_index("eca_runs_origin", "eca_runs", ["origin"])


def downgrade() -> None:
    op.alter_column(
        "eca_runs", "cause", existing_type=sa.Text(), existing_nullable=False, comment=CAUSES_BEFORE,
        existing_comment=CAUSES,
    )  # fmt: skip
    op.drop_index("eca_runs_origin", "eca_runs")
    op.drop_index("eca_runs_parent", "eca_runs")
    for name in COLUMNS:
        op.drop_column("eca_runs", name)
    op.drop_column("eca_changes", "change")
    op.drop_column("eca_changes", "copy")
