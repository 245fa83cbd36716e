"""Browse pages: classes, tables of instances, and resources by URI prefix."""

from __future__ import annotations

from typing import Any

from flask import Response, request, url_for

from mdv.errors import MdvError, NotFound, TooCostly
from mdv.inspect.browse import (
    BY_URI,
    OPERATORS,
    InstancePage,
    InstanceQuery,
    filter_rule,
    find_instances,
)
from mdv.inspect.sql.browse import count_instances, list_uris_with_prefix
from mdv.model import RDFS_RESOURCE
from mdv.rdf.browsable_properties import browsable_properties
from mdv.rdf.classes import class_tree, resolve_classes
from mdv.rdf.schema import Schema
from mdv.rules.operators import WRITTEN
from web.number_params import read_after
from web.pages.base import is_fragment_request, pages, redirect_to, render_fragment, render_page, require_viewer
from web.services import services

PAGE_SIZE = 50
OPERATOR_LABELS = {operator.value: operator.label for operator in WRITTEN}


@pages.get("/browse")
def browse() -> Response:
    require_viewer()
    if prefix := request.args.get("find", "").strip():
        return _find(prefix, request.args.get("after", ""))
    skipped = read_after(request.args.get("after"))
    with services().engine.connect() as connection:
        schema = services().schemas.now(connection).schema
        tree = class_tree(schema)
        shown = tree[skipped : skipped + PAGE_SIZE]
        counts = count_instances(connection, [schema.classes[branch.iri].subclasses for branch in shown])
    more = url_for("pages.browse", after=skipped + PAGE_SIZE) if len(tree) > skipped + PAGE_SIZE else None
    return render_page(
        "browse.html", rows=list(zip(shown, counts, strict=True)), schema=schema, more=more, skipped=skipped
    )


def _find(prefix: str, after: str) -> Response:
    with services().single.connect() as connection:
        found = list_uris_with_prefix(connection, prefix, after, PAGE_SIZE + 1)
    if len(found) == 1 and found[0][0] == prefix and not after:
        return redirect_to("resource", uri=prefix)
    shown = found[:PAGE_SIZE]
    more = url_for("pages.browse", find=prefix, after=shown[-1][0]) if len(found) > PAGE_SIZE else None
    return render_page("browse_found.html", prefix=prefix, found=shown, more=more)


@pages.get("/browse/instances")
def instances() -> Response:
    require_viewer()
    parameters = {
        name: request.args.get(name, "").strip() for name in ("class", "property", "op", "value", "sort", "order")
    }
    with services().engine.connect() as connection:
        schema = services().schemas.now(connection).schema
    class_iri = resolve_classes(parameters["class"] or RDFS_RESOURCE, schema)[0]
    parameters["class"] = class_iri
    parameters["op"] = parameters["op"] if parameters["op"] in OPERATORS else "="
    problem, rule = None, None
    found = InstancePage([], properties=browsable_properties(schema, class_iri))
    try:
        rule = _filter_rule(schema, parameters)
        query = InstanceQuery(
            class_iri, rule, parameters["sort"] or None, parameters["order"] == "desc", request.args.get("after", "")
        )
        try:
            found = _find_instances(query)
        except TooCostly as error:
            if query.order is None:
                raise
            problem = error.problem()
            found = _find_instances(InstanceQuery(class_iri, rule))
    except MdvError as error:
        problem = error.problem()
    link = _link_maker(parameters | {"sort": "", "order": ""} if problem else parameters)
    values: dict[str, Any] = {"schema": schema, "class_iri": class_iri, "parameters": parameters, "found": found,
                              "rule": rule,
                              "problem": problem, "operators": OPERATOR_LABELS, "by_uri": BY_URI,
                              "link": link}  # fmt: skip
    status = problem["status"] if problem else 200
    if is_fragment_request():
        return render_fragment("browse_table.html", status, **values)
    return render_page("browse_instances.html", status, **values)


def _find_instances(query: InstanceQuery) -> InstancePage:
    with services().engine.connect() as connection:
        return find_instances(connection, services().schemas, query)


def _filter_rule(schema: Schema, parameters: dict[str, str]) -> str | None:
    if not parameters["value"]:
        return None
    if not parameters["property"]:
        raise NotFound("Choose the property of the value.")
    return filter_rule(schema, parameters["class"], parameters["property"], parameters["op"], parameters["value"])


def _link_maker(parameters: dict[str, str]) -> Any:
    """Return a function that makes links to this page with changed parameters."""

    def link(**changes: str) -> str:
        kept: dict[str, Any] = {name: value for name, value in (parameters | changes).items() if value}
        return url_for("pages.instances", **kept)

    return link
