"""Register: a text that is pasted or a file that is chosen, tried out before it is sent; many files one by one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from flask import Response, request

from mdv.db.outcome import OwnedRule, rules_ending_in, told_at
from mdv.db.read import document_statements, read_document
from mdv.errors import BadRequest, MdvError
from mdv.mdp.register import prepare
from mdv.mdp.trace import trace
from mdv.rdf.parse import check_document_uri
from mdv.rdf.syntax import JSON_LD, RDF_XML, SYNTAXES, TURTLE, Syntax, syntax_of_name
from mdv.uris import below
from web.auth import Caller, may_write
from web.negotiate import in_thread, written
from web.pages.changes import Difference, change_document, difference
from web.pages.frame import editor, page, pages, part
from web.services import services

MOST_SHOWN = 2 * 2**20
"""Bytes of a text that comes back with its errors; a larger one was a file, and is chosen again."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What was sent: a text and the name that it is to have."""

    uri: str
    text: bytes
    syntax: str
    version: str | None = None

    @property
    def media_type(self) -> str:
        return _syntax(self.syntax, None, self.text).media_type

    @property
    def shown(self) -> str:
        return self.text.decode("utf-8", "replace").replace("\0", "\ufffd") if len(self.text) <= MOST_SHOWN else ""


@pages.get("/register")
def register_form() -> Response:
    editor()
    uri = request.args.get("uri", "")
    draft = _stored(uri) if uri else Draft("", b"", "")
    return page("register.html", draft=draft, syntaxes=SYNTAXES)


@pages.post("/register")
def register() -> Response:
    """Try a document out, or register it."""
    caller = editor()
    draft = _draft()
    try:
        if request.form.get("act") == "register":
            return _registered(draft, caller)
        return _tried(draft, caller)
    except MdvError as error:
        problem = error.problem()
        flaws = json.dumps(problem.get("errors", [])[:200])
        return page("register.html", problem["status"], draft=draft, syntaxes=SYNTAXES, problem=problem, flaws=flaws)


@pages.post("/register/each")
def register_each() -> Response:
    """One of many files: how it went, in a line."""
    caller = editor()
    file = request.files.get("file")
    base = request.form.get("uri", "").strip()
    try:
        if file is None or not file.filename:
            raise BadRequest("No file came.")
        if not base:
            raise BadRequest("Say the URI of the folder: each file is named below it.")
        body = file.read()
        uri = check_document_uri(below(base, file.filename))
        may_write(caller, uri)
        syntax = _syntax(request.form.get("syntax", ""), file.filename, body)
        result = change_document("register", uri, caller, body, syntax.media_type)
    except MdvError as error:
        return part("register_each.html", error.status, problem=error.problem())
    return part("register_each.html", result=result, uri=uri)


def _draft() -> Draft:
    file = request.files.get("file")
    uri, version = request.form.get("uri", "").strip(), request.form.get("version") or None
    syntax = request.form.get("syntax", "")
    if file is not None and file.filename:
        body = file.read()
        name = _syntax(syntax, file.filename, body).name
        uri = below(uri, file.filename) if uri.endswith("/") else uri
        return Draft(uri, body, name, version)
    text = request.form.get("text", "").replace("\r\n", "\n").encode("utf-8", "replace")
    return Draft(uri, text, syntax, version)


def _stored(uri: str) -> Draft:
    """A document that is there, to be edited."""
    with services().engine.connect() as connection:
        document = read_document(connection, check_document_uri(uri))
        if document is None or not document.present:
            return Draft(uri, b"", "")
        statements = document_statements(connection, document)
        prefixes = dict(services().schemas.now(connection).schema.prefixes) | document.prefixes
    return Draft(uri, written(statements, TURTLE, prefixes, uri), TURTLE.name, str(document.version))


def _tried(draft: Draft, caller: Caller) -> Response:
    """What registering would do, and whom it would concern."""
    uri = check_document_uri(draft.uri)
    may_write(caller, uri)
    changes = _difference(draft, uri)
    version = None
    with services().engine.connect() as connection:
        document = read_document(connection, uri)
        version = str(document.version) if document is not None and document.present else None
    result = change_document("register", uri, caller, draft.text, draft.media_type, dry_run=True)
    return page("register.html", draft=draft, syntaxes=SYNTAXES, result=result, changes=changes, version=version)


def _difference(draft: Draft, uri: str) -> Difference:
    with services().engine.connect() as connection:
        schema = services().schemas.now(connection)
        document = read_document(connection, uri)
        old = document_statements(connection, document) if document is not None and document.present else []
    most = services().config.max_document_bytes
    item = in_thread(prepare, uri, draft.text, draft.media_type, schema, None, most)
    assert item.document is not None
    return difference(old, item.document.statements)


def _registered(draft: Draft, caller: Caller) -> Response:
    uri = check_document_uri(draft.uri)
    may_write(caller, uri)
    result = change_document("register", uri, caller, draft.text, draft.media_type, if_match=draft.version)
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


def _syntax(name: str, file: str | None, text: bytes) -> Syntax:
    """The syntax that was chosen, that a file's name tells, or that a text looks like."""
    if name in {syntax.name for syntax in SYNTAXES}:
        return syntax_of_name(name)
    if file is not None:
        try:
            return syntax_of_name(file)
        except MdvError:
            pass
    return guess(text)


def guess(text: bytes) -> Syntax:
    """What a text looks like.

    >>> [guess(text).label for text in (b"<?xml version='1.0'?>", b" <rdf:RDF", b'[{"@id": 1}]', b"<a> <b> 'c' .")]
    ['RDF/XML', 'RDF/XML', 'JSON-LD', 'Turtle']
    """
    start = text[:2000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"<?xml", b"<!--", b"<!DOCTYPE")) or re.match(rb"<[\w.-]+(:[\w.-]+)?[\s>]", start):
        return RDF_XML
    return JSON_LD if start.startswith((b"{", b"[")) and b'"@' in start else TURTLE
