"""The editor of event-condition-action rules: check while typing, completions, dry run, registration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from flask import Response, jsonify, request
from pydantic import ValidationError

from mdv.errors import BadRequest, MdvError, NotFound
from mdv.inspect.eca_check import MAX_CHECKED_RULES, check_json
from mdv.inspect.eca_rules import list_sets
from mdv.inspect.sql.documents import read_document
from mdv.mdp.eca.change_rules import DEFAULT_SET
from mdv.mdp.eca.update import UPDATES_DOCUMENT
from mdv.rdf.parse import check_registration_uri
from mdv.rdf.syntax import syntax_of_name
from mdv.rdftl.completion import example_rule, keywords, rdftl_words
from mdv.rules.completion import completions
from web.job_queue import PendingJob
from web.labels import schema_labels
from web.models import PostedEcaRule
from web.negotiate import run_in_thread
from web.pages.base import (
    is_fragment_request,
    pages,
    redirect_to,
    render_fragment,
    render_page,
    require_editor,
    require_viewer,
    session,
)
from web.routing import parameter_error
from web.services import services
from web.use_cases.documents import document_text
from web.use_cases.eca import add_eca_rules, run_update, try_registration
from web.use_cases.eca_analysis import check_text

DRY_RUN_WAIT_SECONDS = 30
MAX_TRIED_BYTES = 64 * 1024
"""Longest document whose text is loaded into the form of a dry run."""
TURTLE = "text/turtle"
MAX_SETS_OFFERED = 200


@dataclass(frozen=True, slots=True)
class DryRunForm:
    """What a dry run tries: an `update`, or the registration of `document` under `uri`. `rule`: a rule, which takes
    part if it is a `draft`."""

    kind: str = "update"
    update: str = ""
    uri: str = ""
    document: str = ""
    rule: str = ""
    draft: bool = True

    @classmethod
    def of(cls, form: Mapping[str, str]) -> DryRunForm:
        def text(name: str) -> str:
            return form.get(name, "").replace("\r\n", "\n")

        kind = "document" if form.get("kind") == "document" else "update"
        is_sent = "kind" in form
        return cls(
            kind, text("update"), form.get("uri", "").strip(), text("document"), text("text"),
            "draft" in form or not is_sent,
        )  # fmt: skip


@pages.get("/event-rules/new")
def eca_editor() -> Response:
    """Show the editor with the text of the URL, or an example."""
    require_viewer()
    text = request.args.get("text")
    if text is None:
        with services().engine.connect() as connection:
            text = example_rule(services().schemas.now(connection).schema)
    return _render_editor(text.replace("\r\n", "\n"))


@pages.post("/event-rules/check")
def check_eca_rule() -> Response:
    """Check a text while the user types."""
    require_viewer()
    text = request.form.get("text", "").replace("\r\n", "\n")
    return render_fragment("eca_look.html", text=text, **check_values(text, request.form.get("replaces") or None))


@pages.post("/event-rules/new")
def add_eca_rule() -> Response:
    """Add the rules of a text; without JavaScript, the button Check comes here, too."""
    require_viewer()
    form = request.form
    text = form.get("text", "").replace("\r\n", "\n")
    if form.get("act") == "check":
        return _render_editor(text, form=form)
    caller = require_editor()
    state: Literal["active", "shadow"] = "shadow" if form.get("state") == "shadow" else "active"
    try:
        if not text.strip():
            raise BadRequest("The text is empty. Write a rule.")
        done = add_eca_rules(caller, [_new_rule(text, form.get("set", "").strip() or DEFAULT_SET, state)])
    except MdvError as error:
        return _render_editor(text, error, form)
    if isinstance(done, PendingJob):
        return redirect_to("job", job=done.job)
    items = done.result["items"]
    if len(items) > 1:
        return redirect_to("eca_rules", said="eca_added")
    return redirect_to("eca_rule", name=items[0]["id"], said="eca_added")


def _new_rule(text: str, rule_set: str = DEFAULT_SET, state: Literal["active", "shadow"] = "active") -> PostedEcaRule:
    try:
        return PostedEcaRule(text=text, set=rule_set, state=state)
    except ValidationError as error:
        raise parameter_error(error) from None


@pages.get("/event-rules/words.json")
def eca_completions() -> Response:
    """Return completions for the editor."""
    require_viewer()
    with services().engine.connect() as connection:
        in_force = services().schemas.now(connection)
    labels = schema_labels(in_force.statements, in_force.schema)
    return jsonify(run_in_thread(completions, in_force.schema, labels) | rdftl_words())


@pages.post("/event-rules/dry-run")
def dry_run_eca() -> Response:
    """Show what an update or a registration would do, with the draft of the editor. Nothing is changed."""
    caller = require_editor()
    given = DryRunForm.of(request.form)
    if request.form.get("act") == "load":
        return _load(given)
    found: dict[str, Any]
    try:
        rules = [_new_rule(given.rule)] if given.rule.strip() and given.draft else []
        if given.kind == "update":
            done = run_update(caller, given.update.encode(), UPDATES_DOCUMENT, DRY_RUN_WAIT_SECONDS, True, rules)
        else:
            uri = check_registration_uri(given.uri)
            done = try_registration(caller, uri, given.document.encode(), TURTLE, rules)
        found = {"pending": done.job} if isinstance(done, PendingJob) else {"result": done.result}
        tree = None if isinstance(done, PendingJob) else done.result.get("run")
    except MdvError as error:
        found = {"refused": error.problem()}
        tree = error.problem().get("run")
    found["rows"] = list(_tree_rows(tree)) if isinstance(tree, dict) else []
    if is_fragment_request():
        return render_fragment("eca_tried.html", **found)
    return _render_editor(given.rule, form=request.form, tried=found)


def _load(given: DryRunForm) -> Response:
    """Show the form again with the text of the stored document."""
    try:
        uri = check_registration_uri(given.uri)
        with services().engine.connect() as connection:
            stored = read_document(connection, uri)
        if stored is None or not stored.present:
            raise NotFound(f"The document {uri} does not exist. Write its text instead.")
        text = document_text(stored, syntax_of_name("turtle"), MAX_TRIED_BYTES).decode()
    except MdvError as error:
        return _render_editor(given.rule, form=request.form, tried={"refused": error.problem(), "rows": []})
    return _render_editor(given.rule, form={**request.form, "document": text, "kind": "document"})


def _tree_rows(tree: Mapping[str, Any]) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    """Yield the rows of a tree given as JSON: level, `copy` or `update`, and the part."""
    stack: list[tuple[int, str, Mapping[str, Any]]] = [(0, "update", one) for one in reversed(tree["updates"])]
    stack += [(0, "copy", one) for one in reversed(tree["copies"])]
    while stack:
        level, kind, part = stack.pop()
        yield level, kind, part
        below, name = (part.get("copies", ()), "copy") if kind == "update" else (part["updates"], "update")
        stack += [(level + 1, name, one) for one in reversed(below)]


def check_values(text: str, replaced: str | None = None) -> dict[str, Any]:
    """Return the values of the result of a check."""
    checked, problem = None, None
    if text.strip():
        try:
            checked = check_json(check_text(text, replaced))
        except MdvError as error:
            problem = error.problem()
    return {"checked": checked, "problem": problem, "marks": marks_of(checked, problem), "most": MAX_CHECKED_RULES}


def marks_of(checked: Mapping[str, Any] | None, problem: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the places in the text that the editor marks."""
    warnings = [one for rule in checked["rules"] for one in rule["warnings"]] if checked else []
    errors = list((problem or {}).get("errors") or [])
    return [*errors[:50], *(warning | {"severity": "warning"} for warning in warnings[:50])]


def editor_words() -> str:
    """Return the keywords that the editor highlights."""
    return " ".join(word.lower() for word in keywords())


def _render_editor(
    text: str,
    error: MdvError | None = None,
    form: Mapping[str, str] | None = None,
    tried: Mapping[str, Any] | None = None,
) -> Response:
    values = check_values(text)
    if error is not None:
        values |= {"problem": error.problem(), "marks": marks_of(None, error.problem()) or values["marks"]}
    with services().engine.connect() as connection:
        sets = list_sets(connection, MAX_SETS_OFFERED)
    form = form or {}
    user = session()
    return render_page(
        "eca_editor.html",
        error.status if error else 200,
        text=text,
        set=form.get("set") or DEFAULT_SET,
        state=form.get("state", "active"),
        sets=sets,
        tried=tried,
        trial=DryRunForm.of(form),
        may=user is not None and user.role == "admin",
        refused=error is not None,
        words=editor_words(),
        **values,
    )
