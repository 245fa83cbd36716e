"""`CALL primitive:service(?cr)`: the request that a program sends, and what its answer adds.

    ?cr → Turtle, endpoint → sent by service_sender.py → answer → gate → statements about ?cr → next slice

The request is lrm:requestedService(?cr, s) with real:endpoint(s, "https://…"). What cannot be sent, or is not answered
with RDF, adds lrm:error(?cr, message).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mdv.db.real.service_calls import CallResult, NewCall
from mdv.errors import MdvError
from mdv.mdp.write_limits import is_below_prefix
from mdv.model import LRM, REAL, Document, ParsedDocument, Statement, Term, is_blank
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.gate import gate
from mdv.rdf.parse import parse
from mdv.rdf.schema import Schema
from mdv.rdf.serialise import serialise
from mdv.rdf.syntax import TURTLE, syntax_of_media_type
from mdv.rdf.validate import refuse_reserved, validate
from mdv.real.events import ProgramFailed
from mdv.real.machine import Machine
from mdv.real.machine_state import ProgramFault
from mdv.real.store import FactReader, ReadPattern, StatementChange, StoreView, WriteRefusal
from mdv.real.vocabulary import SCHEMA_CONTEXT

REQUESTED_SERVICE, ENDPOINT, ERROR = LRM + "requestedService", REAL + "endpoint", LRM + "error"
MAX_REQUEST_STATEMENTS = 10_000
MAX_MESSAGE_CHARACTERS = 1_000

Refuse = Callable[[StatementChange, FactReader], WriteRefusal | None]


def read_request(machine: Machine, view: StoreView, request: str, allowed: Sequence[str]) -> NewCall:
    """Return the request that a machine has just called a service with. `allowed`: prefixes of endpoints."""
    machine.view = view
    service, endpoint, reason = None, None, None
    services = _objects(machine, request, REQUESTED_SERVICE)
    endpoints = [(one, url) for one in services for url in _objects(machine, one.value, ENDPOINT)]
    if len(endpoints) == 1:
        service, endpoint = endpoints[0][0].value, endpoints[0][1].value
        if not is_below_prefix(endpoint, allowed):
            reason = f"MDV_REAL_SERVICES does not allow calls of {endpoint[:300]}"
    else:
        found = "several" if endpoints else "no"
        reason = f"the request has {found} lrm:requestedService with a real:endpoint, and needs one"
    statements = list(_about(machine, request))
    if len(statements) > MAX_REQUEST_STATEMENTS:
        reason = f"the request has more than {MAX_REQUEST_STATEMENTS:,} statements"
    body = ""
    if reason is None:
        body = serialise(statements, TURTLE, view.prefixes(SCHEMA_CONTEXT), machine.top).decode()
    return NewCall(request, service, endpoint, body, reason)


def _objects(machine: Machine, subject: str, name: str) -> list[Term]:
    return sorted({one.object for one in machine.statements(ReadPattern(subject, name))})


def _about(machine: Machine, request: str) -> Iterator[Statement]:
    """Yield the statements about a request, and about the blank nodes and parts of it that they lead to."""
    waiting, seen, count = [request], {request}, 0
    while waiting:
        for statement in machine.statements(ReadPattern(waiting.pop())):
            count += 1
            if count > MAX_REQUEST_STATEMENTS + 1:
                return
            yield statement
            value = statement.object
            if value.is_uri and value.value not in seen and _belongs(value.value, request):
                seen.add(value.value)
                waiting.append(value.value)


def _belongs(name: str, request: str) -> bool:
    return is_blank(name) or name == request or name.startswith(request + "#")


def apply_result(machine: Machine, view: StoreView, result: CallResult, schema: Schema, refuse: Refuse) -> None:
    """Let a machine add what the answer to its request says, or lrm:error. It adds them to its top context."""
    machine.view = view
    reason = result.reason or "the service gave no answer"
    try:
        if result.state == "answered":
            reason = _add_answer(machine, result, schema, refuse) or ""
        if reason:
            message = Term.literal(" ".join(reason.split())[:MAX_MESSAGE_CHARACTERS])
            _add_new(machine, Statement(result.request, ERROR, message))
    except ProgramFault as fault:  # the limit of effects
        machine.ended = ProgramFailed(fault.message, limit=fault.limit)


def _add_answer(machine: Machine, result: CallResult, schema: Schema, refuse: Refuse) -> str | None:
    """Add the statements of an answer, all or none. Return why not."""
    document = machine.top
    try:
        statements = read_answer(result, document)
        validate(Document(document, statements), schema)
    except MdvError as error:
        return f"the answer is not valid: {error.detail}"
    for statement in statements:
        refusal = refuse(StatementChange(document, statement, True), machine.facts_of(document))
        if refusal is not None:
            return f"the answer was refused: {refusal.reason}"
    for statement in statements:
        _add_new(machine, statement)
    return None


def read_answer(result: CallResult, document: str) -> tuple[Statement, ...]:
    """Return the statements of an answer about its request and about blank nodes, which get the names that a
    registration of the document would give them. Raise an error if the answer is not RDF."""
    syntax, charset = syntax_of_media_type(result.media_type)
    parsed = parse(gate(result.answer or b"", syntax, charset), result.request)
    refuse_reserved(parsed)
    own = [one for one in parsed.statements if one.subject.startswith("_:") or _is_about(one.subject, result.request)]
    return name_blank_nodes(ParsedDocument(document, tuple(own))).statements


def _is_about(subject: str, request: str) -> bool:
    return subject == request or subject.startswith(request + "#")


def _add_new(machine: Machine, statement: Statement) -> None:
    if not machine.is_present(statement, machine.contexts[:1]):
        machine.change(machine.top, statement, True)
