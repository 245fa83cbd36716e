"""The data's way, from text to stored change.

    text → gate → parse → name blank nodes → validate          (prepare: any number at once, in any process)
         → difference → store, with its log → filter → publish  (register: one batch after the other)

`prepare` needs no lock. `register` runs in the MDP's one order of transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from sqlalchemy import Connection

from mdv.db.exchange import Exchange
from mdv.db.graph import Graph
from mdv.db.state import State
from mdv.db.store import Counts, Replacement, Run, StoredDocument, TypedValue, open_run
from mdv.db.vocabulary import Vocabulary
from mdv.errors import Forbidden, InvalidDocument, MdvError, NotFound, PreconditionFailed
from mdv.figures import MATCHED, stage
from mdv.mdp.drivers import revise_drivers
from mdv.mdp.filter import Candidates, count_matched, filter_changes
from mdv.mdp.publish import NOBODY, publish_changes
from mdv.mdp.rules import Rules
from mdv.mdp.schemas import SchemaInForce, Schemas
from mdv.model import Document, Statement, is_blank
from mdv.points import reach
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.digest import content_hash, statement_hash
from mdv.rdf.gate import MAX_BYTES, gate
from mdv.rdf.locate import locate
from mdv.rdf.parse import parse
from mdv.rdf.syntax import syntax_of_media_type
from mdv.rdf.validate import refuse_reserved, validate


@dataclass(frozen=True, slots=True)
class Conditions:
    """What must hold for a registration to happen: `If-Match`, `If-None-Match`, and what the token may describe."""

    if_match: tuple[str, ...] | None = None
    if_none_match: tuple[str, ...] | None = None
    resource_prefixes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document ready to be registered, or (document None) to be deleted."""

    uri: str
    document: Document | None
    schema_version: int
    conditions: Conditions = field(default_factory=Conditions)
    content: bytes = b""
    hashes: tuple[int, ...] = ()
    typed: tuple[TypedValue, ...] = ()
    uris: frozenset[str] = frozenset()
    """Every URI that it names as a subject or an object."""
    names: frozenset[str] = frozenset()
    """Every property and every datatype."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a registration did, counted over resources whose visible statements changed (unchanged: did not)."""

    document: str
    version: int
    position: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    matched: int = 0
    lmrs: int = 0
    created: bool = False
    told: tuple[str, ...] | None = None
    """The names of the LMRs that were told, where it was asked."""

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "told" or value is not None}


def prepare(
    uri: str,
    body: bytes,
    media_type: str | None,
    schema: SchemaInForce,
    conditions: Conditions | None = None,
    max_bytes: int = MAX_BYTES,
) -> Prepared:
    """Take a text as far as it goes without the store; every error is found here, with its place."""
    syntax, charset = syntax_of_media_type(media_type)
    gated = gate(body, syntax, charset, max_bytes)
    parsed = parse(gated, uri)
    try:
        refuse_reserved(parsed)
        document = name_blank_nodes(parsed)
        validate(document, schema.schema)
    except InvalidDocument as error:
        raise InvalidDocument(error.detail, locate(error.flaws, gated), **error.extra) from None
    conditions = conditions or Conditions()
    _refuse_foreign(document, conditions.resource_prefixes)
    return prepared(document, schema, conditions)


def prepared(document: Document, schema: SchemaInForce, conditions: Conditions | None = None) -> Prepared:
    """A valid document, with all that can be computed of it while others are being registered."""
    statements = document.statements
    return Prepared(
        document.uri,
        document,
        schema.version,
        conditions or Conditions(),
        content_hash(statements),
        tuple(map(statement_hash, statements)),
        _typed(statements, schema),
        uris_of(statements),
        names_of(statements),
    )


def uris_of(statements: Iterable[Statement]) -> frozenset[str]:
    """Every URI that statements name as a subject or an object."""
    return frozenset(chain.from_iterable((s[0], s[2][1]) if s[2][0] == "uri" else (s[0],) for s in statements))


def names_of(statements: Iterable[Statement]) -> frozenset[str]:
    """Every property and every datatype that statements name."""
    return frozenset(chain.from_iterable((s[1], s[2][3]) if s[2][3] else (s[1],) for s in statements))


def register(
    connection: Connection,
    batch: Sequence[Prepared],
    schemas: Schemas,
    vocabulary: Vocabulary,
    rules: Rules,
    naming: bool = False,
    candidates: Candidates | None = None,
) -> list[Outcome | MdvError]:
    """Register or delete a batch of documents, each once, as one transaction; an answer for each, in their order.

    A document that cannot be registered after all is answered with its error and leaves the others alone. Identical
    documents change nothing and take no position. `naming`: the answers name the LMRs that the batch concerns.
    `candidates`: what rules can match of these documents, where somebody has looked already.
    """
    uris = {uri for item in batch for uri in item.uris}
    with stage("turn"):  # waits until it is this transaction's
        opened = open_run(connection, [item.uri for item in batch], uris)
    state, stored, _ = opened
    schema = schemas.at(connection, state.schema_version)
    answers, replacements, names = _sort_out(batch, stored, state, schema)
    if not replacements:
        return [answer for answer in answers if answer is not None]
    position = state.position + 1
    ids = vocabulary.ids(names)
    groups = rules.groups(connection, state, schema, vocabulary)
    run = Run(connection, replacements, opened, ids)
    with stage("answer"), Exchange(connection) as exchange:  # of a small run, all of it is one message
        with stage("store"):
            run.write(exchange)
        reach("after the store")
        change = run.change
        hopeful = candidates.numbers(state, opened.numbers) if candidates is not None else None
        with stage("filter"):
            found = filter_changes(exchange, groups, change, hopeful)
            exchange.send_unless(run.is_small)
        reach("after the filter")
        told = NOBODY
        if state.lmrs and groups.groups:
            with stage("publish"):
                told = publish_changes(exchange, change, state, schema, vocabulary)
                exchange.send_unless(run.is_small)
    reach("after the publication")
    matched = count_matched(connection, found(), change)
    MATCHED.inc(sum(matched.values()))
    lmrs = told.by_document(connection, change.described)
    concerned = tuple(told.names()) if naming else None
    if state.last_resource >= groups.revise_at:
        revise_drivers(connection, state, groups, Graph(connection).groups_to_revise(state.last_resource)())
    counts = run.counts
    return [
        answer
        if answer is not None
        else _outcome(item, stored.get(uri), position, counts[uri], matched[uri], lmrs[uri], concerned)
        for uri, item, answer in zip((item.uri for item in batch), batch, answers, strict=True)
    ]


