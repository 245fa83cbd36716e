"""The schema of the backbone. Its lead puts it in force for all members, in one order.

The lead adds an operation with the text of the schema to the log. Each member stores the schema in a transaction of its
own when the operation has arrived, and again after a restart in between.
"""

from __future__ import annotations

import structlog
from sqlalchemy import Connection

from mdv.backbone.replica_store import MemberFacts
from mdv.errors import MdvError, NotLead
from mdv.mdp.provider import Provider
from mdv.mdp.put_schema import put_schema
from mdv.mdp.replica import Replica, has_new_schema, now_in_microseconds
from mdv.mdp.schemas import SCHEMA_URI, SchemaInForce, read_schema_document
from mdv.rdf.serialise import serialise
from mdv.rdf.syntax import TURTLE

log = structlog.get_logger()


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

    A schema that this MDP refuses, because stored values or rules would be invalid under it, is reported in the log and
    tried again with the next one.
    """
    with provider.engine.connect() as connection:
        facts = replica.facts(connection)
    if facts is None or facts.table.schema_text is None or not has_new_schema(facts):
        return False
    document = read_schema_document(facts.table.schema_text.encode(), TURTLE.media_type)
    try:
        with provider.engine.begin() as connection:
            put_schema(connection, document, provider, by=f"member {facts.table.lead[2]}")
    except MdvError as error:
        log.error("the schema of the backbone is refused", schema=facts.table.schema, reason=error.detail)
    with replica.member() as member:
        member.store.facts.schema_here = max(member.store.facts.schema_here, facts.table.schema)
    return True


def refuse_schema_unless_lead(connection: Connection, provider: Provider) -> bool:
    """Raise `NotLead` if another member decides on the schema. Return True if this MDP is in a backbone."""
    facts = Replica(provider).facts(connection)
    if facts is None:
        return False
    refuse_unless_lead(facts)
    return True


def announce_schema(connection: Connection, provider: Provider) -> None:
    """Put the schema that this transaction has stored in force at all members. This MDP is the lead."""
    text = schema_as_text(provider.schemas.now(connection)) or ""
    with Replica(provider).member(connection) as member:
        facts = member.store.facts
        refuse_unless_lead(facts)
        if facts.table.schema_text != text:
            member.put_schema(text, now_in_microseconds())
        facts.schema_here = facts.table.schema
