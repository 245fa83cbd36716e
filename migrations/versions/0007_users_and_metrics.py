"""Users and sessions of the web interface, metrics, and paused LMRs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "figures",
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, comment="the minute that begins then"),
        sa.Column("transactions", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "documents", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="registered or deleted"
        ),
        sa.Column("filter_seconds", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "lag_seconds",
            sa.Float(),
            server_default=sa.text("0"),
            nullable=False,
            comment="of the furthest LMR, at most",
        ),
        sa.Column("waiting", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="jobs, at most"),
        sa.PrimaryKeyConstraint("at"),
        comment="What the pages draw, minute by minute.",
    )
    op.create_table(
        "sign_in_failures",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column(
            "who",
            sa.Text(collation="C"),
            nullable=False,
            comment="the name that was tried, or the address that it came from",
        ),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        comment="Attempts to sign in that failed, of the last while.",
    )
    op.create_index("sign_in_failures_who", "sign_in_failures", ["who", "at"], unique=False)
    op.create_table(
        "users",
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("role", sa.Text(), nullable=False, comment="admin or viewer"),
        sa.Column("password", sa.Text(), nullable=False, comment="its scrypt hash, with salt and cost"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        comment="People who sign in to the pages by name.",
    )
    op.create_table(
        "web_sessions",
        sa.Column(
            "hash", sa.LargeBinary(), nullable=False, comment="SHA-256 of what the cookie holds, which is kept nowhere"
        ),
        sa.Column("user_name", sa.Text(collation="C"), nullable=True, comment="who signed in by name"),
        sa.Column(
            "token_id",
            sa.Integer(),
            nullable=True,
            comment="or by a token; neither: by the admin token of the settings",
        ),
        sa.Column(
            "token_hash", sa.LargeBinary(), nullable=True, comment="of that admin token: another one ends the session"
        ),
        sa.Column("csrf", sa.Text(), nullable=False, comment="what every form has to show"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_name"], ["users.name"], onupdate="CASCADE", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("hash"),
        comment="Who has signed in to the pages.",
    )
    op.create_index(op.f("ix_web_sessions_token_id"), "web_sessions", ["token_id"], unique=False)
    op.create_index(op.f("ix_web_sessions_user_name"), "web_sessions", ["user_name"], unique=False)
    op.add_column(
        "lmrs",
        sa.Column(
            "paused", sa.Boolean(), server_default=sa.text("false"), nullable=False, comment="its feed is held back"
        ),
    )


def downgrade() -> None:
    op.drop_column("lmrs", "paused")
    op.drop_index(op.f("ix_web_sessions_user_name"), table_name="web_sessions")
    op.drop_index(op.f("ix_web_sessions_token_id"), table_name="web_sessions")
    op.drop_table("web_sessions")
    op.drop_table("users")
    op.drop_index("sign_in_failures_who", table_name="sign_in_failures")
    op.drop_table("sign_in_failures")
    op.drop_table("figures")
