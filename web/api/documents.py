"""/documents: registering, reading and deleting them."""

from __future__ import annotations

import json
from urllib.parse import quote

from flask import Response, jsonify, make_response, request

from mdv.db.read import DocumentInfo, document_statements, list_atoms, list_documents, list_versions, read_document
from mdv.errors import BadRequest, MdvError, NotFound
from mdv.rdf.parse import check_document_uri
from mdv.rdf.syntax import Syntax, syntax_of_media_type
from web.auth import Caller, admin, may_write, reader
from web.calls import Calls
from web.models import Accepted, AtomsQuery, DocumentQuery, DocumentUri, HistoryQuery, Registration
from web.negotiate import etags, prefer_wait, rdf_response, read_body, wanted_syntax, wanted_type, written
from web.openapi import (
    FIGURE_1,
    IDEMPOTENCY_KEY,
    IF_MATCH,
    IF_NONE_MATCH,
    PREFER,
    PRIORITY,
    json_answer,
    page,
    problems,
    rdf,
    rdf_body,
    record,
)
from web.queue import accepted, has_ended, queue
from web.services import services
from workers.signals import News

calls = Calls("documents", "RDF documents, each under its URI")

VERSION = record(version="integer", position="integer", at="string", present="boolean",
                 inserted="integer", updated="integer", deleted="integer", unchanged="integer")  # fmt: skip
ATOM = record(uri_reference="string", property="string", value="string") | {}
ATOM["properties"]["class"] = {"type": "string"}
DRY_RUN_WAIT = 30


@calls.call(
    "PUT",
    "/documents",
    "Register a document",
    {200: Registration, 201: Registration, 202: Accepted} | problems(404, 408, 412, 413, 415, 422, 429),
    query=DocumentUri,
    headers=(PREFER, PRIORITY, IF_MATCH, IF_NONE_MATCH, IDEMPOTENCY_KEY),
    body=rdf_body({"application/rdf+xml": FIGURE_1}),
)
def put(query: DocumentUri) -> Response:
    """Replaces the document of that URI by difference; an identical one changes nothing.

    Answers 202 with a job at once, or with `Prefer: wait=SECONDS` once it is done: 201 if it is new, else 200.
    """
    caller = admin()
    uri = check_document_uri(query.uri)
    may_write(caller, uri)
    media_type = request.headers.get("Content-Type")
    syntax_of_media_type(media_type)
    body = read_body(services().config.body_seconds)
    return _change("register", uri, caller, query.dry_run, body, media_type)


@calls.call(
    "DELETE",
    "/documents",
    "Delete a document",
    {200: Registration, 202: Accepted} | problems(404, 412, 422, 429),
    query=DocumentUri,
    headers=(PREFER, PRIORITY, IF_MATCH, IDEMPOTENCY_KEY),
)
def delete(query: DocumentUri) -> Response:
    """Deletes its statements, and so every resource that no other document describes. Its history stays."""
    caller = admin()
    uri = check_document_uri(query.uri)
    may_write(caller, uri)
    return _change("delete", uri, caller, query.dry_run)


@calls.call(
    "GET",
    "/documents",
    "A document as RDF, or a page of all",
    {
        200: rdf("The document (`uri`), or a page", page(record(uri="string", version="integer", position="integer"))),
        304: {"description": "the version that the caller has"},
    }
    | problems(404, 406),
    query=DocumentQuery,
)
def get(query: DocumentQuery) -> Response:
    """With `uri`, what was registered, in the syntax asked for and with `ETag` = version; without, a page."""
    reader()
    if query.uri is not None:
        return _rdf(check_document_uri(query.uri), None)
    wanted_type(["application/json"])
    with services().engine.connect() as connection:
        rows = list_documents(connection, query.after or "", query.limit + 1)
    more = rows[query.limit - 1]["uri"] if len(rows) > query.limit else None
    return jsonify({"items": [dict(row) for row in rows[: query.limit]], "next": more})


@calls.call(
    "GET",
    "/documents/history",
    "A document's versions, or one of them as RDF",
    {200: rdf("The versions, newest first; with `version`, that one", page(VERSION))} | problems(404, 406),
    query=HistoryQuery,
)
def history(query: HistoryQuery) -> Response:
    """Every version that was registered and, with `present` false, every deletion."""
    reader()
    uri = check_document_uri(query.uri)
    if query.version is not None:
        return _rdf(uri, query.version)
    wanted_type(["application/json"])
    before = _number(query.after, 2**31 - 1)
    with services().engine.connect() as connection:
        versions = list_versions(connection, uri, before, query.limit + 1)
    if not versions and query.after is None:
        raise NotFound(f"No document {uri} was ever registered.")
    more = str(versions[query.limit - 1].version) if len(versions) > query.limit else None
    items = [
        {name: getattr(v, name) for name in VERSION["required"]} | {"at": v.at.isoformat()}
        for v in versions[: query.limit]
    ]
    return jsonify({"items": items, "next": more})


