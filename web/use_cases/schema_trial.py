"""Try a schema at all members of the backbone, before the lead puts it in force."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from mdv.backbone.replica_store import MemberFacts
from mdv.backbone.replicated_set import SetKind
from mdv.errors import BreakingSchema, Flaw, MdvError, Unavailable
from mdv.replication.member_url import check_member_url
from mdv.replication.peer_client import PeerClient
from web.services import Services

MAX_NAMED_FLAWS = 20


class SchemaAnswers(NamedTuple):
    """What the members say about a schema. `refusals`: their reasons. `away`: why they could not be asked."""

    refusals: Mapping[str, MdvError]
    away: Mapping[str, MdvError]


def try_at_members(s: Services, facts: MemberFacts, kind: SetKind, schema: str, holds: bool, force: bool) -> None:
    """Ask all active members what a schema would break there. Raise `BreakingSchema` with the reasons of those that
    refuse, or `Unavailable` if one is away, unless `force`. `holds`: they validate new documents by both schemas."""
    answers = ask_members(s, facts, kind, schema, holds)
    if answers.refusals:
        flaws = [
            Flaw(f"at {name}: {flaw.message}", subject=flaw.subject, property=flaw.property, value=flaw.value,
                 hint=flaw.hint)
            for name, error in answers.refusals.items() for flaw in error.flaws
        ]  # fmt: skip
        name, error = next(iter(answers.refusals.items()))
        names = ", ".join(answers.refusals)
        raise BreakingSchema(
            f"The schema is refused by {names}. {name}: {error.detail}", flaws[:MAX_NAMED_FLAWS],
            members=list(answers.refusals),
        )  # fmt: skip
    if answers.away and not force:
        name, error = next(iter(answers.away.items()))
        raise Unavailable(
            f"The schema cannot be tried at {', '.join(answers.away)}: {error.detail} Try again when all members"
            " answer, or use force: then values that the schema refuses there become conflicts, and rules are"
            " suspended.",
            members=list(answers.away),
        )


def ask_members(s: Services, facts: MemberFacts, kind: SetKind, schema: str, holds: bool) -> SchemaAnswers:
    """Ask all active members at the same time what a schema would break there."""
    with s.single.connect() as connection:
        key = s.replica.private_key(connection)
    names = [name for name in sorted(facts.table.active()) if name != facts.name]

    def ask(name: str) -> MdvError | None:
        url = check_member_url(facts.table.members[name].url, s.config.backbone_plain)
        client = PeerClient(url, facts.name, key, kind)
        try:
            return client.try_schema(schema, holds)
        finally:
            client.close()

    refusals: dict[str, MdvError] = {}
    away: dict[str, MdvError] = {}
    with ThreadPoolExecutor(max(1, len(names))) as pool:
        for name, answer in [(name, pool.submit(ask, name)) for name in names]:
            try:
                if (reasons := answer.result()) is not None:
                    refusals[name] = reasons
            except MdvError as error:
                away[name] = error
    return SchemaAnswers(refusals, away)
