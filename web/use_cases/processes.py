"""Programs in the mode run: start a process, read its solutions as they come, stop it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from mdv.accounts.callers import Caller
from mdv.errors import Forbidden, MdvError, NotFound, ProgramStopped, Unavailable
from mdv.inspect.run_program import read_binding
from mdv.mdp.real.program_text import mark_json
from mdv.mdp.real.program_worker import LEASE_SECONDS
from mdv.mdp.real.reading import ENDED_STATES, ProcessNews, note_gone, read_news
from mdv.mdp.real.start import PROCESS_PREFIX, ProgramStart, StartedProcess, request_stop, start_now
from mdv.mdp.write_limits import WriteLimits
from mdv.model import Term
from mdv.real.checkpoint import write_term
from mdv.rules.text_errors import Mark
from web.negotiate import run_in_thread
from web.services import Services
from web.use_cases.programs import ANSWER_SECONDS, Event, check_into, is_disconnected

log = structlog.get_logger()

NEWS_SECONDS = 1.0
"""How long a reader waits for a notification before it looks at the database."""
GRACE_SECONDS = 5.0
"""How long a process goes on whose reader is gone, if the reader can come back with `Last-Event-ID`."""
MAX_PAGE, MAX_ENTRIES = 1000, 20
"""Solutions and log entries that are read at once. An entry may have 1,000 effects."""


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """How a program is run: what `POST /real` accepts besides its text."""

    into: str | None = None
    binding: Mapping[str, Any] = field(default_factory=dict)
    prefixes: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    is_followed: bool = True


def start_process_of(s: Services, caller: Caller, code: str, options: ProgramOptions) -> StartedProcess:
    """Start a program as a process, and wake a worker."""
    if caller.role != "admin":
        raise Forbidden(
            f"The token {caller.name!r} is read-only, so it cannot run programs that change documents. Use the mode"
            " sandbox or read, or an admin token."
        )
    start = ProgramStart(
        code, caller.by, check_into(options.into, caller), caller.token_id,
        WriteLimits(caller.document_prefixes, caller.resource_prefixes), read_binding(options.binding),
        options.prefixes, options.limit, options.is_followed,
    )  # fmt: skip
    with s.single.connect() as connection:
        started = run_in_thread(start_now, connection, start, s.schemas, s.process_quotas)
    s.wake_programs()
    return started


def may_steer(caller: Caller, process: Mapping[str, Any]) -> bool:
    """True if a caller may stop a process, and let it go on by reading its solutions."""
    return caller.role == "admin" and (not caller.is_limited or process["caller"] == caller.by)


def stop_process_of(s: Services, iri: str, message: str | None = None, family: bool = False) -> None:
    """Stop a process. Raise `NotFound` if it does not exist or has ended. `message`: for its activity document.
    `family`: with all that descend from the same one."""
    term = None if message is None else write_term(Term.literal(message))
    with s.engine.begin() as connection:
        request_stop(connection, iri, term, family)
    s.wake_programs()


class FollowedProcess:
    """The events of a process, as they happen. `solution` and `entry`: the last ones that the reader has."""

    def __init__(
        self, s: Services, iri: str, code: str = "", marks: Sequence[Mark] = (), solution: int = 0, entry: int = 0
    ) -> None:
        self.services, self.iri, self.code = s, iri, code
        self.solution, self.entry = solution, entry
        self.is_new = False
        self.counts = True
        """False: what is read does not count as read, so that a full process stays so."""
        self.is_over = False
        self.problem: MdvError | None = None
        self._marks = [{"type": "warning"} | mark_json(code, mark) for mark in marks]
        self._net: dict[int, bool] = {}
        """The net change of each statement that was changed more than once, by hash."""
        self._commits = 0
        self._counts = (0, 0)
        self.position = 0

    def events(self, client: Any, gone: Callable[[], object] = lambda: None) -> Iterator[list[Event]]:
        """Yield events until the process has ended, or the client is gone. `gone` is called in the second case."""
        until = time.monotonic() + ANSWER_SECONDS
        is_ended = False
        try:
            if self.is_new:
                self.services.wait_for_news(self.iri, NEWS_SECONDS)  # its first slice has just been asked for
            while not is_ended:
                found = self._next()
                is_ended = self.is_over
                if found:
                    yield found
                    continue
                if is_disconnected(client):
                    log.info("reader of a process is gone", process=self.iri, solutions=self.solution)
                    return
                if self.services.feed_notifier.closed:
                    raise Unavailable("The server is restarting, which ended the program. Run it again later.")
                if time.monotonic() > until:
                    detail = f"The program did not end within {ANSWER_SECONDS:g} s, which stopped it. Run it detached."
                    raise ProgramStopped(detail, limit="seconds", **self.ending())
                if not is_ended:
                    yield []
                    self.services.wait_for_news(self.iri, NEWS_SECONDS)
        finally:
            if not self.is_over:
                gone()

    def stop(self) -> None:
        """Stop the process, unless it has ended."""
        try:
            stop_process_of(self.services, self.iri)
        except NotFound:
            return

    def leave(self) -> None:
        """Let the process be stopped in a few seconds, unless a reader comes back."""
        with self.services.engine.begin() as connection:
            note_gone(connection, self.iri, LEASE_SECONDS - GRACE_SECONDS)

    def ending(self) -> dict[str, Any]:
        """Return the numbers of solutions and effects, and the position."""
        return {"solutions": self.solution, "effects": self.effects(), "position": self.position}

    def event_id(self) -> str:
        """Return where the reader is, for `Last-Event-ID`."""
        return f"{self.iri.removeprefix(PROCESS_PREFIX)}.{self.solution}.{self.entry}"

    def effects(self) -> dict[str, int]:
        """Return the net numbers of statements that were added and removed."""
        if self._commits > 1:
            added = sum(self._net.values())
            return {"added": added, "removed": len(self._net) - added}
        return {"added": self._counts[0], "removed": self._counts[1]}

    def _next(self) -> list[Event]:
        with self.services.single.connect() as connection:
            news = read_news(connection, self.iri, self.solution, self.entry, MAX_PAGE, MAX_ENTRIES, self.counts)
        if news is None:
            raise NotFound(f"There is no process {self.iri}.")
        if news.has_resumed:
            self.services.wake_programs()
        return run_in_thread(self._events_of, news)

    def _events_of(self, news: ProcessNews) -> list[Event]:
        self.position, self._counts, self.code = news.position, (news.added, news.removed), self.code or news.code
        solutions, entries = _page(news)
        found, self._marks = list[Event](self._marks), []
        remaining = iter(entries)
        entry = next(remaining, None)
        for number, binding in solutions:
            while entry is not None and entry[1] < number:
                found += self._entry_events(entry)
                entry = next(remaining, None)
            self.solution = number
            found.append({"type": "solution", "n": number, "binding": binding, "id": self.event_id()})
        while entry is not None:
            found += self._entry_events(entry)
            entry = next(remaining, None)
        is_complete = len(news.bindings) < MAX_PAGE and len(news.entries) < MAX_ENTRIES
        if news.state in ENDED_STATES and is_complete:
            self.is_over = True
            found.append(self._end(news))
        return found

    def _entry_events(self, entry: tuple[int, int, str, Any]) -> Iterator[Event]:
        self.entry, _, kind, body = entry
        if kind == "warning":
            yield {"type": "warning", **body}
        elif kind == "log":
            yield {"type": "log", "message": body}
        elif kind == "commit":
            self._commits += 1
            for document, statement, is_added in body.get("effects", ()):
                self._note(document, statement, is_added)
                change = "added" if is_added else "removed"
                yield {"type": "effect", "change": change, "document": document, "statement": statement}
            yield {"type": "commit", "position": body["position"]}

    def _note(self, document: str, statement: Any, is_added: bool) -> None:
        key = hash(json.dumps([document, statement]))
        if self._net.get(key, is_added) != is_added:
            del self._net[key]
        else:
            self._net[key] = is_added

    def _end(self, news: ProcessNews) -> Event:
        if news.state == "done":
            return {"type": "end"} | self.ending()
        problem = news.problem or {"message": "the process was stopped"}
        extra = {name: value for name, value in problem.items() if name not in ("message", "errors")}
        message = problem["message"]
        detail = f"{message[:1].upper()}{message[1:]}{'' if message.endswith('.') else '.'}"
        self.problem = ProgramStopped(detail, **extra, **self.ending())
        return {"type": "error", "problem": self.problem.problem()}


def _page(news: ProcessNews) -> tuple[list[tuple[int, dict[str, Any]]], list[tuple[int, int, str, Any]]]:
    """Return the solutions and entries whose order is known: one list may go on where the other was cut."""
    solutions, entries = news.bindings, news.entries
    if len(entries) == MAX_ENTRIES:
        solutions = [one for one in solutions if one[0] <= entries[-1][1]]
    if len(news.bindings) == MAX_PAGE:
        entries = [one for one in entries if one[1] < news.bindings[-1][0]]
    return solutions, entries


def read_event_id(text: str) -> tuple[str, int, int] | None:
    """Return the process, the solution and the log entry of a `Last-Event-ID`; None if it is not one.

    >>> read_event_id("1f.7.2"), read_event_id("7")
    (('urn:mdv:real:process/1f', 7, 2), None)
    """
    parts = text.rsplit(".", 2)
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in parts[1:]):
        return None
    return PROCESS_PREFIX + parts[0], int(parts[1]), int(parts[2])
