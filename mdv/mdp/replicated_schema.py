"""The schema of the backbone. Its lead puts it in force for all members, in one order.

The lead adds an operation with the text of the schema to the log. Each member stores the schema in a transaction of its
own when the operation has arrived, and again after a restart in between.
"""

from __future__ import annotations

import structlog
from sqlalchemy import Connection

from mdv.backbone.etag import token_of
from mdv.backbone.replica_store import MemberFacts
from mdv.errors import NotLead
from mdv.mdp.provider import Provider
from mdv.mdp.put_schema import put_schema
from mdv.mdp.replica import Replica, now_in_microseconds
from mdv.mdp.schemas import SCHEMA_URI, SchemaInForce, read_schema_document
from mdv.model import Document
from mdv.rdf.serialise import serialise
from mdv.rdf.syntax import TURTLE

log = structlog.get_logger()

HOLD_SECONDS = 60
"""How long new documents must be valid under a schema that was tried here, and under the present one."""


def schema_as_text(schema: SchemaInForce) -> str | None:
    """Return a schema as operations have it: Turtle. None if it is empty."""
    if not schema.statements:
        return None
    return serialise(schema.statements, TURTLE, schema.schema.prefixes, SCHEMA_URI).decode()


def refuse_unless_lead(facts: MemberFacts) -> None:
    """Raise `NotLead` with the URL of the lead, unless this member is the lead."""
    lead = facts.table.lead[2]
    if lead != facts.name:
        url = facts.table.members[lead].url if lead in facts.table.members else ""
        raise NotLead(
            f"Only the lead of the backbone can do this: {lead} at {url or 'an unknown URL'}.", lead=lead, url=url
        )


def store_schema_in_force(replica: Replica, provider: Provider) -> bool:
    """Store the schema of the backbone, unless it is stored already. Return True if it was stored.

    It is not refused: values that it refuses stay as conflicts, and rules that are invalid under it are suspended.
    """
    with provider.engine.connect() as connection:
        facts = replica.facts(connection)
    if facts is None or facts.table.schema_text is None or not facts.has_new_schema:
        return False
    document = read_schema_document(facts.table.schema_text.encode(), TURTLE.media_type)
    with provider.engine.begin() as connection:
        put_schema(connection, document, provider, by=f"member {facts.table.lead[2]}", is_decided=True)
        with replica.member(connection) as member:
            now = member.store.facts
            now.schema_here, now.schema_here_by = facts.table.schema, facts.table.schema_by
            now.hold = None
    log.info("the schema of the backbone is stored", schema=facts.table.schema)
    replica.report_commit()
    return True


def refuse_schema_unless_lead(connection: Connection, provider: Provider) -> bool:
    """Raise `NotLead` if another member decides on the schema. Return True if this MDP is in a backbone."""
    facts = Replica(provider).facts(connection)
    if facts is None:
        return False
    refuse_unless_lead(facts)
    return True


def announce_schema(connection: Connection, provider: Provider) -> str:
    """Put the schema that this transaction has stored in force at all members. This MDP is the lead. Return the token
    of the change."""
    text = schema_as_text(provider.schemas.now(connection)) or ""
    with Replica(provider).member(connection) as member:
        facts = member.store.facts
        refuse_unless_lead(facts)
        if facts.table.schema_text != text:
            member.put_schema(text, now_in_microseconds())
        facts.note_schema()
        return token_of((facts.life, facts.seq))


def try_schema(connection: Connection, document: Document, provider: Provider, holds: bool) -> None:
    """Raise an error if a schema that the lead is about to put in force would break something here. `holds`: new
    documents must be valid under both schemas for a minute. The caller commits."""
    savepoint = connection.begin_nested()
    try:
        put_schema(connection, document, provider.for_dry_run())
    finally:
        savepoint.rollback()
    if holds:
        until = now_in_microseconds() + HOLD_SECONDS * 1_000_000
        with Replica(provider).member(connection) as member:
            member.store.facts.hold = until, document_as_text(document)


def document_as_text(document: Document) -> str:
    """Return the text of a schema as members send it: Turtle."""
    return serialise(document.statements, TURTLE, dict(document.prefixes), SCHEMA_URI).decode()
