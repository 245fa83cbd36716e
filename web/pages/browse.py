"""Browse: the classes, their instances as tables, and resources by how their URIs begin."""

from __future__ import annotations

from typing import Any

from flask import Response, request, url_for

from mdv.db.browse import count_instances, find_resources
from mdv.errors import MdvError, NotFound, TooCostly
from mdv.mdp.browse import BY_URI, OPERATORS, Found, Wish, choices, class_tree, filter_rule, find_instances
from mdv.mdp.schemas import classes_named
from mdv.model import RDFS_RESOURCE
from mdv.rdf.schema import Schema
from web.numbers import after_number
from web.pages.frame import go, is_part, page, pages, part, visitor
from web.services import services

ON_A_PAGE = 50
WORDS = {"=": "is", "!=": "is not", "contains": "contains", "<": "below", "<=": "at most", ">": "above",
         ">=": "at least"}  # fmt: skip


@pages.get("/browse")
def browse() -> Response:
    visitor()
    if beginning := request.args.get("find", "").strip():
        return _find(beginning, request.args.get("after", ""))
    skipped = after_number(request.args.get("after"))
    with services().engine.connect() as connection:
        schema = services().schemas.now(connection).schema
        tree = class_tree(schema)
        shown = tree[skipped : skipped + ON_A_PAGE]
        counts = count_instances(connection, [schema.classes[branch.iri].subclasses for branch in shown])
    more = url_for("pages.browse", after=skipped + ON_A_PAGE) if len(tree) > skipped + ON_A_PAGE else None
    return page("browse.html", rows=list(zip(shown, counts, strict=True)), schema=schema, more=more, skipped=skipped)


def _find(beginning: str, after: str) -> Response:
    with services().single.connect() as connection:
        found = find_resources(connection, beginning, after, ON_A_PAGE + 1)
    if len(found) == 1 and found[0][0] == beginning and not after:
        return go("resource", uri=beginning)
    shown = found[:ON_A_PAGE]
    more = url_for("pages.browse", find=beginning, after=shown[-1][0]) if len(found) > ON_A_PAGE else None
    return page("browse_found.html", beginning=beginning, found=shown, more=more)


@pages.get("/browse/instances")
def instances() -> Response:
    visitor()
    asked = {name: request.args.get(name, "").strip() for name in ("class", "property", "op", "value", "sort", "order")}
    with services().engine.connect() as connection:
        schema = services().schemas.now(connection).schema
    class_iri = classes_named(asked["class"] or RDFS_RESOURCE, schema)[0]
    asked["class"] = class_iri
    asked["op"] = asked["op"] if asked["op"] in OPERATORS else "="
    problem, rule = None, None
    found = Found([], properties=choices(schema, class_iri))
    try:
        rule = _rule(schema, asked)
        wish = Wish(class_iri, rule, asked["sort"] or None, asked["order"] == "desc", request.args.get("after", ""))
        try:
            found = _found(wish)
        except TooCostly as error:
            if wish.order is None:
                raise
            problem = error.problem()
            found = _found(Wish(class_iri, rule))
    except MdvError as error:
        problem = error.problem()
    link = _linked(asked | {"sort": "", "order": ""} if problem else asked)
    values: dict[str, Any] = {"schema": schema, "class_iri": class_iri, "asked": asked, "found": found, "rule": rule,
                              "problem": problem, "words": WORDS, "by_uri": BY_URI, "link": link}  # fmt: skip
    status = problem["status"] if problem else 200
    if is_part():
        return part("browse_table.html", status, **values)
    return page("browse_instances.html", status, **values)


def _found(wish: Wish) -> Found:
    with services().engine.connect() as connection:
        return find_instances(connection, services().schemas, wish)


def _rule(schema: Schema, asked: dict[str, str]) -> str | None:
    if not asked["value"]:
        return None
    if not asked["property"]:
        raise NotFound("Choose the property that the value belongs to.")
    return filter_rule(schema, asked["class"], asked["property"], asked["op"], asked["value"])


def _linked(asked: dict[str, str]) -> Any:
    """Makes links to the same instances, looked at otherwise."""

    def link(**changes: str) -> str:
        kept: dict[str, Any] = {name: value for name, value in (asked | changes).items() if value}
        return url_for("pages.instances", **kept)

    return link
