"""Register: a text that is pasted or a file that is chosen, tried out before it is sent; many files one by one."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from flask import Response, request
from werkzeug.datastructures import FileStorage

from mdv.db.outcome import OwnedRule, rules_ending_in, told_at
from mdv.db.read import DocumentInfo, count_statements, read_document
from mdv.errors import BadRequest, MdvError, PreconditionFailed, TooLarge
from mdv.mdp.register import prepare
from mdv.mdp.trace import trace
from mdv.rdf.parse import check_document_uri
from mdv.rdf.syntax import SYNTAXES, TURTLE
from mdv.uris import below
from web.api.documents import text_of
from web.auth import Caller, may_write
from web.drafts import chosen_syntax, shown, written
from web.negotiate import in_thread
from web.pages.changes import ABSENT, MOST_COMPARED, Difference, change_document, compared
from web.pages.frame import editor, page, pages, part
from web.services import services

MOST_FILES = 100
"""Files that one form brings, without a script."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What was sent: a text and the name that it is to have."""

    uri: str
    text: bytes
    syntax: str
    version: str | None = None

    @property
    def media_type(self) -> str:
        return chosen_syntax(self.syntax, None, self.text).media_type

    @property
    def shown(self) -> str:
        return shown(self.text)


@pages.get("/register")
def register_form() -> Response:
    editor()
    uri = request.args.get("uri", "")
    draft = _stored(uri) if uri else Draft("", b"", "")
    return page("register.html", draft=draft, syntaxes=SYNTAXES)


@pages.post("/register")
def register() -> Response:
    """Try a document out, or register it; several files, where no script sends them one by one."""
    caller = editor()
    files = [file for file in request.files.getlist("file") if file.filename]
    if len(files) > 1:
        went = [(file.filename or "", _each(file, caller)) for file in files[:MOST_FILES]]
        return page("register_many.html", went=went, left=len(files) - len(went), tried=not _is_meant())
    draft = _draft()
    try:
        return _registered(draft, caller) if _is_meant() and _is_known(draft) else _tried(draft, caller)
    except MdvError as error:
        problem = error.problem()
        if isinstance(error, PreconditionFailed):
            problem |= {"title": "Somebody was faster", "document": draft.uri,
                        "detail": "The document was changed since you looked at it. Try it out again to see what your "
                                  "text changes now."}  # fmt: skip
            draft = replace(draft, version=None)
        flaws = json.dumps(problem.get("errors", [])[:200])
        return page("register.html", problem["status"], draft=draft, syntaxes=SYNTAXES, problem=problem, flaws=flaws)


@pages.post("/register/each")
def register_each() -> Response:
    """One of many files: how it went, in a line."""
    caller = editor()
    went = _each(request.files.get("file"), caller)
    return part("register_each.html", went.problem["status"] if went.problem else 200, went=went)


@dataclass(frozen=True, slots=True)
class Went:
    """How it went with one of many files."""

    uri: str | None = None
    result: dict[str, Any] | None = None
    problem: dict[str, Any] | None = None


def _each(file: FileStorage | None, caller: Caller) -> Went:
    """Register one of many files, or try it out."""
    base = request.form.get("uri", "").strip()
    try:
        if file is None or not file.filename:
            raise BadRequest("No file came.")
        if not base:
            raise BadRequest("Say the URI of the folder: each file is named below it.")
        body = file.read()
        uri = check_document_uri(below(base, file.filename))
        may_write(caller, uri)
        syntax = chosen_syntax(request.form.get("syntax", ""), file.filename, body)
        result = change_document("register", uri, caller, body, syntax.media_type, dry_run=not _is_meant())
    except MdvError as error:
        return Went(problem=error.problem())
    return Went(uri, result)


def _is_meant() -> bool:
    """Whether it is to be registered, and not only tried out."""
    return request.form.get("act") == "register"


