"""The console of programs: editor, live check, runs in the modes read and sandbox, plans, examples side by side."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from flask import Response, jsonify, request, stream_with_context

from mdv.accounts.callers import Caller
from mdv.errors import BadRequest, MdvError
from mdv.inspect.explain_program import explain_program
from mdv.inspect.program_examples import (
    ABSENT_ARTIST,
    ART,
    COMPARED,
    PRESENT_ARTIST,
    ProgramExample,
    program_examples,
)
from mdv.inspect.real_actions import list_actions
from mdv.inspect.run_program import ProgramRun, check_code
from mdv.mdp.real.program_text import mark_json, parse_code
from mdv.mdp.real.start import StartedProcess
from mdv.rdf.schema import Schema
from mdv.real.check import solution_variables
from mdv.real.completion import name_of, real_words
from mdv.real.parse import KEYWORDS
from mdv.real.vocabulary import BUILT_IN_PREFIXES
from web.errors import unexpected
from web.labels import schema_labels
from web.negotiate import run_in_thread, run_program_turn
from web.pages.base import (
    pages,
    redirect_to,
    render_fragment,
    render_page,
    require_editor,
    require_signed_in,
    require_viewer,
    session,
)
from web.services import services
from web.use_cases.processes import FollowedProcess, ProgramOptions, start_process_of
from web.use_cases.programs import (
    NDJSON,
    Event,
    check_into,
    client_connection,
    default_document,
    later_events,
    prepare_program,
    program_slot,
    stream_to_client,
)

DEFAULT_LIMIT, MAX_LIMIT = 200, 5000
"""Solutions of a run on a page."""
TRACED_STEPS = 300
MAX_SHOWN_LINES = 500
"""Statements of a difference that a page shows."""
MAX_COMPLETED_ACTIONS = 200
MAX_STEPS_SHOWN = 300
_ACTING = re.compile(r"\b(?:SPAWN|STOP|CALL|EXPAND)\b")
ACTS = ("check", "explain", "read", "sandbox", "run")
MAX_CHANGES = 500
"""Statements that a run changed and a page shows."""


@dataclass(frozen=True, slots=True)
class ProgramForm:
    """What the form of the console contains."""

    code: str
    act: str = "sandbox"
    into: str = ""
    limit: int = DEFAULT_LIMIT

    @classmethod
    def of(cls, form: Mapping[str, str]) -> ProgramForm:
        limit = form.get("limit", "").strip() or str(DEFAULT_LIMIT)
        if not (limit.isascii() and limit.isdecimal() and 0 < int(limit) <= MAX_LIMIT):
            raise BadRequest(f"The number of solutions must be between 1 and {MAX_LIMIT:,}, not {limit[:20]!r}.")
        act = form.get("act", "sandbox")
        if act not in ACTS:
            raise BadRequest(f"{act[:20]!r} is not something to do with a program. Use one of {', '.join(ACTS)}.")
        return cls(_text(form), act, form.get("into", "").strip(), int(limit))


@dataclass
class RunShown:
    """What a run did, as a page shows it. A page that follows a run gets it in parts. `given`: the form that was sent.
    `process`: the ID of the process in the mode `run`."""

    given: ProgramForm
    variables: Sequence[str]
    process: str | None = None
    solutions: list[Event] = field(default_factory=list)
    warnings: list[Event] = field(default_factory=list)
    trace: list[Event] = field(default_factory=list)
    end: Event | None = None
    problem: dict[str, Any] | None = None
    changes: dict[str, dict[str, Event]] = field(default_factory=dict)
    """What the mode `run` has changed: the last effect of each statement, by document and statement."""

    @property
    def mode(self) -> str:
        return self.given.act

    @property
    def may_differ(self) -> bool:
        """True if the mode `run` may do more than this sandbox did: change documents, start or stop processes, or call
        services."""
        if self.end is None:
            return self.problem is not None and "in the mode run alone" in self.problem["detail"]
        return any(self.end["effects"].values()) or _ACTING.search(self.given.code) is not None

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            match event["type"]:
                case "solution":
                    self.solutions.append(event)
                case "warning":
                    self.warnings.append(event)
                case "trace":
                    self.trace.append(event)
                case "end":
                    self.end = event
                    for change in event.get("difference", ()):
                        change["size"] = len(change["added"]) + len(change["removed"])
                case "error":
                    self.problem = event["problem"]
                case "effect" if self.mode == "run":
                    self._note(event)

    def _note(self, event: Event) -> None:
        if sum(map(len, self.changes.values())) < MAX_CHANGES:
            own, key = self.changes.setdefault(event["document"], {}), json.dumps(event["statement"])
            if key in own and own[key]["change"] != event["change"]:
                del own[key]
            else:
                own[key] = event

    @property
    def difference(self) -> list[Event]:
        """What was changed, or would be, by document."""
        if self.mode != "run":
            return list((self.end or {}).get("difference", ()))
        found = []
        for document, effects in sorted(self.changes.items()):
            lists: dict[str, list[Any]] = {"added": [], "removed": []}
            for event in effects.values():
                lists[event["change"]].append(event["statement"])
            if effects:
                found.append({"document": document, "size": len(effects), **lists})
        return found


def _text(form: Mapping[str, str], name: str = "text") -> str:
    return form.get(name, "").replace("\r\n", "\n")


@pages.get("/programs")
def programs() -> Response:
    """Show the console with the text of the URL, an example, or a first program."""
    caller = require_viewer()
    example = program_examples().get(request.args.get("example", ""))
    text = example.code if example is not None else request.args.get("text")
    if text is None:
        text = _first_program(_schema())
    return _render(caller, ProgramForm(text.replace("\r\n", "\n"), into=request.args.get("into", "")))


@pages.post("/programs")
def run_program() -> Response:
    """Check, explain or run a program, and show the whole page: the way without JavaScript."""
    caller = require_signed_in()
    try:
        form = ProgramForm.of(request.form)
    except MdvError as error:
        return _render(caller, ProgramForm(_text(request.form)), problem=error.problem())
    try:
        if form.act == "explain":
            return _render(caller, form, plan=_explain(caller, form))
        if form.act == "run":
            return redirect_to("process", name=_start(require_editor(), form, is_followed=False).iri.rpartition("/")[2])
        if form.act != "check":
            return _render(caller, form, run=_run_to_the_end(caller, form))
    except MdvError as error:
        return _render(caller, form, problem=error.problem())
    return _render(caller, form)


@pages.post("/programs/check")
def check_program_text() -> Response:
    """Check a text while the user types."""
    require_viewer()
    return render_fragment("program_look.html", **_check(_text(request.form)))


@pages.post("/programs/stream")
def stream_program_parts() -> Response:
    """Run a program and send what it does as it happens, as lines of JSON: `part`, and the `html` that is added to it.
    Nothing more is run than is read, and the program ends with the connection."""
    caller = require_signed_in()
    try:
        form = ProgramForm.of(request.form)
        if form.act == "explain":
            return _parts([("whole", "program_plan.html", {"plan": _explain(caller, form)})])
        with ExitStack() as stack:
            stack.enter_context(program_slot(services(), caller))
            found = _begin(caller, form)
            closing = stack.pop_all()
    except MdvError as error:
        return _parts([("whole", "program_failed.html", {"problem": error.problem()})])
    return stream_to_client(stream_with_context(_run_parts(*found)), NDJSON, closing)


def _begin(caller: Caller, form: ProgramForm) -> tuple[RunShown, Iterator[list[Event]]]:
    """Start a run. Return what is known of it, and its events."""
    if form.act != "run":
        run = _prepare(caller, form)
        return RunShown(form, run.variables), later_events(services(), run, client_connection())
    started = _start(require_editor(), form, is_followed=True)
    followed = FollowedProcess(services(), started.iri, form.code, started.warnings)
    variables = run_in_thread(variables_of, form.code, _schema())
    shown = RunShown(form, variables, started.iri.rpartition("/")[2])
    return shown, followed.events(client_connection(), followed.stop)


def _start(caller: Caller, form: ProgramForm, is_followed: bool) -> StartedProcess:
    if not form.code.strip():
        raise BadRequest("The text is empty. Write a program.")
    options = ProgramOptions(into=form.into or None, limit=form.limit, is_followed=is_followed)
    return start_process_of(services(), caller, form.code, options)


def _parts(parts: Sequence[tuple[str, str, Mapping[str, Any]]]) -> Response:
    return Response([_part(*part) for part in parts], content_type=NDJSON, headers={"Cache-Control": "no-store"})


def _part(name: str, template: str, values: Mapping[str, Any]) -> bytes:
    html = render_fragment(template, **_with_marks(values)).get_data(as_text=True)
    return json.dumps({"part": name, "html": html}).encode() + b"\n"


def _run_parts(shown: RunShown, stream: Iterator[list[Event]]) -> Iterator[bytes]:
    yield _part("whole", "program_result.html", {"run": shown, "is_running": True})
    try:
        for events in stream:
            news = replace(shown, solutions=[], warnings=[], trace=[])
            news.take(events)
            for name in ("solutions", "warnings", "trace"):
                if getattr(news, name):
                    yield _part(name, f"program_{name}.html", {"run": news})
            if news.end is not None or news.problem is not None:
                yield _part("end", "program_end.html", {"run": news, **_may()})
    except Exception as error:
        problem = error if isinstance(error, MdvError) else unexpected(error)
        yield _part("end", "program_end.html", {"run": replace(shown, problem=problem.problem())})
    finally:
        close = getattr(stream, "close", None)
        if close is not None:  # a process whose reader is gone is stopped
            close()


def _run_to_the_end(caller: Caller, form: ProgramForm) -> RunShown:
    with program_slot(services(), caller):
        run = _prepare(caller, form)
        shown = RunShown(form, run.variables)
        for events in later_events(services(), run, client_connection()):
            shown.take(events)
    return shown


def _prepare(caller: Caller, form: ProgramForm) -> ProgramRun:
    if not form.code.strip():
        raise BadRequest("The text is empty. Write a program.")
    return prepare_program(
        services(), caller, form.code, is_read_only=form.act == "read", into=form.into or None, limit=form.limit,
        trace=TRACED_STEPS,
    )  # fmt: skip


def _explain(caller: Caller, form: ProgramForm) -> dict[str, Any]:
    s = services()
    into = check_into(form.into, caller)
    with s.single.connect() as connection:
        in_force = s.schemas.now(connection)
    with program_slot(s, caller), s.engine.connect() as connection:
        session_ = connection.connection.driver_connection
        return run_program_turn(explain_program, session_, in_force, form.code, {}, into)


@pages.get("/programs/words.json")
def program_words() -> Response:
    """Return completions for the editor."""
    require_viewer()
    s = services()
    with s.engine.connect() as connection:
        in_force = s.schemas.now(connection)
        driver = connection.connection.driver_connection
        actions = run_program_turn(list_actions, driver, in_force, 0, MAX_COMPLETED_ACTIONS)
    prefixes = {**BUILT_IN_PREFIXES, **in_force.schema.prefixes}
    labels = schema_labels(in_force.statements, in_force.schema)
    names = [
        {"name": name_of(one.uri, prefixes), "detail": ", ".join(one.signature.inputs) if one.signature else ""}
        for one in actions
    ]
    return jsonify(run_in_thread(real_words, in_force.schema, labels) | {"actions": names})


@pages.get("/programs/examples")
def compare_programs() -> Response:
    """Show three programs of the paper side by side, with what each of them would change."""
    caller = require_viewer()
    artist = request.args.get("artist", "present")
    if artist not in ("present", "absent"):
        raise BadRequest("`artist` is `present` or `absent`.")
    runs: list[tuple[ProgramExample, RunShown | None, dict[str, Any] | None]] = []
    for name in COMPARED:
        example = program_examples()[name]
        if artist == "absent":
            example = example._replace(
                code=example.code.replace(PRESENT_ARTIST, ABSENT_ARTIST).replace("Bill Viola", "Ann Hamilton")
            )
        try:
            runs.append((example, _run_to_the_end(caller, ProgramForm(example.code)), None))
        except MdvError as error:
            runs.append((example, None, error.problem()))
    return render_page(
        "program_examples.html", runs=runs, artist=artist, has_art=_has_art(_schema()), most=MAX_SHOWN_LINES
    )


# Rendering


def _schema() -> Schema:
    with services().single.connect() as connection:
        return services().schemas.now(connection).schema


def _has_art(schema: Schema) -> bool:
    return ART + "ArtWork" in schema.classes


def variables_of(code: str, schema: Schema) -> list[str]:
    """Return the variables that the solutions of a program may bind."""
    return solution_variables(parse_code(code, schema, {}))


def _first_program(schema: Schema) -> str:
    own = sorted(iri for iri in schema.classes if iri.startswith("http") and not iri.startswith("http://www.w3.org/"))
    return f"rdf:type(?x, {name_of(own[0], schema.prefixes)})" if own else "?p(?x, ?y)"


def _check(code: str) -> dict[str, Any]:
    """Return the values of the result of a check."""
    marks: list[dict[str, Any]] = []
    problem = None
    if code.strip():
        try:
            warnings = run_in_thread(check_code, code, _schema(), {})
            marks = [{**_placed(mark_json(code, mark)), "severity": "warning"} for mark in warnings]
        except MdvError as error:
            problem = error.problem()
    found = {"text": code, "problem": problem, "warnings": marks}
    return found | {"marks": list((problem or {}).get("errors") or [])[:50] + marks[:50]}


def _placed(warning: Mapping[str, Any]) -> dict[str, Any]:
    span = warning["span"]
    return {
        "message": warning["message"], "hint": warning.get("hint"), "line": span["line"], "column": span["column"],
        "length": max(1, span["end"] - span["start"]),
    }  # fmt: skip


def _with_marks(values: Mapping[str, Any]) -> dict[str, Any]:
    """Add the places in the text that the editor marks after a run that failed."""
    run = values.get("run")
    problem = run.problem if isinstance(run, RunShown) else values.get("problem")
    marks = list((problem or {}).get("errors") or [])
    if problem and not marks and "span" in problem and "text" not in problem:
        marks = [_placed({"message": problem["detail"], "span": problem["span"]})]
    return {"most": MAX_SHOWN_LINES, "most_steps": MAX_STEPS_SHOWN, "marks": marks, "traced": TRACED_STEPS, **values}


def _may() -> dict[str, Any]:
    user = session()
    return {"may": user is not None and user.role == "admin"}


def _render(
    caller: Caller,
    form: ProgramForm,
    *,
    run: RunShown | None = None,
    plan: Mapping[str, Any] | None = None,
    problem: Mapping[str, Any] | None = None,
) -> Response:
    checked = _check(form.code)
    shown = problem or (run.problem if run is not None else None)
    values = _with_marks({"run": run, "problem": shown})
    schema = _schema()
    return render_page(
        "programs.html",
        int(shown["status"]) if shown is not None else 200,
        form=form,
        plan=plan,
        checked=checked,
        marks=values.pop("marks") or checked["marks"],
        words=" ".join(sorted(KEYWORDS)),
        examples=list(program_examples().values()) if _has_art(schema) else [],
        default_into=default_document(caller),
        refused=problem,
        max_limit=MAX_LIMIT,
        **_may(),
        **{name: value for name, value in values.items() if name != "problem"},
    )
