"""/documents: register, read and delete documents."""

from __future__ import annotations

import json

from flask import Response, jsonify, request

from mdv.accounts.callers import check_may_write
from mdv.backbone.etag import token_of
from mdv.cause import CAUSE_KINDS
from mdv.errors import BadRequest, NotFound
from mdv.inspect.sql.documents import (
    list_atoms,
    list_documents,
    list_versions,
    read_document,
)
from mdv.mdp.edit_document import MAX_EDIT_BYTES, read_edits
from mdv.rdf.parse import check_document_uri, check_registration_uri
from mdv.rdf.syntax import syntax_of_media_type
from web.auth import require_admin, require_reader
from web.json_bodies import JSON, describe_json_body, read_json
from web.models import (
    Accepted,
    AtomsQuery,
    DocumentQuery,
    DocumentUri,
    HistoryQuery,
    Registration,
    StatementEdits,
)
from web.negotiate import (
    negotiate_syntax,
    negotiate_type,
    not_modified,
    read_body,
    run_in_thread,
)
from web.openapi import (
    EXAMPLE_DOCUMENT,
    EXAMPLE_EDIT,
    IDEMPOTENCY_KEY,
    IF_MATCH,
    IF_NONE_MATCH,
    PREFER,
    PRIORITY,
    describe_json,
    describe_problems,
    describe_rdf,
    describe_rdf_body,
    object_schema,
    page_schema,
)
from web.routing import RouteGroup
from web.services import services
from web.use_cases.backbone import origin_names
from web.use_cases.document_changes import answer_change
from web.use_cases.documents import document_response

routes = RouteGroup("documents", "Registered RDF documents")

VERSION = object_schema(version="integer", position="integer", at="string", present="boolean",
                 inserted="integer", updated="integer", deleted="integer", unchanged="integer",
                 cause="string", agent="string", by="string")  # fmt: skip
VERSION["properties"]["cause"] = {"type": "string", "enum": list(CAUSE_KINDS)}
VERSION["properties"] |= {name: {"type": ["string", "null"]} for name in ("agent", "by")}
VERSION["properties"]["origin"] = {"type": "string", "description": "name of the member that made it, in a backbone"}
VERSION["properties"]["token"] = {"type": "string", "description": "of its operation, if there is a backbone"}
ATOM = object_schema(uri_reference="string", property="string", value="string") | {}
ATOM["properties"]["class"] = {"type": "string"}


@routes.route(
    "PUT",
    "/documents",
    "Register a document",
    {200: Registration, 201: Registration, 202: Accepted} | describe_problems(404, 408, 412, 413, 415, 422, 429),
    query=DocumentUri,
    headers=(PREFER, PRIORITY, IF_MATCH, IF_NONE_MATCH, IDEMPOTENCY_KEY),
    body=describe_rdf_body({"application/rdf+xml": EXAMPLE_DOCUMENT}),
)
def put(query: DocumentUri) -> Response:
    """Registers the document or replaces the stored version. Registering an identical document changes nothing.

    Answers 202 with a job. With `Prefer: wait=SECONDS`, answers when the job is done: 201 if the document
    is new, else 200.
    """
    caller = require_admin()
    uri = check_registration_uri(query.uri)
    check_may_write(caller, uri)
    media_type = request.headers.get("Content-Type")
    syntax_of_media_type(media_type)
    body = read_body(services().config.body_seconds)
    return answer_change("register", uri, caller, query.dry_run, query.eca, body, media_type)


@routes.route(
    "PATCH",
    "/documents",
    "Edit a document",
    {200: Registration, 202: Accepted} | describe_problems(404, 408, 412, 413, 415, 422, 429),
    query=DocumentUri,
    headers=(PREFER, PRIORITY, IF_MATCH, IDEMPOTENCY_KEY),
    body=describe_json_body(StatementEdits, EXAMPLE_EDIT),
)
def patch(query: DocumentUri) -> Response:
    """Removes and adds single statements of a registered document, in this order. A statement is
    `[subject, property, term]`, with terms as in the feed. Edits that change nothing are dropped. An edit that would
    leave the document invalid is refused whole. Blank nodes cannot be edited. A body has at most 4 MiB and 10,000
    statements. A document that loses its last statement is deleted (`present` is false).

    Answers as PUT does.
    """
    caller = require_admin()
    uri = check_document_uri(query.uri)
    check_may_write(caller, uri)
    body = read_json(min(services().config.max_document_bytes, MAX_EDIT_BYTES))
    run_in_thread(read_edits, body)  # reports errors of the request before a job is queued
    return answer_change("edit", uri, caller, query.dry_run, query.eca, body, JSON)


@routes.route(
    "DELETE",
    "/documents",
    "Delete a document",
    {200: Registration, 202: Accepted} | describe_problems(404, 412, 422, 429),
    query=DocumentUri,
    headers=(PREFER, PRIORITY, IF_MATCH, IDEMPOTENCY_KEY),
)
def delete(query: DocumentUri) -> Response:
    """Deletes the statements of the document, and every resource that no other document describes. The history is
    kept. A dry run also lists references of other documents to resources that would be deleted: they stay, and refer to
    resources without a description."""
    caller = require_admin()
    uri = check_document_uri(query.uri)
    check_may_write(caller, uri)
    return answer_change("delete", uri, caller, query.dry_run, query.eca)


