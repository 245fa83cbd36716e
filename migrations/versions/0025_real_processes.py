"""Processes of programs in the resource action language, and locks against programs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

CODE_POINTS = sa.Text(collation="C")
CHANGED_BY = "the caller: a user, a token, an LMR, a batch; NULL: not recorded"
TABLES = ("real_processes", "real_states", "real_waits", "real_solutions", "real_log", "real_calls", "write_locks")


def upgrade() -> None:
    op.add_column(
        "mdp_state",
        sa.Column(
            "watched",
            ARRAY(sa.Integer()),
            nullable=False,
            server_default=sa.text("'{}'"),
            comment="IDs of the properties that processes wait for; 0: any property",
        ),
    )
    op.create_table(
        "real_processes",
        sa.Column("id", sa.BigInteger(), sa.Identity(), primary_key=True),
        sa.Column("iri", CODE_POINTS, nullable=False, unique=True, comment="also the URI of its activity document"),
        sa.Column("root", sa.BigInteger(), nullable=False, comment="the process that it descends from, or itself"),
        sa.Column("parent", sa.BigInteger(), comment="the process that spawned it"),
        sa.Column("action", sa.Text(), comment="the action that SPAWN started"),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("prefixes", JSONB(), nullable=False, comment="for names of the code, beside those of the schema"),
        sa.Column("binding", sa.JSON(), nullable=False, comment="the variables that it begins with"),
        sa.Column("into_document", CODE_POINTS, nullable=False, comment="where its default context writes"),
        sa.Column("settings", JSONB(), nullable=False, comment="those of its machine: seed and limits"),
        sa.Column(
            "permissions", JSONB(), nullable=False, comment="URI prefixes of the caller when the first process started"
        ),
        sa.Column("caller", sa.Text(), nullable=False, comment="the token or user that started the first process"),
        sa.Column(
            "token_id", sa.Integer(), comment="the token of the caller; NULL: a user, or the token of the settings"
        ),
        sa.Column(
            "state",
            sa.String(7),
            nullable=False,
            server_default=sa.text("'ready'"),
            comment="ready, waiting, calling, full, done, failed or stopped",
        ),
        sa.Column(
            "priority", sa.SmallInteger(), nullable=False, server_default=sa.text("3"), comment="0 most urgent, 7 least"
        ),
        sa.Column(
            "is_followed",
            sa.Boolean(),
            nullable=False,
            server_default=sa.text("false"),
            comment="a request reads its solutions; it is stopped if that ends",
        ),
        sa.Column(
            "keeps_solutions",
            sa.Boolean(),
            nullable=False,
            server_default=sa.text("true"),
            comment="false: its solutions are counted, but not stored",
        ),
        sa.Column(
            "is_taker",
            sa.Boolean(),
            nullable=False,
            server_default=sa.text("false"),
            comment="it was woken for one new statement, which another may take if it ends",
        ),
        sa.Column("solution_limit", sa.BigInteger(), comment="it ends after this many solutions"),
        sa.Column(
            "position", sa.BigInteger(), nullable=False, server_default=sa.text("0"), comment="of its last slice"
        ),
        sa.Column("wait_deadline", sa.DateTime(timezone=True), comment="when the WAIT it is in ends"),
        sa.Column("awaits", JSONB(), comment="what it waits for, as written in its program"),
        sa.Column(
            "ready_at",
            sa.DateTime(timezone=True),
            nullable=False,
            server_default=sa.func.now(),
            comment="its turn among the ready ones: when it became ready, later for a lower priority",
        ),
        sa.Column("wake_at", sa.DateTime(timezone=True), comment="when it becomes ready by itself"),
        sa.Column("ran_at", sa.DateTime(timezone=True), comment="end of its last slice"),
        sa.Column("read_at", sa.DateTime(timezone=True), comment="when a request last asked for its solutions"),
        sa.Column("steps", sa.BigInteger(), nullable=False, server_default=sa.text("0"), comment="of its machine"),
        sa.Column("effects", sa.BigInteger(), nullable=False, server_default=sa.text("0"), comment="of its machine"),
        sa.Column(
            "added", sa.BigInteger(), nullable=False, server_default=sa.text("0"), comment="statements that it added"
        ),
        sa.Column(
            "removed",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("0"),
            comment="statements that it removed",
        ),
        sa.Column("solutions", sa.BigInteger(), nullable=False, server_default=sa.text("0"), comment="that it found"),
        sa.Column(
            "read_solutions", sa.BigInteger(), nullable=False, server_default=sa.text("0"), comment="that were read"
        ),
        sa.Column(
            "slices", sa.BigInteger(), nullable=False, server_default=sa.text("0"), comment="that were committed"
        ),
        sa.Column(
            "conflicts",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("0"),
            comment="slices that were run again",
        ),
        sa.Column(
            "failures", sa.BigInteger(), nullable=False, server_default=sa.text("0"), comment="internal errors in a row"
        ),
        sa.Column("seconds", sa.Float(), nullable=False, server_default=sa.text("0"), comment="of CPU"),
        sa.Column("problem", JSONB(), comment="why it failed or was stopped"),
        sa.Column("stop_asked", sa.Boolean(), nullable=False, server_default=sa.text("false")),
        sa.Column("message", sa.JSON(), comment="of STOP"),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Index("real_processes_ready", "ready_at", postgresql_where=sa.text("state = 'ready'")),
        sa.Index("real_processes_wake", "wake_at", postgresql_where=sa.text("wake_at is not null")),
        sa.Index("real_processes_parent", "parent"),
        sa.Index("real_processes_root", "root", postgresql_where=sa.text("ended_at is null")),
        sa.Index("real_processes_caller", "caller", postgresql_where=sa.text("ended_at is null")),
        sa.Index("real_processes_ended", "ended_at", postgresql_where=sa.text("ended_at is not null")),
        comment="Processes: programs in the mode run.",
    )
    op.create_table(
        "real_states",
        sa.Column(
            "process_id", sa.BigInteger(), sa.ForeignKey("real_processes.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("version", sa.BigInteger(), nullable=False, comment="the number of slices"),
        sa.Column(
            "checkpoint", sa.JSON(), nullable=False, comment="the state of the machine, by mdv/real/checkpoint.py"
        ),
        comment="What processes that have not ended go on with. A process without a row has not begun.",
    )
    op.create_table(
        "real_waits",
        sa.Column(
            "key", sa.BigInteger(), primary_key=True, autoincrement=False, comment="hash of what a change must be"
        ),
        sa.Column(
            "process_id",
            sa.BigInteger(),
            sa.ForeignKey("real_processes.id", ondelete="CASCADE"),
            primary_key=True,
            index=True,
        ),
        sa.Column("read", sa.JSON(), nullable=False, comment="the pattern and the documents that the key stands for"),
        sa.Column("property_id", sa.Integer(), nullable=False, index=True, comment="0: any property"),
        sa.Column(
            "takes", sa.Boolean(), nullable=False, comment="it takes what it waits for: one is woken for each statement"
        ),
        sa.Column(
            "since", sa.BigInteger(), nullable=False, comment="when it began to wait, in microseconds since 1970"
        ),
        sa.Index("real_waits_takers", "key", "since", "process_id", postgresql_where=sa.text("takes")),
        comment="What waiting processes wait for.",
    )
    op.create_table(
        "real_solutions",
        sa.Column(
            "process_id", sa.BigInteger(), sa.ForeignKey("real_processes.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False, comment="from 1 on"),
        sa.Column("binding", sa.JSON(), nullable=False),
        comment="Solutions of processes, until the process is deleted.",
    )
    op.create_table(
        "real_log",
        sa.Column("id", sa.BigInteger(), sa.Identity(), primary_key=True),
        sa.Column(
            "process_id", sa.BigInteger(), sa.ForeignKey("real_processes.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("after_solution", sa.BigInteger(), nullable=False, comment="the number of solutions before it"),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("kind", sa.String(8), nullable=False, comment="log, warning, effect, commit, call, start or end"),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Index("real_log_process", "process_id", "id"),
        comment="What processes did and logged.",
    )
    op.create_table(
        "real_calls",
        sa.Column(
            "id",
            sa.Uuid(),
            primary_key=True,
            server_default=sa.text("gen_random_uuid()"),
            comment="its Idempotency-Key",
        ),
        sa.Column("number", sa.BigInteger(), sa.Identity(), nullable=False, comment="order of creation"),
        sa.Column(
            "process_id",
            sa.BigInteger(),
            sa.ForeignKey("real_processes.id", ondelete="CASCADE"),
            nullable=False,
            index=True,
        ),
        sa.Column("request", CODE_POINTS, nullable=False, comment="the URI of the service request"),
        sa.Column("service", sa.Text(), comment="the URI of the requested service"),
        sa.Column("endpoint", sa.Text()),
        sa.Column("body", sa.Text(), nullable=False, comment="the request as Turtle"),
        sa.Column(
            "state",
            sa.String(8),
            nullable=False,
            server_default=sa.text("'waiting'"),
            comment="waiting, answered or failed",
        ),
        sa.Column("attempts", sa.SmallInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column(
            "not_before",
            sa.DateTime(timezone=True),
            nullable=False,
            server_default=sa.func.now(),
            comment="time of the next attempt; during an attempt: when another worker may claim it",
        ),
        sa.Column("status", sa.SmallInteger(), comment="HTTP status of the last attempt"),
        sa.Column("reason", sa.Text(), comment="why the last attempt failed"),
        sa.Column("media_type", sa.Text(), comment="of the answer"),
        sa.Column("answer", sa.LargeBinary(), comment="until its statements are added"),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("tried_at", sa.DateTime(timezone=True), comment="start of the last attempt"),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Index("real_calls_due", "not_before", postgresql_where=sa.text("state = 'waiting'")),
        comment="Requests of processes to services.",
    )
    op.create_table(
        "write_locks",
        sa.Column("id", sa.BigInteger(), sa.Identity(), primary_key=True),
        sa.Column("document_prefix", CODE_POINTS, comment="NULL: in any document"),
        sa.Column("subject", CODE_POINTS, comment="NULL: any subject"),
        sa.Column("property", CODE_POINTS, comment="NULL: any property"),
        sa.Column("object", sa.JSON(), comment="a term; NULL: any object"),
        sa.Column("changed_by", sa.Text(), comment=CHANGED_BY),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        comment="Statements that programs must not change.",
    )


def downgrade() -> None:
    for name in reversed(TABLES):
        op.drop_table(name)
    op.drop_column("mdp_state", "watched")
