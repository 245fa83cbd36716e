"""Documents: what is registered, its versions and how they differ; downloading, restoring, deleting."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Response, request, url_for

from mdv.db.outcome import holders
from mdv.db.read import (
    DocumentInfo,
    count_statements,
    document_statements,
    list_documents,
    list_versions,
    read_document,
)
from mdv.errors import BadRequest, Conflict, NotFound
from mdv.rdf.parse import check_document_uri
from mdv.rdf.syntax import N_TRIPLES, SYNTAXES, syntax_of_name
from web.api.documents import text_of
from web.auth import may_write
from web.pages.changes import ABSENT, change_document, compared
from web.pages.frame import editor, go, page, pages, visitor
from web.services import services

ON_A_PAGE = 50
MOST_SHOWN = 200
"""Statements of a document that its page shows."""
NO_LIMIT = 2**31 - 1


@pages.get("/documents")
def documents() -> Response:
    """A page of them by URI; with `prefix`, of those that begin so; with `deleted`, of those that were there once."""
    visitor()
    prefix, after = request.args.get("prefix", "").strip(), request.args.get("after", "")
    deleted = request.args.get("deleted") or None
    with services().engine.connect() as connection:
        found = list_documents(connection, after, ON_A_PAGE + 1, prefix, present=deleted is None)
    more = None
    if len(found) > ON_A_PAGE:
        more = url_for("pages.documents", prefix=prefix or None, deleted=deleted, after=found[ON_A_PAGE - 1]["uri"])
    return page("documents.html", documents=found[:ON_A_PAGE], prefix=prefix, deleted=deleted, more=more)


@pages.get("/document")
def document() -> Response:
    """A document as it is, or as it was in `version`."""
    visitor()
    found = _find(request.args.get("uri"), request.args.get("version"))
    before = _number(request.args.get("after")) or NO_LIMIT
    with services().engine.connect() as connection:
        statements = document_statements(connection, found, MOST_SHOWN) if found.present else []
        count = count_statements(connection, found) if found.present else 0
        versions = list_versions(connection, found.uri, before, ON_A_PAGE + 1)
        newest = read_document(connection, found.uri)
    more = None
    if len(versions) > ON_A_PAGE:
        more = url_for("pages.document", uri=found.uri, after=versions[ON_A_PAGE - 1].version)
    statements.sort()
    return page(
        "document.html", document=found, statements=statements, count=count, newest=newest,
        versions=versions[:ON_A_PAGE], more=more, syntaxes=SYNTAXES,
    )  # fmt: skip


@pages.get("/document/text")
def document_text() -> Response:
    """A version in some syntax, to be kept as a file."""
    visitor()
    found = _find(request.args.get("uri"), request.args.get("version"))
    if not found.present:
        raise NotFound(f"The document {found.uri} was deleted in version {found.version}.")
    syntax = syntax_of_name(request.args.get("syntax", "rdfxml"))
    response = Response(text_of(found, syntax), content_type=f"{syntax.media_type}; charset=utf-8")
    name = f"{_file_name(found.uri)}-{found.version}{syntax.suffixes[0]}"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@pages.get("/document/difference")
def document_difference() -> Response:
    """What changed from one version to another."""
    visitor()
    uri = request.args.get("uri")
    old, new = (_find(uri, request.args.get(name)) for name in ("from", "to"))
    with services().engine.connect() as connection:
        changes = compared(connection, old, new)
    return page("difference.html", old=old, new=new, changes=changes)


@dataclass(frozen=True, slots=True)
class Act:
    """Something that cannot be taken back unseen: what it is called, and what it would do."""

    name: str
    words: str
    button: str


@pages.get("/document/delete")
def delete_form() -> Response:
    caller = editor()
    found = _find(request.args.get("uri"), None)
    may_write(caller, found.uri)
    if not found.present:
        raise NotFound(f"The document {found.uri} was deleted in version {found.version}.")
    result = change_document("delete", found.uri, caller, dry_run=True)
    with services().engine.connect() as connection:
        held = holders(connection, found.id)
    act = Act("Delete this document?", "Its versions stay, and each can be restored.", "Delete it")
    return page("change.html", act=act, document=found, result=result, held=held, to=url_for("pages.delete_document"))


@pages.post("/document/delete")
def delete_document() -> Response:
    caller = editor()
    found = _find(request.form.get("uri"), None)
    may_write(caller, found.uri)
    change_document("delete", found.uri, caller, version=str(_looked_at(found).version))
    return go("document", uri=found.uri, said="deleted")


@pages.get("/document/restore")
def restore_form() -> Response:
    caller = editor()
    found, newest = _find(request.args.get("uri"), request.args.get("version")), _find(request.args.get("uri"), None)
    may_write(caller, found.uri)
    result = change_document("register", found.uri, caller, *_again(found), dry_run=True)
    with services().engine.connect() as connection:
        changes = compared(connection, newest, found)
    words = f"It becomes what it was in version {found.version}, as a new version."
    act = Act(f"Restore version {found.version}?", words, "Restore it")
    to = url_for("pages.restore_document")
    return page("change.html", act=act, document=newest, restored=found, result=result, changes=changes, to=to)


@pages.post("/document/restore")
def restore_document() -> Response:
    caller = editor()
    found = _find(request.form.get("uri"), request.form.get("restored"))
    may_write(caller, found.uri)
    newest = _looked_at(_find(found.uri, None))
    expected = str(newest.version) if newest.present else ABSENT
    change_document("register", found.uri, caller, *_again(found), version=expected)
    return go("document", uri=found.uri, said="restored")


def _looked_at(newest: DocumentInfo) -> DocumentInfo:
    """The newest version, if it is the one that the form was made from."""
    if _number(request.form.get("version")) != newest.version:
        raise Conflict("The document was changed since you looked at it. Go back, and load the page again.")
    return newest


def _again(document: DocumentInfo) -> tuple[bytes, str]:
    """The text of a version, to be registered again."""
    if not document.present:
        raise BadRequest(f"Version {document.version} is a deletion: there is nothing to restore.")
    return text_of(document, N_TRIPLES), N_TRIPLES.media_type


def _find(uri: str | None, version: str | None) -> DocumentInfo:
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
        raise BadRequest(f"{text!r} is not the number of a version.")
    return int(text)


def _file_name(uri: str) -> str:
    """The end of a URI, as far as every file system takes it.

    >>> _file_name("http://a.org/b/Ä c.rdf")
    '__c'
    """
    last = uri.rstrip("/").rpartition("/")[2]
    stem = last.rpartition(".")[0] or last
    return (
        "".join(c if c.isascii() and (c.isalnum() or c in "-._") else "_" for c in stem)[:80].lstrip(".") or "document"
    )
