"""Start and stop processes: programs in the mode run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection

from mdv.db.real.processes import NewProcess, ask_to_stop, count_live, start_process
from mdv.db.state import read_state
from mdv.errors import Forbidden, InvalidProgram, NotFound, TooMany
from mdv.mdp.real.program_text import parse_code
from mdv.mdp.real.quotas import ProcessQuotas
from mdv.mdp.schemas import SchemaCache, SchemaInForce
from mdv.mdp.write_limits import UNLIMITED, WriteLimits, is_below_prefix
from mdv.model import Term
from mdv.rdf.schema import Schema
from mdv.real.check import check_program
from mdv.real.checkpoint import write_settings, write_term
from mdv.real.events import MachineSettings
from mdv.rules.text_errors import Mark

PROCESS_PREFIX = "urn:mdv:real:process/"
FOLLOWED_PRIORITY, BACKGROUND_PRIORITY = 3, 5
"""The priority of a process whose caller waits for its solutions, and of others."""

_PREFIX = re.compile(r"((?:[^\W\d][\w-]*)?):")


@dataclass(frozen=True, slots=True)
class ProgramStart:
    """A program to be started as a process. `caller`: as in the history. `token`: the number of its token, if it has
    one. `limits`: what it may write. `is_followed`: the caller reads the solutions, and the process is stopped if it
    ends to do so. `limit`: it ends after that many solutions."""

    code: str
    caller: str
    into: str
    token: int | None = None
    limits: WriteLimits = UNLIMITED
    binding: Mapping[str, Term] = field(default_factory=dict)
    prefixes: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    is_followed: bool = False
    priority: int = BACKGROUND_PRIORITY


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """A process that was started, with the warnings about its text."""

    id: int
    iri: str
    warnings: tuple[Mark, ...]


def start_program(
    connection: Connection, start: ProgramStart, schema: SchemaInForce, position: int, quotas: ProcessQuotas
) -> StartedProcess:
    """Start a program as a process. Raise `InvalidProgram` if its text is not valid, `Forbidden` if the caller may not
    write its document, and `TooMany` if the caller has too many processes. The caller commits and wakes a worker."""
    if "\0" in start.code:
        raise InvalidProgram("The program contains a NUL character.")
    program = parse_code(start.code, schema.schema, start.prefixes)
    marks = check_program(program, schema.schema, inputs=frozenset(start.binding))
    documents = start.limits.documents
    if documents is not None and not is_below_prefix(start.into, documents):
        raise Forbidden(
            f"This token may not write {start.into}, where additions of the program go: it is limited to"
            f" {', '.join(documents) or 'no prefix'}. Give `into` a document below one of them."
        )
    live, _ = count_live(connection, start.caller, None, quotas.processes)
    if live >= quotas.processes:
        raise TooMany(
            f"{quotas.processes:,} processes of this caller have not ended, which is the limit of MDV_REAL_PROCESSES."
            " Stop some of them (`mdv real ps`, `mdv real stop`), or try later."
        )
    new = NewProcess(
        iri=new_process_iri(), code=start.code, prefixes=used_prefixes(start.code, schema.schema, start.prefixes),
        binding={name: write_term(term) for name, term in start.binding.items()}, into=start.into, settings={},
        permissions=start.limits.as_json(), caller=start.caller, token=start.token, position=position,
        priority=FOLLOWED_PRIORITY if start.is_followed else start.priority, is_followed=start.is_followed,
        solution_limit=start.limit,
    )  # fmt: skip
    new = new._replace(settings=process_settings(new.iri, new.into, quotas))
    return StartedProcess(start_process(connection, new), new.iri, tuple(marks))


def called_process(
    action: str, inputs: Sequence[Term], caller: str, into: str, limits: WriteLimits, position: int,
    quotas: ProcessQuotas,
) -> NewProcess:  # fmt: skip
    """Return a process that calls an action, for an event rule. Its solutions are not kept."""
    names = [f"i{number}" for number in range(len(inputs))]
    iri = new_process_iri()
    return NewProcess(
        iri=iri, code=f"CALL <{action}>({', '.join('?' + name for name in names)})", prefixes={},
        binding={name: write_term(term) for name, term in zip(names, inputs, strict=True)}, into=into,
        settings=process_settings(iri, into, quotas), permissions=limits.as_json(), caller=caller, token=None,
        position=position, action=action, priority=BACKGROUND_PRIORITY, keeps_solutions=False,
    )  # fmt: skip


def start_now(
    connection: Connection, start: ProgramStart, schemas: SchemaCache, quotas: ProcessQuotas
) -> StartedProcess:
    """Start a program as a process, with the schema in force."""
    state = read_state(connection)
    return start_program(connection, start, schemas.at(connection, state.schema_version), state.position, quotas)


def new_process_iri() -> str:
    """Return the IRI of a new process, which also makes its fresh names unique."""
    return PROCESS_PREFIX + uuid4().hex[:16]


def process_settings(iri: str, into: str, quotas: ProcessQuotas) -> dict[str, Any]:
    """Return the settings of the machine of a process as JSON."""
    seed = iri.removeprefix(PROCESS_PREFIX)
    return write_settings(MachineSettings(iri, into, seed, limits=quotas.limits, actions=quotas.actions))


def used_prefixes(code: str, schema: Schema, prefixes: Mapping[str, str]) -> dict[str, str]:
    """Return the prefixes that a program may use. They are kept, so that a later schema does not change its meaning."""
    known = {**schema.prefixes, **prefixes}
    return {prefix: known[prefix] for prefix in sorted(set(_PREFIX.findall(code))) if prefix in known}


def request_stop(connection: Connection, iri: str, message: Any = None, family: bool = False) -> None:
    """Ask a process to stop; `family`: with all that descend from the same one. `message` is a term as JSON of a
    checkpoint. Raise `NotFound` if none of them runs. The caller commits and wakes a worker."""
    if not ask_to_stop(connection, iri, message, family):
        raise NotFound(f"The process {iri} does not exist or has ended.")