@calls.call(
    "GET",
    "/documents/atoms",
    "A document's atoms, as in the paper's Figure 4",
    {200: json_answer(page(ATOM), "The rows of FilterData that this document makes")} | problems(404, 406),
    query=AtomsQuery,
)
def atoms(query: AtomsQuery) -> Response:
    """What the filter sees of a document: a row a statement, and one (`rdf#subject`) a resource and class."""
    reader()
    uri = check_document_uri(query.uri)
    wanted_type(["application/json"])
    skip, after = _place(query.after)
    with services().engine.connect() as connection:
        document = read_document(connection, uri)
        if document is None or not document.present:
            raise NotFound(f"No document {uri} is registered.")
        start = 0 if after else skip
        rows = list_atoms(connection, document, after or ("", "", "", ""), start + query.limit + 1)[start:]
    shown = [dict(row) for row in rows[: query.limit]]
    more = _place_after(skip + query.limit, shown[-1]) if len(rows) > query.limit else None
    return jsonify({"items": shown, "next": more})


def _rdf(uri: str, version: int | None) -> Response:
    syntax = wanted_syntax()
    with services().engine.connect() as connection:
        document = read_document(connection, uri, version)
        if document is None:
            what = f"has no version {version}" if version else "is not registered"
            raise NotFound(f"The document {uri} {what}.")
        if not document.present:
            raise NotFound(f"The document {uri} was deleted in version {document.version}.")
    return rdf_response(text_of(document, syntax), syntax, document.version)


def text_of(document: DocumentInfo, syntax: Syntax) -> bytes:
    """A version of a document in some syntax, with its own prefixes and those of the schema."""
    with services().engine.connect() as connection:
        statements = document_statements(connection, document)
        prefixes = dict(services().schemas.now(connection).schema.prefixes) | document.prefixes
    return written(statements, syntax, prefixes, document.uri)


def _change(
    kind: str, uri: str, caller: Caller, dry_run: bool, body: bytes | None = None, media_type: str | None = None
) -> Response:
    """Queue a job, once for each Idempotency-Key, and answer now or when it has ended."""
    options = {
        "dry_run": dry_run,
        "conditions": {
            "if_match": etags("If-Match"),
            "if_none_match": etags("If-None-Match"),
            "resource_prefixes": caller.resource_prefixes,
        },
    }
    asked = prefer_wait(services().config.max_wait_seconds)
    wait = DRY_RUN_WAIT if dry_run and asked is None else asked
    job_id, status = queue(kind, uri, caller, options, wait or 0, body, media_type, keyed=not dry_run)
    if status is None or not has_ended(status):
        return accepted(job_id, uri, status)
    return _ended(status, asked)


def _ended(status: News, wait: int | None) -> Response:
    if status.problem is not None:
        raise MdvError.from_problem(status.problem)
    result = status.result or {}
    is_real = not result.get("dry_run")
    response = make_response(result, 201 if is_real and result.get("created") else 200)
    if is_real:
        response.set_etag(str(result["version"]))
    if response.status_code == 201:
        response.headers["Location"] = f"/api/v1/documents?uri={quote(result['document'], safe='')}"
    if wait is not None:
        response.headers["Preference-Applied"] = f"wait={wait}"
    return response


def _number(text: str | None, default: int) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadRequest("`after` takes the `next` of the page before.")
    return int(text)


LONGEST_PLACE = 1000


def _place_after(passed: int, atom: dict[str, str]) -> str:
    """A cursor: how many atoms were shown and the last of them, which is left out where no URL could carry it."""
    whole = json.dumps([passed, *atom.values()])
    return whole if len(whole) <= LONGEST_PLACE else json.dumps([passed])


def _place(text: str | None) -> tuple[int, tuple[str, str, str, str] | None]:
    if text is None:
        return 0, None
    try:
        passed, *atom = json.loads(text)
        if type(passed) is not int or not 0 < passed < 2**31 or not all(type(part) is str for part in atom):
            raise ValueError
        "".join(atom).encode()  # no halves of surrogates
        if not atom:
            return passed, None
        a, b, c, d = atom
    except (ValueError, TypeError, RecursionError):
        raise BadRequest("`after` takes the `next` of the page before.") from None
    if "\0" in a + b + c + d:
        raise BadRequest("`after` takes the `next` of the page before.")
    return passed, (a, b, c, d)
