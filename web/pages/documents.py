"""Document pages: list, show, compare versions, download, edit a value, restore, delete."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from flask import Response, request, url_for

from mdv.accounts.callers import check_may_write
from mdv.cause import CAUSE_KINDS, RULE
from mdv.errors import BadRequest, Conflict, MdvError, NotFound
from mdv.inspect.eca_log import find_document_origins
from mdv.inspect.sql.documents import (
    DocumentInfo,
    count_statements,
    list_documents,
    list_versions,
    read_document,
    read_document_statements,
)
from mdv.inspect.sql.incoming_references import list_incoming_references
from mdv.inspect.sql.registration_outcome import list_holding_lmrs
from mdv.mdp.edit_document import read_statement
from mdv.model import Statement
from mdv.rdf.parse import check_document_uri
from mdv.rdf.syntax import N_TRIPLES, SYNTAXES, syntax_of_name
from mdv.rdf.term_json import read_term, write_statement
from web.json_bodies import JSON
from web.pages.base import pages, redirect_to, render_page, require_editor, require_viewer
from web.pages.changes import ABSENT, change_document, diff_versions
from web.services import services
from web.use_cases.documents import document_response
from web.use_cases.documents import document_text as as_text

PAGE_SIZE = 50
MAX_STATEMENTS_SHOWN = 200
"""Maximum number of statements that are shown."""
MAX_REFERENCES_SHOWN = 20
"""Maximum number of references to a document that its deletion shows."""
MAX_VERSION = 2**31 - 1


@pages.get("/documents")
def documents() -> Response:
    """List documents by URI; with `prefix`, those whose URI starts with it; with `deleted`, deleted ones."""
    require_viewer()
    prefix, after = request.args.get("prefix", "").strip(), request.args.get("after", "")
    deleted = request.args.get("deleted") or None
    with services().engine.connect() as connection:
        found = list_documents(connection, after, PAGE_SIZE + 1, prefix, present=deleted is None)
    more = None
    if len(found) > PAGE_SIZE:
        more = url_for("pages.documents", prefix=prefix or None, deleted=deleted, after=found[PAGE_SIZE - 1]["uri"])
    return render_page("documents.html", documents=found[:PAGE_SIZE], prefix=prefix, deleted=deleted, more=more)


@pages.get("/document")
def document() -> Response:
    """Show the current or another `version` of a document."""
    require_viewer()
    found = _find_version(request.args.get("uri"), request.args.get("version"))
    return _render_document(found, edited=_number(request.args.get("edit")))


def _render_document(
    found: DocumentInfo,
    edited: int | None = None,
    statement: Statement | None = None,
    draft: str | None = None,
    problem: dict[str, Any] | None = None,
) -> Response:
    """Render a version. The row number `edited`, or that of `statement`, is a form, with `draft` as its value."""
    before = _number(request.args.get("after")) or MAX_VERSION
    with services().engine.connect() as connection:
        statements = read_document_statements(connection, found, MAX_STATEMENTS_SHOWN) if found.present else []
        count = count_statements(connection, found) if found.present else 0
        versions = list_versions(connection, found.uri, before, PAGE_SIZE + 1)
        newest = read_document(connection, found.uri)
        has_rules = any(version.cause == RULE.name for version in versions)
        origins = find_document_origins(connection, found.uri, statements) if has_rules else {}
    more = None
    if len(versions) > PAGE_SIZE:
        more = url_for("pages.document", uri=found.uri, after=versions[PAGE_SIZE - 1].version)
    statements.sort()
    if statement is not None and statement in statements:
        edited = statements.index(statement) + 1
    return render_page(
        "document.html",
        problem["status"] if problem else 200,
        problem=problem,
        edited=edited,
        draft=draft,
        causes=CAUSE_KINDS,
        document=found,
        statements=statements,
        origins=origins,
        count=count,
        newest=newest,
        versions=versions[:PAGE_SIZE],
        more=more,
        syntaxes=SYNTAXES,
    )


@pages.get("/document/text")
def document_text() -> Response:
    """Download a version in a syntax."""
    require_viewer()
    found = _find_version(request.args.get("uri"), request.args.get("version"))
    if not found.present:
        raise NotFound(f"The document {found.uri} was deleted in version {found.version}.")
    syntax = syntax_of_name(request.args.get("syntax", "rdfxml"))
    response = document_response(found, syntax)
    response.content_type = f"{syntax.media_type}; charset=utf-8"
    name = f"{_file_name(found.uri)}-{found.version}{syntax.suffixes[0]}"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@pages.get("/document/difference")
def document_difference() -> Response:
    """Show the difference between two versions."""
    require_viewer()
    uri = request.args.get("uri")
    old, new = (_find_version(uri, request.args.get(name)) for name in ("from", "to"))
    with services().engine.connect() as connection:
        changes = diff_versions(connection, old, new)
    return render_page("difference.html", old=old, new=new, changes=changes)


@pages.post("/document/edit")
def edit_document() -> Response:
    """Change or remove one value of a document."""
    caller = require_editor()
    found = _find_version(request.form.get("uri"), None)
    check_may_write(caller, found.uri)
    old = read_statement(request.form.get("statement", ""))
    draft = None if request.form.get("act") == "remove" else request.form.get("value", "").replace("\r\n", "\n")
    try:
        if _number(request.form.get("version")) != found.version:
            raise Conflict("The document was changed since you opened the page. It is shown as it is now.")
        edits = {"remove": [write_statement(old)], "add": []}
        if draft is not None:
            edits["add"].append([*old[:2], read_term(old.object._replace(value=draft).as_dict()).as_dict()])
        body = json.dumps(edits).encode()
        result = change_document("edit", found.uri, caller, body, JSON, version=found.etag).result
    except MdvError as error:
        return _render_document(found, statement=old, draft=draft, problem=error.problem())
    said = "value_removed" if draft is None else "value_changed"
    return redirect_to("document", uri=found.uri, said=said if result["version"] != found.version else "value_same")


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A change that must be confirmed: title, description and button label."""

    title: str
    description: str
    button: str


