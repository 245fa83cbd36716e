"""The tables of an LMR's cache, for SQLite and Postgres.

The tables that queries read have the same columns as those of an MDP (`mdv.db.tables`), so that one compiler serves
both. There are two differences:

* **Numbers are stored as sort keys.** SQLite has no exact decimals, so numbers and instants are stored as texts that
  sort like the numbers (`mdv.rdf.sortkey`), in both databases.
* **A resource records why it is in the cache.** `selected`: a rule of this LMR selects it. `referrers`: the number of
  strong references to it from resources in the cache. A resource with neither is garbage.
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
"""Text that is compared by code point, which is the default in SQLite."""
RowId = BigInteger().with_variant(Integer, "sqlite")
"""SQLite generates IDs only for columns that are declared INTEGER."""

GLOBAL_DOCUMENT = 0
"""The document ID of statements that came from the MDP."""

CACHE_FORMAT = 4
"""The format of these tables. A cache of another format is created again."""
UPGRADABLE_FORMATS = (1, 2, 3)
"""Formats that only lack tables of the current one. Such a cache is upgraded and keeps its local documents."""

lmr_state = Table(
    "lmr_state",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true"), comment="there is one row"),
    Column("format", Integer, nullable=False),
    Column("cursor", Text, comment="the feed is applied up to here; NULL: load a snapshot"),
    Column("position", BigInteger, nullable=False, server_default="0", comment="of the MDP, applied so far"),
    Column("applied_offset", BigInteger, nullable=False, server_default="0", comment="of the last applied event"),
    Column("schema_version", Integer, nullable=False, server_default="0"),
    Column("schema_edition", Integer, nullable=False, server_default="0",
           comment="number of schema changes in this cache: a restored MDP may use a version twice"),
    Column("schema", JSON, comment="as received"),
    Column("staged_cursor", Text, comment="the feed is staged up to here, while a transaction is incomplete"),
    Column("staged_offset", BigInteger, nullable=False, server_default="0", comment="of the last staged event"),
    Column("staged_snapshot", Boolean, nullable=False, server_default=text("false"), comment="a snapshot is staged"),
)  # fmt: skip

lmr_home = Table(
    "lmr_home",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true"), comment="there is one row"),
    Column("home", Text, comment="URL of the MDP that filters for this LMR; NULL: the first in the settings"),
    Column("term", BigInteger, nullable=False, server_default="0", comment="of the last attempt to get another home"),
    Column("vector", JSON, nullable=False, comment="changes of the backbone that are applied, by life"),
    Column("seen", JSON, nullable=False, comment="changes that may be applied: later ones are not"),
    Column("adoptions", JSON, nullable=False, comment="the last changes of the home, newest first"),
    comment="The home of this LMR in a backbone.",
)

vocabulary = Table(
    "vocabulary",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uri", CodePoints, nullable=False, unique=True),
)

resources = Table(
    "resources",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("uri", CodePoints, nullable=False, unique=True),
    Column("bucket", SmallInteger, nullable=False, comment="of the checksum"),
    Column("present", Boolean, nullable=False, comment="false: it is only mentioned in statements"),
    Column("selected", Boolean, nullable=False, comment="a rule of this LMR selects it"),
    Column("referrers", Integer, nullable=False, comment="number of strong references from resources in the cache"),
    Index("resources_present", "bucket", sqlite_where=text("present"), postgresql_where=text("present")),
)

statements = Table(
    "statements",
    metadata,
    Column("document_id", RowId, nullable=False, comment="a local document; 0: from the MDP"),
    Column("resource_id", RowId, nullable=False),
    Column("target_id", RowId, comment="the object, if it is a URI"),
    Column("hash", BigInteger, nullable=False),
    Column("property_id", Integer, nullable=False),
    Column("datatype_id", Integer),
    Column("strong", Boolean, nullable=False, comment="a strong reference from the MDP"),
    Column("value", CodePoints),
    Column("lang", CodePoints),
    Column("number", CodePoints, comment="a key that sorts like the number"),
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
    Column("number", RowId, primary_key=True),
    Column("lane", SmallInteger, nullable=False, comment="0: the feed; 1: buckets that are fetched again"),
    Column("events", Text, nullable=False, comment="as JSON"),
    Index("staged_lane", "lane", "number"),
    comment="Events of a snapshot or transaction that is not complete yet.",
)

suspended_rules = Table(
    "suspended_rules",
    metadata,
    Column("rule_id", RowId, primary_key=True, autoincrement=False),
    Column("reason", Text, nullable=False),
    comment="Rules of this LMR that the MDP does not evaluate. Their matches may be out of date.",
)

local_documents = Table(
    "local_documents",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("uri", CodePoints, nullable=False, unique=True),
    Column("content", LargeBinary, nullable=False, comment="digest of its statements"),
    Column("prefixes", JSON, nullable=False),
    comment="Local metadata. Queries see it; it is never sent to the MDP.",
)

search_state = Table(
    "search_state",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true"), comment="there is one row"),
    Column("label_properties", JSON, nullable=False, comment="the label properties when resources were indexed"),
)

search_pending = Table(
    "search_pending",
    metadata,
    Column("resource_id", RowId, primary_key=True, autoincrement=False),
    comment="Changed resources that are not in the search index yet (mdv.db.cache_search).",
)
