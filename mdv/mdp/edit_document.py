"""Edit one document: add and remove single statements.

    JSON → edits → lock → edit → validate → store → filter → publish

The answer is that of a registration. Edits that change nothing are dropped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from mdv.cause import NO_REACTIONS, UPDATE, Cause
from mdv.errors import BadRequest, InvalidDocument
from mdv.mdp.edit import Edit
from mdv.mdp.provider import Provider
from mdv.mdp.register import (
    Preconditions,
    RegistrationOutcome,
    check_preconditions,
    check_registered,
    outcome_of,
    reactions_of,
    replication_of,
)
from mdv.mdp.transaction import Transaction
from mdv.mdp.write_limits import UNLIMITED, WriteLimits
from mdv.model import Statement
from mdv.rdf.term_json import read_term

MAX_EDIT_BYTES = 4 * 2**20
"""The size of a body with edits. It is parsed in one step, which holds up the other requests of a process."""
MAX_EDITS = 10_000
"""Statements that one call may add and remove. A larger change is a registration."""


@dataclass(frozen=True, slots=True)
class DocumentEdit:
    """Statements to be added to a document and removed from it. `by`: the caller."""

    uri: str
    additions: tuple[Statement, ...]
    removals: tuple[Statement, ...]
    conditions: Preconditions = field(default_factory=Preconditions)
    limits: WriteLimits = UNLIMITED
    by: str | None = None
    reacts: bool = True
    """False: event-condition-action rules are not run."""
    confirms: bool = False
    """The document gets a new version even if nothing changes: a user has decided that it stays as it is."""


def read_edits(body: bytes) -> tuple[tuple[Statement, ...], tuple[Statement, ...]]:
    """Return the additions and removals of a JSON body: `{"add": [[subject, property, term], …], "remove": […]}`.

    >>> read_edits(b'{"add": [["http://d#a", "http://v/p", {"type": "literal", "value": "x"}]]}')
    ((Statement(subject='http://d#a', property='http://v/p',
                object=Term(type='literal', value='x', lang=None, datatype=None)),), ())
    """
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The body is not JSON: {error}.") from None
    if not isinstance(given, dict) or not given or given.keys() - {"add", "remove"}:
        raise BadRequest('The body must be an object with "add", "remove" or both, each a list of statements.')
    lists = [given.get(name, []) for name in ("add", "remove")]
    if not all(isinstance(one, list) for one in lists):
        raise BadRequest('"add" and "remove" must be lists of statements: [subject, property, term].')
    if sum(map(len, lists)) > MAX_EDITS:
        raise BadRequest(
            f"One call may add and remove {MAX_EDITS:,} statements. Make several calls, or register the document again."
        )
    added, removed = (
        tuple(_read_statement(item, f"{name}[{number}]") for number, item in enumerate(one))
        for name, one in zip(("add", "remove"), lists, strict=True)
    )
    return added, removed


def read_statement(text: str) -> Statement:
    """Return a statement from JSON: `[subject, property, term]`."""
    try:
        item = json.loads(text)
    except (ValueError, RecursionError):
        item = None
    return _read_statement(item, "The statement")


def _read_statement(item: Any, place: str) -> Statement:
    match item:
        case [str(subject), str(name), dict(term)]:
            try:
                return Statement(read_term({"type": "uri", "value": subject}).value,
                                 read_term({"type": "uri", "value": name}).value, read_term(term))  # fmt: skip
            except InvalidDocument as error:
                raise BadRequest(f"{place}: {error.detail}") from None
    raise BadRequest(
        f'{place} is not a statement. Write [subject, property, {{"type": "uri" or "literal", "value": …}}].'
    )


def edit_document(
    connection: Connection, item: DocumentEdit, provider: Provider, naming: bool = False
) -> RegistrationOutcome:
    """Edit a registered document in one transaction. `naming`: the result names the LMRs that it affects."""
    tx = Transaction(provider, connection)
    tx.reacts = item.reacts
    cause = Cause(UPDATE, None if item.reacts else NO_REACTIONS, item.by)
    tx.edit(cause, _edits(item.additions, item.uri), _edits(item.removals, item.uri), item.uri, item.limits)
    stored = tx.stored_document(item.uri)
    check_preconditions(item.uri, item.conditions, stored)
    before = check_registered(item.uri, stored)
    if item.confirms:
        tx.keep(item.uri, cause)
    done = tx.finish()
    if item.uri not in done.documents:
        subjects = {statement.subject for statement in (*item.additions, *item.removals)}
        return RegistrationOutcome(
            item.uri, before.version, done.position, unchanged=len(subjects), present=True,
            **replication_of(before, done.token),
        )  # fmt: skip
    names = tuple(done.publication.names()) if naming else None
    effect = done.documents[item.uri]
    return outcome_of(
        item.uri, done, names, present=effect.present, reactions=reactions_of(tx, done, naming)
    )  # fmt: skip


def _edits(statements: Sequence[Statement], document: str) -> list[Edit]:
    return [Edit(statement, document) for statement in statements]
