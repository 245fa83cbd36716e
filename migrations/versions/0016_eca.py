"""Event-condition-action rules: their templates, keys, counts, runs and changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0016"
down_revision = "0013"
branch_labels = None
depends_on = None

CODE_POINTS = sa.Text(collation="C")
CHANGED_BY = "the caller: a user, a token, an LMR, a batch; NULL: not recorded"


def upgrade() -> None:
    op.add_column(
        "mdp_state",
        sa.Column(
            "eca_version",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("0"),
            comment="changes with the ECA rules; 0 if there are none",
        ),
    )
    op.create_table(
        "eca_templates",
        sa.Column("id", sa.Integer(), sa.Identity(), primary_key=True),
        sa.Column("text", sa.Text(), nullable=False, comment="the normal text of one rule with this template"),
        sa.Column("digest", sa.LargeBinary(), nullable=False, unique=True),
        comment="ECA rules that differ only in their constants have the same template, and are evaluated together.",
    )
    op.create_table(
        "eca_rules",
        sa.Column("id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("rule_set", CODE_POINTS, nullable=False, comment="its insertions go to the document urn:mdv:eca:SET"),
        sa.Column("name", CODE_POINTS, unique=True),
        sa.Column("text", sa.Text(), nullable=False, comment="as written by its author"),
        sa.Column("normal", sa.Text(), nullable=False, comment="with all names resolved"),
        sa.Column("state", sa.String(11), nullable=False, comment="active, shadow, disabled or quarantined"),
        sa.Column("reason", sa.Text(), comment="why it is quarantined"),
        sa.Column("template_id", sa.Integer(), sa.ForeignKey("eca_templates.id"), nullable=False, index=True),
        sa.Column("constants", ARRAY(sa.Text()), nullable=False, comment="the texts of the slots of the template"),
        sa.Column("rank", ARRAY(sa.BigInteger()), nullable=False, comment="rules run in the order of their ranks"),
        sa.Column(
            "precedes", ARRAY(sa.Text()), nullable=False, server_default=sa.text("'{}'"), comment="names of rules"
        ),
        sa.Column(
            "follows", ARRAY(sa.Text()), nullable=False, server_default=sa.text("'{}'"), comment="names of rules"
        ),
        sa.Column("prefixes", ARRAY(sa.Text()), comment="URI prefixes that its actions are limited to; NULL: no limit"),
        sa.Column("position", sa.BigInteger(), nullable=False, comment="of the transaction that last changed it"),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("changed_by", sa.Text(), comment=CHANGED_BY),
        comment="Event-condition-action rules as written by their authors.",
    )
    op.create_table(
        "eca_keys",
        sa.Column("template_id", sa.Integer(), primary_key=True),
        sa.Column(
            "key", CODE_POINTS, primary_key=True, comment="the first characters of a constant; empty if there is none"
        ),
        sa.Column(
            "rule_id", sa.BigInteger(), sa.ForeignKey("eca_rules.id", ondelete="CASCADE"), primary_key=True, index=True
        ),
        comment="Active and shadow rules by the constant of their most selective comparison.",
    )
    op.create_table(
        "eca_classes",
        sa.Column("class_id", sa.BigInteger(), primary_key=True),
        sa.Column("superclass_id", sa.BigInteger(), primary_key=True, index=True),
        comment="The classes of the schema with all their superclasses, for paths through rdf:type.",
    )
    op.create_table(
        "eca_counts",
        sa.Column("rule_id", sa.BigInteger(), sa.ForeignKey("eca_rules.id", ondelete="CASCADE"), primary_key=True),
        sa.Column(
            "fired",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("0"),
            comment="copies of its actions that ran",
        ),
        sa.Column("failed", sa.BigInteger(), nullable=False, server_default=sa.text("0"), comment="copies that failed"),
        sa.Column(
            "failures",
            sa.Integer(),
            nullable=False,
            server_default=sa.text("0"),
            comment="transactions in a row that it failed in",
        ),
        sa.Column("last_fired", sa.DateTime(timezone=True)),
        comment="How often each ECA rule has fired and failed.",
    )
    op.create_table(
        "eca_runs",
        sa.Column("id", sa.BigInteger(), sa.Identity(), primary_key=True),
        sa.Column("position", sa.BigInteger(), index=True, comment="of its transaction; NULL if it was refused"),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("cause", sa.Text(), nullable=False, comment="registration, update or compensation"),
        sa.Column("subject", sa.Text(), comment="the document that was registered"),
        sa.Column("outcome", sa.String(12), nullable=False, comment="done, refused or compensated"),
        sa.Column("fired", sa.Integer(), nullable=False),
        sa.Column("trace", JSONB(), nullable=False),
        sa.Column("changed_by", sa.Text(), comment=CHANGED_BY),
        sa.Index("eca_runs_at", "at"),
        comment="Runs of ECA rules: a transaction in which at least one rule fired. Kept for some days.",
    )
    op.create_table(
        "eca_changes",
        sa.Column("id", sa.BigInteger(), sa.Identity(), primary_key=True),
        sa.Column("position", sa.BigInteger(), nullable=False, index=True),
        sa.Column("run_id", sa.BigInteger(), nullable=False, index=True),
        sa.Column("step", sa.Integer(), nullable=False, comment="number of the update in the run"),
        sa.Column("rule_id", sa.BigInteger(), index=True, comment="NULL: an action of POST /update"),
        sa.Column("rule_name", sa.Text()),
        sa.Column("delta", JSONB(), comment="the instantiation of $delta"),
        sa.Column("is_added", sa.Boolean(), nullable=False),
        sa.Column("document", CODE_POINTS, nullable=False),
        sa.Column("subject", CODE_POINTS, nullable=False),
        sa.Column("property", CODE_POINTS, nullable=False),
        sa.Column("object", JSONB(), nullable=False),
        sa.Index("eca_changes_subject", "subject", "property"),
        comment="Statements that actions of ECA rules added or removed. Kept for ever.",
    )


def downgrade() -> None:
    for table in ("changes", "runs", "counts", "classes", "keys", "rules", "templates"):
        op.drop_table(f"eca_{table}")
    op.drop_column("mdp_state", "eca_version")
