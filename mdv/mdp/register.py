"""Register documents: from the text of a document to the stored and published change.

    text → gate → parse → name blank nodes → validate      (prepare: in parallel, in any process)
         → difference → store and log → filter → publish   (register: one batch at a time)

`prepare` needs no lock. `register` holds the MDP's lock, which gives all transactions one order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from sqlalchemy import Connection

from mdv.backbone.etag import document_etag
from mdv.cause import NO_REACTIONS
from mdv.db.delta import Replacement, StoredDocument, TypedValue
from mdv.db.statement_store import list_described_resources
from mdv.errors import InvalidDocument, MdvError, NotFound, PreconditionFailed, Refused
from mdv.mdp.eca.refusals import record_refusal
from mdv.mdp.eca.trace import write_trace
from mdv.mdp.filter import Candidates
from mdv.mdp.provider import Provider
from mdv.mdp.schemas import SchemaInForce
from mdv.mdp.transaction import DocumentOutcome, OneByOne, Transaction, TransactionOutcome
from mdv.mdp.write_limits import refuse_foreign_subjects
from mdv.model import Document, Statement
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.digest import content_hash, statement_hash
from mdv.rdf.gate import MAX_BYTES, gate
from mdv.rdf.locate import locate_flaws
from mdv.rdf.parse import parse
from mdv.rdf.syntax import syntax_of_media_type
from mdv.rdf.validate import refuse_reserved, validate

NONE_FIRED: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Preconditions:
    """Conditions of a registration: `If-Match`, `If-None-Match`, and the resources that the token may describe."""

    if_match: tuple[str, ...] | None = None
    if_none_match: tuple[str, ...] | None = None
    resource_prefixes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document that is ready to be registered, or to be deleted (`document` is None)."""

    uri: str
    document: Document | None
    schema_version: int
    conditions: Preconditions = field(default_factory=Preconditions)
    by: str | None = None
    """The caller, for the history."""
    reacts: bool = True
    """False: event-condition-action rules are not run."""
    content: bytes = b""
    hashes: tuple[int, ...] = ()
    typed: tuple[TypedValue, ...] = ()
    uris: frozenset[str] = frozenset()
    """Every URI that is a subject or an object."""
    names: frozenset[str] = frozenset()
    """Every property and every datatype."""


@dataclass(frozen=True, slots=True)
class RegistrationOutcome:
    """The result of a registration. The counts are over resources, by whether their visible statements changed."""

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
    """The names of the LMRs that got events, if requested."""
    present: bool | None = None
    """After an edit: False if the document has lost its last statement, and is deleted."""
    fired: int | None = None
    """How often event-condition-action rules fired, if they did."""
    run: int | dict[str, Any] | None = None
    """The ID of their run; for a dry run, its trace."""
    etag: str | None = None
    """With a backbone, the ETag of the document: its version and digest."""
    token: str | None = None
    """With a backbone, names the operation, so that callers can wait for it at other members."""

    def as_dict(self) -> dict[str, Any]:
        optional = ("told", "present", "fired", "run", "etag", "token")
        return {name: value for name, value in asdict(self).items() if name not in optional or value is not None}


def prepare(
    uri: str,
    body: bytes,
    media_type: str | None,
    schema: SchemaInForce,
    conditions: Preconditions | None = None,
    max_bytes: int = MAX_BYTES,
    by: str | None = None,
    reacts: bool = True,
) -> Prepared:
    """Do the steps of a registration that do not need the store. They find all errors in the text, with locations."""
    syntax, charset = syntax_of_media_type(media_type)
    gated = gate(body, syntax, charset, max_bytes)
    parsed = parse(gated, uri)
    try:
        refuse_reserved(parsed)
        document = name_blank_nodes(parsed)
        validate(document, schema.schema)
    except InvalidDocument as error:
        raise InvalidDocument(error.detail, locate_flaws(error.flaws, gated), **error.extra) from None
    conditions = conditions or Preconditions()
    _refuse_foreign(document, conditions.resource_prefixes)
    return prepared(document, schema, conditions, by, reacts)


def prepared(
    document: Document,
    schema: SchemaInForce,
    conditions: Preconditions | None = None,
    by: str | None = None,
    reacts: bool = True,
) -> Prepared:
    """Return a valid document with everything that can be computed without the lock."""
    statements = document.statements
    return Prepared(
        document.uri,
        document,
        schema.version,
        conditions or Preconditions(),
        by,
        reacts,
        content_hash(statements),
        tuple(map(statement_hash, statements)),
        _typed(statements, schema),
        uris_of(statements),
        properties_and_datatypes_of(statements),
    )


def uris_of(statements: Iterable[Statement]) -> frozenset[str]:
    """Return every URI that is a subject or an object of a statement."""
    return frozenset(chain.from_iterable((s[0], s[2][1]) if s[2][0] == "uri" else (s[0],) for s in statements))


