"""The tables of the MDP in SQLAlchemy Core, which Alembic compares with a database.

Three design decisions:

* **One table of statements.** `filter_data` is both the paper's table of atoms and the store: a row is a statement of a
  document. A resource is the union of its rows. Resources have bigint IDs, properties and datatypes integer IDs. The
  view `filter_data_view` shows the columns of the paper.
* **The log is the store.** A row has the position of the transaction that added it (`position`). When it is removed, it
  moves to `filter_data_history` with the position of the removal (`until_position`). `shows` and `hides` tell whether
  its addition or removal was visible, which it is if no other document contains the same statement. So the log of
  visible changes, every version of every document and the state at any position are views of the same rows, and an
  insertion needs no second write.
* **Positions follow commit order.** Every writing transaction locks the single row of `mdp_state` and takes the next
  position.

Documents and statements have no foreign keys: each would cost a lookup per row, and only `mdv.db.statement_store`
writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
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
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TSVECTOR

from mdv.rules.operators import Lookup, Operator

metadata = MetaData()

CodePoints = Text(collation="C")
"""Text that is compared by code point, regardless of the locale of the database."""


def _now(name: str) -> Column[datetime]:
    return Column(name, DateTime(timezone=True), nullable=False, server_default=func.now())


def _changed_by() -> Column[str]:
    return Column("changed_by", Text, comment="the caller: a user, a token, an LMR, a batch; NULL: not recorded")


def _count(name: str, comment: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"), comment=comment)


mdp_state = Table(
    "mdp_state",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true"), comment="there is one row"),
    Column("epoch", Uuid, nullable=False, server_default=text("gen_random_uuid()"),
           comment="changes if the database is restored from a backup"),
    Column("position", BigInteger, nullable=False, server_default=text("0"), comment="of the last transaction"),
    Column("schema_version", Integer, nullable=False, server_default=text("0")),
    Column("last_resource", BigInteger, nullable=False, server_default=text("0"), comment="the last assigned ID"),
    Column("last_document", BigInteger, nullable=False, server_default=text("0"), comment="the last assigned ID"),
    Column("last_rule", BigInteger, nullable=False, server_default=text("0"), comment="the last assigned ID"),
    Column("last_atomic_rule", BigInteger, nullable=False, server_default=text("0"), comment="the last assigned ID"),
    Column("graph_version", BigInteger, nullable=False, server_default=text("0"),
           comment="increases when rule groups change, which invalidates caches of them"),
    Column("last_offset", BigInteger, nullable=False, server_default=text("0"), comment="of the feeds"),
    Column("lmrs", Integer, nullable=False, server_default=text("0"), comment="number of LMRs"),
    Column("eca_version", BigInteger, nullable=False, server_default=text("0"),
           comment="changes with the ECA rules; 0 if there are none"),
    Column("last_eca_rule", BigInteger, nullable=False, server_default=text("0"),
           comment="the highest ID that an ECA rule has had"),
    Column("watched", ARRAY(Integer), nullable=False, server_default=text("'{}'"),
           comment="IDs of the properties that processes wait for; 0: any property"),
    Column("home", Text, comment="identity of the database; a restored one has another identity"),
    Column("replica", JSONB, comment="what a change needs to know of the backbone; NULL: the MDP is in none"),
    Column("marks", BigInteger, nullable=False, server_default=text("0"), comment="number of rows of statement_marks"),
    Column("federated", SmallInteger, nullable=False, server_default=text("0"),
           comment="1 if the MDP is in a federation, so that its changes are recorded for it"),
    comment="The state of the MDP. Every writing transaction locks it, so that positions follow commit order.",
)  # fmt: skip

transactions = Table(
    "transactions",
    metadata,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("cause", Text, nullable=False, comment="documents, schema or rules"),
    _now("at"),
    comment="One row for each change of the visible state, with its time and cause.",
)

schema_versions = Table(
    "schema_versions",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("statements", JSONB, nullable=False, comment="[[subject, property, {type, value, …}], …]"),
    Column("prefixes", JSONB, nullable=False),
    _changed_by(),
    _now("at"),
)

vocabulary = Table(
    "vocabulary",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uri", CodePoints, nullable=False, unique=True),
    comment="Integer IDs of properties and datatypes.",
)

resources = Table(
    "resources",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("uri", CodePoints, nullable=False, unique=True),
    comment="Every URI that is the subject or object of a statement.",
)

documents = Table(
    "documents",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("uri", CodePoints, nullable=False, unique=True),
    Column("version", Integer, nullable=False),
    Column("present", Boolean, nullable=False, comment="false: deleted, but kept for its history"),
    Column(
        "content",
        LargeBinary,
        nullable=False,
        comment="digest of the statements; equal digests mean identical documents",
    ),
    Column("prefixes", JSONB, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("digest", BigInteger, comment="sum of the hashes of its statements; NULL without a backbone"),
    Column("statements", Integer, comment="their number; NULL without a backbone"),
    Column("replica", JSONB, comment="its last operations, as far as they are not stable; NULL without a backbone"),
    Index("documents_merged", "uri", postgresql_where=text("replica ? 'merged_at'")),
)  # fmt: skip

document_versions = Table(
    "document_versions",
    metadata,
    Column("document_id", BigInteger, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("present", Boolean, nullable=False),
    Column("prefixes", JSONB, nullable=False),
    Column("inserted", Integer, nullable=False),
    Column("updated", Integer, nullable=False),
    Column("deleted", Integer, nullable=False),
    Column("unchanged", Integer, nullable=False),
    Column("cause", Text, nullable=False, server_default=text("'registration'"),
           comment="a name of mdv.cause.CAUSE_KINDS"),
    Column("agent", Text, comment="the rule, process or provider that made the change"),
    _changed_by(),
    Column("origin_life", Text, comment="the life whose operation it is; NULL without a backbone"),
    Column("origin_seq", BigInteger, comment="the number of this operation"),
    Column("digest", BigInteger, comment="sum of the hashes of its statements; NULL without a backbone"),
    Index("document_versions_batch", "changed_by", "document_id", postgresql_where=text("changed_by like 'batch %'")),
)  # fmt: skip


def _statement_columns() -> list[Column[object]]:
    return [
        Column("document_id", BigInteger, nullable=False),
        Column("resource_id", BigInteger, nullable=False),
        Column("target_id", BigInteger, comment="the object, if it is a URI"),
        Column("hash", BigInteger, nullable=False, comment="64-bit hash of subject, property and object"),
        Column("position", BigInteger, nullable=False, comment="of the transaction that added it"),
        Column("property_id", Integer, nullable=False),
        Column("datatype_id", Integer, comment="NULL: xsd:string, or text with a language"),
        Column("shows", Boolean, nullable=False, comment="its addition was visible"),
        Column("blank", Boolean, nullable=False, server_default=text("false"),
               comment="the object is a blank node, so the reference is always strong"),
        Column("value", CodePoints, comment="the lexical form of the object, if it is a literal"),
        Column("lang", CodePoints),
        Column("number", Numeric, comment="the value as a number, if the schema defines it as one"),
        Column("instant", Numeric, comment="the value as seconds since 1970, if the schema defines it as an instant"),
        Column("truth", Boolean, comment="the value as a boolean, if the schema defines it as one"),
    ]  # fmt: skip


filter_data = Table(
    "filter_data",
    metadata,
    *_statement_columns(),
    # The hash finds one statement among many values of the same property.
    Index("filter_data_resource", "resource_id", "property_id", "hash"),
    Index("filter_data_target", "target_id", "property_id", "resource_id",
          postgresql_where=text("target_id is not null")),
    Index("filter_data_document", "document_id"),
    # For new rules, queries and joins on values. A long text is found by its first characters, then compared.
    Index("filter_data_value", "property_id", text("left(value, 64)"), postgresql_where=text("value is not null")),
    Index("filter_data_number", "property_id", "number", postgresql_where=text("number is not null")),
    Index("filter_data_position", "position", postgresql_using="brin",
          postgresql_with={"pages_per_range": "32", "autosummarize": "on"}),
    comment="FilterData in the paper: the atoms of all documents, encoded. filter_data_view shows them decoded.",
)  # fmt: skip

filter_data_history = Table(
    "filter_data_history",
    metadata,
    *_statement_columns(),
    Column("until_position", BigInteger, nullable=False, comment="of the transaction that removed it"),
    Column("hides", Boolean, nullable=False, comment="its removal was visible"),
    # For a version of a document: only statements that were removed later are read.
    Index("filter_data_history_document", "document_id", "until_position"),
    # The state before a transaction is read like the current one. Whichever of these indexes the planner chooses for a
    # resource, property and target, it reads only rows of that resource and property.
    Index("filter_data_history_resource", "until_position", "resource_id", "property_id"),
    Index("filter_data_history_target", "until_position", "target_id", "property_id", "resource_id",
          postgresql_where=text("target_id is not null")),
    Index("filter_data_history_value", "until_position", "property_id", text("left(value, 64)"),
          postgresql_where=text("value is not null")),
    Index("filter_data_history_number", "until_position", "property_id", "number",
          postgresql_where=text("number is not null")),
    # For the feeds: a resource as of a position.
    Index("filter_data_history_past", "resource_id", "until_position", "property_id"),
    comment="Statements that were removed from documents.",
)  # fmt: skip

backbone = Table(
    "backbone",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true"), comment="there is one row at most"),
    Column("name", Text, nullable=False, comment="of this member"),
    Column("url", Text, nullable=False, comment="where the other members find it"),
    Column("mode", Text, nullable=False, comment="orset or cset"),
    Column("private_key", LargeBinary, comment="Ed25519 key that signs the operations and requests of this member"),
    Column("facts", JSONB, nullable=False, comment="members, reports, chains, …; see mdv/backbone/facts_json.py"),
    _now("at"),
    comment="What this MDP knows about its backbone. What every change needs is in mdp_state.",
)

replica_log = Table(
    "replica_log",
    metadata,
    Column("life", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, Identity(), nullable=False, comment="the order in which operations were applied"),
    Column("chain", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False, comment="a line of JSON, compressed"),
    Column("signature", LargeBinary, nullable=False, comment="of its origin"),
    comment="The operations of all members, until they are stable.",
)

replica_drafts = Table(
    "replica_drafts",
    metadata,
    Column("number", BigInteger, Identity(), primary_key=True),
    Column("body", LargeBinary, nullable=False),
    comment="Changes in a new life, until the state was transferred.",
)

federation = Table(
    "federation",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true"), comment="there is one row at most"),
    Column("name", Text, nullable=False, comment="of this superpeer or peer"),
    Column("superpeer", Text, comment="of this peer; NULL: it is a superpeer"),
    Column("url", Text, nullable=False, comment="where others find it; empty if they cannot"),
    Column("private_key", LargeBinary, nullable=False, comment="Ed25519 key that signs its requests"),
    Column("epoch", Text, nullable=False, comment="of mdp_state, as the links know it"),
    Column("generation", BigInteger, nullable=False, server_default=text("0"), comment="changes with the records"),
    Column("schema_version", Integer, nullable=False, server_default=text("0"), comment="that its indexes are of"),
    Column("grants", JSONB, nullable=False, server_default=text("'[]'"), comment="[[kind, name, privilege], …]"),
    Column("leaving", Boolean, nullable=False, server_default=text("false"), comment="its last messages are sent"),
    Column("error", Text, comment="why the next message cannot be handled"),
    _now("at"),
    comment="What this MDP is in a federation.",
)

federation_links = Table(
    "federation_links",
    metadata,
    Column("name", Text, primary_key=True, comment="of the neighbour"),
    Column("is_superpeer", Boolean, nullable=False, comment="false: a peer"),
    Column("url", Text, comment="where this MDP calls it; NULL: it calls"),
    Column("public_key", Text, nullable=False, comment="Ed25519 key of its requests"),
    Column("peer_epoch", Text),
    Column(
        "acknowledged", BigInteger, nullable=False, server_default=text("0"), comment="the last message that it has"
    ),
    Column("received", BigInteger, nullable=False, server_default=text("0"), comment="the last message of it"),
    Column("last_exchange", Float, nullable=False, server_default=text("0"), comment="in seconds since 1970"),
    Column("error", Text, comment="why the last call of it failed"),
    comment="The links to neighbouring superpeers and to peers.",
)

federation_inbox = Table(
    "federation_inbox",
    metadata,
    Column("number", BigInteger, Identity(), primary_key=True),
    Column("kind", Text, nullable=False, comment="message, or an event of the MDP itself: change, rule, …"),
    Column("neighbour", Text, nullable=False, server_default=text("''")),
    Column("body", Text, nullable=False, comment="JSON; see mdv/federation/encode.py"),
    _now("at"),
    comment="What the federation process has not handled. A row is deleted in the transaction of its effect.",
)

federation_outbox = Table(
    "federation_outbox",
    metadata,
    Column("number", BigInteger, Identity(), primary_key=True),
    Column("neighbour", Text, nullable=False),
    Column("body", Text, nullable=False, comment="JSON; see mdv/federation/encode.py"),
    Index("federation_outbox_neighbour", "neighbour", "number"),
    comment="Messages that neighbours have not acknowledged.",
)

federation_records = Table(
    "federation_records",
    metadata,
    Column("part", Text, primary_key=True, comment="a field of the state of the superpeer"),
    Column("digest", LargeBinary, primary_key=True, comment="of the key, which may be long"),
    Column("key", Text, nullable=False, comment="JSON"),
    Column("value", Text, nullable=False, comment="JSON; see mdv/federation/records.py"),
    _now("at"),
    Column("changed_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    comment="The state of a superpeer: rules, indexes, transactions, copies, ….",
)

federation_journal = Table(
    "federation_journal",
    metadata,
    Column("transaction", Text, primary_key=True, comment="of the federation"),
    Column("step", Integer, primary_key=True, autoincrement=False, comment="the number of the action"),
    Column("position", BigInteger, nullable=False),
    Column("changes", JSONB, nullable=False, comment="[[document, removed, added], …], for compensation"),
    _now("at"),
    comment="What the transactions of a federation have changed at this MDP.",
)

federation_presence = Table(
    "federation_presence",
    metadata,
    Column("node", Text, primary_key=True, comment="a class or property"),
    Column("arcs", BigInteger, nullable=False, comment="number of arcs of it in the closure"),
    comment="What this MDP has data of, in a federation.",
)

federation_invitations = Table(
    "federation_invitations",
    metadata,
    Column("digest", LargeBinary, primary_key=True, comment="of the code"),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    comment="Codes with which an MDP can join once.",
)

replicated_rules = Table(
    "replicated_rules",
    metadata,
    Column("key", CodePoints, primary_key=True, comment="eca:… is an event-condition-action rule, lock:… a lock"),
    Column("at", BigInteger, nullable=False, comment="hybrid time of its last change, in microseconds"),
    Column("life", Text, nullable=False, comment="the life that made the change"),
    Column("value", JSONB, comment="NULL: it was removed"),
    Column("local_id", BigInteger, comment="the ID of the rule or lock here; NULL: there is none"),
    Column("is_new", Boolean, nullable=False, comment="it is not carried out here yet"),
    Index("replicated_rules_new", "key", postgresql_where=text("is_new")),
    comment="Rules and locks of the backbone: the last writer decides.",
)

refused_documents = Table(
    "refused_documents",
    metadata,
    Column("document_id", BigInteger, primary_key=True, autoincrement=False),
    comment="Documents that may have statements which the schema of the backbone refuses.",
)

replica_inbox = Table(
    "replica_inbox",
    metadata,
    Column("number", BigInteger, Identity(), primary_key=True),
    Column("subscription", Text, nullable=False, comment="the subscription that has brought it"),
    Column("life", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("chain", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    comment="Operations that logical replication has brought, until they are processed.",
)

statement_marks = Table(
    "statement_marks",
    metadata,
    Column("document_id", BigInteger, nullable=False),
    Column("hash", BigInteger, nullable=False),
    Column("statement", Text, nullable=False, comment="[subject, property, object] as JSON"),
    Column("state", JSONB, nullable=False, comment="a counter, or the operations that inserted it: [[life, seq], …]"),
    Index("statement_marks_statement", "document_id", "hash"),
    comment="The statements whose replicated state does not follow from their row.",
)

search_state = Table(
    "search_state",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true"), comment="there is one row"),
    Column("position", BigInteger, nullable=False, server_default=text("0"),
           comment="changes up to here are indexed, or in search_pending"),
    Column("label_properties", JSONB, nullable=False, server_default=text("'[]'::jsonb"),
           comment="the label properties when resources were indexed"),
    comment="How far the search index is up to date.",
)  # fmt: skip

search_pending = Table(
    "search_pending",
    metadata,
    Column("resource_id", BigInteger, primary_key=True, autoincrement=False),
    comment="Changed resources that are not indexed yet.",
)

search_texts = Table(
    "search_texts",
    metadata,
    Column("resource_id", BigInteger, primary_key=True, autoincrement=False),
    Column("words", TSVECTOR, nullable=False,
           comment="words of the URI and the literals; with =, words of labels; with @, IDs of classes"),
    Index("search_texts_words", "words", postgresql_using="gin"),
    comment="The search index. It is updated after registrations, not by them.",
)  # fmt: skip

rules = Table(
    "rules",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("owner", BigInteger, nullable=False, comment="an LMR, or 0 for the provider; names are unique per owner"),
    Column("name", CodePoints),
    Column("text", Text, nullable=False),
    Column("position", BigInteger, nullable=False, comment="of the transaction that last changed it"),
    _changed_by(),
    UniqueConstraint("owner", "name", name="rules_name"),
    comment="Subscription rules as written by their authors.",
)

rule_searches = Table(
    "rule_searches",
    metadata,
    Column("rule_id", BigInteger, ForeignKey("rules.id"), primary_key=True),
    Column("searched_id", BigInteger, ForeignKey("rules.id"), primary_key=True, index=True),
    comment="Rules that search other rules, which cannot be removed before them.",
)

suspended_rules = Table(
    "suspended_rules",
    metadata,
    Column("rule_id", BigInteger, ForeignKey("rules.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("owner", BigInteger, nullable=False, comment="of the rule"),
    Column("position", BigInteger, nullable=False, comment="of the transaction that suspended it"),
    Column("reason", Text, nullable=False),
    Column("seconds", Float, comment="the time limit that it exceeded"),
    Column(
        "broken",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="it is invalid under the schema; it is resumed when it is valid again",
    ),
    Column(
        "pending",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="it is being added: its matches are published in several transactions",
    ),
    Column(
        "counted_after",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="only matches with greater resource IDs count",
    ),
    Column("counted_up_to", BigInteger, comment="only matches up to this resource ID count; NULL: no limit"),
    _now("at"),
    Index("suspended_rules_owner", "owner"),
    comment="Rules that the filter does not evaluate because they took too long, or are invalid."
    " They are not in the rule graph.",
)

suspended_ends = Table(
    "suspended_ends",
    metadata,
    Column("rule_id", BigInteger, ForeignKey("suspended_rules.rule_id", ondelete="CASCADE"), primary_key=True,
           autoincrement=False),
    Column("end_id", BigInteger, primary_key=True, autoincrement=False),
    Column("owner", BigInteger, nullable=False, comment="of the rule"),
    Column("as_of", BigInteger, nullable=False, comment="matches as of this position still count for the owner"),
    Column("unit", BigInteger, nullable=False, comment="ranged ends of one unit are counted together"),
    Column("ranged", Boolean, nullable=False, comment="the rules of its group match ranges of constants"),
    Column("pattern", JSONB, nullable=False, comment="of its whole group"),
    Column("constants", JSONB, nullable=False, comment='in the order of the pattern: {"number": …} or {"text": …}'),
    Index("suspended_ends_unit", "owner", "unit", "as_of"),
    comment="Data to compute the matches of suspended rules, which stay as they were at `as_of`.",
)  # fmt: skip

rule_notices = Table(
    "rule_notices",
    metadata,
    Column("rule_id", BigInteger, primary_key=True, autoincrement=False),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column(
        "kind", SmallInteger, primary_key=True, autoincrement=False, comment="as in the feed: 5 suspended, 6 resumed"
    ),
    Column("reason", Text, nullable=False),
    comment="Reasons why rules were suspended or resumed, for the events in feeds.",
)

rule_ends = Table(
    "rule_ends",
    metadata,
    Column("rule_id", BigInteger, primary_key=True),
    Column("end_id", BigInteger, primary_key=True),
    Column("owner", BigInteger, nullable=False, comment="of the rule"),
    Index("rule_ends_end", "end_id", postgresql_include=["owner"]),
    comment="The end rules of subscription rules: the atomic rules that produce their results, one per conjunction.",
)

atomic_rules = Table(
    "atomic_rules",
    metadata,
    Column("rule_id", BigInteger, primary_key=True, autoincrement=False),
    Column("uses", Integer, nullable=False, comment="number of join rules and subscription rules that use it"),
    Column("group_id", Integer, comment="of a join rule"),
    Column("digest", Uuid, nullable=False, comment="of the text with full IRIs; unique"),
    Column("class", CodePoints, nullable=False, comment="the class of the resources that it registers"),
    Column("text", Text, nullable=False),
    Index("atomic_rules_digest", "digest", unique=True),
    comment="AtomicRules in the paper: every triggering and join rule once.",
)

rule_dependencies = Table(
    "rule_dependencies",
    metadata,
    Column("source", BigInteger, nullable=False),
    Column("target", BigInteger, primary_key=True, autoincrement=False),
    Column("param", SmallInteger, primary_key=True, autoincrement=False, comment="number of the input of the target"),
    Column("group_id", Integer, nullable=False, comment="of the target"),
    Index("rule_dependencies_source", "source"),
    comment="RuleDependencies in the paper: the global dependency graph.",
)

rule_groups = Table(
    "rule_groups",
    metadata,
    Column("group_id", Integer, Identity(), primary_key=True),
    Column("whole", Boolean, nullable=False, comment="true: a group of whole rules; false: of join rules"),
    Column("text", Text, nullable=False),
    Column("digest", Uuid, nullable=False),
    Column("members", BigInteger, nullable=False, comment="number of rules"),
    Column("pattern", JSONB, nullable=False, comment="the common part of its rules"),
    Column("driver", SmallInteger, comment="of a whole group: the leaf of the driving predicate"),
    Column("chosen_at", BigInteger, nullable=False, server_default=text("0"),
           comment="number of rules when the driving predicate was chosen"),
    Column("chosen_with", BigInteger, nullable=False, server_default=text("0"),
           comment="number of resources when the driving predicate was chosen"),
    UniqueConstraint("whole", "digest", name="rule_groups_digest"),
    comment="RuleGroups in the paper: join rules with the same where part and classes; and whole rules that differ only"
            " in their constants.",
)  # fmt: skip

end_rules = Table(
    "end_rules",
    metadata,
    Column("rule_id", BigInteger, primary_key=True, autoincrement=False),
    Column("driver_id", BigInteger, comment="the triggering rule that drives it; NULL: it has no constant"),
    Column("group_id", Integer, nullable=False, comment="its whole group"),
    Column("leaves", ARRAY(BigInteger), nullable=False, comment="its triggering rules in the order of the pattern"),
    Index("end_rules_driver", "driver_id", "group_id"),
    Index("end_rules_group", "group_id", "rule_id"),
    comment="End rules: atomic rules that produce the result of a subscription rule.",
)

rule_predicates = Table(
    "rule_predicates",
    metadata,
    Column("predicate_id", Integer, Identity(), primary_key=True),
    Column("class", CodePoints, nullable=False),
    Column("property", CodePoints, comment="NULL: the resource itself"),
    Column("operator", String(40), nullable=False),
    Column(
        "sort",
        String(9),
        nullable=False,
        comment="the compared values: numbers, instants, booleans, text or references",
    ),
    # Digests of the names, since names may be too long for an index.
    Index(
        "rule_predicates_key", text("md5(class)"), text("md5(coalesce(property, ''))"), "operator", "sort", unique=True
    ),
    comment="Predicates of triggering rules: class, property and operator without the constant.",
)


def _filter_rules(operator: Operator) -> Table:
    suffix = operator.entry.table
    return Table(
        operator.constants_table,
        metadata,
        Column("rule_id", BigInteger, primary_key=True, autoincrement=False),
        Column("predicate_id", Integer, nullable=False),
        Column("number", Numeric, comment="a number, an instant in seconds, 1 or 0 for true or false"),
        Column("value", CodePoints, comment="a text or a URI"),
        *_constant_indexes(operator.lookup, operator.constants_table),
        comment=f"FilterRulesOP in the paper, for {suffix}: triggering rules with their constants.",
    )


def _constant_indexes(lookup: Lookup, table: str) -> Sequence[Column[Any] | Index]:
    """Return the indexes of a constants table, with the columns that they need. Constants may be too long for an index,
    so their first or last 200 characters are the key."""
    number = Index(f"{table}_number", "predicate_id", "number", postgresql_include=["rule_id"],
                   postgresql_where=text("number is not null"))  # fmt: skip
    value = Index(f"{table}_value", "predicate_id", text("left(value, 200)"),
                  postgresql_where=text("value is not null"))  # fmt: skip
    match lookup:
        case Lookup.EQUAL | Lookup.UNEQUAL:
            return [number, value]
        case Lookup.ORDER:
            return [number]
        case Lookup.GRAM:
            comment = "a rare part of the constant, used as index key; empty: the constant is always compared"
            gram = Column("gram", CodePoints, nullable=False, server_default=text("''"), comment=comment)
            return [gram, Index(f"{table}_gram", "predicate_id", "gram")]
        case Lookup.PREFIX | Lookup.SUFFIX:
            key = "left(value, 200)" if lookup is Lookup.PREFIX else "right(value, 200)"
            lengths = Index(f"{table}_length", "predicate_id", text(f"length({key})"))
            return [Index(f"{table}_key", "predicate_id", text(key)), lengths]
        case Lookup.SCAN:
            return [Index(f"{table}_predicate", "predicate_id")]


FILTER_RULES_TABLES = {operator: _filter_rules(operator) for operator in Operator}
"""The tables of triggering rules by operator: FilterRulesOP in the paper."""

filter_rules = Table(
    "filter_rules",
    metadata,
    Column("rule_id", BigInteger, primary_key=True, autoincrement=False),
    Column("class", CodePoints, nullable=False),
    comment="FilterRules in the paper: triggering rules without a where part.",
)

result_objects = Table(
    "result_objects",
    metadata,
    Column("rule_id", BigInteger, nullable=False, comment="an end rule"),
    Column("resource_id", BigInteger, nullable=False),
    Column("matched", Boolean, nullable=False, comment="true: it matches now; false: it no longer matches"),
    prefixes=["UNLOGGED"],
    comment="ResultObjects in the paper: the changes that the last filter run found.",
)

result_ranges = Table(
    "result_ranges",
    metadata,
    Column("group_id", Integer, nullable=False, comment="a whole group with one constant, compared by order or !="),
    Column("resource_id", BigInteger, nullable=False),
    Column("first_rule", BigInteger, nullable=False, comment="only end rules from this ID on"),
    Column("last_rule", BigInteger, comment="only end rules up to this ID"),
    Column("gains", Boolean, nullable=False, comment="a rule matches now that did not match before"),
    *[Column(f"{end}_{when}", Numeric) for when in ("before", "after") for end in ("low", "high")],
    *[Column(f"{end}_text_{when}", CodePoints) for when in ("before", "after") for end in ("low", "high")],
    prefixes=["UNLOGGED"],
    comment="Changes that the last filter run found for rules that match ranges of constants: the least and the"
            " greatest value before and after, which determine the rules.",
)  # fmt: skip

lmrs = Table(
    "lmrs",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("name", CodePoints, nullable=False, unique=True),
    Column("kept_after", BigInteger, nullable=False, server_default=text("0"),
           comment="events up to this offset are deleted; cursors below it are invalid"),
    Column("cursor", BigInteger, comment="the offset of its last feed request"),
    Column("asked_at", DateTime(timezone=True), comment="time of its last feed request, within some seconds"),
    Column("paused", Boolean, nullable=False, server_default=text("false"), comment="its feed is held back"),
    _changed_by(),
    _now("created_at"),
    Column("lasting_id", Text, unique=True, comment="its ID at all members of the backbone"),
    Column("term", BigInteger, nullable=False, server_default=text("0"), comment="the number of its last adoption"),
    Column("home", Text, comment="the member where it is at home, which alone filters for it; NULL: here"),
    Column("announced", Boolean, nullable=False, server_default=text("false"),
           comment="the other members know its name and its tokens"),
    comment="Local metadata repositories.",
)  # fmt: skip

lmr_registers = Table(
    "lmr_registers",
    metadata,
    Column("key", CodePoints, primary_key=True, comment="an LMR, or an LMR and a rule"),
    Column("at", BigInteger, nullable=False, comment="for a rule: hybrid time; for an LMR: by adoption and change"),
    Column("life", Text, nullable=False),
    Column("value", JSONB, comment="NULL: removed"),
    comment="The LMRs of all members of the backbone, and their rules. The last writer decides.",
)

lmr_rules = Table(
    "lmr_rules",
    metadata,
    Column("lmr_id", BigInteger, ForeignKey("lmrs.id", ondelete="CASCADE"), primary_key=True),
    Column("rule_id", BigInteger, primary_key=True, autoincrement=False),
    Column("lasting_id", BigInteger, nullable=False, comment="its ID at all members"),
    UniqueConstraint("lmr_id", "lasting_id", name="lmr_rules_lasting"),
    comment="The IDs that rules of LMRs keep when the LMR changes its home. Those of removed rules remain.",
)

lmr_resources = Table(
    "lmr_resources",
    metadata,
    Column("lmr_id", BigInteger, primary_key=True, autoincrement=False),
    Column("resource_id", BigInteger, primary_key=True, autoincrement=False),
    Column("reasons", Integer, nullable=False,
           comment="number of the LMR's rules that select it (for rules that match ranges of constants: of groups)"),
    Index("lmr_resources_resource", "resource_id", "lmr_id"),
    comment="The closure of each LMR: resources that its rules select, and those strongly reachable from them.",
)  # fmt: skip

lmr_ranges = Table(
    "lmr_ranges",
    metadata,
    Column("group_id", Integer, primary_key=True, autoincrement=False),
    Column("lmr_id", BigInteger, primary_key=True, autoincrement=False),
    Column("operator", String(12), nullable=False),
    Column("least", Numeric),
    Column("greatest", Numeric),
    Column("least_text", CodePoints),
    Column("greatest_text", CodePoints),
    Index("lmr_ranges_least", "group_id", "least"),
    Index("lmr_ranges_greatest", "group_id", "greatest"),
    comment="The least and greatest constants of an LMR's rules that match ranges of constants. No others matter.",
)

feed = Table(
    "feed",
    metadata,
    Column("lmr_id", BigInteger, primary_key=True, autoincrement=False),
    Column("offset", BigInteger, primary_key=True, autoincrement=False),
    Column("tx", BigInteger, nullable=False, comment="position of its transaction"),
    Column(
        "kind",
        SmallInteger,
        nullable=False,
        comment="0 schema, 1 delete, 2 put, 3 unmatch, 4 match, 5 suspended, 6 resumed",
    ),
    Column("resource_id", BigInteger, comment="for kinds 5 and 6: the ID of the rule"),
    comment="The events of each LMR. The content of a resource at a position is read from the store.",
)

publications = Table(
    "publications",
    metadata,
    Column("tx", BigInteger, primary_key=True, autoincrement=False),
    Column("last_offset", BigInteger, nullable=False),
    Column("lmrs", ARRAY(BigInteger), nullable=False, comment="LMRs that received events"),
    _now("at"),
    comment="Transactions that produced events.",
)

news = Table(
    "news",
    metadata,
    Column("lmr_id", BigInteger, nullable=False),
    Column("resource_id", BigInteger, nullable=False),
    Column("kind", SmallInteger, nullable=False, comment="as in the feed; 0: it entered the closure; -1: it left"),
    Index("news_resource", "resource_id"),
    prefixes=["UNLOGGED"],
    comment="Changes that the last publication found.",
)

reason_changes = Table(
    "reason_changes",
    metadata,
    Column("lmr_id", BigInteger, nullable=False),
    Column("resource_id", BigInteger, nullable=False),
    Column("more", Integer, nullable=False),
    prefixes=["UNLOGGED"],
    comment="Changes of selection counts by changes of rules. Empty between transactions.",
)

doubtful_resources = Table(
    "doubtful_resources",
    metadata,
    Column("lmr_id", BigInteger, primary_key=True, autoincrement=False),
    Column("resource_id", BigInteger, primary_key=True, autoincrement=False),
    prefixes=["UNLOGGED"],
    comment="Resources that may have to leave the closure of an LMR. Empty between transactions.",
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("lmr_id", BigInteger, nullable=False, index=True),
    Column("tx", BigInteger, nullable=False),
    Column("first_offset", BigInteger, nullable=False, comment="of its first event"),
    Column("events", BigInteger, nullable=False),
    Column("whole", Boolean, nullable=False, comment="false: only some buckets"),
    _now("at"),
    comment="Snapshots that LMRs are fetching page by page.",
)

snapshot_events = Table(
    "snapshot_events",
    metadata,
    Column("snapshot_id", BigInteger, ForeignKey("snapshots.id", ondelete="CASCADE"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", SmallInteger, nullable=False),
    Column("resource_id", BigInteger),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False, comment="admin, viewer or lmr"),
    Column("lmr_id", BigInteger, ForeignKey("lmrs.id", ondelete="CASCADE"), index=True, comment="the LMR of the token"),
    Column("hash", LargeBinary, nullable=False, unique=True, comment="SHA-256 of the token, which is not stored"),
    Column("document_prefixes", ARRAY(Text), comment="NULL: any document"),
    Column("resource_prefixes", ARRAY(Text), comment="NULL: any resource"),
    _now("created_at"),
    Column("revoked_at", DateTime(timezone=True)),
    Column("expires_at", DateTime(timezone=True), comment="NULL: never"),
    Column("used_at", DateTime(timezone=True), comment="last use, exact to a minute"),
    Column("created_by", Text, comment="the caller who created it"),
)

users = Table(
    "users",
    metadata,
    Column("name", CodePoints, primary_key=True),
    Column("role", Text, nullable=False, comment="admin or viewer"),
    Column("password", Text, nullable=False, comment="scrypt hash with salt"),
    _now("created_at"),
    comment="Users who sign in to the web interface by name.",
)

web_sessions = Table(
    "web_sessions",
    metadata,
    Column("hash", LargeBinary, primary_key=True, comment="SHA-256 of the secret in the cookie, which is not stored"),
    Column("user_name", CodePoints, ForeignKey("users.name", ondelete="CASCADE", onupdate="CASCADE"), index=True,
           comment="the user, if signed in by name"),
    Column("token_id", Integer, ForeignKey("tokens.id", ondelete="CASCADE"), index=True,
           comment="the token, if signed in by token; neither: by the administrator token of the settings"),
    Column("token_hash", LargeBinary, comment="of the administrator token; changing the token ends the session"),
    Column("csrf", Text, nullable=False, comment="CSRF token that every form has to send"),
    _now("created_at"),
    _now("seen_at"),
    comment="Sessions of the web interface.",
)  # fmt: skip

sign_in_failures = Table(
    "sign_in_failures",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("who", CodePoints, nullable=False, comment="the user name, or the IP address of the client"),
    _now("at"),
    Index("sign_in_failures_who", "who", "at"),
    comment="Recent failed attempts to sign in.",
)

saved_queries = Table(
    "saved_queries",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", CodePoints, nullable=False, unique=True),
    Column("text", Text, nullable=False, comment="as written by its author"),
    Column("saved_by", Text, nullable=False, comment="who saved it last"),
    _now("saved_at"),
    comment="Queries that are saved under a name.",
)

figures = Table(
    "figures",
    metadata,
    Column("at", DateTime(timezone=True), primary_key=True, comment="start of the minute"),
    Column("transactions", Integer, nullable=False, server_default=text("0")),
    Column("documents", Integer, nullable=False, server_default=text("0"), comment="registered or deleted"),
    Column("filter_seconds", Float, nullable=False, server_default=text("0")),
    Column("lag_seconds", Float, nullable=False, server_default=text("0"), comment="maximum over all LMRs"),
    Column("waiting", Integer, nullable=False, server_default=text("0"), comment="maximum number of waiting jobs"),
    comment="Metrics by the minute, for the charts of the web interface.",
)

eca_templates = Table(
    "eca_templates",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("text", Text, nullable=False, comment="the normal text of one rule with this template"),
    Column("digest", LargeBinary, nullable=False, unique=True),
    comment="ECA rules that differ only in their constants have the same template, and are evaluated together.",
)

eca_rules = Table(
    "eca_rules",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("rule_set", CodePoints, nullable=False, comment="its insertions go to the document urn:mdv:eca:SET"),
    Column("name", CodePoints, unique=True),
    Column("text", Text, nullable=False, comment="as written by its author"),
    Column("normal", Text, nullable=False, comment="with all names resolved"),
    Column("state", String(11), nullable=False, comment="active, shadow, disabled or quarantined"),
    Column("reason", Text, comment="why it is quarantined"),
    Column("template_id", Integer, ForeignKey("eca_templates.id"), nullable=False, index=True),
    Column("constants", ARRAY(Text), nullable=False, comment="the texts of the slots of the template"),
    Column("rank", ARRAY(BigInteger), nullable=False, comment="rules run in the order of their ranks"),
    Column("precedes", ARRAY(Text), nullable=False, server_default=text("'{}'"), comment="names of rules"),
    Column("follows", ARRAY(Text), nullable=False, server_default=text("'{}'"), comment="names of rules"),
    Column(
        "prefixes", ARRAY(Text), comment="URI prefixes of the resources that its actions may describe; NULL: no limit"
    ),
    Column("position", BigInteger, nullable=False, comment="of the transaction that last changed it"),
    _now("created_at"),
    _changed_by(),
    Column(
        "document_prefixes",
        ARRAY(Text),
        comment="URI prefixes of the documents that its actions may write; NULL: no limit",
    ),
    Column(
        "broken_state",
        String(11),
        comment="its state before a schema made it invalid; it returns to it when it is valid again",
    ),
    comment="Event-condition-action rules as written by their authors.",
)

eca_keys = Table(
    "eca_keys",
    metadata,
    Column("template_id", Integer, primary_key=True),
    Column("key", CodePoints, primary_key=True, comment="the first characters of a constant; empty if there is none"),
    Column("rule_id", BigInteger, ForeignKey("eca_rules.id", ondelete="CASCADE"), primary_key=True, index=True),
    comment="Active and shadow rules by the constant of their most selective comparison.",
)

eca_classes = Table(
    "eca_classes",
    metadata,
    Column("class_id", BigInteger, primary_key=True),
    Column("superclass_id", BigInteger, primary_key=True, index=True),
    comment="The classes of the schema with all their superclasses, for paths through rdf:type.",
)

eca_counts = Table(
    "eca_counts",
    metadata,
    Column("rule_id", BigInteger, ForeignKey("eca_rules.id", ondelete="CASCADE"), primary_key=True),
    _count("fired", "copies of its actions that ran"),
    _count("failed", "copies that failed"),
    Column(
        "failures", Integer, nullable=False, server_default=text("0"), comment="transactions in a row that it failed in"
    ),
    Column("last_fired", DateTime(timezone=True)),
    comment="How often each ECA rule has fired and failed.",
)

eca_runs = Table(
    "eca_runs",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("position", BigInteger, index=True, comment="of its transaction; NULL if it was refused"),
    _now("at"),
    Column("cause", Text, nullable=False, comment="registration, update, detached or compensation"),
    Column("subject", Text, comment="the document that was registered"),
    Column("outcome", String(12), nullable=False, comment="done, refused or compensated"),
    Column("fired", Integer, nullable=False),
    Column("trace", JSONB, nullable=False),
    _changed_by(),
    Column("copies", JSONB, nullable=False, server_default=text("'[]'"),
           comment="the copies that fired, in order: number of the parent, rule, its name, ABORT, and state"),
    Column("compensated", ARRAY(Integer), nullable=False, server_default=text("'{}'"),
           comment="numbers of the copies that were compensated; -1: the transaction itself"),
    Column("parent_run", BigInteger, comment="the run that a detached copy is of"),
    Column("parent_copy", Integer, comment="the number of the detached copy there"),
    Column("origin", BigInteger, comment="the run that the first of a chain of detached copies is of"),
    Column("rules", ARRAY(BigInteger), nullable=False, server_default=text("'{}'"),
           comment="the rules that fired or failed in it"),
    Index("eca_runs_rules", "rules", postgresql_using="gin"),
    Index("eca_runs_at", "at"),
    Index("eca_runs_parent", "parent_run"),
    Index("eca_runs_origin", "origin"),
    comment="Runs of ECA rules: a transaction in which at least one rule fired. Kept for some days.",
)  # fmt: skip

eca_changes = Table(
    "eca_changes",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("position", BigInteger, nullable=False, index=True),
    Column("run_id", BigInteger, nullable=False, index=True),
    Column("step", Integer, nullable=False, comment="number of the update in the run"),
    Column("rule_id", BigInteger, index=True, comment="NULL: an action of POST /update"),
    Column("rule_name", Text),
    Column("delta", JSONB, comment="the instantiation of $delta"),
    Column("is_added", Boolean, nullable=False),
    Column("document", CodePoints, nullable=False),
    Column("subject", CodePoints, nullable=False),
    Column("property", CodePoints, nullable=False),
    Column("object", JSONB, nullable=False),
    Column("copy", Integer, comment="number of the copy in the run; NULL: the transaction itself"),
    Column("change", Integer, comment="number of the change in the update; equal for both parts of an UPDATE"),
    Index("eca_changes_subject", "subject", "property"),
    Index("eca_changes_document", "document", "id"),
    comment="Statements that actions of ECA rules added or removed. Kept for ever.",
)  # fmt: skip

real_processes = Table(
    "real_processes",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("iri", CodePoints, nullable=False, unique=True, comment="also the URI of its activity document"),
    Column("root", BigInteger, nullable=False, comment="the process that it descends from, or itself"),
    Column("parent", BigInteger, comment="the process that spawned it"),
    Column("action", Text, comment="the action that SPAWN started"),
    Column("code", Text, nullable=False),
    Column("prefixes", JSONB, nullable=False, comment="for names of the code, beside those of the schema"),
    Column("binding", JSON, nullable=False, comment="the variables that it begins with"),
    Column("into_document", CodePoints, nullable=False, comment="where its default context writes"),
    Column("settings", JSONB, nullable=False, comment="those of its machine: seed and limits"),
    Column("permissions", JSONB, nullable=False, comment="URI prefixes of the caller when the first process started"),
    Column("caller", Text, nullable=False, comment="the token or user that started the first process"),
    Column("token_id", Integer, comment="the token of the caller; NULL: a user, or the token of the settings"),
    Column("state", String(7), nullable=False, server_default=text("'ready'"),
           comment="ready, waiting, calling, full, done, failed or stopped"),
    Column("priority", SmallInteger, nullable=False, server_default=text("3"), comment="0 most urgent, 7 least"),
    Column("is_followed", Boolean, nullable=False, server_default=text("false"),
           comment="a request reads its solutions; it is stopped if that ends"),
    Column("keeps_solutions", Boolean, nullable=False, server_default=text("true"),
           comment="false: its solutions are counted, but not stored"),
    Column("is_taker", Boolean, nullable=False, server_default=text("false"),
           comment="it was woken for one new statement, which another may take if it ends"),
    Column("solution_limit", BigInteger, comment="it ends after this many solutions"),
    Column("position", BigInteger, nullable=False, server_default=text("0"), comment="of its last slice"),
    Column("wait_deadline", DateTime(timezone=True), comment="when the WAIT it is in ends"),
    Column("awaits", JSONB, comment="what it waits for, as written in its program"),
    Column("ready_at", DateTime(timezone=True), nullable=False, server_default=func.now(),
           comment="its turn among the ready ones: when it became ready, later for a lower priority"),
    Column("wake_at", DateTime(timezone=True), comment="when it becomes ready by itself"),
    Column("ran_at", DateTime(timezone=True), comment="end of its last slice"),
    Column("read_at", DateTime(timezone=True), comment="when a request last asked for its solutions"),
    _count("steps", "of its machine"),
    _count("effects", "of its machine"),
    _count("added", "statements that it added"),
    _count("removed", "statements that it removed"),
    _count("solutions", "that it found"),
    _count("read_solutions", "that were read"),
    _count("slices", "that were committed"),
    _count("conflicts", "slices that were run again"),
    _count("failures", "internal errors in a row"),
    Column("seconds", Float, nullable=False, server_default=text("0"), comment="of CPU"),
    Column("problem", JSONB(none_as_null=True), comment="why it failed or was stopped"),
    Column("stop_asked", Boolean, nullable=False, server_default=text("false")),
    Column("message", JSON(none_as_null=True), comment="of STOP"),
    _now("created_at"),
    Column("ended_at", DateTime(timezone=True)),
    Index("real_processes_ready", "ready_at", postgresql_where=text("state = 'ready'")),
    Index("real_processes_started", "priority", "ready_at",
          postgresql_where=text("state = 'ready' and parent is null")),
    Index("real_processes_wake", "wake_at", postgresql_where=text("wake_at is not null")),
    Index("real_processes_parent", "parent"),
    Index("real_processes_root", "root", postgresql_where=text("ended_at is null")),
    Index("real_processes_caller", "caller", postgresql_where=text("ended_at is null")),
    Index("real_processes_ended", "ended_at", postgresql_where=text("ended_at is not null")),
    comment="Processes: programs in the mode run.",
)  # fmt: skip

real_states = Table(
    "real_states",
    metadata,
    Column("process_id", BigInteger, ForeignKey("real_processes.id", ondelete="CASCADE"), primary_key=True),
    Column("version", BigInteger, nullable=False, comment="the number of slices"),
    Column("checkpoint", JSON, nullable=False, comment="the state of the machine, by mdv/real/checkpoint.py"),
    comment="What processes that have not ended go on with. A process without a row has not begun.",
)

real_waits = Table(
    "real_waits",
    metadata,
    Column("key", BigInteger, primary_key=True, autoincrement=False, comment="hash of what a change must be"),
    Column("process_id", BigInteger, ForeignKey("real_processes.id", ondelete="CASCADE"), primary_key=True, index=True),
    Column("read", JSON, nullable=False, comment="the pattern and the documents that the key stands for"),
    Column("property_id", Integer, nullable=False, index=True, comment="0: any property"),
    Column("takes", Boolean, nullable=False, comment="it takes what it waits for: one is woken for each statement"),
    Column("since", BigInteger, nullable=False, comment="when it began to wait, in microseconds since 1970"),
    Index("real_waits_takers", "key", "since", "process_id", postgresql_where=text("takes")),
    comment="What waiting processes wait for.",
)

real_solutions = Table(
    "real_solutions",
    metadata,
    Column("process_id", BigInteger, ForeignKey("real_processes.id", ondelete="CASCADE"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False, comment="from 1 on"),
    Column("binding", JSON, nullable=False),
    comment="Solutions of processes, until the process is deleted.",
)

real_log = Table(
    "real_log",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("process_id", BigInteger, ForeignKey("real_processes.id", ondelete="CASCADE"), nullable=False),
    Column("after_solution", BigInteger, nullable=False, comment="the number of solutions before it"),
    _now("at"),
    Column("kind", String(8), nullable=False, comment="log, warning, effect, commit, call, start or end"),
    Column("body", JSON, nullable=False),
    Index("real_log_process", "process_id", "id"),
    comment="What processes did and logged.",
)

real_calls = Table(
    "real_calls",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()"), comment="its Idempotency-Key"),
    Column("number", BigInteger, Identity(), nullable=False, comment="order of creation"),
    Column("process_id", BigInteger, ForeignKey("real_processes.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("request", CodePoints, nullable=False, comment="the URI of the service request"),
    Column("service", Text, comment="the URI of the requested service"),
    Column("endpoint", Text),
    Column("body", Text, nullable=False, comment="the request as Turtle"),
    Column("state", String(8), nullable=False, server_default=text("'waiting'"), comment="waiting, answered or failed"),
    Column("attempts", SmallInteger, nullable=False, server_default=text("0")),
    Column("not_before", DateTime(timezone=True), nullable=False, server_default=func.now(),
           comment="time of the next attempt; during an attempt: when another worker may claim it"),
    Column("status", SmallInteger, comment="HTTP status of the last attempt"),
    Column("reason", Text, comment="why the last attempt failed"),
    Column("media_type", Text, comment="of the answer"),
    Column("answer", LargeBinary, comment="until its statements are added"),
    _now("created_at"),
    Column("tried_at", DateTime(timezone=True), comment="start of the last attempt"),
    Column("ended_at", DateTime(timezone=True)),
    Index("real_calls_due", "not_before", postgresql_where=text("state = 'waiting'")),
    comment="Requests of processes to services.",
)  # fmt: skip

write_locks = Table(
    "write_locks",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("document_prefix", CodePoints, comment="NULL: in any document"),
    Column("subject", CodePoints, comment="NULL: any subject"),
    Column("property", CodePoints, comment="NULL: any property"),
    Column("object", JSON(none_as_null=True), comment="a term; NULL: any object"),
    _changed_by(),
    _now("created_at"),
    comment="Statements that programs must not change.",
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("number", BigInteger, Identity(), nullable=False, comment="order of submission"),
    Column("kind", String(16), nullable=False, comment="register, delete, subscribe, …"),
    Column("state", String(8), nullable=False, server_default=text("'queued'"),
           comment="queued, done, failed, or dead: a dead letter, which can be retried"),
    Column("priority", SmallInteger, nullable=False, server_default=text("3"), comment="0 most urgent, 7 least"),
    Column("uri", CodePoints, nullable=False),
    Column("body", LargeBinary, comment="the document; NULL after the job is done or failed"),
    Column("media_type", Text),
    Column("options", JSONB, nullable=False, server_default=text("'{}'"), comment="preconditions, dry run, limits"),
    Column("caller", Text, nullable=False, comment="Idempotency-Keys are unique per caller"),
    Column("request", Text, comment="ID of the request that submitted it"),
    Column("idempotency_key", Text),
    Column("request_hash", LargeBinary),
    Column("attempts", SmallInteger, nullable=False, server_default=text("0")),
    _now("not_before"),
    Column("result", JSONB(none_as_null=True)),
    Column("problem", JSONB(none_as_null=True), comment="of the last attempt"),
    _now("created_at"),
    Column("ended_at", DateTime(timezone=True)),
    UniqueConstraint("caller", "idempotency_key", name="jobs_idempotency_key"),
    Index("jobs_number", "number", unique=True),
    Index("jobs_waiting", "priority", "number", postgresql_where=text("state = 'queued'")),
    Index("jobs_waiting_uri", "uri", "number", postgresql_where=text("state = 'queued'")),
    Index("jobs_checks", "number", postgresql_where=text("kind in ('verify', 'repair')")),
    Index("jobs_failed", "state", "number", postgresql_where=text("state in ('failed', 'dead')")),
    comment="The job queue. This table is authoritative; Redis only wakes up workers.",
)  # fmt: skip

begun_jobs = Table(
    "begun_jobs",
    metadata,
    Column("job_id", Uuid, primary_key=True),
    Column("times", SmallInteger, nullable=False),
    prefixes=["UNLOGGED"],
    comment="Jobs that a worker is running, or was running when it died: how often each was started.",
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("lmr_id", BigInteger, ForeignKey("lmrs.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False, comment="stored in plain text, since it signs messages"),
    Column("old_secret", Text, comment="before the last rotation; also signs until old_secret_until"),
    Column("old_secret_until", DateTime(timezone=True)),
    Column("state", String(6), nullable=False, server_default=text("'active'"), comment="active or paused"),
    Column("reason", Text, comment="why it is paused"),
    Column("told_offset", BigInteger, nullable=False, comment="delivered up to this offset"),
    Column("made_offset", BigInteger, nullable=False, comment="messages were created up to this offset"),
    Column("failures", Integer, nullable=False, server_default=text("0"), comment="since the last delivery"),
    Column("failing_since", DateTime(timezone=True), comment="time of the first of these failures"),
    Column("dead", Integer, nullable=False, server_default=text("0"), comment="dead messages since the last delivery"),
    _now("created_at"),
    Index("webhooks_active", "id", postgresql_where=text("state = 'active'")),
    comment="URLs that are notified of new events in an LMR's feed.",
)  # fmt: skip

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()"), comment="its webhook-id header"),
    Column("number", BigInteger, Identity(), nullable=False, comment="order of creation"),
    Column("webhook_id", BigInteger, ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column("offset", BigInteger, nullable=False, comment="the message announces events up to this offset"),
    Column("position", BigInteger, nullable=False, comment="of the transaction of this offset"),
    Column("state", String(9), nullable=False, server_default=text("'waiting'"), comment="waiting, delivered or dead"),
    Column("attempts", SmallInteger, nullable=False, server_default=text("0")),
    Column("not_before", DateTime(timezone=True), nullable=False,
           comment="time of the next attempt; during an attempt: when another worker may claim it"),
    Column("status", SmallInteger, comment="HTTP status of the last attempt"),
    Column("reason", Text, comment="why the last attempt failed"),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("tried_at", DateTime(timezone=True), comment="start of the last attempt"),
    Column("ended_at", DateTime(timezone=True)),
    Index("webhook_deliveries_one", "webhook_id", unique=True, postgresql_where=text("state = 'waiting'")),
    Index("webhook_deliveries_due", "not_before", postgresql_where=text("state = 'waiting'")),
    Index("webhook_deliveries_number", "webhook_id", "number"),
    Index("webhook_deliveries_ended", "ended_at", postgresql_where=text("ended_at is not null")),
    comment="Messages to receivers: at most one waiting message for each webhook, and recent finished ones.",
)  # fmt: skip

batch_runs = Table(
    "batch_runs",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("what", Text, nullable=False, comment="description of the input"),
    Column("dry_run", Boolean, nullable=False),
    Column("state", String(7), nullable=False, server_default=text("'running'"), comment="running, done or failed"),
    Column("documents", BigInteger, comment="number of documents to process, once they are counted"),
    _count("registered", "promoted documents that were not registered before"),
    _count("changed", "promoted documents that changed"),
    _count("unchanged", "promoted documents that did not change"),
    _count("refused", "documents that could not be promoted"),
    _count("statements", "of the promoted documents"),
    _count("transactions", "of the promotion"),
    _now("started_at"),
    _now("heard_at"),
    Column("ended_at", DateTime(timezone=True)),
    comment="Runs of `mdv batch`. A run without recent heartbeat is dead.",
)

batch_partitions = Table(
    "batch_partitions",
    metadata,
    Column("run_id", Uuid, ForeignKey("batch_runs.id", ondelete="CASCADE"), primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("attempt", BigInteger, nullable=False, comment="the latest one; only this one counts"),
    Column("chunk", Integer, nullable=False, server_default=text("-1"), comment="the last chunk that is counted"),
    _count("prepared", "documents that were staged or, in a dry run, would be"),
    _count("statements", "of the prepared documents"),
    _count("fresh", "in a dry run: prepared documents that are not registered yet"),
    _count("same", "in a dry run: prepared documents that equal the stored ones"),
    _count("unchanged", "documents whose identical text is already registered"),
    _count("refused", "rejected documents"),
    _count("bytes", "of the texts that were read"),
    Column("preparing", Float, nullable=False, server_default=text("0"), comment="seconds spent on parsing"),
    Column("staging", Float, nullable=False, server_default=text("0"), comment="seconds spent on database writes"),
    Column("waiting", Float, nullable=False, server_default=text("0"), comment="seconds spent waiting for promotion"),
    Column("examples", JSONB, nullable=False, server_default=text("'[]'"), comment="the first rejected documents"),
    comment="The partitions of a run, each processed by a Spark task, with their counts.",
)

batch_chunks = Table(
    "batch_chunks",
    metadata,
    Column("run_id", Uuid, ForeignKey("batch_runs.id", ondelete="CASCADE"), primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("attempt", BigInteger, primary_key=True),
    Column("chunk", Integer, primary_key=True),
    Column("weight", Integer, nullable=False, comment="size of the texts in bytes"),
    Column("body", LargeBinary, nullable=False, comment="prepared documents, encoded by mdv/batch/arrow_codec.py"),
    comment="Staged documents: prepared and not yet registered.",
)

document_sources = Table(
    "document_sources",
    metadata,
    Column("document_id", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", LargeBinary, nullable=False, comment="of the text"),
    Column("content", LargeBinary, nullable=False, comment="digest of the statements, as in documents"),
    Column("run_id", Uuid, nullable=False, comment="the last run that registered it"),
    comment="Digests of the texts of documents that batches registered: an identical text is not parsed again.",
)
