"""Processes as JSON: lists, one process, its solutions and its log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection

from mdv.errors import InvalidRule, NotFound
from mdv.inspect.sql.processes import (
    StoredProcess,
    list_live_programs,
    list_stored_log,
    list_stored_processes,
    list_stored_solutions,
)
from mdv.mdp.real.start import PROCESS_PREFIX
from mdv.model import Term
from mdv.real.checkpoint import read_term
from mdv.real.compile_code import Op, compile_program
from mdv.real.resolve import read_program
from mdv.real.vocabulary import PRIMITIVE

MAX_LIVE_PROGRAMS = 1000
"""Programs that are looked at to tell which processes are stalled. With more, none is marked."""

_WRITING = frozenset((Op.ADD, Op.ENSURE, Op.TAKE))
_CALLING = frozenset((Op.CALL, Op.SPAWN, Op.EXPAND))


def process_iri(text: str) -> str:
    """Return the IRI of a process from its IRI or its ID, which is the rest of it.

    >>> process_iri("1f"), process_iri("urn:mdv:real:process/1f")
    ('urn:mdv:real:process/1f', 'urn:mdv:real:process/1f')
    """
    return text if text.startswith("urn:") else PROCESS_PREFIX + text


def list_processes(
    connection: Connection,
    before: int | None,
    limit: int,
    root: str | None = None,
    caller: str | None = None,
    states: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Return processes, the newest first, with marks of those that are stalled."""
    found = list_stored_processes(
        connection, before, limit, root=None if root is None else process_iri(root), caller=caller, states=states
    )
    stalled = _stalled(connection, found)
    return [process_json(one, one.iri in stalled) for one in found]


def find_process(connection: Connection, name: str) -> dict[str, Any]:
    """Return one process with its program. Raise `NotFound` if there is none."""
    found = list_stored_processes(connection, None, 1, iri=process_iri(name))
    if not found:
        raise NotFound(f"There is no process {name}. It may have been deleted: ended ones are kept for some days.")
    (one,) = found
    more = {"code": one.code, "prefixes": one.prefixes,
            "binding": {name: read_term(term).as_dict() for name, term in one.binding.items()}}  # fmt: skip
    return process_json(one, bool(_stalled(connection, found))) | more


def list_solutions(connection: Connection, iri: str, after: int, limit: int) -> list[dict[str, Any]]:
    """Return the solutions of a process after a number."""
    return [
        {"n": number, "binding": binding} for number, binding in list_stored_solutions(connection, iri, after, limit)
    ]


def list_log(connection: Connection, iri: str, after: int, limit: int) -> list[dict[str, Any]]:
    """Return entries of the log of a process."""
    return [
        {"id": number, "solutions": solutions, "at": at, "kind": kind, **_entry(kind, body)}
        for number, solutions, at, kind, body in list_stored_log(connection, iri, after, limit)
    ]


def _entry(kind: str, body: Any) -> dict[str, Any]:
    if kind == "log":
        return {"message": body}
    return {name: value for name, value in body.items() if name != "effects"}


def process_json(one: StoredProcess, is_stalled: bool) -> dict[str, Any]:
    """Return a process as JSON."""
    return {
        "process": one.iri,
        "id": one.iri.removeprefix(PROCESS_PREFIX),
        "number": one.id,
        "root": one.root,
        "parent": one.parent,
        "action": one.action,
        "state": one.state,
        "stalled": is_stalled,
        "caller": one.caller,
        "into": one.into,
        "position": one.position,
        "solutions": one.solutions,
        "read": one.read_solutions,
        "effects": {"added": one.added, "removed": one.removed},
        "steps": one.steps,
        "slices": one.slices,
        "conflicts": one.conflicts,
        "seconds": round(one.seconds, 3),
        "awaits": [_read_json(read) for read in one.awaits or ()] if one.state == "waiting" else [],
        "problem": one.problem,
        "stop_asked": one.stop_asked,
        "message": None if one.message is None else read_term(one.message).as_dict(),
        "created_at": one.created_at,
        "ran_at": one.ran_at,
        "wake_at": one.wake_at,
        "ended_at": one.ended_at,
    }


def _read_json(read: list[Any]) -> dict[str, Any]:
    subject, name, value, _, documents = read
    found = {"subject": subject, "property": name, "documents": documents}
    return found | {"object": None if value is None else read_term(value).as_dict()}


# --- stalled processes ---


def _stalled(connection: Connection, processes: Sequence[StoredProcess]) -> set[str]:
    """Return the processes whose awaited patterns only waiting processes may write."""
    waiting = [one for one in processes if one.state == "waiting" and one.wake_at is None and one.awaits]
    if not waiting:
        return set()
    programs = list_live_programs(connection, MAX_LIVE_PROGRAMS)
    if len(programs) == MAX_LIVE_PROGRAMS:
        return set()
    written: set[str] = set()
    for code, prefixes in programs:
        names = written_properties(code, tuple(sorted(prefixes.items())))
        if names is None:
            return set()
        written |= names
    return {
        one.iri for one in waiting if all(read[1] is not None and read[1] not in written for read in one.awaits or ())
    }


@lru_cache(maxsize=1024)
def written_properties(code: str, prefixes: tuple[tuple[str, str], ...]) -> frozenset[str] | None:
    """Return the properties that a program may write; None: any.

    >>> written_properties("+rdfs:label(rdf:Bag, ?x) AND rdf:type(?x, ?)", ())
    frozenset({'http://www.w3.org/2000/01/rdf-schema#label'})
    >>> written_properties("CALL <urn:a>()", ())
    """
    try:
        nodes = compile_program(read_program(code, dict(prefixes)), code).nodes
    except InvalidRule:
        return None
    found = set()
    for node in nodes:
        if node.op in _CALLING:
            if isinstance(node.item, Term) and node.item.value.startswith(PRIMITIVE):
                continue
            return None
        if node.op in _WRITING and node.triple is not None:
            if isinstance(node.triple.property, str):
                return None
            found.add(node.triple.property.value)
    return frozenset(found)