def properties_and_datatypes_of(statements: Iterable[Statement]) -> frozenset[str]:
    """Return every property and every datatype of the statements."""
    return frozenset(chain.from_iterable((s[1], s[2][3]) if s[2][3] else (s[1],) for s in statements))


def register(
    connection: Connection,
    batch: Sequence[Prepared],
    provider: Provider,
    naming: bool = False,
    candidates: Candidates | None = None,
) -> list[RegistrationOutcome | MdvError]:
    """Register or delete a batch of documents in one transaction. Return a result for each, in the same order.

    A document occurs once in a batch. A document that cannot be registered gets its error as the result and does not
    affect the others. Identical documents change nothing and take no position. `naming`: the results name the LMRs that
    the batch affects. `candidates`: the resources that rules can match, if they were determined before.
    """
    try:
        return _register_together(connection, batch, provider, naming, candidates)
    except OneByOne:
        return _register_in_parts(connection, batch, provider, naming)


def _register_together(
    connection: Connection,
    batch: Sequence[Prepared],
    provider: Provider,
    naming: bool = False,
    candidates: Candidates | None = None,
) -> list[RegistrationOutcome | MdvError]:
    """Register a batch at one position. Raise `OneByOne`, and change nothing, if event-condition-action rules may fire
    for one of several documents."""
    tx = Transaction(provider, connection)
    stored = tx.lock_documents([item.uri for item in batch], {uri for item in batch for uri in item.uris})
    results, replacements, names = _sort_out(tx, batch, stored)
    if not replacements:
        return [result for result in results if result is not None]
    same = tx.replace_documents(replacements, names, is_batch=len(batch) > 1)
    done = tx.finish(candidates)
    lmrs = tuple(done.publication.names()) if naming else None

    def result_of(item: Prepared) -> RegistrationOutcome:
        if item.uri in same:
            return _unchanged(item, stored[item.uri], tx)
        before = stored.get(item.uri)
        created = item.document is not None and (before is None or not before.present)
        return outcome_of(item.uri, done, lmrs, created, reactions=reactions)

    reactions = reactions_of(tx, done, naming)
    return [result or result_of(item) for item, result in zip(batch, results, strict=True)]


def _register_in_parts(
    connection: Connection, batch: Sequence[Prepared], provider: Provider, naming: bool
) -> list[RegistrationOutcome | MdvError]:
    """Register documents with the result of one by one. Those for which event-condition-action rules fire get
    transactions of their own. One that a rule refuses changes nothing.

    As long as no rule fires, the number of documents that are registered together is doubled.
    """
    results: list[RegistrationOutcome | MdvError] = []
    size = 1
    while len(results) < len(batch):
        part = batch[len(results) : len(results) + size]
        savepoint = connection.begin_nested()
        try:
            done = _register_together(connection, part, provider, naming)
            savepoint.commit()
            results += done
            size = 1 if any(getattr(one, "fired", None) for one in done) else 2 * size
        except OneByOne:
            savepoint.rollback()
            size = 1
        except Refused as error:
            savepoint.rollback()
            results.append(record_refusal(connection, error, provider))
            size = 1
    return results


def _sort_out(
    tx: Transaction, batch: Sequence[Prepared], stored: Mapping[str, StoredDocument]
) -> tuple[list[RegistrationOutcome | MdvError | None], list[Replacement], set[str]]:
    """Return the results that are known without writing, the documents to be written, and their properties and
    datatypes. Event-condition-action rules react if one of these documents says so: if they watch it and there are
    others, each document gets a transaction of its own."""
    results: list[RegistrationOutcome | MdvError | None] = []
    replacements: list[Replacement] = []
    tx.reacts = False
    names: set[str] = set()
    for item in batch:
        current = stored.get(item.uri)
        try:
            _check(item, current, tx.schema)
            if item.document is not None:
                tx.refuse_held(item.document)
            # An edited document has no digest: the statements are compared later.
            is_same = current is not None and current.present and current.content == item.content != b""
            if not is_same:
                _refuse_foreign_removals(tx.connection, item, current)
        except MdvError as error:
            results.append(error)
            continue
        if current is not None and is_same:
            results.append(_unchanged(item, current, tx))
        else:
            results.append(None)
            replacements.append(_replacement(item, current, tx.schema))
            tx.reacts = tx.reacts or item.reacts
            names |= item.names
    return results, replacements, names


def _check(item: Prepared, stored: StoredDocument | None, schema: SchemaInForce) -> None:
    """Check the conditions that can only be checked under the lock."""
    check_preconditions(item.uri, item.conditions, stored)
    if item.document is None:
        check_registered(item.uri, stored)
    elif item.schema_version != schema.version:
        validate(item.document, schema.schema)


