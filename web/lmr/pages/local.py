"""Local documents: put as a text or a file, shown as RDF, edited, deleted. They stay at this LMR."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from flask import Response, request, url_for

from mdv.errors import MdvError, NotFound, TooLarge
from mdv.lmr.local import delete_local, get_local, list_local, local_edition, put_local
from mdv.model import Document
from mdv.rdf.parse import check_document_uri
from mdv.rdf.syntax import SYNTAXES, TURTLE, Syntax, syntax_of_name
from mdv.uris import below
from web.drafts import MOST_SHOWN, guess, shown
from web.lmr.pages.frame import editor, go, may_change, page, pages, visitor
from web.lmr.services import begun, lmr
from web.negotiate import rdf_response, written

ON_A_PAGE = 50
MOST_STATEMENTS = 200
"""Of a document that is shown."""
MOST_EDITED = 20_000
"""Statements of a document that is edited at a page."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What was sent, or is to be edited. `edition`: of the document that it is to replace."""

    uri: str = ""
    text: bytes = b""
    syntax: str = ""
    edition: str = ""

    @property
    def shown(self) -> str:
        return shown(self.text)


@pages.get("/local")
def local() -> Response:
    visitor()
    found = list_local(lmr().cache, request.args.get("after", ""), ON_A_PAGE + 1)
    more = url_for("pages.local", after=found[ON_A_PAGE - 1]) if len(found) > ON_A_PAGE else None
    return page("lmr_own_local.html", documents=found[:ON_A_PAGE], more=more, may_change=may_change(),
                later=bool(request.args.get("after")), done=request.args.get("done"))  # fmt: skip


@pages.get("/local/document")
def local_document() -> Response:
    """What a local document says, as a table or written in one of the syntaxes."""
    visitor()
    document, syntax = _asked(), _chosen(request.args.get("syntax", ""))
    text = _text(document, syntax).decode() if syntax is not None else ""
    return page("lmr_own_document.html", document=document, statements=document.statements[:MOST_STATEMENTS],
                syntaxes=SYNTAXES, syntax=syntax, text=text[:MOST_SHOWN], is_cut=len(text) > MOST_SHOWN,
                may_change=may_change(), done=request.args.get("done"))  # fmt: skip


@pages.get("/local/document/text")
def local_text() -> Response:
    """A local document in one of the syntaxes, to keep."""
    visitor()
    document, syntax = _asked(), _chosen(request.args.get("syntax", ""))
    if syntax is None:
        raise NotFound(f"There is no such syntax; there are {', '.join(one.name for one in SYNTAXES)}.")
    response = rdf_response(_text(document, syntax), syntax)
    response.headers["Content-Disposition"] = f'attachment; filename="document{syntax.suffixes[0]}"'
    return response


@pages.get("/local/put")
def local_form() -> Response:
    """A new document, or one that is there, to be edited."""
    editor()
    uri = request.args.get("uri", "")
    return _form(_stored(uri) if uri else Draft())


@pages.post("/local/put")
def local_put() -> Response:
    """Put a document; one that is there already is replaced when that is meant."""
    editor()
    s = begun()
    draft = Draft()
    try:
        draft = _draft()
        uri = check_document_uri(draft.uri)
        edition = local_edition(s.cache, uri)
        if edition is not None and edition != draft.edition:
            changed = "Somebody changed the document since you opened it." if draft.edition else "It is there already."
            draft = Draft(draft.uri, draft.text, draft.syntax, edition)
            return _form(draft, 409, warning=f"{changed} Put it once more, and it is replaced by this text.")
        syntax = _chosen(draft.syntax) or guess(draft.text)
        done = put_local(s.cache, uri, draft.text, syntax.media_type, s.config.max_document_bytes)
    except MdvError as error:
        problem = error.problem()
        return _form(draft, problem["status"], problem=problem, flaws=json.dumps(problem.get("errors", [])[:200]))
    outcome = "created" if done.created else "changed" if done.changed else "same"
    return go("local_document", uri=uri, done=outcome)


@pages.get("/local/delete")
def local_delete_form() -> Response:
    editor()
    return page("lmr_own_delete.html", document=_asked())


@pages.post("/local/delete")
def local_delete() -> Response:
    editor()
    delete_local(lmr().cache, check_document_uri(request.form.get("uri", "")))
    return go("local", done="deleted")


def _form(draft: Draft, code: int = 200, **values: Any) -> Response:
    return page("lmr_own_put.html", code, draft=draft, syntaxes=SYNTAXES, **values)


def _asked() -> Document:
    return get_local(lmr().cache, check_document_uri(request.args.get("uri", "")))


def _stored(uri: str) -> Draft:
    """A document that is there, to be edited."""
    document = get_local(lmr().cache, check_document_uri(uri))
    if len(document.statements) > MOST_EDITED:
        raise TooLarge("This document is too large to be edited on a page: put it again as a file.")
    return Draft(uri, _text(document, TURTLE), TURTLE.name, local_edition(lmr().cache, uri) or "")


def _text(document: Document, syntax: Syntax) -> bytes:
    return written(list(document.statements), syntax, document.prefixes, document.uri)


def _draft() -> Draft:
    """What a form brings: a file, or else a text."""
    file, syntax = request.files.get("file"), _chosen(request.form.get("syntax", ""))
    uri, edition = request.form.get("uri", "").strip(), request.form.get("edition", "")
    if file is None or not file.filename:
        text = request.form.get("text", "").replace("\r\n", "\n").encode("utf-8", "replace")
        return Draft(uri, text, syntax.name if syntax else "", edition)
    body = file.read()
    uri = below(uri, file.filename) if uri.endswith("/") else uri
    return Draft(uri, body, (syntax or _chosen(file.filename) or guess(body)).name, edition)


def _chosen(name: str) -> Syntax | None:
    """The syntax of that name, or of a file with that name."""
    try:
        return syntax_of_name(name)
    except MdvError:
        return None