def _draft() -> Draft:
    file = request.files.get("file")
    uri, version = request.form.get("uri", "").strip(), request.form.get("version") or None
    if version is not None and version != ABSENT and not (version.isascii() and version.isdecimal()):
        raise BadRequest(f"{version[:20]!r} is not the number of a version.")
    syntax = request.form.get("syntax", "")
    if file is not None and file.filename:
        body = file.read()
        name = chosen_syntax(syntax, file.filename, body).name
        uri = below(uri, file.filename) if uri.endswith("/") else uri
        return Draft(uri, body, name, version)
    text = written(request.form.get("text", ""))
    return Draft(uri, text, syntax, version)


def _stored(uri: str) -> Draft:
    """A document that is there, to be edited."""
    with services().engine.connect() as connection:
        document = read_document(connection, check_document_uri(uri))
        if document is None or not document.present:
            return Draft(uri, b"", "")
        if count_statements(connection, document) > MOST_COMPARED:
            raise TooLarge("This document is too large to be edited on a page: register it again as a file.")
    return Draft(uri, text_of(document, TURTLE), TURTLE.name, str(document.version))


def _is_known(draft: Draft) -> bool:
    """Whether who sends it knows of the document that it would replace."""
    return draft.version is not None or _newest(check_document_uri(draft.uri)) is None


def _newest(uri: str) -> DocumentInfo | None:
    with services().engine.connect() as connection:
        found = read_document(connection, uri)
    return found if found is not None and found.present else None


def _tried(draft: Draft, caller: Caller) -> Response:
    """What registering would do, and whom it would concern."""
    uri = check_document_uri(draft.uri)
    may_write(caller, uri)
    newest = _newest(uri)
    changes = _difference(draft, uri, newest)
    version = str(newest.version) if newest is not None else ABSENT
    warning = None
    if _is_meant():
        warning = "There is such a document already. This is what would change; Register replaces it."
    elif draft.version is not None and draft.version != version:
        now = f"is at version {version} now" if newest is not None else "was deleted"
        warning = f"Somebody changed the document since you opened it: it {now}. Register replaces what they did."
    result = change_document("register", uri, caller, draft.text, draft.media_type, dry_run=True)
    return page("register.html", draft=draft, syntaxes=SYNTAXES, result=result, changes=changes, version=version,
                warning=warning)  # fmt: skip


def _difference(draft: Draft, uri: str, newest: DocumentInfo | None) -> Difference | None:
    with services().engine.connect() as connection:
        schema = services().schemas.now(connection)
        most = services().config.max_document_bytes
        item = in_thread(prepare, uri, draft.text, draft.media_type, schema, None, most)
        assert item.document is not None
        return compared(connection, newest, item.document.statements)


def _registered(draft: Draft, caller: Caller) -> Response:
    uri = check_document_uri(draft.uri)
    may_write(caller, uri)
    result = change_document("register", uri, caller, draft.text, draft.media_type, version=draft.version or ABSENT)
    with services().engine.connect() as connection:
        told = told_at(connection, result["position"]) if result["lmrs"] else []
    return page("registered.html", uri=uri, result=result, told=told, matches=_matches(uri))


@dataclass(frozen=True, slots=True)
class Matches:
    """Which rules match which resources of a document; the first of them."""

    rows: list[tuple[str, OwnedRule]]
    truncated: bool
    problem: str | None = None


def _matches(uri: str) -> Matches:
    try:
        with services().engine.connect() as connection:
            found = trace(connection, uri, services().schemas)
        with services().engine.connect() as connection:
            owned = rules_ending_in(connection, {row.rule for row in found.results})
    except MdvError as error:  # it is registered all the same
        return Matches([], True, error.detail)
    rows = [(row.resource, rule) for row in found.results for rule in owned.get(row.rule, [])]
    return Matches(rows[:MOST_ROWS], found.truncated or len(rows) > MOST_ROWS)


MOST_ROWS = 100
