"""Documents, their statements and log, the schema, jobs and tokens."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "documents",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("uri", sa.Text(collation="C"), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("present", sa.Boolean(), nullable=False, comment="false: deleted, kept for its history"),
        sa.Column(
            "content", sa.LargeBinary(), nullable=False, comment="digest of the statements: equal means identical"
        ),
        sa.Column("prefixes", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("uri"),
    )
    op.create_table(
        "filter_data",
        sa.Column("document_id", sa.BigInteger(), nullable=False),
        sa.Column("resource_id", sa.BigInteger(), nullable=False),
        sa.Column("target_id", sa.BigInteger(), nullable=True, comment="the object, where it is a URI"),
        sa.Column("hash", sa.BigInteger(), nullable=False, comment="64 bits of subject, property and object"),
        sa.Column("position", sa.BigInteger(), nullable=False, comment="of the transaction that it came with"),
        sa.Column("property_id", sa.Integer(), nullable=False),
        sa.Column("datatype_id", sa.Integer(), nullable=True, comment="NULL: xsd:string, or text with a language"),
        sa.Column("shows", sa.Boolean(), nullable=False, comment="its coming was visible"),
        sa.Column(
            "value",
            sa.Text(collation="C"),
            nullable=True,
            comment="the object, where it is a literal: its lexical form",
        ),
        sa.Column("lang", sa.Text(collation="C"), nullable=True),
        sa.Column(
            "number", sa.Numeric(), nullable=True, comment="the value as a number, where the schema says that it is one"
        ),
        sa.Column("instant", sa.Numeric(), nullable=True, comment="likewise, seconds since 1970"),
        sa.Column("truth", sa.Boolean(), nullable=True, comment="likewise"),
        comment="The paper's FilterData: the atoms of all documents, encoded. filter_data_view shows them as in the paper.",
    )
    op.create_index("filter_data_document", "filter_data", ["document_id"], unique=False)
    op.create_index(
        "filter_data_position",
        "filter_data",
        ["position"],
        unique=False,
        postgresql_using="brin",
        postgresql_with={"pages_per_range": "32", "autosummarize": "on"},
    )
    op.create_index("filter_data_resource", "filter_data", ["resource_id", "property_id"], unique=False)
    op.create_index(
        "filter_data_target",
        "filter_data",
        ["target_id", "property_id", "resource_id"],
        unique=False,
        postgresql_where=sa.text("target_id is not null"),
    )
    op.create_table(
        "filter_data_history",
        sa.Column("document_id", sa.BigInteger(), nullable=False),
        sa.Column("resource_id", sa.BigInteger(), nullable=False),
        sa.Column("target_id", sa.BigInteger(), nullable=True, comment="the object, where it is a URI"),
        sa.Column("hash", sa.BigInteger(), nullable=False, comment="64 bits of subject, property and object"),
        sa.Column("position", sa.BigInteger(), nullable=False, comment="of the transaction that it came with"),
        sa.Column("property_id", sa.Integer(), nullable=False),
        sa.Column("datatype_id", sa.Integer(), nullable=True, comment="NULL: xsd:string, or text with a language"),
        sa.Column("shows", sa.Boolean(), nullable=False, comment="its coming was visible"),
        sa.Column(
            "value",
            sa.Text(collation="C"),
            nullable=True,
            comment="the object, where it is a literal: its lexical form",
        ),
        sa.Column("lang", sa.Text(collation="C"), nullable=True),
        sa.Column("until_position", sa.BigInteger(), nullable=False, comment="of the transaction that it went with"),
        sa.Column("hides", sa.Boolean(), nullable=False, comment="its going was visible"),
        comment="Statements that documents no longer make.",
    )
    op.create_index("filter_data_history_document", "filter_data_history", ["document_id"], unique=False)
    op.create_index("filter_data_history_until", "filter_data_history", ["until_position"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("number", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="the order of arrival"),
        sa.Column("kind", sa.String(length=16), nullable=False, comment="register or delete"),
        sa.Column(
            "state",
            sa.String(length=8),
            server_default=sa.text("'queued'"),
            nullable=False,
            comment="queued, done or failed",
        ),
        sa.Column("priority", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("uri", sa.Text(collation="C"), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True, comment="the document; NULL once the job has ended"),
        sa.Column("media_type", sa.Text(), nullable=True),
        sa.Column(
            "options",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="preconditions, dry run, limits",
        ),
        sa.Column("caller", sa.Text(), nullable=False, comment="whose Idempotency-Keys these are"),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("request_hash", sa.LargeBinary(), nullable=True),
        sa.Column("attempts", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("result", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("problem", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("caller", "idempotency_key", name="jobs_idempotency_key"),
        comment="What is to be done: the truth, of which the queue in Redis is only the wake-up.",
    )
    op.create_index(
        "jobs_waiting", "jobs", ["priority", "number"], unique=False, postgresql_where=sa.text("state = 'queued'")
    )
    op.create_index(
        "jobs_waiting_uri", "jobs", ["uri", "number"], unique=False, postgresql_where=sa.text("state = 'queued'")
    )
    op.create_table(
        "mdp_state",
        sa.Column("one", sa.Boolean(), server_default=sa.text("true"), nullable=False, comment="there is one row"),
        sa.Column(
            "epoch",
            sa.Uuid(),
            server_default=sa.text("gen_random_uuid()"),
            nullable=False,
            comment="this life of the MDP",
        ),
        sa.Column(
            "position", sa.BigInteger(), server_default=sa.text("0"), nullable=False, comment="of the last transaction"
        ),
        sa.Column("schema_version", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "last_resource",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="the last number given out",
        ),
        sa.Column("last_document", sa.BigInteger(), server_default=sa.text("0"), nullable=False, comment="likewise"),
        sa.PrimaryKeyConstraint("one"),
        comment="Where the MDP stands. Locked by every writing transaction, so that positions follow commit order.",
    )
    op.create_table(
        "resources",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("uri", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("uri"),
        comment="Every URI that is the subject or the object of some statement.",
    )
    op.create_table(
        "schema_versions",
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column(
            "statements",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=False,
            comment="[[subject, property, {type, value, …}], …]",
        ),
        sa.Column("prefixes", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("version"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False, comment="admin or viewer"),
        sa.Column("hash", sa.LargeBinary(), nullable=False, comment="SHA-256 of the token, which is kept nowhere"),
        sa.Column("document_prefixes", postgresql.ARRAY(sa.Text()), nullable=True, comment="NULL: any document"),
        sa.Column("resource_prefixes", postgresql.ARRAY(sa.Text()), nullable=True, comment="NULL: any resource"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("hash"),
    )
    op.create_table(
        "transactions",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cause", sa.Text(), nullable=False, comment="documents or schema"),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("position"),
        comment="One row a change of the visible state: when, and why.",
    )
    op.create_table(
        "vocabulary",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uri", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("uri"),
        comment="Properties and datatypes, as small integers.",
    )
    op.create_table(
        "document_versions",
        sa.Column("document_id", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("present", sa.Boolean(), nullable=False),
        sa.Column("prefixes", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("inserted", sa.Integer(), nullable=False),
        sa.Column("updated", sa.Integer(), nullable=False),
        sa.Column("deleted", sa.Integer(), nullable=False),
        sa.Column("unchanged", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["document_id"],
            ["documents.id"],
        ),
        sa.PrimaryKeyConstraint("document_id", "version"),
    )
    op.execute("insert into mdp_state default values")
    op.execute("insert into vocabulary (uri) values ('http://www.w3.org/1999/02/22-rdf-syntax-ns#type')")
    for view in (Path(__file__).parents[1] / "sql" / "0001_views.sql").read_text("utf-8").split(";\n"):
        if view.strip():
            op.execute(view)


def downgrade() -> None:
    op.execute("drop view statement_log")
    op.execute("drop view filter_data_view")
    op.drop_table("document_versions")
    op.drop_table("vocabulary")
    op.drop_table("transactions")
    op.drop_table("tokens")
    op.drop_table("schema_versions")
    op.drop_table("resources")
    op.drop_table("mdp_state")
    op.drop_index("jobs_waiting_uri", table_name="jobs", postgresql_where=sa.text("state = 'queued'"))
    op.drop_index("jobs_waiting", table_name="jobs", postgresql_where=sa.text("state = 'queued'"))
    op.drop_table("jobs")
    op.drop_index("filter_data_history_until", table_name="filter_data_history")
    op.drop_index("filter_data_history_document", table_name="filter_data_history")
    op.drop_table("filter_data_history")
    op.drop_index("filter_data_target", table_name="filter_data", postgresql_where=sa.text("target_id is not null"))
    op.drop_index("filter_data_resource", table_name="filter_data")
    op.drop_index(
        "filter_data_position",
        table_name="filter_data",
        postgresql_using="brin",
        postgresql_with={"pages_per_range": "32", "autosummarize": "on"},
    )
    op.drop_index("filter_data_document", table_name="filter_data")
    op.drop_table("filter_data")
    op.drop_table("documents")
