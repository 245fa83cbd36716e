"""The page of a resource: values, references, referrers, LMRs, diagram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from flask import Response, request, url_for
from sqlalchemy import Connection

from mdv.errors import BadRequest, NotFound
from mdv.inspect.eca_log import find_origins
from mdv.inspect.sql import browse as db
from mdv.inspect.sql.explain_resource import EvidenceReader
from mdv.inspect.sql.resources import read_direct_classes
from mdv.mdp.lmrs import list_lmrs
from mdv.mdp.schemas import SchemaInForce
from mdv.model import is_blank
from web.document_form import DOWNLOAD_FORMATS
from web.number_params import read_after
from web.pages.base import pages, render_page, require_viewer
from web.pages.resource_diagram import lay_out_diagram
from web.services import services
from web.template_filters import short
from web.use_cases.resources import one_resource

PAGE_SIZE = 50
MAX_OTHER_LMRS = 10
"""Maximum number of other LMRs with a link to the explanation."""
LISTS = ("values", "references", "referrers", "holders", "documents")
"""The lists of the page. Each continues after the value of its URL parameter."""

Item = TypeVar("Item")


@pages.get("/resource")
def resource() -> Response:
    require_viewer()
    uri = _uri_parameter()
    with services().engine.connect() as connection:
        in_force = services().schemas.now(connection)
        number = EvidenceReader(connection).number(uri)
        found = _resource_lists(connection, number, uri) if number is not None else {}
        is_class = uri in in_force.schema.classes
        if number is not None:
            found["classes"] = read_direct_classes(connection, [number]).get(number, [])
            found["origins"] = find_origins(connection, uri)
            found["changed_at"] = db.read_last_change(connection, number)
            found["described"] = db.is_described(connection, number)
            held = {holder.id for holder in found["holders"]}
            some = list_lmrs(connection, 0, MAX_OTHER_LMRS)
            found["others"] = [lmr.name for lmr in some if lmr.id not in held] if found["described"] else []
            if not any(request.args.get(name) for name in LISTS):
                found["drawing"] = _drawing(connection, number, uri, found, in_force)
    values = {
        "uri": uri,
        "schema": in_force.schema,
        "is_class": is_class,
        "forms": DOWNLOAD_FORMATS,
        "is_blank": is_blank,
    }
    is_known = found.get("described") or found.get("referrers") or is_class
    status = 200 if is_known else 404
    return render_page("resource.html", status, **values, **found, is_known=is_known, is_strong=_strong(in_force))


def _resource_lists(connection: Connection, number: int, uri: str) -> dict[str, Any]:
    literals = db.list_literals(connection, number, _after_text("values"), PAGE_SIZE + 1)
    references = db.list_references(connection, number, _after_text("references"), PAGE_SIZE + 1)
    referrers = db.list_referrers(connection, number, _after_pair("referrers"), PAGE_SIZE + 1)
    holders = db.list_holders(connection, number, read_after(request.args.get("holders")), PAGE_SIZE + 1)
    documents = db.list_describing_documents(
        connection, number, read_after(request.args.get("documents")), PAGE_SIZE + 1
    )
    following = {
        "values": _next(uri, "values", literals, lambda one: f"{one.hash}:{one.property}"),
        "references": _next(uri, "references", references, lambda one: f"{one.after[1]}:{one.after[0]}"),
        "referrers": _next(uri, "referrers", referrers, lambda one: f"{one.after[1]}:{one.after[0]}"),
        "holders": _next(uri, "holders", holders, lambda one: str(one.id)),
        "documents": _next(uri, "documents", documents, lambda one: str(one[0])),
    }
    return {
        "literals": sorted(literals[:PAGE_SIZE], key=lambda one: (short(one.property), one.property, one.term())),
        "references": references[:PAGE_SIZE],
        "referrers": referrers[:PAGE_SIZE],
        "holders": holders[:PAGE_SIZE],
        "documents": [document for _, document in documents[:PAGE_SIZE]],
        "following": following,
    }


def _next(uri: str, name: str, found: Sequence[Item], after: Any) -> str | None:
    if len(found) <= PAGE_SIZE:
        return None
    return url_for("pages.resource", uri=uri, **{name: after(found[PAGE_SIZE - 1])}, _anchor=name)


def _drawing(connection: Connection, number: int, uri: str, found: dict[str, Any], in_force: SchemaInForce) -> Any:
    incoming, outgoing = found["referrers"], found["references"]
    if not incoming and not outgoing:
        return None
    return lay_out_diagram(
        uri, (incoming, db.count_referrers(connection, number)), (outgoing, db.count_references(connection, number)),
        _strong(in_force),
    )  # fmt: skip


def _strong(in_force: SchemaInForce) -> Any:
    """Return a predicate: True if a reference is strong, by the schema or because its target is a blank node."""
    return lambda property_iri, uri: property_iri in in_force.strong or is_blank(uri)


@pages.get("/resource/value")
def resource_value() -> Response:
    """Return a long literal as plain text."""
    require_viewer()
    uri, n = _uri_parameter(), request.args.get("n", "")
    with services().engine.connect() as connection:
        number = EvidenceReader(connection).number(uri)
        value = None
        if number is not None and _is_signed(n):
            value = db.read_literal(connection, number, request.args.get("property", ""), int(n))
    if value is None:
        raise NotFound("The value no longer exists. Reload the page of the resource.")
    response = Response(value, content_type="text/plain; charset=utf-8")
    response.headers["Cache-Control"] = "no-store"
    return response


@pages.get("/resource/file.<suffix>")
def resource_file(suffix: str) -> Response:
    """Download the statements about a resource."""
    require_viewer()
    uri = _uri_parameter()
    if suffix not in DOWNLOAD_FORMATS:
        raise NotFound(f"Unknown format .{suffix}. Use one of {', '.join(DOWNLOAD_FORMATS)}.")
    response = one_resource(uri, DOWNLOAD_FORMATS[suffix][0], with_documents=False)
    response.headers["Content-Disposition"] = f'attachment; filename="resource.{suffix}"'
    return response


def _uri_parameter() -> str:
    uri = request.args.get("uri", "").strip()
    if not uri:
        raise BadRequest("The parameter `uri` is missing: /resource?uri=…")
    return uri


def _after_text(name: str) -> tuple[str, int]:
    """Return the property and the number after which a list continues."""
    number, _, text = request.args.get(name, "").partition(":")
    return (text, int(number)) if _is_signed(number) else ("", 0)


def _after_pair(name: str) -> tuple[int, int]:
    number, _, property_id = request.args.get(name, "").partition(":")
    return (read_after(property_id), read_after(number)) if number else (0, 0)


def _is_signed(text: str) -> bool:
    """True if the text is a 64-bit integer."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < 20 and -(2**63) <= int(text) < 2**63
