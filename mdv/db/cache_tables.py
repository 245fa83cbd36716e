"""The tables of an LMR's cache, on SQLite or Postgres alike.

They have the shape of an MDP's (`mdv.db.tables`) where queries look, so that both are asked with the same compiler. Two
things differ:

* **Numbers are kept as keys.** SQLite has no exact decimals, so numbers and instants are kept as texts that sort as the
  numbers do (`mdv.rdf.sortkey`), in both databases.
* **A resource knows why it is here.** `selected`: some rule of this LMR selects it. `referrers`: how many strong
  references lead to it from what is here. What has neither goes.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)

metadata = MetaData()

CodePoints = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that is compared by code point: in SQLite it always is."""
Number = BigInteger().with_variant(Integer, "sqlite")
"""SQLite gives numbers out by itself only to what is declared INTEGER."""

GLOBAL = 0
"""The document of statements that came from the MDP."""

FORMAT = 1
"""Of these tables. A cache of another format is made anew."""

lmr_state = Table(
    "lmr_state",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true"), comment="there is one row"),
    Column("format", Integer, nullable=False),
    Column("cursor", Text, comment="up to where the feed is applied; NULL: a snapshot is to be taken"),
    Column("position", BigInteger, nullable=False, server_default="0", comment="of the MDP, up to which all is here"),
    Column("applied_offset", BigInteger, nullable=False, server_default="0", comment="of the last event applied"),
    Column("schema_version", Integer, nullable=False, server_default="0"),
    Column("schema_edition", Integer, nullable=False, server_default="0",
           comment="how often the schema changed here: an MDP that was restored may use a version twice"),
    Column("schema", JSON, comment="as it travelled"),
    Column("staged_cursor", Text, comment="up to where the feed is staged, while a transaction is incomplete"),
    Column("staged_offset", BigInteger, nullable=False, server_default="0", comment="of the last event staged"),
    Column("staged_snapshot", Boolean, nullable=False, server_default=text("false"), comment="it is a snapshot"),
)  # fmt: skip

vocabulary = Table(
    "vocabulary",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uri", CodePoints, nullable=False, unique=True),
)

resources = Table(
    "resources",
    metadata,
    Column("id", Number, primary_key=True),
    Column("uri", CodePoints, nullable=False, unique=True),
    Column("bucket", SmallInteger, nullable=False, comment="of the checksum"),
    Column("present", Boolean, nullable=False, comment="it is in the cache; false: it is only spoken of"),
    Column("selected", Boolean, nullable=False, comment="some rule of this LMR selects it"),
    Column("referrers", Integer, nullable=False, comment="strong references to it, from what is in the cache"),
    Index("resources_present", "bucket", sqlite_where=text("present"), postgresql_where=text("present")),
)

statements = Table(
    "statements",
    metadata,
    Column("document_id", Number, nullable=False, comment="of local metadata; 0: from the MDP"),
    Column("resource_id", Number, nullable=False),
    Column("target_id", Number, comment="the object, where it is a URI"),
    Column("hash", BigInteger, nullable=False),
    Column("property_id", Integer, nullable=False),
    Column("datatype_id", Integer),
    Column("strong", Boolean, nullable=False, comment="a strong reference of the MDP's"),
    Column("value", CodePoints),
    Column("lang", CodePoints),
    Column("number", CodePoints, comment="a key that sorts as the number does"),
    Column("instant", CodePoints, comment="likewise"),
    Column("truth", Boolean),
    Index("statements_resource", "resource_id", "property_id"),
    Index("statements_target", "target_id", "property_id", "resource_id",
          sqlite_where=text("target_id is not null"), postgresql_where=text("target_id is not null")),
    Index("statements_value", "property_id", func.substr(text("value"), 1, 64),
          sqlite_where=text("value is not null"), postgresql_where=text("value is not null")),
    Index("statements_number", "property_id", "number",
          sqlite_where=text("number is not null"), postgresql_where=text("number is not null")),
    Index("statements_instant", "property_id", "instant",
          sqlite_where=text("instant is not null"), postgresql_where=text("instant is not null")),
    Index("statements_document", "document_id",
          sqlite_where=text("document_id <> 0"), postgresql_where=text("document_id <> 0")),
)  # fmt: skip

staged = Table(
    "staged",
    metadata,
    Column("number", Number, primary_key=True),
    Column("lane", SmallInteger, nullable=False, comment="0: the feed; 1: buckets that are fetched again"),
    Column("events", Text, nullable=False, comment="some of them, as JSON"),
    Index("staged_lane", "lane", "number"),
    comment="A snapshot or a transaction that is not whole yet.",
)

local_documents = Table(
    "local_documents",
    metadata,
    Column("id", Number, primary_key=True),
    Column("uri", CodePoints, nullable=False, unique=True),
    Column("content", LargeBinary, nullable=False, comment="digest of its statements"),
    Column("prefixes", JSON, nullable=False),
    comment="Local metadata: in every query, in no message to the MDP.",
)
