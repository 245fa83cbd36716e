"""Pages of the cache: classes, instances, resources, and why they are cached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from flask import Response, request, url_for
from sqlalchemy import Connection

from mdv.errors import BadRequest, MdvError, NotFound
from mdv.inspect.sql import cache as db
from mdv.lmr.schema import CacheSchema
from mdv.model import RDFS_RESOURCE, is_blank
from mdv.rdf.classes import class_tree, resolve_classes
from web.document_form import DOWNLOAD_FORMATS
from web.lmr.pages.base import pages, redirect_to, render_fragment, render_page, require_viewer
from web.lmr.resource import cached_resource
from web.lmr.services import lmr, mdp_request_slot, require_snapshot
from web.number_params import read_after
from web.template_filters import short

PAGE_SIZE = 50
MAX_COUNTED = 10_000
"""Counting of instances stops at this number."""
MAX_REASONS_SHOWN = 10
"""Maximum number of referrers and documents that are listed as reasons."""
MDP_TIMEOUT_SECONDS = 3.0
"""Timeout of requests to the MDP."""
BAR_WIDTH = 200
"""Width of the longest bar of the chart."""
MIN_INT64 = -(2**63)

Item = TypeVar("Item")


@pages.get("/cache")
def cache() -> Response:
    """Show the classes with the number of cached instances."""
    require_viewer()
    if prefix := request.args.get("find", "").strip():
        return _find(prefix, request.args.get("after", ""))
    skipped = read_after(request.args.get("after"))
    store = lmr().cache
    with store.reading() as connection:
        schema = store.schema(connection).schema
        tree = class_tree(schema)
        shown = tree[skipped : skipped + PAGE_SIZE]
        counts = [db.count_instances(connection, schema.classes[b.iri].subclasses, MAX_COUNTED) for b in shown]
    more = url_for("pages.cache", after=skipped + PAGE_SIZE) if len(tree) > skipped + PAGE_SIZE else None
    longest = max((count.count for count in counts), default=0)
    rows = [(branch, count, round(BAR_WIDTH * count.count / (longest or 1))) for branch, count in zip(shown, counts,
            strict=True)]  # fmt: skip
    return render_page(
        "lmr_own_cache.html",
        rows=rows,
        schema=schema,
        more=more,
        skipped=skipped,
        width=BAR_WIDTH,
        most=MAX_COUNTED,
        has_snapshot=lmr().has_snapshot,
    )


def _find(prefix: str, after: str) -> Response:
    store = lmr().cache
    with store.reading() as connection:
        found = db.list_uris_with_prefix(connection, prefix, after, PAGE_SIZE + 1)
        if len(found) == 1 and found[0][1] == prefix and not after:
            return redirect_to("resource", uri=prefix)
        shown = found[:PAGE_SIZE]
        rows = _rows(connection, shown)
        schema = store.schema(connection).schema
    more = url_for("pages.cache", find=prefix, after=shown[-1][1]) if len(found) > PAGE_SIZE else None
    return render_page("lmr_own_instances.html", prefix=prefix, rows=rows, schema=schema, more=more)


@pages.get("/cache/instances")
def instances() -> Response:
    require_viewer()
    after = read_after(request.args.get("after"))
    store = require_snapshot().cache
    with store.reading() as connection:
        schema = store.schema(connection).schema
        classes = resolve_classes(request.args.get("class", "").strip() or RDFS_RESOURCE, schema)
        found = db.list_resources(connection, classes, after, PAGE_SIZE + 1)
        shown = found[:PAGE_SIZE]
        rows = _rows(connection, [(number, uri) for number, uri, _ in shown])
    more = None
    if len(found) > PAGE_SIZE:
        parameters: dict[str, Any] = {"class": f"<{classes[0]}>", "after": shown[-1][0]}
        more = url_for("pages.instances", **parameters)
    return render_page("lmr_own_instances.html", class_iri=classes[0], rows=rows, schema=schema, more=more)


def _rows(connection: Connection, some: Sequence[tuple[int, str]]) -> list[tuple[str, list[str], db.CachedResource]]:
    numbers = [number for number, _ in some]
    found = db.read_cached_resources(connection, numbers)
    return [(uri, found[number].classes, found[number]) for number, uri in some]


# Resource page


@pages.get("/resource")
def resource() -> Response:
    """Show the statements about a resource and why it is cached."""
    require_viewer()
    uri = _uri_parameter()
    store = lmr().cache
    with store.reading() as connection:
        in_force = store.schema(connection)
        standing = db.find_cached_resource(connection, uri)
        found = _resource_lists(connection, standing.number, uri) if standing is not None else {}
        if standing is not None:
            found["classes"] = standing.classes
            found["holders"] = _holders(connection, standing, uri, in_force)
            found["documents"] = db.list_describing_documents(connection, standing.number, MAX_REASONS_SHOWN + 1)
    is_here = standing is not None and (standing.present or standing.local)
    values: dict[str, Any] = {"uri": uri, "schema": in_force.schema, "standing": standing, "is_here": is_here,
                              "is_class": uri in in_force.schema.classes, "forms": DOWNLOAD_FORMATS,
                              "most": MAX_REASONS_SHOWN, "is_blank": is_blank(uri),
                              "explained": explained(uri)}  # fmt: skip
    return render_page("lmr_own_resource.html", 200 if is_here else 404, **values, **found)


@pages.get("/resource/why")
def why_here() -> Response:
    """Show the rules that select a resource, as reported by the MDP within a short timeout."""
    require_viewer()
    uri = _uri_parameter()
    try:
        with mdp_request_slot():
            why = lmr().mdp.why(uri, MDP_TIMEOUT_SECONDS)
    except MdvError:
        why = {}
    suspended = [rule | {"suspended": True} for rule in why.get("suspended") or [] if rule["selects"]]
    rules = [*(why.get("rules") or []), *suspended]
    return render_fragment("lmr_own_why.html", rules=rules[:MAX_REASONS_SHOWN], more=len(rules) > MAX_REASONS_SHOWN)


def explained(uri: str) -> str | None:
    """Return the URL of the page of the MDP that explains why this LMR holds a resource or not."""
    info, mdp = lmr().mdp_info(), lmr().mdp.url
    if info is None or not mdp.startswith(("http://", "https://")):
        return None
    return f"{mdp.rstrip('/')}/lmrs/{quote(info.name, safe='')}/explain?{urlencode({'uri': uri})}"


def _resource_lists(connection: Connection, number: int, uri: str) -> dict[str, Any]:
    literals = db.list_literals(connection, number, _after("values"), PAGE_SIZE + 1)
    references = db.list_references(connection, number, _after("references"), PAGE_SIZE + 1)
    referrers = db.list_referrers(connection, number, _after("referrers"), PAGE_SIZE + 1)
    following = {
        "values": _next(uri, "values", literals, lambda one: (one[0], one[1].literal.hash)),
        "references": _next(uri, "references", references, lambda one: one.after),
        "referrers": _next(uri, "referrers", referrers, lambda one: one.after),
    }
    values = [value for _, value in literals[:PAGE_SIZE]]
    return {
        "values": sorted(
            values, key=lambda value: (short(value.literal.property), value.literal.property, value.literal.term())
        ),
        "references": references[:PAGE_SIZE],
        "referrers": referrers[:PAGE_SIZE],
        "following": following,
    }


def _holders(
    connection: Connection, standing: db.CachedResource, uri: str, in_force: CacheSchema
) -> list[tuple[str, str]]:
    """Return the cached resources with strong references to it, and the properties."""
    if not standing.referrers:
        return []
    strong = None if is_blank(uri) else [name for name in in_force.schema.properties if in_force.is_strong(name)]
    return db.list_strong_referrers(connection, standing.number, strong, MAX_REASONS_SHOWN + 1)


@pages.get("/resource/value")
def resource_value() -> Response:
    """Return a long literal as plain text."""
    require_viewer()
    uri, n = _uri_parameter(), _number(request.args.get("n", ""))
    value = None
    with lmr().cache.reading() as connection:
        if n is not None:
            value = db.read_literal(connection, uri, request.args.get("property", ""), n)
    if value is None:
        raise NotFound("The value no longer exists. Reload the page of the resource.")
    return Response(value, content_type="text/plain; charset=utf-8")


@pages.get("/resource/file.<suffix>")
def resource_file(suffix: str) -> Response:
    """Download the statements about a resource."""
    require_viewer()
    uri = _uri_parameter()
    if suffix not in DOWNLOAD_FORMATS:
        raise NotFound(f"Unknown format .{suffix}. Use one of {', '.join(DOWNLOAD_FORMATS)}.")
    response = cached_resource(lmr().cache, uri, DOWNLOAD_FORMATS[suffix][0])
    response.headers["Content-Disposition"] = f'attachment; filename="resource.{suffix}"'
    return response


def _uri_parameter() -> str:
    uri = request.args.get("uri", "").strip()
    if not uri:
        raise BadRequest("The parameter `uri` is missing: /resource?uri=…")
    return uri


def _next(uri: str, name: str, found: Sequence[Item], after: Any) -> str | None:
    if len(found) <= PAGE_SIZE:
        return None
    first, second = after(found[PAGE_SIZE - 1])
    parameters: dict[str, Any] = {"uri": uri, name: f"{first}:{second}"}
    return url_for("pages.resource", **parameters, _anchor=name)


def _after(name: str) -> tuple[int, int]:
    """Return the pair after which a list continues."""
    first, _, second = request.args.get(name, "").partition(":")
    pair = _number(first), _number(second)
    return (0, MIN_INT64) if pair[0] is None or pair[1] is None else (pair[0], pair[1])


def _number(text: str) -> int | None:
    """Return the 64-bit integer, or None if the text is not one."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
        return None
    return int(text) if MIN_INT64 <= int(text) < 2**63 else None