@pages.get("/document/delete")
def delete_form() -> Response:
    caller = require_editor()
    found = _find_version(request.args.get("uri"), None)
    check_may_write(caller, found.uri)
    if not found.present:
        raise NotFound(f"The document {found.uri} was deleted in version {found.version}.")
    result = change_document("delete", found.uri, caller, dry_run=True).result
    with services().engine.connect() as connection:
        held = list_holding_lmrs(connection, found.id)
        references = list_incoming_references(connection, found.id, MAX_REFERENCES_SHOWN + 1)
    action = Confirmation("Delete this document?", "Its versions are kept, and you can restore any of them.", "Delete")
    return render_page(
        "change.html",
        action=action,
        document=found,
        result=result,
        held=held,
        references=references[:MAX_REFERENCES_SHOWN],
        are_references_cut=len(references) > MAX_REFERENCES_SHOWN,
        to=url_for("pages.delete_document"),
    )


@pages.post("/document/delete")
def delete_document() -> Response:
    caller = require_editor()
    found = _find_version(request.form.get("uri"), None)
    check_may_write(caller, found.uri)
    change_document("delete", found.uri, caller, version=_check_unchanged(found).etag)
    return redirect_to("document", uri=found.uri, said="deleted")


@pages.get("/document/restore")
def restore_form() -> Response:
    caller = require_editor()
    found, newest = (
        _find_version(request.args.get("uri"), request.args.get("version")),
        _find_version(request.args.get("uri"), None),
    )
    check_may_write(caller, found.uri)
    result = change_document("register", found.uri, caller, *_stored_text(found), dry_run=True).result
    with services().engine.connect() as connection:
        changes = diff_versions(connection, newest, found)
    description = f"The content of version {found.version} becomes a new version."
    action = Confirmation(f"Restore version {found.version}?", description, "Restore")
    to = url_for("pages.restore_document")
    return render_page(
        "change.html", action=action, document=newest, restored=found, result=result, changes=changes, to=to
    )


@pages.post("/document/restore")
def restore_document() -> Response:
    caller = require_editor()
    found = _find_version(request.form.get("uri"), request.form.get("restored"))
    check_may_write(caller, found.uri)
    newest = _check_unchanged(_find_version(found.uri, None))
    expected = newest.etag if newest.present else ABSENT
    change_document("register", found.uri, caller, *_stored_text(found), version=expected)
    return redirect_to("document", uri=found.uri, said="restored")


def _check_unchanged(newest: DocumentInfo) -> DocumentInfo:
    """Return the newest version if the form was made from it, or raise Conflict."""
    version = _number(request.form.get("version"))
    if version is None:
        raise BadRequest("The form holds no version number. Go back and reload the page.")
    if version != newest.version:
        raise Conflict("The document was changed since you opened the page. Go back and reload the page.")
    return newest


def _stored_text(document: DocumentInfo) -> tuple[bytes, str]:
    """Return the text and media type of a version, to register it again."""
    if not document.present:
        raise BadRequest(f"Version {document.version} is a deletion and cannot be restored. Choose another version.")
    most = services().config.max_document_bytes
    return as_text(document, N_TRIPLES, most), N_TRIPLES.media_type


def _find_version(uri: str | None, version: str | None) -> DocumentInfo:
    name = check_document_uri(uri)
    with services().engine.connect() as connection:
        found = read_document(connection, name, _number(version))
    if found is None:
        raise NotFound(f"The document {name} {f'has no version {version}' if version else 'was never registered'}.")
    return found


def _number(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadRequest(f"{text!r} is not a version number.")
    return int(text)


def _file_name(uri: str) -> str:
    """Return the last part of a URI as a portable file name.

    >>> _file_name("http://a.org/b/Ä c.rdf")
    '__c'
    """
    last = uri.rstrip("/").rpartition("/")[2]
    stem = last.rpartition(".")[0] or last
    return (
        "".join(c if c.isascii() and (c.isalnum() or c in "-._") else "_" for c in stem)[:80].lstrip(".") or "document"
    )
