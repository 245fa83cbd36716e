"""Subscribe to things like this: rules that would select a resource, or what a filter found, and an LMR to get them."""

from __future__ import annotations

from typing import Any

from flask import Response, request

from mdv.db.lmrs import list_lmrs
from mdv.errors import BadRequest, MdvError
from mdv.mdp.propose import Proposal, propose
from mdv.mdp.subscribe import get_lmr, get_subscription
from web.api.lmrs import change_rules
from web.numbers import subscription_number
from web.pages.frame import go, member, page, pages, visitor, whole_editor
from web.services import services

MOST_LMRS = 200


@pages.get("/like")
def like() -> Response:
    visitor()
    return _page(request.args.to_dict())


@pages.post("/like")
def subscribe_like() -> Response:
    whole_editor()
    asked = request.form.to_dict()
    try:
        return subscribe_to(asked.get("lmr", "").strip(), asked.get("rule", "").replace("\r\n", "\n"))
    except MdvError as error:
        return _page(asked, error)


@pages.get("/like/subscribed")
def subscribed() -> Response:
    member()
    with services().engine.connect() as connection:
        lmr = get_lmr(connection, request.args.get("lmr", ""))
        subscription = get_subscription(connection, lmr, subscription_number(request.args.get("id", "")))
    return page("like_subscribed.html", lmr=lmr, subscription=subscription, uri=request.args.get("uri", ""))


def subscribe_to(name: str, rule: str, called: str | None = None) -> Response:
    """Subscribe an LMR to a rule, which may be called something; then look at what came of it."""
    if not rule:
        raise BadRequest("There is no rule yet: choose one, or write one.")
    if not name:
        raise BadRequest("Choose the LMR that should get them.")
    with services().single.connect() as connection:
        lmr = get_lmr(connection, name)
    status = change_rules("subscribe", lmr, {"drafts": [(called, rule)]})
    if isinstance(status, Response):
        return go("job", job=status.get_json()["job"])
    return go("subscribed", lmr=lmr.name, id=status["ids"][0], uri=request.form.get("uri", ""))


def _page(asked: dict[str, str], error: MdvError | None = None) -> Response:
    uri, class_ = asked.get("uri", "").strip(), asked.get("class", "").strip()
    if not uri and not class_:
        raise BadRequest("Say which resource the others should be like: /like?uri=…")
    with services().engine.connect() as connection:
        lmrs = list_lmrs(connection, 0, MOST_LMRS + 1)
    proposals: list[Proposal] = []
    try:
        with services().engine.connect() as connection:
            values: dict[str, Any] = {asked["property"]: {"op": asked.get("op", "="), "value": asked.get("value", "")}
                                      } if asked.get("property") else {}  # fmt: skip
            schemas = services().schemas
            proposals = propose(connection, schemas, uri) if uri else propose(connection, schemas, None, class_, values)
    except MdvError as problem:
        error = error or problem
    return page(
        "like.html", error.status if error else 200, uri=uri, asked=asked, proposals=proposals, lmrs=lmrs[:MOST_LMRS],
        more=len(lmrs) > MOST_LMRS, problem=error.problem() if error else None,
        chosen=asked.get("rule", "").replace("\r\n", "\n") or _first_choice(proposals, uri),
    )  # fmt: skip


def _first_choice(proposals: list[Proposal], uri: str) -> str:
    """Of what is made from a resource, the first rule that selects others, too, but not yet its whole class."""
    narrow = [proposal for proposal in proposals[:-1] if proposal.selects != 1] if uri else []
    return (narrow or proposals)[0].rule if proposals else ""
