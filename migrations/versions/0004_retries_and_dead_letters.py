"""Retries of jobs, dead letters, and jobs that were running when a worker died."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

COMMENTS = {
    "kind": ("register or delete", "what is to be done"),
    "state": (
        "queued, done or failed",
        "queued, done, failed, or dead: failed by no fault of its own, to be looked at",
    ),
    "priority": (None, "0 before all, 7 after all"),
    "body": ("the document; NULL once the job has ended", "the document; NULL once the job is done or failed"),
    "problem": (None, "of the last attempt"),
}

UNKNOWN_KINDS = """
    update jobs set state = 'failed', body = null, ended_at = now(), problem = jsonb_build_object(
        'type', 'urn:mdv:problem:internal', 'title', 'Internal error', 'status', 500,
        'detail', 'The version of MDV that was gone back to does not know this kind of job.')
    where state = 'queued' and kind in ('schema', 'forget')"""
"""The previous version has no handler for these kinds, so the jobs would wait forever."""


def upgrade() -> None:
    op.create_table(
        "begun_jobs",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("times", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
        comment="Jobs that a worker has in hand, or had in hand when it died: how often.",
        prefixes=["UNLOGGED"],
    )
    op.add_column("jobs", sa.Column("request", sa.Text(), comment="the name of the request that it came with"))
    op.add_column(
        "jobs", sa.Column("not_before", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False)
    )
    for column, (_, comment) in COMMENTS.items():
        op.alter_column("jobs", column, comment=comment)
    op.alter_column("jobs", "priority", server_default=sa.text("3"))
    op.execute("update jobs set priority = 3 where state = 'queued'")
    op.create_index(
        "jobs_failed",
        "jobs",
        ["state", "number"],
        unique=False,
        postgresql_where=sa.text("state in ('failed', 'dead')"),
    )
    op.create_index("jobs_number", "jobs", ["number"], unique=True)


def downgrade() -> None:
    op.drop_index("jobs_number", table_name="jobs")
    op.drop_index("jobs_failed", table_name="jobs", postgresql_where=sa.text("state in ('failed', 'dead')"))
    op.execute("update jobs set state = 'failed', body = null where state = 'dead'")
    op.execute("update jobs set priority = 0 where state = 'queued'")
    op.execute(UNKNOWN_KINDS)
    op.alter_column("jobs", "priority", server_default=sa.text("0"))
    for column, (comment, _) in COMMENTS.items():
        op.alter_column("jobs", column, comment=comment)
    op.drop_column("jobs", "not_before")
    op.drop_column("jobs", "request")
    op.drop_table("begun_jobs")