def check_preconditions(uri: str, conditions: Preconditions, stored: StoredDocument | None) -> None:
    """Raise `PreconditionFailed` if the stored version of a document does not satisfy the conditions."""
    version = document_etag(stored.version, stored.digest) if stored is not None and stored.present else None
    wanted, unwanted = conditions.if_match, conditions.if_none_match
    if wanted is not None and (version is None or ("*" not in wanted and version not in wanted)):
        now = f"its version is {version}" if version else "it is not registered"
        raise PreconditionFailed(
            f"If-Match: {', '.join(wanted)} failed for {uri}: {now}. Read the document again, and retry."
        )
    if unwanted is not None and version is not None and ("*" in unwanted or version in unwanted):
        raise PreconditionFailed(f"If-None-Match failed for {uri}: it is registered, with version {version}.")


def check_registered(uri: str, stored: StoredDocument | None) -> StoredDocument:
    """Return the stored document, or raise `NotFound`."""
    if stored is None:
        raise NotFound(f"There is no document {uri}. Check the URI: it must be exactly as registered.")
    if not stored.present:
        raise NotFound(
            f"The document {uri} was deleted in version {stored.version}. Register it again, or restore a version."
        )
    return stored


def _unchanged(item: Prepared, stored: StoredDocument, tx: Transaction) -> RegistrationOutcome:
    subjects = {statement.subject for statement in item.document.statements} if item.document else set()
    return RegistrationOutcome(
        item.uri, stored.version, tx.state.position, unchanged=len(subjects), **replication_of(stored, tx.token)
    )


def replication_of(stored: StoredDocument | DocumentOutcome, token: str | None) -> Mapping[str, Any]:
    """Return the fields of a result about the backbone: none without one."""
    if stored.digest is None:
        return {}
    version = stored.version if isinstance(stored, StoredDocument) else stored.counts.version
    return {"etag": document_etag(version, stored.digest), "token": token}


def _replacement(item: Prepared, stored: StoredDocument | None, schema: SchemaInForce) -> Replacement:
    statements = item.document.statements if item.document else ()
    typed = item.typed if item.schema_version == schema.version else _typed(statements, schema)
    prefixes = item.document.prefixes if item.document else {}
    agent = None if item.reacts else NO_REACTIONS
    return Replacement(item.uri, stored, item.content, statements, item.hashes, typed, prefixes, item.by, agent)


def _typed(statements: Iterable[Statement], schema: SchemaInForce) -> tuple[TypedValue, ...]:
    return tuple(schema.typing.typed_values(s.property, s.object) for s in statements)


def outcome_of(
    uri: str,
    done: TransactionOutcome,
    lmrs: tuple[str, ...] | None,
    created: bool = False,
    present: bool | None = None,
    reactions: Mapping[str, Any] = NONE_FIRED,
) -> RegistrationOutcome:
    """Return the result of a registration or an edit from the effect of its transaction on the document. `reactions`:
    see `reactions_of`."""
    effect = done.documents[uri]
    counts = effect.counts
    return RegistrationOutcome(
        uri, counts.version, done.position, counts.inserted, counts.updated, counts.deleted, counts.unchanged,
        matched=effect.matched, lmrs=effect.lmrs, created=created, told=lmrs, present=present,
        **reactions, **replication_of(effect, done.token),
    )  # fmt: skip


def reactions_of(tx: Transaction, done: TransactionOutcome, tracing: bool) -> Mapping[str, Any]:
    """Return the fields of a result about event-condition-action rules: none if no rule fired. `tracing`: always, with
    the trace of the run in place of its ID."""
    run = tx.rule_run
    if tracing:
        return {"fired": len(run.fired), "run": write_trace(run)} if run is not None else {"fired": 0}
    return {"fired": len(run.fired), "run": done.run} if run is not None and run.fired else NONE_FIRED


def _refuse_foreign(document: Document, prefixes: tuple[str, ...] | None) -> None:
    """Raise `Forbidden` if a document describes a resource outside of the token's prefixes."""
    if prefixes is None:
        return
    refuse_foreign_subjects({s.subject for s in document.statements}, document.uri, prefixes, "describe")


def _refuse_foreign_removals(connection: Connection, item: Prepared, stored: StoredDocument | None) -> None:
    """Raise `Forbidden` if replacing or deleting a document removes statements outside of the token's prefixes.

    The new version describes no such resource (`_refuse_foreign`), so all statements about it would be removed.
    """
    prefixes = item.conditions.resource_prefixes
    if prefixes is None or stored is None or not stored.present:
        return
    described = list_described_resources(connection, stored.id)
    refuse_foreign_subjects(described, item.uri, prefixes, "remove statements about")
