"""The cache: its classes and their instances, what it says of a resource, and why that is here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from flask import Response, request, url_for
from sqlalchemy import Connection

from mdv.db import cache_read as db
from mdv.errors import BadRequest, MdvError, NotFound
from mdv.lmr.schema import SchemaInForce
from mdv.mdp.browse import class_tree
from mdv.mdp.schemas import classes_named
from mdv.model import RDFS_RESOURCE, is_blank
from web.answers import resource_response
from web.drafts import FORMS
from web.lmr.pages.frame import go, page, pages, part, visitor
from web.lmr.services import asking_mdp, begun, lmr
from web.numbers import after_number
from web.words import short

ON_A_PAGE = 50
MOST_COUNTED = 10_000
"""Instances of a class that are counted."""
MOST_NAMED = 10
"""Of what holds a resource, so many are named."""
PATIENCE = 3.0
"""Seconds for which the MDP is waited for."""
WIDTH = 200
"""Of the longest bar of the chart."""
LOWEST = -(2**63)

Item = TypeVar("Item")


@pages.get("/cache")
def cache() -> Response:
    """The classes, with how many instances of each are here."""
    visitor()
    if beginning := request.args.get("find", "").strip():
        return _find(beginning, request.args.get("after", ""))
    skipped = after_number(request.args.get("after"))
    store = lmr().cache
    with store.reading() as connection:
        schema = store.schema(connection).schema
        tree = class_tree(schema)
        shown = tree[skipped : skipped + ON_A_PAGE]
        counts = [db.count_instances(connection, schema.classes[b.iri].subclasses, MOST_COUNTED) for b in shown]
    more = url_for("pages.cache", after=skipped + ON_A_PAGE) if len(tree) > skipped + ON_A_PAGE else None
    longest = max((count.count for count in counts), default=0)
    rows = [(branch, count, round(WIDTH * count.count / (longest or 1))) for branch, count in zip(shown, counts,
            strict=True)]  # fmt: skip
    return page("lmr_own_cache.html", rows=rows, schema=schema, more=more, skipped=skipped, width=WIDTH,
                most=MOST_COUNTED, has_begun=lmr().has_begun)  # fmt: skip


def _find(beginning: str, after: str) -> Response:
    store = lmr().cache
    with store.reading() as connection:
        found = db.find_beginning(connection, beginning, after, ON_A_PAGE + 1)
        if len(found) == 1 and found[0][1] == beginning and not after:
            return go("resource", uri=beginning)
        shown = found[:ON_A_PAGE]
        rows = _rows(connection, shown)
        schema = store.schema(connection).schema
    more = url_for("pages.cache", find=beginning, after=shown[-1][1]) if len(found) > ON_A_PAGE else None
    return page("lmr_own_instances.html", beginning=beginning, rows=rows, schema=schema, more=more)


@pages.get("/cache/instances")
def instances() -> Response:
    visitor()
    after = after_number(request.args.get("after"))
    store = begun().cache
    with store.reading() as connection:
        schema = store.schema(connection).schema
        classes = classes_named(request.args.get("class", "").strip() or RDFS_RESOURCE, schema)
        found = db.list_resources(connection, classes, after, ON_A_PAGE + 1)
        shown = found[:ON_A_PAGE]
        rows = _rows(connection, [(number, uri) for number, uri, _ in shown])
    more = None
    if len(found) > ON_A_PAGE:
        asked: dict[str, Any] = {"class": f"<{classes[0]}>", "after": shown[-1][0]}
        more = url_for("pages.instances", **asked)
    return page("lmr_own_instances.html", class_iri=classes[0], rows=rows, schema=schema, more=more)


def _rows(connection: Connection, some: Sequence[tuple[int, str]]) -> list[tuple[str, list[str], db.Standing]]:
    numbers = [number for number, _ in some]
    classes, standings = db.classes_of(connection, numbers), db.standings(connection, numbers)
    return [(uri, classes[number], standings[number]) for number, uri in some]


# One resource


@pages.get("/resource")
def resource() -> Response:
    """What is said of a resource here, and why it is here."""
    visitor()
    uri = _asked_uri()
    store = lmr().cache
    with store.reading() as connection:
        in_force = store.schema(connection)
        number = db.resource_numbers(connection, [uri]).get(uri)
        standing = db.standings(connection, [number])[number] if number is not None else None
        found = _lists(connection, standing.number, uri) if standing is not None else {}
        if standing is not None:
            found["classes"] = db.classes_of(connection, [standing.number])[standing.number]
            found["holders"] = _holders(connection, standing, uri, in_force)
            found["documents"] = db.describing_documents(connection, standing.number, MOST_NAMED + 1)
    is_here = standing is not None and (standing.present or standing.local)
    values: dict[str, Any] = {"uri": uri, "schema": in_force.schema, "standing": standing, "is_here": is_here,
                              "is_class": uri in in_force.schema.classes, "forms": FORMS, "most": MOST_NAMED,
                              "is_blank": is_blank(uri), "explained": explained(uri)}  # fmt: skip
    return page("lmr_own_resource.html", 200 if is_here else 404, **values, **found)


@pages.get("/resource/why")
def why_here() -> Response:
    """The rules that select a resource, as the MDP tells them; it is not waited for long."""
    visitor()
    uri = _asked_uri()
    try:
        with asking_mdp():
            rules = lmr().mdp.why(uri, PATIENCE).get("rules") or []
    except MdvError:
        rules = []
    return part("lmr_own_why.html", rules=rules[:MOST_NAMED], more=len(rules) > MOST_NAMED)


def explained(uri: str) -> str | None:
    """Where the MDP explains why a resource is here, or is not; its address is that of the settings."""
    told, mdp = lmr().told(), lmr().mdp.url
    if told is None or not mdp.startswith(("http://", "https://")):
        return None
    return f"{mdp.rstrip('/')}/lmrs/{quote(told.name, safe='')}/explain?{urlencode({'uri': uri})}"


def _lists(connection: Connection, number: int, uri: str) -> dict[str, Any]:
    literals = db.literals(connection, number, _after("values"), ON_A_PAGE + 1)
    references = db.references(connection, number, _after("references"), ON_A_PAGE + 1)
    referrers = db.referrers(connection, number, _after("referrers"), ON_A_PAGE + 1)
    following = {
        "values": _next(uri, "values", literals, lambda one: (one[0], one[1].literal.hash)),
        "references": _next(uri, "references", references, lambda one: one.after),
        "referrers": _next(uri, "referrers", referrers, lambda one: one.after),
    }
    values = [said for _, said in literals[:ON_A_PAGE]]
    return {
        "values": sorted(values, key=lambda said: (short(said.literal.property), said.literal.text)),
        "references": references[:ON_A_PAGE],
        "referrers": referrers[:ON_A_PAGE],
        "following": following,
    }


def _holders(connection: Connection, standing: db.Standing, uri: str, in_force: SchemaInForce) -> list[tuple[str, str]]:
    """What holds it by strong references, and with which property."""
    if not standing.referrers:
        return []
    strong = None if is_blank(uri) else [name for name in in_force.schema.properties if in_force.is_strong(name)]
    return db.strong_referrers(connection, standing.number, strong, MOST_NAMED + 1)


@pages.get("/resource/value")
def resource_value() -> Response:
    """A long literal, whole, as plain text."""
    visitor()
    uri, n = _asked_uri(), _number(request.args.get("n", ""))
    value = None
    with lmr().cache.reading() as connection:
        number = db.resource_numbers(connection, [uri]).get(uri)
        if number is not None and n is not None:
            value = db.whole_value(connection, number, request.args.get("property", ""), n)
    if value is None:
        raise NotFound("There is no such value any more. Load the page of the resource again.")
    return Response(value, content_type="text/plain; charset=utf-8")


@pages.get("/resource/file.<suffix>")
def resource_file(suffix: str) -> Response:
    """All that is said of a resource here, to keep."""
    visitor()
    uri = _asked_uri()
    if suffix not in FORMS:
        raise NotFound(f"There is no form .{suffix}: choose one of {', '.join(FORMS)}.")
    store = lmr().cache
    with store.reading() as connection:
        statements = db.resource_statements(connection, uri)
        prefixes = store.schema(connection).schema.prefixes
    if not statements:
        raise NotFound(f"{uri} is not in this cache.")
    response = resource_response(uri, statements, FORMS[suffix][0], prefixes)
    response.headers["Content-Disposition"] = f'attachment; filename="resource.{suffix}"'
    return response


def _asked_uri() -> str:
    uri = request.args.get("uri", "").strip()
    if not uri:
        raise BadRequest("Say which resource: /resource?uri=…")
    return uri


def _next(uri: str, name: str, found: Sequence[Item], after: Any) -> str | None:
    if len(found) <= ON_A_PAGE:
        return None
    first, second = after(found[ON_A_PAGE - 1])
    asked: dict[str, Any] = {"uri": uri, name: f"{first}:{second}"}
    return url_for("pages.resource", **asked, _anchor=name)


def _after(name: str) -> tuple[int, int]:
    """The pair that a list goes on after, in order with what a page told."""
    first, _, second = request.args.get(name, "").partition(":")
    pair = _number(first), _number(second)
    return (0, LOWEST) if pair[0] is None or pair[1] is None else (pair[0], pair[1])


def _number(text: str) -> int | None:
    """A number of 64 bits."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
        return None
    return int(text) if LOWEST <= int(text) < 2**63 else None
