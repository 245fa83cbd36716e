"""A resource: what is said of it, what it refers to, what refers to it, who holds it, and its neighbourhood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from flask import Response, request, url_for
from sqlalchemy import Connection

from mdv.db import browse as db
from mdv.db.lmrs import list_lmrs
from mdv.db.read import direct_classes, resource_statements
from mdv.db.why import Evidence
from mdv.errors import BadRequest, NotFound
from mdv.mdp.schemas import SchemaInForce
from mdv.model import is_blank
from web.answers import resource_response
from web.drafts import FORMS
from web.numbers import after_number
from web.pages.frame import page, pages, visitor
from web.pages.neighbourhood import draw
from web.services import services
from web.words import short

ON_A_PAGE = 50
MOST_OTHERS = 10
"""LMRs that can be asked right here why they do not hold it."""
LISTS = ("values", "references", "referrers", "holders", "documents")
"""The lists of the page, each of which goes on after what the address says."""

Item = TypeVar("Item")


@pages.get("/resource")
def resource() -> Response:
    visitor()
    uri = _asked_uri()
    with services().engine.connect() as connection:
        in_force = services().schemas.now(connection)
        number = Evidence(connection).number(uri)
        found = _lists(connection, number, uri) if number is not None else {}
        is_class = uri in in_force.schema.classes
        if number is not None:
            found["classes"] = direct_classes(connection, [number]).get(number, [])
            found["changed_at"] = db.changed_at(connection, number)
            found["described"] = db.is_described(connection, number)
            held = {holder.id for holder in found["holders"]}
            some = list_lmrs(connection, 0, MOST_OTHERS)
            found["others"] = [lmr.name for lmr in some if lmr.id not in held] if found["described"] else []
            if not any(request.args.get(name) for name in LISTS):
                found["drawing"] = _drawing(connection, number, uri, found, in_force)
    values = {"uri": uri, "schema": in_force.schema, "is_class": is_class, "forms": FORMS, "is_blank": is_blank}
    spoken_of = found.get("described") or found.get("referrers") or is_class
    status = 200 if spoken_of else 404
    return page("resource.html", status, **values, **found, spoken_of=spoken_of, is_strong=_strong(in_force))


def _lists(connection: Connection, number: int, uri: str) -> dict[str, Any]:
    literals = db.literals(connection, number, _after_text("values"), ON_A_PAGE + 1)
    references = db.references(connection, number, _after_text("references"), ON_A_PAGE + 1)
    referrers = db.referrers(connection, number, _after_pair("referrers"), ON_A_PAGE + 1)
    holders = db.holders(connection, number, after_number(request.args.get("holders")), ON_A_PAGE + 1)
    documents = db.describing(connection, number, after_number(request.args.get("documents")), ON_A_PAGE + 1)
    following = {
        "values": _next(uri, "values", literals, lambda one: f"{one.hash}:{one.property}"),
        "references": _next(uri, "references", references, lambda one: f"{one.after[1]}:{one.after[0]}"),
        "referrers": _next(uri, "referrers", referrers, lambda one: f"{one.after[1]}:{one.after[0]}"),
        "holders": _next(uri, "holders", holders, lambda one: str(one.id)),
        "documents": _next(uri, "documents", documents, lambda one: str(one[0])),
    }
    return {
        "literals": sorted(literals[:ON_A_PAGE], key=lambda one: (short(one.property), one.property, one.text)),
        "references": references[:ON_A_PAGE],
        "referrers": referrers[:ON_A_PAGE],
        "holders": holders[:ON_A_PAGE],
        "documents": [document for _, document in documents[:ON_A_PAGE]],
        "following": following,
    }


def _next(uri: str, name: str, found: Sequence[Item], after: Any) -> str | None:
    if len(found) <= ON_A_PAGE:
        return None
    return url_for("pages.resource", uri=uri, **{name: after(found[ON_A_PAGE - 1])}, _anchor=name)


def _drawing(connection: Connection, number: int, uri: str, found: dict[str, Any], in_force: SchemaInForce) -> Any:
    incoming, outgoing = found["referrers"], found["references"]
    if not incoming and not outgoing:
        return None
    return draw(
        uri, (incoming, db.count_referrers(connection, number)), (outgoing, db.count_references(connection, number)),
        _strong(in_force),
    )  # fmt: skip


def _strong(in_force: SchemaInForce) -> Any:
    """Whether a reference takes its target along: the schema says so, or the target is a blank node."""
    return lambda property_iri, target: property_iri in in_force.strong or is_blank(target)


@pages.get("/resource/value")
def resource_value() -> Response:
    """A long literal, whole, as plain text."""
    visitor()
    uri, n = _asked_uri(), request.args.get("n", "")
    with services().engine.connect() as connection:
        number = Evidence(connection).number(uri)
        value = None
        if number is not None and _is_signed(n):
            value = db.whole_value(connection, number, request.args.get("property", ""), int(n))
    if value is None:
        raise NotFound("There is no such value any more. Load the page of the resource again.")
    response = Response(value, content_type="text/plain; charset=utf-8")
    response.headers["Cache-Control"] = "no-store"
    return response


@pages.get("/resource/file.<suffix>")
def resource_file(suffix: str) -> Response:
    """All that is said of a resource, to keep."""
    visitor()
    uri = _asked_uri()
    if suffix not in FORMS:
        raise NotFound(f"There is no form .{suffix}: choose one of {', '.join(FORMS)}.")
    with services().engine.connect() as connection:
        statements = resource_statements(connection, uri)
        prefixes = services().schemas.now(connection).schema.prefixes
    if not statements:
        raise NotFound(f"No document describes {uri}.")
    response = resource_response(uri, statements, FORMS[suffix][0], prefixes)
    response.headers["Content-Disposition"] = f'attachment; filename="resource.{suffix}"'
    return response


def _asked_uri() -> str:
    uri = request.args.get("uri", "").strip()
    if not uri:
        raise BadRequest("Say which resource: /resource?uri=…")
    return uri


def _after_text(name: str) -> tuple[str, int]:
    """The property and the number that a list goes on after; both are in order with what a page told."""
    number, _, text = request.args.get(name, "").partition(":")
    return (text, int(number)) if _is_signed(number) else ("", 0)


def _after_pair(name: str) -> tuple[int, int]:
    number, _, property_id = request.args.get(name, "").partition(":")
    return (after_number(property_id), after_number(number)) if number else (0, 0)


def _is_signed(text: str) -> bool:
    """A number of 64 bits."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < 20 and -(2**63) <= int(text) < 2**63
