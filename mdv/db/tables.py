"""The tables, as SQLAlchemy Core, so that Alembic can compare them with a database.

Three decisions that everything else leans on:

* **One table of statements.** `filter_data` is the paper's table of atoms and the store at once: a row is a
  statement of a document. A resource is the union of its rows. Resources are bigints, properties and datatypes small
  integers; the view `filter_data_view` shows the paper's columns.
* **The log is the store.** A row knows the position it came with (`position`) and moves to `filter_data_history` with
  the position it went with (`until_position`). `shows` and `hides` say whether its coming or going was visible, that is
  whether no other document made the same statement. So the log of visible changes, every version of every document
  and the state at any position are views of the same rows, and an insertion costs no second write.
* **Positions are commit order.** Every writing transaction locks the one row of `mdp_state` and takes the next
  position.

There are no foreign keys on the statements: they would cost a look-up a row, and only `mdv.db.store` writes them.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

metadata = MetaData()

CodePoints = Text(collation="C")
"""Text that is compared by code point, whatever the database's locale."""


def _now(name: str) -> Column[datetime]:
    return Column(name, DateTime(timezone=True), nullable=False, server_default=func.now())


mdp_state = Table(
    "mdp_state",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true"), comment="there is one row"),
    Column("epoch", Uuid, nullable=False, server_default=text("gen_random_uuid()"), comment="this life of the MDP"),
    Column("position", BigInteger, nullable=False, server_default=text("0"), comment="of the last transaction"),
    Column("schema_version", Integer, nullable=False, server_default=text("0")),
    Column("last_resource", BigInteger, nullable=False, server_default=text("0"), comment="the last number given out"),
    Column("last_document", BigInteger, nullable=False, server_default=text("0"), comment="likewise"),
    comment="Where the MDP stands. Locked by every writing transaction, so that positions follow commit order.",
)

transactions = Table(
    "transactions",
    metadata,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("cause", Text, nullable=False, comment="documents or schema"),
    _now("at"),
    comment="One row a change of the visible state: when, and why.",
)

schema_versions = Table(
    "schema_versions",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("statements", JSONB, nullable=False, comment="[[subject, property, {type, value, …}], …]"),
    Column("prefixes", JSONB, nullable=False),
    _now("at"),
)

vocabulary = Table(
    "vocabulary",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uri", CodePoints, nullable=False, unique=True),
    comment="Properties and datatypes, as small integers.",
)

resources = Table(
    "resources",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("uri", CodePoints, nullable=False, unique=True),
    comment="Every URI that is the subject or the object of some statement.",
)

documents = Table(
    "documents",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("uri", CodePoints, nullable=False, unique=True),
    Column("version", Integer, nullable=False),
    Column("present", Boolean, nullable=False, comment="false: deleted, kept for its history"),
    Column("content", LargeBinary, nullable=False, comment="digest of the statements: equal means identical"),
    Column("prefixes", JSONB, nullable=False),
    Column("position", BigInteger, nullable=False),
)

document_versions = Table(
    "document_versions",
    metadata,
    Column("document_id", BigInteger, ForeignKey("documents.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("present", Boolean, nullable=False),
    Column("prefixes", JSONB, nullable=False),
    Column("inserted", Integer, nullable=False),
    Column("updated", Integer, nullable=False),
    Column("deleted", Integer, nullable=False),
    Column("unchanged", Integer, nullable=False),
)


def _statement_columns() -> list[Column[object]]:
    return [
        Column("document_id", BigInteger, nullable=False),
        Column("resource_id", BigInteger, nullable=False),
        Column("target_id", BigInteger, comment="the object, where it is a URI"),
        Column("hash", BigInteger, nullable=False, comment="64 bits of subject, property and object"),
        Column("position", BigInteger, nullable=False, comment="of the transaction that it came with"),
        Column("property_id", Integer, nullable=False),
        Column("datatype_id", Integer, comment="NULL: xsd:string, or text with a language"),
        Column("shows", Boolean, nullable=False, comment="its coming was visible"),
        Column("value", CodePoints, comment="the object, where it is a literal: its lexical form"),
        Column("lang", CodePoints),
    ]


filter_data = Table(
    "filter_data",
    metadata,
    *_statement_columns(),
    Column("number", Numeric, comment="the value as a number, where the schema says that it is one"),
    Column("instant", Numeric, comment="likewise, seconds since 1970"),
    Column("truth", Boolean, comment="likewise"),
    Index("filter_data_resource", "resource_id", "property_id"),
    Index("filter_data_target", "target_id", "property_id", "resource_id",
          postgresql_where=text("target_id is not null")),
    Index("filter_data_document", "document_id"),
    Index("filter_data_position", "position", postgresql_using="brin",
          postgresql_with={"pages_per_range": "32", "autosummarize": "on"}),
    comment="The paper's FilterData: the atoms of all documents, encoded. filter_data_view shows them as in the paper.",
)  # fmt: skip

filter_data_history = Table(
    "filter_data_history",
    metadata,
    *_statement_columns(),
    Column("until_position", BigInteger, nullable=False, comment="of the transaction that it went with"),
    Column("hides", Boolean, nullable=False, comment="its going was visible"),
    Index("filter_data_history_document", "document_id"),
    Index("filter_data_history_until", "until_position"),
    comment="Statements that documents no longer make.",
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False, comment="admin or viewer"),
    Column("hash", LargeBinary, nullable=False, unique=True, comment="SHA-256 of the token, which is kept nowhere"),
    Column("document_prefixes", ARRAY(Text), comment="NULL: any document"),
    Column("resource_prefixes", ARRAY(Text), comment="NULL: any resource"),
    _now("created_at"),
    Column("revoked_at", DateTime(timezone=True)),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("number", BigInteger, Identity(), nullable=False, comment="the order of arrival"),
    Column("kind", String(16), nullable=False, comment="register or delete"),
    Column("state", String(8), nullable=False, server_default=text("'queued'"), comment="queued, done or failed"),
    Column("priority", SmallInteger, nullable=False, server_default=text("0")),
    Column("uri", CodePoints, nullable=False),
    Column("body", LargeBinary, comment="the document; NULL once the job has ended"),
    Column("media_type", Text),
    Column("options", JSONB, nullable=False, server_default=text("'{}'"), comment="preconditions, dry run, limits"),
    Column("caller", Text, nullable=False, comment="whose Idempotency-Keys these are"),
    Column("idempotency_key", Text),
    Column("request_hash", LargeBinary),
    Column("attempts", SmallInteger, nullable=False, server_default=text("0")),
    Column("result", JSONB(none_as_null=True)),
    Column("problem", JSONB(none_as_null=True)),
    _now("created_at"),
    Column("ended_at", DateTime(timezone=True)),
    UniqueConstraint("caller", "idempotency_key", name="jobs_idempotency_key"),
    Index("jobs_waiting", "priority", "number", postgresql_where=text("state = 'queued'")),
    Index("jobs_waiting_uri", "uri", "number", postgresql_where=text("state = 'queued'")),
    comment="What is to be done: the truth, of which the queue in Redis is only the wake-up.",
)
