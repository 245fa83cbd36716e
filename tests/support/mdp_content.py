"""The content of an MDP without the numbers and times that depend on the order of its transactions."""

from __future__ import annotations

from typing import Any

import sqlalchemy
from sqlalchemy import Engine

from mdv.db.tables import metadata
from mdv.rules.operators import Operator

_STATEMENT = """d.uri, r.uri, p.uri, t.uri, f.value, f.lang, y.uri, f.hash, f.blank, f.number, f.instant, f.truth"""
_JOINS = """f join documents d on d.id = f.document_id join resources r on r.id = f.resource_id
    join vocabulary p on p.id = f.property_id left join resources t on t.id = f.target_id
    left join vocabulary y on y.id = f.datatype_id"""

_SPELLED = {
    "documents": "select uri, version, present, content, prefixes::text from documents",
    "document_versions": "select d.uri, v.version, v.present, v.prefixes::text from document_versions v"
    " join documents d on d.id = v.document_id",
    "resources": "select uri from resources",
    "vocabulary": "select uri from vocabulary",
    "filter_data": f"select {_STATEMENT} from filter_data {_JOINS}",
    "filter_data_history": f"select {_STATEMENT}, v.version from filter_data_history {_JOINS}"
    " join document_versions v on v.document_id = d.id and v.position = f.until_position",
    "lmr_resources": "select l.name, r.uri, h.reasons from lmr_resources h join lmrs l on l.id = h.lmr_id"
    " join resources r on r.id = h.resource_id",
    "lmrs": "select name from lmrs",
    "schema_versions": "select version, statements::text, prefixes::text from schema_versions",
    "rules": "select id, owner, name, text from rules",
    "suspended_rules": "select rule_id, owner, pending from suspended_rules",
    "rule_groups": "select group_id, whole, text, digest, members, pattern::text from rule_groups",
    "end_rules": "select rule_id, group_id, leaves from end_rules",
    "tokens": "select name, role from tokens",
}
_AS_THEY_ARE = [
    "atomic_rules",
    "rule_dependencies",
    "rule_ends",
    "rule_searches",
    "rule_predicates",
    "filter_rules",
    *(operator.constants_table for operator in Operator),
    "lmr_ranges",
]
_OF_ORDER = [
    "mdp_state",
    "transactions",
    "publications",
    "feed",
    "snapshots",
    "snapshot_events",
    "news",
    "reason_changes",
    "doubtful_resources",
    "suspended_ends",
    "rule_notices",
    "result_objects",
    "result_ranges",
]
"""Tables that record transactions, or the state of the last one."""
_OF_THE_WAY = [
    "jobs",
    "begun_jobs",
    "batch_runs",
    "batch_partitions",
    "batch_chunks",
    "document_sources",
    "webhooks",
    "webhook_deliveries",
    "users",
    "web_sessions",
    "sign_in_failures",
    "saved_queries",
    "search_state",
    "search_pending",
    "search_texts",
    "figures",
    *(f"search_{name}" for name in ("state", "pending", "texts")),
    *(f"eca_{name}" for name in ("templates", "rules", "keys", "classes", "counts", "runs", "changes")),
    *(f"real_{name}" for name in ("processes", "states", "waits", "solutions", "log", "calls")),
    "write_locks",
    "backbone",
    *(f"replica_{name}" for name in ("log", "drafts", "inbox")),
    "federation",
    *(f"federation_{name}" for name in ("inbox", "invitations", "journal", "links", "outbox", "presence", "records")),
    "statement_marks",
    "replicated_rules",
    *(f"lmr_{name}" for name in ("registers", "rules")),
    "refused_documents",
]
"""Tables that record how documents were registered, or that other tests compare."""

assert metadata.tables.keys() == {*_SPELLED, *_AS_THEY_ARE, *_OF_ORDER, *_OF_THE_WAY}, "a table is not compared"


def content_of(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of every table of an MDP's content."""
    queries = _SPELLED | {name: f"select * from {name}" for name in _AS_THEY_ARE}
    with engine.connect() as connection:
        return {
            name: sorted((tuple(row) for row in connection.execute(sqlalchemy.text(sql))), key=repr)
            for name, sql in queries.items()
        }


def assert_alike(one: Engine, other: Engine) -> None:
    left, right = content_of(one), content_of(other)
    for name, rows in left.items():
        missing, strange = (
            set(map(repr, right[name])) - set(map(repr, rows)),
            set(map(repr, rows)) - set(map(repr, right[name])),
        )
        assert rows == right[name], f"{name}: missing {sorted(missing)[:3]}, strange {sorted(strange)[:3]}"
