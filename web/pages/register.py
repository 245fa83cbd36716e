"""Registration pages: a text or a file with a preview, or several files one by one."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from flask import Response, request
from werkzeug.datastructures import FileStorage

from mdv.accounts.callers import Caller, check_may_write
from mdv.errors import BadRequest, InvalidDocument, MdvError, PreconditionFailed, TooLarge
from mdv.inspect.filter_replay import replay_filter
from mdv.inspect.sql.documents import DocumentInfo, count_statements, read_document
from mdv.inspect.sql.registration_outcome import OwnedRule, list_notified_lmrs, list_rules_by_end
from mdv.mdp.register import prepare
from mdv.rdf.parse import check_document_uri, check_registration_uri
from mdv.rdf.syntax import SYNTAXES, TURTLE
from mdv.uris import join_uri
from web.document_form import EMPTY_TEXT, FormText, file_text, pasted_text
from web.negotiate import run_in_thread
from web.oversized_forms import FormTooLarge, keep_form
from web.pages.base import pages, redirect_to, render_fragment, render_page, require_editor, require_signed_in
from web.pages.changes import (
    ABSENT,
    MAX_DIFF_STATEMENTS,
    StatementDiff,
    change_document,
    diff_versions,
)
from web.pages.first_schema import (
    activate_first_schema,
    first_schema,
    infer_first_schema,
    is_schema_missing,
    try_to_infer,
)
from web.services import services
from web.use_cases.documents import document_text
from web.use_cases.jobs import find_job

MAX_FILES = 100
"""Maximum number of files of one form without the script."""


@dataclass(frozen=True, slots=True)
class DocumentDraft:
    """The content of the form: a text, its document URI, and the version that it replaces."""

    uri: str = ""
    content: FormText = EMPTY_TEXT
    version: str | None = None


@pages.get("/register")
def register_form() -> Response:
    caller = require_editor()
    uri = request.args.get("uri", "")
    return _render_form(_existing_draft(uri) if uri else DocumentDraft(), caller)


def _render_form(
    draft: DocumentDraft, caller: Caller, status: int = 200, schema_text: str = "", **values: Any
) -> Response:
    """Render the form. `schema_text`: a draft of the first schema, if the system has none."""
    missing = first_schema(caller, schema_text)
    return render_page("register.html", status, draft=draft, syntaxes=SYNTAXES, first_schema=missing, **values)


@pages.post("/register")
def register() -> Response:
    """Preview or register a document, or several files if no script sends them one by one."""
    caller = require_editor()
    files = [file for file in request.files.getlist("file") if file.filename]
    if len(files) > 1:
        outcomes = [(file.filename or "", _register_file(file, caller)) for file in files[:MAX_FILES]]
        return render_page(
            "register_many.html", outcomes=outcomes, ignored=len(files) - len(outcomes), tried=not _is_confirmed()
        )
    draft = _form_draft()
    schema_text = request.form.get("schema", "")
    try:
        if request.form.get("act") == "infer":
            schema_text = infer_first_schema(draft.uri, draft.content)
            return _render_form(draft, caller, schema_text=schema_text)
        if request.form.get("act") == "put_schema":
            activate_first_schema(schema_text)
        return _register(draft, caller) if _is_confirmed() and _is_expected(draft) else _preview(draft, caller)
    except MdvError as error:
        problem = error.problem()
        if isinstance(error, PreconditionFailed):
            problem |= {
                "title": "Edit conflict",
                "conflict": True,
                "document": draft.uri,
                "detail": "The document was changed since you opened it. Preview your text again to see the "
                "difference to the current version.",
            }
            draft = replace(draft, version=None)
        errors = json.dumps(problem.get("errors", [])[:200])
        if not schema_text and isinstance(error, InvalidDocument) and is_schema_missing():
            schema_text = try_to_infer(draft.uri, draft.content)
        return _render_form(draft, caller, problem["status"], schema_text, problem=problem, errors=errors)


@keep_form("register")
def _too_large(error: FormTooLarge) -> Response:
    caller, fields = require_editor(), error.fields
    version = fields.get("version") or None
    draft = DocumentDraft(fields.get("uri", ""), FormText(b"", fields.get("syntax", "")), version)
    return _render_form(draft, caller, error.status, problem=error.problem() | {"large_file": True})


@pages.post("/register/each")
def register_each() -> Response:
    """Register one of several files, and return a fragment with the result."""
    caller = require_editor()
    outcome = _register_file(request.files.get("file"), caller)
    return render_fragment("register_each.html", outcome.problem["status"] if outcome.problem else 200, outcome=outcome)


@keep_form("register_each")
def _file_too_large(error: FormTooLarge) -> Response:
    require_editor()
    return render_fragment("register_each.html", error.status, outcome=FileOutcome(problem=error.problem()))


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """The result of one of several files."""

    uri: str | None = None
    result: dict[str, Any] | None = None
    problem: dict[str, Any] | None = None


def _register_file(file: FileStorage | None, caller: Caller) -> FileOutcome:
    """Register or preview one of several files."""
    base = request.form.get("uri", "").strip()
    try:
        if file is None or not file.filename:
            raise BadRequest("The file is missing. Choose a file.")
        if not base:
            raise BadRequest("The folder URI is missing. It is the base of the file URIs.")
        body = file.read()
        uri = check_registration_uri(join_uri(base, file.filename))
        check_may_write(caller, uri)
        media_type = file_text(body, request.form.get("syntax", ""), file.filename).media_type.partition(";")[0]
        result = change_document("register", uri, caller, body, media_type, dry_run=not _is_confirmed()).result
    except MdvError as error:
        return FileOutcome(problem=error.problem())
    return FileOutcome(uri, result)


def _is_confirmed() -> bool:
    """True if the form asks to register, not only to preview."""
    return request.form.get("act") == "register"


def _form_draft() -> DocumentDraft:
    file = request.files.get("file")
    uri, version = request.form.get("uri", "").strip(), request.form.get("version") or None
    if version is not None and version != ABSENT and not (version.isascii() and version.isdecimal()):
        raise BadRequest(f"{version[:20]!r} is not a version number.")
    syntax = request.form.get("syntax", "")
    if file is not None and file.filename:
        uri = join_uri(uri, file.filename) if uri.endswith("/") else uri
        return DocumentDraft(uri, file_text(file.read(), syntax, file.filename), version)
    return DocumentDraft(uri, pasted_text(request.form.get("text", ""), syntax), version)


def _existing_draft(uri: str) -> DocumentDraft:
    """Return the form content for an existing document."""
    with services().engine.connect() as connection:
        document = read_document(connection, check_document_uri(uri))
        if document is None or not document.present:
            return DocumentDraft(uri)
        if count_statements(connection, document) > MAX_DIFF_STATEMENTS:
            raise TooLarge("The document is too large to edit on a page. Register it as a file instead.")
    text = document_text(document, TURTLE, services().config.max_document_bytes)
    return DocumentDraft(uri, FormText(text, TURTLE.name), str(document.version))


def _is_expected(draft: DocumentDraft) -> bool:
    """True if the document is new or the form was made from an existing version."""
    return draft.version is not None or _newest(check_registration_uri(draft.uri)) is None


def _newest(uri: str) -> DocumentInfo | None:
    with services().engine.connect() as connection:
        found = read_document(connection, uri)
    return found if found is not None and found.present else None


def _preview(draft: DocumentDraft, caller: Caller) -> Response:
    """Render a preview: the difference and the LMRs that would be notified."""
    uri = check_registration_uri(draft.uri)
    check_may_write(caller, uri)
    newest = _newest(uri)
    changes = _difference(draft, uri, newest)
    version = str(newest.version) if newest is not None else ABSENT
    warning = None
    if _is_confirmed():
        warning = "The document already exists. Check the difference below; Register replaces the document."
    elif draft.version is not None and draft.version != version:
        now = f"is now at version {version}" if newest is not None else "was deleted"
        warning = f"The document was changed since you opened it: it {now}. Register overwrites that change."
    result = change_document("register", uri, caller, draft.content.body, draft.content.media_type, dry_run=True).result
    return _render_form(draft, caller, result=result, changes=changes, version=version, warning=warning)


def _difference(draft: DocumentDraft, uri: str, newest: DocumentInfo | None) -> StatementDiff | None:
    with services().engine.connect() as connection:
        schema = services().schemas.now(connection)
        most = services().config.max_document_bytes
        item = run_in_thread(prepare, uri, draft.content.body, draft.content.media_type, schema, None, most)
        assert item.document is not None
        return diff_versions(connection, newest, item.document.statements)


def _register(draft: DocumentDraft, caller: Caller) -> Response:
    uri = check_registration_uri(draft.uri)
    check_may_write(caller, uri)
    version = draft.version or ABSENT
    done = change_document("register", uri, caller, draft.content.body, draft.content.media_type, version=version)
    return redirect_to("registered", job=done.job)


@pages.get("/registered")
def registered() -> Response:
    """Show the result of a registration. Reloading this page does not register again."""
    require_signed_in()
    job = find_job(request.args.get("job", ""))
    if job.kind != "register" or job.result is None or job.result.get("dry_run"):
        return redirect_to("job", job=job.id)
    uri, result = job.uri, job.result
    with services().engine.connect() as connection:
        notified = list_notified_lmrs(connection, result["position"]) if result["lmrs"] else []
    return render_page("registered.html", uri=uri, result=result, notified=notified, matches=_matches(uri))


@dataclass(frozen=True, slots=True)
class DocumentMatches:
    """The first matches of rules with resources of a document."""

    rows: list[tuple[str, OwnedRule]]
    truncated: bool
    problem: str | None = None


def _matches(uri: str) -> DocumentMatches:
    try:
        with services().engine.connect() as connection:
            found = replay_filter(connection, uri, services().schemas)
        with services().engine.connect() as connection:
            owned = list_rules_by_end(connection, {row.rule for row in found.results})
    except MdvError as error:  # the registration itself has succeeded
        return DocumentMatches([], True, error.detail)
    rows = [(row.resource, rule) for row in found.results for rule in owned.get(row.rule, [])]
    return DocumentMatches(rows[:MAX_MATCHES_SHOWN], found.truncated or len(rows) > MAX_MATCHES_SHOWN)


MAX_MATCHES_SHOWN = 100