@routes.route(
    "GET",
    "/documents",
    "Get a document as RDF, or list documents",
    {
        200: describe_rdf(
            "The document (`uri`) or a page of documents",
            page_schema(object_schema(uri="string", version="integer", position="integer")),
        ),
        304: {"description": "Not modified"},
    }
    | describe_problems(404, 406),
    query=DocumentQuery,
)
def get(query: DocumentQuery) -> Response:
    """With `uri`, returns the document in the requested syntax, with its version as `ETag`. Without it, returns a page
    of documents."""
    require_reader()
    if query.uri is not None:
        return _rdf(check_document_uri(query.uri), None)
    negotiate_type(["application/json"])
    with services().engine.connect() as connection:
        rows = list_documents(connection, query.after or "", query.limit + 1)
    more = rows[query.limit - 1]["uri"] if len(rows) > query.limit else None
    return jsonify({"items": [dict(row) for row in rows[: query.limit]], "next": more})


@routes.route(
    "GET",
    "/documents/history",
    "List the versions of a document, or get one as RDF",
    {200: describe_rdf("The versions, newest first; with `version`, that version", page_schema(VERSION))}
    | describe_problems(404, 406),
    query=HistoryQuery,
)
def history(query: HistoryQuery) -> Response:
    """Lists all versions. Deletions are versions with `present` false. `cause`: why the version exists. `agent`: the
    rule, process or provider that made it, or null. `by`: the user, token or batch that caused it, or null if it is not
    known."""
    require_reader()
    uri = check_document_uri(query.uri)
    if query.version is not None:
        return _rdf(uri, query.version)
    negotiate_type(["application/json"])
    before = _number(query.after, 2**31 - 1)
    with services().engine.connect() as connection:
        versions = list_versions(connection, uri, before, query.limit + 1)
    if not versions and query.after is None:
        raise NotFound(f"The document {uri} was never registered.")
    more = str(versions[query.limit - 1].version) if len(versions) > query.limit else None
    owners = origin_names(services()) if any(v.origin is not None for v in versions) else str
    items = [
        {name: getattr(v, name) for name in VERSION["required"]}
        | {"at": v.at.isoformat()}
        | ({} if v.origin is None else {"token": token_of(v.origin), "origin": owners(v.origin[0])})
        for v in versions[: query.limit]
    ]
    return jsonify({"items": items, "next": more})


@routes.route(
    "GET",
    "/documents/atoms",
    "List the atoms of a document",
    {200: describe_json(page_schema(ATOM), "The FilterData rows of the document")} | describe_problems(404, 406),
    query=AtomsQuery,
)
def atoms(query: AtomsQuery) -> Response:
    """Returns the input of the filter, as in the paper's Figure 4: one row per statement, and one row (`rdf#subject`)
    per resource and class."""
    require_reader()
    uri = check_document_uri(query.uri)
    negotiate_type(["application/json"])
    skip, after = _read_cursor(query.after)
    with services().engine.connect() as connection:
        document = read_document(connection, uri)
        if document is None or not document.present:
            raise NotFound(f"The document {uri} is not registered.")
        start = 0 if after else skip
        rows = list_atoms(connection, document, after or ("", "", "", ""), start + query.limit + 1)[start:]
    shown = [dict(row) for row in rows[: query.limit]]
    more = _next_cursor(skip + query.limit, shown[-1]) if len(rows) > query.limit else None
    return jsonify({"items": shown, "next": more})


def _rdf(uri: str, version: int | None) -> Response:
    syntax = negotiate_syntax()
    with services().engine.connect() as connection:
        document = read_document(connection, uri, version)
        if document is None:
            what = f"has no version {version}" if version else "is not registered"
            raise NotFound(f"The document {uri} {what}.")
        if not document.present:
            raise NotFound(f"The document {uri} was deleted in version {document.version}.")
    if (unchanged := not_modified(syntax, document.etag)) is not None:
        return unchanged
    response = document_response(document, syntax)
    response.set_etag(document.etag)
    return response


def _number(text: str | None, default: int) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadRequest("`after` must be the `next` of the previous page.")
    return int(text)


MAX_CURSOR_CHARS = 1000


def _next_cursor(seen: int, atom: dict[str, str]) -> str:
    """Return the cursor of the next page: the number of atoms so far and the last atom, if it fits into a URL."""
    whole = json.dumps([seen, *atom.values()])
    return whole if len(whole) <= MAX_CURSOR_CHARS else json.dumps([seen])


def _read_cursor(text: str | None) -> tuple[int, tuple[str, str, str, str] | None]:
    if text is None:
        return 0, None
    try:
        seen, *atom = json.loads(text)
        if type(seen) is not int or not 0 < seen < 2**31 or not all(type(part) is str for part in atom):
            raise ValueError
        "".join(atom).encode()  # rejects lone surrogates
        if not atom:
            return seen, None
        a, b, c, d = atom
    except (ValueError, TypeError, RecursionError):
        raise BadRequest("`after` must be the `next` of the previous page.") from None
    if "\0" in a + b + c + d:
        raise BadRequest("`after` must be the `next` of the previous page.")
    return seen, (a, b, c, d)
