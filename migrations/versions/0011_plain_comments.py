"""Plain comments of tables and columns, and a view of the constants of all triggering rules."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

OPERATORS = ["eq", "ne", "lt", "le", "gt", "ge", "con", "ncon"]

TABLE_COMMENTS = {
    "atomic_rules": (
        "The paper's AtomicRules: every triggering and join rule once.",
        "AtomicRules in the paper: every triggering and join rule once.",
    ),
    "batch_chunks": (
        "Staging: documents that are prepared and not yet registered.",
        "Staged documents: prepared and not yet registered.",
    ),
    "batch_partitions": (
        "The parts of a run that Spark's executors work on, and what each came to.",
        "The partitions of a run, each processed by a Spark task, with their counts.",
    ),
    "batch_runs": (
        "Runs of `mdv batch`. One that is not heard of any more has died.",
        "Runs of `mdv batch`. A run without recent heartbeat is dead.",
    ),
    "begun_jobs": (
        "Jobs that a worker has in hand, or had in hand when it died: how often.",
        "Jobs that a worker is running, or was running when it died: how often each was started.",
    ),
    "document_sources": (
        "The texts from which batches registered documents: who meets one again need not parse it.",
        "Digests of the texts of documents that batches registered: an identical text is not parsed again.",
    ),
    "doubtful_resources": (
        "What may have lost its last reason to be at an LMR. Empty between transactions.",
        "Resources that may have to leave the closure of an LMR. Empty between transactions.",
    ),
    "end_rules": (
        "Atomic rules that some subscription rule ends in.",
        "End rules: atomic rules that produce the result of a subscription rule.",
    ),
    "feed": (
        "What each LMR is told. What a resource was at that position, the store knows.",
        "The events of each LMR. The content of a resource at a position is read from the store.",
    ),
    "figures": (
        "What the pages draw, minute by minute.",
        "Metrics by the minute, for the charts of the web interface.",
    ),
    "filter_data": (
        "The paper's FilterData: the atoms of all documents, encoded. filter_data_view shows them as in the paper.",
        "FilterData in the paper: the atoms of all documents, encoded. filter_data_view shows them decoded.",
    ),
    "filter_data_history": (
        "Statements that documents no longer make.",
        "Statements that were removed from documents.",
    ),
    "filter_rules": (
        "The paper's FilterRules: triggering rules without a where part.",
        "FilterRules in the paper: triggering rules without a where part.",
    ),
    "filter_rules_con": (
        "The paper's FilterRulesOP for con: triggering rules by their constants.",
        "FilterRulesOP in the paper, for con: triggering rules with their constants.",
    ),
    "filter_rules_eq": (
        "The paper's FilterRulesOP for eq: triggering rules by their constants.",
        "FilterRulesOP in the paper, for eq: triggering rules with their constants.",
    ),
    "filter_rules_ge": (
        "The paper's FilterRulesOP for ge: triggering rules by their constants.",
        "FilterRulesOP in the paper, for ge: triggering rules with their constants.",
    ),
    "filter_rules_gt": (
        "The paper's FilterRulesOP for gt: triggering rules by their constants.",
        "FilterRulesOP in the paper, for gt: triggering rules with their constants.",
    ),
    "filter_rules_le": (
        "The paper's FilterRulesOP for le: triggering rules by their constants.",
        "FilterRulesOP in the paper, for le: triggering rules with their constants.",
    ),
    "filter_rules_lt": (
        "The paper's FilterRulesOP for lt: triggering rules by their constants.",
        "FilterRulesOP in the paper, for lt: triggering rules with their constants.",
    ),
    "filter_rules_ncon": (
        "The paper's FilterRulesOP for ncon: triggering rules by their constants.",
        "FilterRulesOP in the paper, for ncon: triggering rules with their constants.",
    ),
    "filter_rules_ne": (
        "The paper's FilterRulesOP for ne: triggering rules by their constants.",
        "FilterRulesOP in the paper, for ne: triggering rules with their constants.",
    ),
    "jobs": (
        "What is to be done: the truth, of which the queue in Redis is only the wake-up.",
        "The job queue. This table is authoritative; Redis only wakes up workers.",
    ),
    "lmr_ranges": (
        "Of rules that match stretches of constants, an LMR's least and greatest constant: no other one counts.",
        "The least and greatest constants of an LMR's rules that match ranges of constants. No others matter.",
    ),
    "lmr_resources": (
        "What each LMR holds: what its rules select, and what that reaches over strong references, said or unsaid.",
        "The closure of each LMR: resources that its rules select, and those strongly reachable from them.",
    ),
    "mdp_state": (
        "Where the MDP stands. Locked by every writing transaction, so that positions follow commit order.",
        "The state of the MDP. Every writing transaction locks it, so that positions follow commit order.",
    ),
    "news": ("What the last publication found.", "Changes that the last publication found."),
    "publications": ("The transactions that some LMR was told of.", "Transactions that produced events."),
    "reason_changes": (
        "Reasons that came or went with rules. Empty between transactions.",
        "Changes of selection counts by changes of rules. Empty between transactions.",
    ),
    "resources": (
        "Every URI that is the subject or the object of some statement.",
        "Every URI that is the subject or object of a statement.",
    ),
    "result_objects": (
        "The paper's ResultObjects: what the last run of the filter found.",
        "ResultObjects in the paper: the changes that the last filter run found.",
    ),
    "result_ranges": (
        "What the last run found for rules that match stretches of constants: the least and the greatest value, before and after, from which the rules follow.",
        "Changes that the last filter run found for rules that match ranges of constants: the least and the greatest value before and after, which determine the rules.",
    ),
    "rule_dependencies": (
        "The paper's RuleDependencies: the global dependency graph.",
        "RuleDependencies in the paper: the global dependency graph.",
    ),
    "rule_ends": (
        "The atomic rules that produce the result of a subscription rule, one a conjunction.",
        "The end rules of subscription rules: the atomic rules that produce their results, one per conjunction.",
    ),
    "rule_groups": (
        "The paper's RuleGroups: join rules with the same where part and classes; and whole rules that differ in their constants alone.",
        "RuleGroups in the paper: join rules with the same where part and classes; and whole rules that differ only in their constants.",
    ),
    "rule_notices": (
        "Why rules were suspended and resumed: the text of these events in feeds.",
        "Reasons why rules were suspended or resumed, for the events in feeds.",
    ),
    "rule_predicates": (
        "What triggering rules with constants have in common but the constant.",
        "Predicates of triggering rules: class, property and operator without the constant.",
    ),
    "rule_searches": (
        "Rules that search other rules: those cannot vanish under them.",
        "Rules that search other rules, which cannot be removed before them.",
    ),
    "rules": ("Subscription rules, as they were written.", "Subscription rules as written by their authors."),
    "saved_queries": ("Queries that people keep under a name.", "Queries that are saved under a name."),
    "sign_in_failures": ("Attempts to sign in that failed, of the last while.", "Recent failed attempts to sign in."),
    "snapshots": ("Snapshots that are being fetched, page by page.", "Snapshots that LMRs are fetching page by page."),
    "suspended_ends": (
        "What the matches of suspended rules can be computed from: they stay as they were at `as_of`.",
        "Data to compute the matches of suspended rules, which stay as they were at `as_of`.",
    ),
    "suspended_rules": (
        "Rules that the filter does not evaluate, since they took too long. They have no part in the graph.",
        "Rules that the filter does not evaluate because they took too long. They are not in the rule graph.",
    ),
    "transactions": (
        "One row a change of the visible state: when, and why.",
        "One row for each change of the visible state, with its time and cause.",
    ),
    "users": ("People who sign in to the pages by name.", "Users who sign in to the web interface by name."),
    "vocabulary": ("Properties and datatypes, as small integers.", "Integer IDs of properties and datatypes."),
    "web_sessions": ("Who has signed in to the pages.", "Sessions of the web interface."),
    "webhook_deliveries": (
        "Messages to receivers: for each webhook at most one that waits, and those that ended lately.",
        "Messages to receivers: at most one waiting message for each webhook, and recent finished ones.",
    ),
    "webhooks": (
        "Addresses that are told when an LMR's feed goes on.",
        "URLs that are notified of new events in an LMR's feed.",
    ),
}
"""By table, the comments before and after."""

COLUMN_COMMENTS = {
    ("atomic_rules", "class"): (
        "the rule's type: the class of what it registers",
        "the class of the resources that it registers",
    ),
    ("atomic_rules", "digest"): (
        "of the text with full names: no two rules have the same",
        "of the text with full IRIs; unique",
    ),
    ("atomic_rules", "uses"): (
        "by join rules and by subscription rules that end here",
        "number of join rules and subscription rules that use it",
    ),
    ("batch_chunks", "body"): (
        "prepared documents, as mdv/batch/pack.py packs them",
        "prepared documents, encoded by mdv/batch/arrow_codec.py",
    ),
    ("batch_chunks", "weight"): ("bytes of the texts", "size of the texts in bytes"),
    ("batch_partitions", "attempt"): (
        "the latest, and the only one that counts",
        "the latest one; only this one counts",
    ),
    ("batch_partitions", "chunk"): ("the last one that is counted here", "the last chunk that is counted"),
    ("batch_partitions", "examples"): ("the first refusals", "the first rejected documents"),
    ("batch_partitions", "fresh"): (
        "in a dry run: of those, the documents that are not registered yet",
        "in a dry run: prepared documents that are not registered yet",
    ),
    ("batch_partitions", "preparing"): ("seconds from texts to statements", "seconds spent on parsing"),
    ("batch_partitions", "refused"): ("documents", "rejected documents"),
    ("batch_partitions", "same"): (
        "in a dry run: of those, the documents that say what is stored",
        "in a dry run: prepared documents that equal the stored ones",
    ),
    ("batch_partitions", "staging"): ("seconds with the database", "seconds spent on database writes"),
    ("batch_partitions", "statements"): ("of those", "of the prepared documents"),
    ("batch_partitions", "unchanged"): (
        "documents whose very text was registered already",
        "documents whose identical text is already registered",
    ),
    ("batch_partitions", "waiting"): ("seconds for promotion to catch up", "seconds spent waiting for promotion"),
    ("batch_runs", "changed"): ("documents promoted that say something else now", "promoted documents that changed"),
    ("batch_runs", "documents"): (
        "that it has to look at, once they are counted",
        "number of documents to process, once they are counted",
    ),
    ("batch_runs", "registered"): (
        "documents promoted that were not registered before",
        "promoted documents that were not registered before",
    ),
    ("batch_runs", "statements"): ("of the documents promoted", "of the promoted documents"),
    ("batch_runs", "transactions"): ("in which they were", "of the promotion"),
    ("batch_runs", "unchanged"): (
        "documents promoted that say what they said",
        "promoted documents that did not change",
    ),
    ("batch_runs", "what"): ("what it registers, for people", "description of the input"),
    ("document_sources", "content"): (
        "of what the text says, as in documents",
        "digest of the statements, as in documents",
    ),
    ("documents", "content"): (
        "digest of the statements: equal means identical",
        "digest of the statements; equal digests mean identical documents",
    ),
    ("documents", "present"): ("false: deleted, kept for its history", "false: deleted, but kept for its history"),
    ("end_rules", "driver_id"): (
        "the triggering rule that finds it; NULL where it has no constant",
        "the triggering rule that drives it; NULL: it has no constant",
    ),
    ("end_rules", "leaves"): (
        "its triggering rules, in the order of the pattern",
        "its triggering rules in the order of the pattern",
    ),
    ("feed", "resource_id"): ("of 5 and 6, the number of the rule", "for kinds 5 and 6: the ID of the rule"),
    ("feed", "tx"): ("the position of the transaction that it belongs to", "position of its transaction"),
    ("figures", "at"): ("the minute that begins then", "start of the minute"),
    ("figures", "lag_seconds"): ("of the furthest LMR, at most", "maximum over all LMRs"),
    ("figures", "waiting"): ("jobs, at most", "maximum number of waiting jobs"),
    ("filter_data", "blank"): (
        "the object is a blank node: the reference is strong, whatever the schema says",
        "the object is a blank node, so the reference is always strong",
    ),
    ("filter_data", "hash"): ("64 bits of subject, property and object", "64-bit hash of subject, property and object"),
    ("filter_data", "instant"): (
        "likewise, seconds since 1970",
        "the value as seconds since 1970, if the schema defines it as an instant",
    ),
    ("filter_data", "number"): (
        "the value as a number, where the schema says that it is one",
        "the value as a number, if the schema defines it as one",
    ),
    ("filter_data", "position"): ("of the transaction that it came with", "of the transaction that added it"),
    ("filter_data", "shows"): ("its coming was visible", "its addition was visible"),
    ("filter_data", "target_id"): ("the object, where it is a URI", "the object, if it is a URI"),
    ("filter_data", "truth"): ("likewise", "the value as a boolean, if the schema defines it as one"),
    ("filter_data", "value"): (
        "the object, where it is a literal: its lexical form",
        "the lexical form of the object, if it is a literal",
    ),
    ("filter_data_history", "blank"): (
        "the object is a blank node: the reference is strong, whatever the schema says",
        "the object is a blank node, so the reference is always strong",
    ),
    ("filter_data_history", "hash"): (
        "64 bits of subject, property and object",
        "64-bit hash of subject, property and object",
    ),
    ("filter_data_history", "hides"): ("its going was visible", "its removal was visible"),
    ("filter_data_history", "instant"): (
        "likewise, seconds since 1970",
        "the value as seconds since 1970, if the schema defines it as an instant",
    ),
    ("filter_data_history", "number"): (
        "the value as a number, where the schema says that it is one",
        "the value as a number, if the schema defines it as one",
    ),
    ("filter_data_history", "position"): ("of the transaction that it came with", "of the transaction that added it"),
    ("filter_data_history", "shows"): ("its coming was visible", "its addition was visible"),
    ("filter_data_history", "target_id"): ("the object, where it is a URI", "the object, if it is a URI"),
    ("filter_data_history", "truth"): ("likewise", "the value as a boolean, if the schema defines it as one"),
    ("filter_data_history", "until_position"): (
        "of the transaction that it went with",
        "of the transaction that removed it",
    ),
    ("filter_data_history", "value"): (
        "the object, where it is a literal: its lexical form",
        "the lexical form of the object, if it is a literal",
    ),
    ("filter_rules_con", "gram"): (
        "a rare part of the constant, by which it is found; empty: it is always tried",
        "a rare part of the constant, used as index key; empty: the constant is always compared",
    ),
    ("jobs", "body"): (
        "the document; NULL once the job is done or failed",
        "the document; NULL after the job is done or failed",
    ),
    ("jobs", "caller"): ("whose Idempotency-Keys these are", "Idempotency-Keys are unique per caller"),
    ("jobs", "kind"): ("what is to be done", "register, delete, subscribe, …"),
    ("jobs", "number"): ("the order of arrival", "order of submission"),
    ("jobs", "priority"): ("0 before all, 7 after all", "0 most urgent, 7 least"),
    ("jobs", "request"): ("the name of the request that it came with", "ID of the request that submitted it"),
    ("jobs", "state"): (
        "queued, done, failed, or dead: failed by no fault of its own, to be looked at",
        "queued, done, failed, or dead: a dead letter, which can be retried",
    ),
    ("lmr_resources", "reasons"): (
        "how many of the LMR's rules select it (of rules that match stretches of constants: groups)",
        "number of the LMR's rules that select it (for rules that match ranges of constants: of groups)",
    ),
    ("lmrs", "asked_at"): ("when that was, to some seconds", "time of its last feed request, within some seconds"),
    ("lmrs", "cursor"): ("the offset that it last asked from", "the offset of its last feed request"),
    ("lmrs", "kept_after"): (
        "offset up to which events are not kept: a cursor before it cannot go on",
        "events up to this offset are deleted; cursors below it are invalid",
    ),
    ("mdp_state", "epoch"): ("this life of the MDP", "changes if the database is restored from a backup"),
    ("mdp_state", "graph_version"): (
        "another one whenever rule groups change: who remembers them reads them again",
        "increases when rule groups change, which invalidates caches of them",
    ),
    ("mdp_state", "home"): (
        "the database that this is: another one was restored from a backup",
        "identity of the database; a restored one has another identity",
    ),
    ("mdp_state", "last_atomic_rule"): ("likewise", "the last assigned ID"),
    ("mdp_state", "last_document"): ("likewise", "the last assigned ID"),
    ("mdp_state", "last_resource"): ("the last number given out", "the last assigned ID"),
    ("mdp_state", "last_rule"): ("likewise", "the last assigned ID"),
    ("mdp_state", "lmrs"): ("how many LMRs there are", "number of LMRs"),
    ("news", "kind"): ("as in the feed; 0: it entered", "as in the feed; 0: it entered the closure; -1: it left"),
    ("publications", "lmrs"): ("those that it concerns", "LMRs that received events"),
    ("result_objects", "matched"): (
        "true: it matches and did not; false: it did and does not",
        "true: it matches now; false: it no longer matches",
    ),
    ("result_ranges", "first_rule"): ("only end rules from this one on", "only end rules from this ID on"),
    ("result_ranges", "gains"): ("whether some rule came to match", "a rule matches now that did not match before"),
    ("result_ranges", "last_rule"): ("and up to this one", "only end rules up to this ID"),
    ("rule_dependencies", "group_id"): ("the target's", "of the target"),
    ("rule_dependencies", "param"): ("which input of the target", "number of the input of the target"),
    ("rule_ends", "owner"): ("the rule's", "of the rule"),
    ("rule_groups", "chosen_at"): (
        "how many rules there were when the driver was chosen",
        "number of rules when the driving predicate was chosen",
    ),
    ("rule_groups", "chosen_with"): ("how many resources", "number of resources when the driving predicate was chosen"),
    ("rule_groups", "driver"): (
        "of a whole group: the leaf of the pattern that finds its rules",
        "of a whole group: the leaf of the driving predicate",
    ),
    ("rule_groups", "members"): ("how many rules it has", "number of rules"),
    ("rule_groups", "pattern"): ("what its rules have in common", "the common part of its rules"),
    ("rule_groups", "whole"): (
        "true: of whole rules, evaluated at once; false: of join rules",
        "true: a group of whole rules; false: of join rules",
    ),
    ("rule_predicates", "sort"): (
        "what is compared: numbers, instants, truths, text, references",
        "the compared values: numbers, instants, booleans, text or references",
    ),
    ("rules", "owner"): (
        "whose rule it is: names are unique within",
        "an LMR, or 0 for the provider; names are unique per owner",
    ),
    ("rules", "position"): ("of the transaction that made it what it is", "of the transaction that last changed it"),
    ("saved_queries", "saved_by"): ("who wrote it last", "who saved it last"),
    ("saved_queries", "text"): ("as it was written", "as written by its author"),
    ("sign_in_failures", "who"): (
        "the name that was tried, or the address that it came from",
        "the user name, or the IP address of the client",
    ),
    ("snapshots", "whole"): ("false: of some buckets alone", "false: only some buckets"),
    ("suspended_ends", "as_of"): (
        "the position whose matches still count for the owner",
        "matches as of this position still count for the owner",
    ),
    ("suspended_ends", "owner"): ("the rule's", "of the rule"),
    ("suspended_ends", "ranged"): (
        "whether its rules match stretches of constants",
        "the rules of its group match ranges of constants",
    ),
    ("suspended_ends", "unit"): (
        "of ranged ends: those of one unit are counted together",
        "ranged ends of one unit are counted together",
    ),
    ("suspended_rules", "counted_after"): (
        "of its matches, those with greater numbers count",
        "only matches with greater resource IDs count",
    ),
    ("suspended_rules", "counted_up_to"): (
        "and those with no greater numbers; NULL: all",
        "only matches up to this resource ID count; NULL: no limit",
    ),
    ("suspended_rules", "owner"): ("the rule's", "of the rule"),
    ("tokens", "hash"): ("SHA-256 of the token, which is kept nowhere", "SHA-256 of the token, which is not stored"),
    ("tokens", "lmr_id"): ("whose token it is", "the LMR of the token"),
    ("users", "password"): ("its scrypt hash, with salt and cost", "scrypt hash with salt"),
    ("web_sessions", "csrf"): ("what every form has to show", "CSRF token that every form has to send"),
    ("web_sessions", "hash"): (
        "SHA-256 of what the cookie holds, which is kept nowhere",
        "SHA-256 of the secret in the cookie, which is not stored",
    ),
    ("web_sessions", "token_hash"): (
        "of that admin token: another one ends the session",
        "of the administrator token; changing the token ends the session",
    ),
    ("web_sessions", "token_id"): (
        "or by a token; neither: by the admin token of the settings",
        "the token, if signed in by token; neither: by the administrator token of the settings",
    ),
    ("web_sessions", "user_name"): ("who signed in by name", "the user, if signed in by name"),
    ("webhook_deliveries", "id"): ("the message's webhook-id", "its webhook-id header"),
    ("webhook_deliveries", "not_before"): (
        "of the next attempt; of one that is being made, when it is given up for lost",
        "time of the next attempt; during an attempt: when another worker may claim it",
    ),
    ("webhook_deliveries", "number"): ("the order in which they were made", "order of creation"),
    ("webhook_deliveries", "offset"): (
        "what it tells: there is something new up to here",
        "the message announces events up to this offset",
    ),
    ("webhook_deliveries", "position"): (
        "of the transaction that this is part of",
        "of the transaction of this offset",
    ),
    ("webhook_deliveries", "reason"): ("why that was no success", "why the last attempt failed"),
    ("webhook_deliveries", "status"): ("what the receiver answered last", "HTTP status of the last attempt"),
    ("webhook_deliveries", "tried_at"): ("when the last attempt began", "start of the last attempt"),
    ("webhooks", "dead"): ("messages that died since then", "dead messages since the last delivery"),
    ("webhooks", "failing_since"): ("when the first of them was", "time of the first of these failures"),
    ("webhooks", "failures"): ("since anything was delivered", "since the last delivery"),
    ("webhooks", "made_offset"): (
        "up to which messages were made, also if they died",
        "messages were created up to this offset",
    ),
    ("webhooks", "old_secret"): (
        "of before the last rotation: signs, too, for a while",
        "before the last rotation; also signs until old_secret_until",
    ),
    ("webhooks", "secret"): ("needed to sign, and so kept as it is", "stored in plain text, since it signs messages"),
    ("webhooks", "told_offset"): ("up to which the receiver was told", "delivered up to this offset"),
}
"""By table and column, the comments before and after."""

WEBHOOK_REASONS = ("Somebody has paused it.", "Paused manually.")


def upgrade() -> None:
    branches = [f"select rule_id, predicate_id, number, value from filter_rules_{name}" for name in OPERATORS]  # noqa: S608
    op.execute("create view rule_constants as " + " union all ".join(branches))
    _set_texts(0, 1)


def downgrade() -> None:
    _set_texts(1, 0)
    op.execute("drop view rule_constants")


def _set_texts(old: int, new: int) -> None:
    for table, comments in TABLE_COMMENTS.items():
        op.create_table_comment(table, comments[new], existing_comment=comments[old])
    for (table, column), comments in COLUMN_COMMENTS.items():
        op.alter_column(table, column, comment=comments[new], existing_comment=comments[old])
    update = sa.text("update webhooks set reason = :new where reason = :old and state = 'paused'")
    op.get_bind().execute(update, {"old": WEBHOOK_REASONS[old], "new": WEBHOOK_REASONS[new]})