def _sort_out(
    batch: Sequence[Prepared], stored: Mapping[str, StoredDocument], state: State, schema: SchemaInForce
) -> tuple[list[Outcome | MdvError | None], list[Replacement], set[str]]:
    """The answers that are known without writing anything, the documents that are to be written, and the properties and
    datatypes that these name."""
    answers: list[Outcome | MdvError | None] = []
    replacements: list[Replacement] = []
    names: set[str] = set()
    for item in batch:
        present = stored.get(item.uri)
        try:
            _check(item, present, schema)
        except MdvError as error:
            answers.append(error)
            continue
        if present is not None and present.present and present.content == item.content:
            answers.append(_unchanged(item, present, state))
        else:
            answers.append(None)
            replacements.append(_replacement(item, present, schema))
            names |= item.names
    return answers, replacements, names


def _check(item: Prepared, stored: StoredDocument | None, schema: SchemaInForce) -> None:
    """What can only be known when it is this transaction's turn."""
    present = stored is not None and stored.present
    version = str(stored.version) if stored is not None and present else None
    wanted, unwanted = item.conditions.if_match, item.conditions.if_none_match
    if wanted is not None and (version is None or ("*" not in wanted and version not in wanted)):
        now = f"its version is {version}" if version else "it is not registered"
        raise PreconditionFailed(f"If-Match: {', '.join(wanted)} does not hold for {item.uri}: {now}.")
    if unwanted is not None and version is not None and ("*" in unwanted or version in unwanted):
        raise PreconditionFailed(f"If-None-Match does not hold for {item.uri}: its version is {version}.")
    if item.document is None and not present:
        raise NotFound(f"No document {item.uri} is registered.")
    if item.document is not None and item.schema_version != schema.version:
        validate(item.document, schema.schema)


def _unchanged(item: Prepared, stored: StoredDocument, state: State) -> Outcome:
    subjects = {statement.subject for statement in item.document.statements} if item.document else set()
    return Outcome(item.uri, stored.version, state.position, unchanged=len(subjects))


def _replacement(item: Prepared, stored: StoredDocument | None, schema: SchemaInForce) -> Replacement:
    statements = item.document.statements if item.document else ()
    typed = item.typed if item.schema_version == schema.version else _typed(statements, schema)
    prefixes = item.document.prefixes if item.document else {}
    return Replacement(item.uri, stored, item.content, statements, item.hashes, typed, prefixes)


def _typed(statements: Iterable[Statement], schema: SchemaInForce) -> tuple[TypedValue, ...]:
    return tuple(schema.typing.typed_values(s.property, s.object) for s in statements)


def _outcome(
    item: Prepared,
    stored: StoredDocument | None,
    position: int,
    counts: Counts,
    matched: int,
    lmrs: int,
    told: tuple[str, ...] | None,
) -> Outcome:
    created = item.document is not None and (stored is None or not stored.present)
    return Outcome(item.uri, counts.version, position, counts.inserted, counts.updated, counts.deleted,
                   counts.unchanged, matched=matched, lmrs=lmrs, created=created, told=told)  # fmt: skip


def _refuse_foreign(document: Document, prefixes: tuple[str, ...] | None) -> None:
    if prefixes is None:
        return
    foreign = sorted({s.subject for s in document.statements if not _may_describe(s, document.uri, prefixes)})
    if foreign:
        raise Forbidden(
            f"This token may not describe {foreign[0]}"
            + (f" and {len(foreign) - 1} other resources" if len(foreign) > 1 else "")
            + f": it is limited to {', '.join(prefixes)}."
        )


def _may_describe(statement: Statement, document: str, prefixes: tuple[str, ...]) -> bool:
    return within(statement.subject, prefixes) or (
        is_blank(statement.subject) and statement.subject.startswith(document)
    )


def within(uri: str, prefixes: Iterable[str]) -> bool:
    """Whether `uri` is one of `prefixes` or lies below one. A prefix ends where a part of a URI ends.

    >>> within("http://a.org/x", ["http://a.org"]), within("http://a.org.evil/x", ["http://a.org"])
    (True, False)
    """
    return any(
        uri.startswith(prefix)
        and (prefix[-1:] in "/#?:=&" or uri[len(prefix) : len(prefix) + 1] in ("", "/", "#", "?"))
        for prefix in prefixes
    )
