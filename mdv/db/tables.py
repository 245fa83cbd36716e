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

There are no foreign keys on documents and statements: they would cost a look-up a row, and only `mdv.db.store` writes
them.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
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
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

metadata = MetaData()

CodePoints = Text(collation="C")
"""Text that is compared by code point, whatever the database's locale."""


def _now(name: str) -> Column[datetime]:
    return Column(name, DateTime(timezone=True), nullable=False, server_default=func.now())


def _count(name: str, comment: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"), comment=comment)


mdp_state = Table(
    "mdp_state",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true"), comment="there is one row"),
    Column("epoch", Uuid, nullable=False, server_default=text("gen_random_uuid()"), comment="this life of the MDP"),
    Column("position", BigInteger, nullable=False, server_default=text("0"), comment="of the last transaction"),
    Column("schema_version", Integer, nullable=False, server_default=text("0")),
    Column("last_resource", BigInteger, nullable=False, server_default=text("0"), comment="the last number given out"),
    Column("last_document", BigInteger, nullable=False, server_default=text("0"), comment="likewise"),
    Column("last_rule", BigInteger, nullable=False, server_default=text("0"), comment="likewise"),
    Column("last_atomic_rule", BigInteger, nullable=False, server_default=text("0"), comment="likewise"),
    Column("graph_version", BigInteger, nullable=False, server_default=text("0"),
           comment="another one whenever rule groups change: who remembers them reads them again"),
    Column("last_offset", BigInteger, nullable=False, server_default=text("0"), comment="of the feeds"),
    Column("lmrs", Integer, nullable=False, server_default=text("0"), comment="how many LMRs there are"),
    Column("home", Text, comment="the database that this is: another one was restored from a backup"),
    comment="Where the MDP stands. Locked by every writing transaction, so that positions follow commit order.",
)  # fmt: skip

transactions = Table(
    "transactions",
    metadata,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("cause", Text, nullable=False, comment="documents, schema or rules"),
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
    Column("document_id", BigInteger, primary_key=True, autoincrement=False),
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
        Column("blank", Boolean, nullable=False, server_default=text("false"),
               comment="the object is a blank node: the reference is strong, whatever the schema says"),
        Column("value", CodePoints, comment="the object, where it is a literal: its lexical form"),
        Column("lang", CodePoints),
        Column("number", Numeric, comment="the value as a number, where the schema says that it is one"),
        Column("instant", Numeric, comment="likewise, seconds since 1970"),
        Column("truth", Boolean, comment="likewise"),
    ]  # fmt: skip


filter_data = Table(
    "filter_data",
    metadata,
    *_statement_columns(),
    Index("filter_data_resource", "resource_id", "property_id"),
    Index("filter_data_target", "target_id", "property_id", "resource_id",
          postgresql_where=text("target_id is not null")),
    Index("filter_data_document", "document_id"),
    # For new rules, queries and joins on values. A long text is found by how it begins, and then compared.
    Index("filter_data_value", "property_id", text("left(value, 64)"), postgresql_where=text("value is not null")),
    Index("filter_data_number", "property_id", "number", postgresql_where=text("number is not null")),
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
    # The state before a transaction is looked up as the present one is.
    Index("filter_data_history_resource", "until_position", "resource_id", "property_id"),
    Index("filter_data_history_target", "until_position", "target_id", "property_id",
          postgresql_where=text("target_id is not null")),
    # A resource as of some position, for the feeds.
    Index("filter_data_history_past", "resource_id", "until_position"),
    comment="Statements that documents no longer make.",
)  # fmt: skip

rules = Table(
    "rules",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("owner", BigInteger, nullable=False, comment="whose rule it is: names are unique within"),
    Column("name", CodePoints),
    Column("text", Text, nullable=False),
    Column("position", BigInteger, nullable=False, comment="of the transaction that made it what it is"),
    UniqueConstraint("owner", "name", name="rules_name"),
    comment="Subscription rules, as they were written.",
)

rule_searches = Table(
    "rule_searches",
    metadata,
    Column("rule_id", BigInteger, ForeignKey("rules.id"), primary_key=True),
    Column("searched_id", BigInteger, ForeignKey("rules.id"), primary_key=True, index=True),
    comment="Rules that search other rules: those cannot vanish under them.",
)

rule_ends = Table(
    "rule_ends",
    metadata,
    Column("rule_id", BigInteger, primary_key=True),
    Column("end_id", BigInteger, primary_key=True),
    Column("owner", BigInteger, nullable=False, comment="the rule's"),
    Index("rule_ends_end", "end_id", postgresql_include=["owner"]),
    comment="The atomic rules that produce the result of a subscription rule, one a conjunction.",
)

atomic_rules = Table(
    "atomic_rules",
    metadata,
    Column("rule_id", BigInteger, primary_key=True, autoincrement=False),
    Column("uses", Integer, nullable=False, comment="by join rules and by subscription rules that end here"),
    Column("group_id", Integer, comment="of a join rule"),
    Column("digest", Uuid, nullable=False, comment="of the text with full names: no two rules have the same"),
    Column("class", CodePoints, nullable=False, comment="the rule's type: the class of what it registers"),
    Column("text", Text, nullable=False),
    Index("atomic_rules_digest", "digest", unique=True),
    comment="The paper's AtomicRules: every triggering and join rule once.",
)

rule_dependencies = Table(
    "rule_dependencies",
    metadata,
    Column("source", BigInteger, nullable=False),
    Column("target", BigInteger, primary_key=True, autoincrement=False),
    Column("param", SmallInteger, primary_key=True, autoincrement=False, comment="which input of the target"),
    Column("group_id", Integer, nullable=False, comment="the target's"),
    Index("rule_dependencies_source", "source"),
    comment="The paper's RuleDependencies: the global dependency graph.",
)

rule_groups = Table(
    "rule_groups",
    metadata,
    Column("group_id", Integer, Identity(), primary_key=True),
    Column("whole", Boolean, nullable=False, comment="true: of whole rules, evaluated at once; false: of join rules"),
    Column("text", Text, nullable=False),
    Column("digest", Uuid, nullable=False),
    Column("members", BigInteger, nullable=False, comment="how many rules it has"),
    Column("pattern", JSONB, nullable=False, comment="what its rules have in common"),
    Column("driver", SmallInteger, comment="of a whole group: the leaf of the pattern that finds its rules"),
    Column("chosen_at", BigInteger, nullable=False, server_default=text("0"),
           comment="how many rules there were when the driver was chosen"),
    Column("chosen_with", BigInteger, nullable=False, server_default=text("0"), comment="how many resources"),
    UniqueConstraint("whole", "digest", name="rule_groups_digest"),
    comment="The paper's RuleGroups: join rules with the same where part and classes; and whole rules that differ in"
            " their constants alone.",
)  # fmt: skip

end_rules = Table(
    "end_rules",
    metadata,
    Column("rule_id", BigInteger, primary_key=True, autoincrement=False),
    Column("driver_id", BigInteger, comment="the triggering rule that finds it; NULL where it has no constant"),
    Column("group_id", Integer, nullable=False, comment="its whole group"),
    Column("leaves", ARRAY(BigInteger), nullable=False, comment="its triggering rules, in the order of the pattern"),
    Index("end_rules_driver", "driver_id", "group_id"),
    Index("end_rules_group", "group_id", "rule_id"),
    comment="Atomic rules that some subscription rule ends in.",
)

rule_predicates = Table(
    "rule_predicates",
    metadata,
    Column("predicate_id", Integer, Identity(), primary_key=True),
    Column("class", CodePoints, nullable=False),
    Column("property", CodePoints, comment="NULL: the resource itself"),
    Column("operator", String(12), nullable=False),
    Column("sort", String(9), nullable=False, comment="what is compared: numbers, instants, truths, text, references"),
    # Of the names a digest: they may be too long for an index.
    Index(
        "rule_predicates_key", text("md5(class)"), text("md5(coalesce(property, ''))"), "operator", "sort", unique=True
    ),
    comment="What triggering rules with constants have in common but the constant.",
)


def _filter_rules(suffix: str, *more: Column[object] | Index) -> Table:
    name = f"filter_rules_{suffix}"
    return Table(
        name,
        metadata,
        Column("rule_id", BigInteger, primary_key=True, autoincrement=False),
        Column("predicate_id", Integer, nullable=False),
        Column("number", Numeric, comment="a number, an instant in seconds, 1 or 0 for true or false"),
        Column("value", CodePoints, comment="a text or a URI"),
        *more,
        comment=f"The paper's FilterRulesOP for {suffix}: triggering rules by their constants.",
    )


def _by_number(suffix: str) -> Index:
    return Index(f"filter_rules_{suffix}_number", "predicate_id", "number", postgresql_include=["rule_id"],
                 postgresql_where=text("number is not null"))  # fmt: skip


def _by_value(suffix: str) -> Index:
    return Index(f"filter_rules_{suffix}_value", "predicate_id", text("left(value, 200)"),
                 postgresql_where=text("value is not null"))  # fmt: skip


filter_rules_eq = _filter_rules("eq", _by_number("eq"), _by_value("eq"))
filter_rules_ne = _filter_rules("ne", _by_number("ne"), _by_value("ne"))
filter_rules_lt = _filter_rules("lt", _by_number("lt"))
filter_rules_le = _filter_rules("le", _by_number("le"))
filter_rules_gt = _filter_rules("gt", _by_number("gt"))
filter_rules_ge = _filter_rules("ge", _by_number("ge"))
filter_rules_con = _filter_rules(
    "con",
    Column("gram", CodePoints, nullable=False, server_default=text("''"),
           comment="a rare part of the constant, by which it is found; empty: it is always tried"),
    Index("filter_rules_con_gram", "predicate_id", "gram"),
)  # fmt: skip
filter_rules_ncon = _filter_rules("ncon", Index("filter_rules_ncon_predicate", "predicate_id"))

filter_rules = Table(
    "filter_rules",
    metadata,
    Column("rule_id", BigInteger, primary_key=True, autoincrement=False),
    Column("class", CodePoints, nullable=False),
    comment="The paper's FilterRules: triggering rules without a where part.",
)

result_objects = Table(
    "result_objects",
    metadata,
    Column("rule_id", BigInteger, nullable=False, comment="an end rule"),
    Column("resource_id", BigInteger, nullable=False),
    Column("matched", Boolean, nullable=False, comment="true: it matches and did not; false: it did and does not"),
    prefixes=["UNLOGGED"],
    comment="The paper's ResultObjects: what the last run of the filter found.",
)

result_ranges = Table(
    "result_ranges",
    metadata,
    Column("group_id", Integer, nullable=False, comment="a whole group with one constant, compared by order or !="),
    Column("resource_id", BigInteger, nullable=False),
    Column("first_rule", BigInteger, nullable=False, comment="only end rules from this one on"),
    Column("last_rule", BigInteger, comment="and up to this one"),
    Column("gains", Boolean, nullable=False, comment="whether some rule came to match"),
    *[Column(f"{end}_{when}", Numeric) for when in ("before", "after") for end in ("low", "high")],
    *[Column(f"{end}_text_{when}", CodePoints) for when in ("before", "after") for end in ("low", "high")],
    prefixes=["UNLOGGED"],
    comment="What the last run found for rules that match stretches of constants: the least and the greatest value,"
            " before and after, from which the rules follow.",
)  # fmt: skip

lmrs = Table(
    "lmrs",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("name", CodePoints, nullable=False, unique=True),
    Column("kept_after", BigInteger, nullable=False, server_default=text("0"),
           comment="offset up to which events are not kept: a cursor before it cannot go on"),
    Column("cursor", BigInteger, comment="the offset that it last asked from"),
    Column("asked_at", DateTime(timezone=True), comment="when that was, to some seconds"),
    Column("paused", Boolean, nullable=False, server_default=text("false"), comment="its feed is held back"),
    _now("created_at"),
    comment="Local metadata repositories.",
)  # fmt: skip

lmr_resources = Table(
    "lmr_resources",
    metadata,
    Column("lmr_id", BigInteger, primary_key=True, autoincrement=False),
    Column("resource_id", BigInteger, primary_key=True, autoincrement=False),
    Column("reasons", Integer, nullable=False,
           comment="how many of the LMR's rules select it (of rules that match stretches of constants: groups)"),
    Index("lmr_resources_resource", "resource_id", "lmr_id"),
    comment="What each LMR holds: what its rules select, and what that reaches over strong references, said or unsaid.",
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
    comment="Of rules that match stretches of constants, an LMR's least and greatest constant: no other one counts.",
)

feed = Table(
    "feed",
    metadata,
    Column("lmr_id", BigInteger, primary_key=True, autoincrement=False),
    Column("offset", BigInteger, primary_key=True, autoincrement=False),
    Column("tx", BigInteger, nullable=False, comment="the position of the transaction that it belongs to"),
    Column("kind", SmallInteger, nullable=False, comment="0 schema, 1 delete, 2 put, 3 unmatch, 4 match"),
    Column("resource_id", BigInteger),
    comment="What each LMR is told. What a resource was at that position, the store knows.",
)

publications = Table(
    "publications",
    metadata,
    Column("tx", BigInteger, primary_key=True, autoincrement=False),
    Column("last_offset", BigInteger, nullable=False),
    Column("lmrs", ARRAY(BigInteger), nullable=False, comment="those that it concerns"),
    _now("at"),
    comment="The transactions that some LMR was told of.",
)

news = Table(
    "news",
    metadata,
    Column("lmr_id", BigInteger, nullable=False),
    Column("resource_id", BigInteger, nullable=False),
    Column("kind", SmallInteger, nullable=False, comment="as in the feed; 0: it entered"),
    Index("news_resource", "resource_id"),
    prefixes=["UNLOGGED"],
    comment="What the last publication found.",
)

reason_changes = Table(
    "reason_changes",
    metadata,
    Column("lmr_id", BigInteger, nullable=False),
    Column("resource_id", BigInteger, nullable=False),
    Column("more", Integer, nullable=False),
    prefixes=["UNLOGGED"],
    comment="Reasons that came or went with rules. Empty between transactions.",
)

doubtful_resources = Table(
    "doubtful_resources",
    metadata,
    Column("lmr_id", BigInteger, primary_key=True, autoincrement=False),
    Column("resource_id", BigInteger, primary_key=True, autoincrement=False),
    prefixes=["UNLOGGED"],
    comment="What may have lost its last reason to be at an LMR. Empty between transactions.",
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("lmr_id", BigInteger, nullable=False, index=True),
    Column("tx", BigInteger, nullable=False),
    Column("first_offset", BigInteger, nullable=False, comment="of its first event"),
    Column("events", BigInteger, nullable=False),
    Column("whole", Boolean, nullable=False, comment="false: of some buckets alone"),
    _now("at"),
    comment="Snapshots that are being fetched, page by page.",
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
    Column("lmr_id", BigInteger, ForeignKey("lmrs.id", ondelete="CASCADE"), index=True, comment="whose token it is"),
    Column("hash", LargeBinary, nullable=False, unique=True, comment="SHA-256 of the token, which is kept nowhere"),
    Column("document_prefixes", ARRAY(Text), comment="NULL: any document"),
    Column("resource_prefixes", ARRAY(Text), comment="NULL: any resource"),
    _now("created_at"),
    Column("revoked_at", DateTime(timezone=True)),
)

users = Table(
    "users",
    metadata,
    Column("name", CodePoints, primary_key=True),
    Column("role", Text, nullable=False, comment="admin or viewer"),
    Column("password", Text, nullable=False, comment="its scrypt hash, with salt and cost"),
    _now("created_at"),
    comment="People who sign in to the pages by name.",
)

web_sessions = Table(
    "web_sessions",
    metadata,
    Column("hash", LargeBinary, primary_key=True, comment="SHA-256 of what the cookie holds, which is kept nowhere"),
    Column("user_name", CodePoints, ForeignKey("users.name", ondelete="CASCADE", onupdate="CASCADE"), index=True,
           comment="who signed in by name"),
    Column("token_id", Integer, ForeignKey("tokens.id", ondelete="CASCADE"), index=True,
           comment="or by a token; neither: by the admin token of the settings"),
    Column("token_hash", LargeBinary, comment="of that admin token: another one ends the session"),
    Column("csrf", Text, nullable=False, comment="what every form has to show"),
    _now("created_at"),
    _now("seen_at"),
    comment="Who has signed in to the pages.",
)  # fmt: skip

sign_in_failures = Table(
    "sign_in_failures",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("who", CodePoints, nullable=False, comment="the name that was tried, or the address that it came from"),
    _now("at"),
    Index("sign_in_failures_who", "who", "at"),
    comment="Attempts to sign in that failed, of the last while.",
)

saved_queries = Table(
    "saved_queries",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", CodePoints, nullable=False, unique=True),
    Column("text", Text, nullable=False, comment="as it was written"),
    Column("saved_by", Text, nullable=False, comment="who wrote it last"),
    _now("saved_at"),
    comment="Queries that people keep under a name.",
)

figures = Table(
    "figures",
    metadata,
    Column("at", DateTime(timezone=True), primary_key=True, comment="the minute that begins then"),
    Column("transactions", Integer, nullable=False, server_default=text("0")),
    Column("documents", Integer, nullable=False, server_default=text("0"), comment="registered or deleted"),
    Column("filter_seconds", Float, nullable=False, server_default=text("0")),
    Column("lag_seconds", Float, nullable=False, server_default=text("0"), comment="of the furthest LMR, at most"),
    Column("waiting", Integer, nullable=False, server_default=text("0"), comment="jobs, at most"),
    comment="What the pages draw, minute by minute.",
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("number", BigInteger, Identity(), nullable=False, comment="the order of arrival"),
    Column("kind", String(16), nullable=False, comment="what is to be done"),
    Column("state", String(8), nullable=False, server_default=text("'queued'"),
           comment="queued, done, failed, or dead: failed by no fault of its own, to be looked at"),
    Column("priority", SmallInteger, nullable=False, server_default=text("3"), comment="0 before all, 7 after all"),
    Column("uri", CodePoints, nullable=False),
    Column("body", LargeBinary, comment="the document; NULL once the job is done or failed"),
    Column("media_type", Text),
    Column("options", JSONB, nullable=False, server_default=text("'{}'"), comment="preconditions, dry run, limits"),
    Column("caller", Text, nullable=False, comment="whose Idempotency-Keys these are"),
    Column("request", Text, comment="the name of the request that it came with"),
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
    Index("jobs_failed", "state", "number", postgresql_where=text("state in ('failed', 'dead')")),
    comment="What is to be done: the truth, of which the queue in Redis is only the wake-up.",
)  # fmt: skip

begun_jobs = Table(
    "begun_jobs",
    metadata,
    Column("job_id", Uuid, primary_key=True),
    Column("times", SmallInteger, nullable=False),
    prefixes=["UNLOGGED"],
    comment="Jobs that a worker has in hand, or had in hand when it died: how often.",
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("lmr_id", BigInteger, ForeignKey("lmrs.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False, comment="needed to sign, and so kept as it is"),
    Column("old_secret", Text, comment="of before the last rotation: signs, too, for a while"),
    Column("old_secret_until", DateTime(timezone=True)),
    Column("state", String(6), nullable=False, server_default=text("'active'"), comment="active or paused"),
    Column("reason", Text, comment="why it is paused"),
    Column("told_offset", BigInteger, nullable=False, comment="up to which the receiver was told"),
    Column("made_offset", BigInteger, nullable=False, comment="up to which messages were made, also if they died"),
    Column("failures", Integer, nullable=False, server_default=text("0"), comment="since anything was delivered"),
    Column("failing_since", DateTime(timezone=True), comment="when the first of them was"),
    Column("dead", Integer, nullable=False, server_default=text("0"), comment="messages that died since then"),
    _now("created_at"),
    Index("webhooks_active", "id", postgresql_where=text("state = 'active'")),
    comment="Addresses that are told when an LMR's feed goes on.",
)  # fmt: skip

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()"), comment="the message's webhook-id"),
    Column("number", BigInteger, Identity(), nullable=False, comment="the order in which they were made"),
    Column("webhook_id", BigInteger, ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column("offset", BigInteger, nullable=False, comment="what it tells: there is something new up to here"),
    Column("position", BigInteger, nullable=False, comment="of the transaction that this is part of"),
    Column("state", String(9), nullable=False, server_default=text("'waiting'"), comment="waiting, delivered or dead"),
    Column("attempts", SmallInteger, nullable=False, server_default=text("0")),
    Column("not_before", DateTime(timezone=True), nullable=False,
           comment="of the next attempt; of one that is being made, when it is given up for lost"),
    Column("status", SmallInteger, comment="what the receiver answered last"),
    Column("reason", Text, comment="why that was no success"),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("tried_at", DateTime(timezone=True), comment="when the last attempt began"),
    Column("ended_at", DateTime(timezone=True)),
    Index("webhook_deliveries_one", "webhook_id", unique=True, postgresql_where=text("state = 'waiting'")),
    Index("webhook_deliveries_due", "not_before", postgresql_where=text("state = 'waiting'")),
    Index("webhook_deliveries_number", "webhook_id", "number"),
    Index("webhook_deliveries_ended", "ended_at", postgresql_where=text("ended_at is not null")),
    comment="Messages to receivers: for each webhook at most one that waits, and those that ended lately.",
)  # fmt: skip

batch_runs = Table(
    "batch_runs",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("what", Text, nullable=False, comment="what it registers, for people"),
    Column("dry_run", Boolean, nullable=False),
    Column("state", String(7), nullable=False, server_default=text("'running'"), comment="running, done or failed"),
    Column("documents", BigInteger, comment="that it has to look at, once they are counted"),
    _count("registered", "documents promoted that were not registered before"),
    _count("changed", "documents promoted that say something else now"),
    _count("unchanged", "documents promoted that say what they said"),
    _count("refused", "documents that could not be promoted"),
    _count("statements", "of the documents promoted"),
    _count("transactions", "in which they were"),
    _now("started_at"),
    _now("heard_at"),
    Column("ended_at", DateTime(timezone=True)),
    comment="Runs of `mdv batch`. One that is not heard of any more has died.",
)

batch_partitions = Table(
    "batch_partitions",
    metadata,
    Column("run_id", Uuid, ForeignKey("batch_runs.id", ondelete="CASCADE"), primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("attempt", BigInteger, nullable=False, comment="the latest, and the only one that counts"),
    Column("chunk", Integer, nullable=False, server_default=text("-1"), comment="the last one that is counted here"),
    _count("prepared", "documents that were staged or, in a dry run, would be"),
    _count("statements", "of those"),
    _count("fresh", "in a dry run: of those, the documents that are not registered yet"),
    _count("same", "in a dry run: of those, the documents that say what is stored"),
    _count("unchanged", "documents whose very text was registered already"),
    _count("refused", "documents"),
    _count("bytes", "of the texts that were read"),
    Column("preparing", Float, nullable=False, server_default=text("0"), comment="seconds from texts to statements"),
    Column("staging", Float, nullable=False, server_default=text("0"), comment="seconds with the database"),
    Column("waiting", Float, nullable=False, server_default=text("0"), comment="seconds for promotion to catch up"),
    Column("examples", JSONB, nullable=False, server_default=text("'[]'"), comment="the first refusals"),
    comment="The parts of a run that Spark's executors work on, and what each came to.",
)

batch_chunks = Table(
    "batch_chunks",
    metadata,
    Column("run_id", Uuid, ForeignKey("batch_runs.id", ondelete="CASCADE"), primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("attempt", BigInteger, primary_key=True),
    Column("chunk", Integer, primary_key=True),
    Column("weight", Integer, nullable=False, comment="bytes of the texts"),
    Column("body", LargeBinary, nullable=False, comment="prepared documents, as mdv/batch/pack.py packs them"),
    comment="Staging: documents that are prepared and not yet registered.",
)

document_sources = Table(
    "document_sources",
    metadata,
    Column("document_id", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", LargeBinary, nullable=False, comment="of the text"),
    Column("content", LargeBinary, nullable=False, comment="of what the text says, as in documents"),
    Column("run_id", Uuid, nullable=False, comment="the last run that registered it"),
    comment="The texts from which batches registered documents: who meets one again need not parse it.",
)
