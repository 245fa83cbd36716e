"""Pages of local documents: list, show, add, edit, delete."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from flask import Response, request, url_for

from mdv.errors import MdvError, NotFound, TooLarge
from mdv.lmr.local_documents import delete_local, get_local, list_local, local_etag, put_local
from mdv.model import Document
from mdv.rdf.parse import check_document_uri, check_registration_uri
from mdv.rdf.syntax import SYNTAXES, TURTLE, Syntax, syntax_of_name
from mdv.uris import join_uri
from web.document_form import EMPTY_TEXT, MAX_TEXT_SHOWN_BYTES, FormText, file_text, pasted_text
from web.lmr.pages.base import may_change, pages, redirect_to, render_page, require_editor, require_viewer
from web.lmr.services import lmr, local_write_slot, require_snapshot
from web.negotiate import rdf_response, serialise_statements
from web.oversized_forms import FormTooLarge, keep_form

PAGE_SIZE = 50
MAX_STATEMENTS_SHOWN = 200
"""Maximum number of statements that are shown."""
MAX_STATEMENTS_EDITED = 20_000
"""Larger documents cannot be edited on a page."""


@dataclass(frozen=True, slots=True)
class LocalDraft:
    """The content of the form. `edition`: the edition of the document that it replaces."""

    uri: str = ""
    content: FormText = EMPTY_TEXT
    edition: str = ""


@pages.get("/local")
def local() -> Response:
    require_viewer()
    found = list_local(lmr().cache, request.args.get("after", ""), PAGE_SIZE + 1)
    more = url_for("pages.local", after=found[PAGE_SIZE - 1]) if len(found) > PAGE_SIZE else None
    return render_page(
        "lmr_own_local.html",
        documents=found[:PAGE_SIZE],
        more=more,
        may_change=may_change(),
        later=bool(request.args.get("after")),
        done=request.args.get("done"),
    )


@pages.get("/local/document")
def local_document() -> Response:
    """Show a local document as a table or in a syntax."""
    require_viewer()
    document, syntax = _document_parameter(), _syntax(request.args.get("syntax", ""))
    text = _text(document, syntax).decode() if syntax is not None else ""
    return render_page(
        "lmr_own_document.html",
        document=document,
        statements=document.statements[:MAX_STATEMENTS_SHOWN],
        syntaxes=SYNTAXES,
        syntax=syntax,
        text=text[:MAX_TEXT_SHOWN_BYTES],
        is_cut=len(text) > MAX_TEXT_SHOWN_BYTES,
        may_change=may_change(),
        done=request.args.get("done"),
    )


@pages.get("/local/document/text")
def local_text() -> Response:
    """Download a local document in a syntax."""
    require_viewer()
    document, syntax = _document_parameter(), _syntax(request.args.get("syntax", ""))
    if syntax is None:
        raise NotFound(f"Unknown syntax. Use one of {', '.join(one.name for one in SYNTAXES)}.")
    response = rdf_response(_text(document, syntax), syntax)
    response.headers["Content-Disposition"] = f'attachment; filename="document{syntax.suffixes[0]}"'
    return response


@pages.get("/local/put")
def local_form() -> Response:
    """Show the form for a new or existing document."""
    require_editor()
    uri = request.args.get("uri", "")
    return _form(_existing_draft(uri) if uri else LocalDraft())


@pages.post("/local/put")
def local_put() -> Response:
    """Store a document. Replacing an existing document needs confirmation."""
    require_editor()
    s = require_snapshot()
    draft = LocalDraft()
    try:
        draft = _form_draft()
        uri = check_registration_uri(draft.uri)
        edition = local_etag(s.cache, uri)
        if edition is not None and edition != draft.edition:
            changed = (
                "The document was changed since you opened it." if draft.edition else "The document already exists."
            )
            draft = LocalDraft(draft.uri, draft.content, edition)
            return _form(draft, 409, warning=f"{changed} Send the form again to replace it with this text.")
        media_type = draft.content.media_type
        with local_write_slot():
            done = put_local(s.cache, uri, draft.content.body, media_type, s.config.max_document_bytes)
    except MdvError as error:
        problem = error.problem()
        return _form(draft, problem["status"], problem=problem, errors=json.dumps(problem.get("errors", [])[:200]))
    outcome = "created" if done.created else "changed" if done.changed else "same"
    return redirect_to("local_document", uri=uri, done=outcome)


@keep_form("local_put")
def _too_large(error: FormTooLarge) -> Response:
    require_editor()
    fields = error.fields
    draft = LocalDraft(fields.get("uri", ""), FormText(b"", fields.get("syntax", "")), fields.get("edition", ""))
    return _form(draft, error.status, problem=error.problem())


@pages.get("/local/delete")
def local_delete_form() -> Response:
    require_editor()
    return render_page("lmr_own_delete.html", document=_document_parameter())


@pages.post("/local/delete")
def local_delete() -> Response:
    require_editor()
    with local_write_slot():
        delete_local(lmr().cache, check_document_uri(request.form.get("uri", "")))
    return redirect_to("local", done="deleted")


def _form(draft: LocalDraft, code: int = 200, **values: Any) -> Response:
    return render_page("lmr_own_put.html", code, draft=draft, syntaxes=SYNTAXES, **values)


def _document_parameter() -> Document:
    return get_local(lmr().cache, check_document_uri(request.args.get("uri", "")))


def _existing_draft(uri: str) -> LocalDraft:
    """Return the form content for an existing document."""
    document = get_local(lmr().cache, check_document_uri(uri))
    if len(document.statements) > MAX_STATEMENTS_EDITED:
        raise TooLarge("The document is too large to edit on a page. Upload it as a file instead.")
    return LocalDraft(uri, FormText(_text(document, TURTLE), TURTLE.name), local_etag(lmr().cache, uri) or "")


def _text(document: Document, syntax: Syntax) -> bytes:
    return serialise_statements(list(document.statements), syntax, document.prefixes, document.uri)


def _form_draft() -> LocalDraft:
    """Return the content of the sent form: a file or a text."""
    file, syntax = request.files.get("file"), request.form.get("syntax", "")
    uri, edition = request.form.get("uri", "").strip(), request.form.get("edition", "")
    if file is None or not file.filename:
        return LocalDraft(uri, pasted_text(request.form.get("text", ""), syntax), edition)
    uri = join_uri(uri, file.filename) if uri.endswith("/") else uri
    return LocalDraft(uri, file_text(file.read(), syntax, file.filename), edition)


def _syntax(name: str) -> Syntax | None:
    """Return the syntax with this name or of a file with this name; None if unknown."""
    try:
        return syntax_of_name(name)
    except MdvError:
        return None
