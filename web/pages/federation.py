"""The pages of a federation: superpeers, peers, rules and privileges; a transaction as a tree over superpeers."""

from __future__ import annotations

import math
import time
from typing import Any

from flask import Response, request

from mdv.errors import BadRequest, MdvError
from mdv.inspect.federation import describe_federation, list_global_rules, list_transactions, transaction_tree
from mdv.mdp.federation.members import set_grants
from web.pages.backbone import may_change_members
from web.pages.base import pages, redirect_to, render_page, require_unlimited_editor, require_viewer
from web.services import services

MAP_WIDTH, MAP_HEIGHT, BOX_WIDTH, BOX_HEIGHT = 640, 300, 120, 44
LISTED_TRANSACTIONS = 50


@pages.get("/federation")
def federation() -> Response:
    """Show the federation as this MDP sees it."""
    require_viewer()
    return show_federation()


def show_federation(given: str | None = None, error: str | None = None, status: int = 200) -> Response:
    s = services()
    with s.snapshot() as connection:
        found = describe_federation(connection)
        if found is None:
            return render_page("federation.html", federation=None)
        rules = list_global_rules(connection, s.schemas.now(connection).schema)
        transactions = list_transactions(connection, LISTED_TRANSACTIONS)
    text = given if given is not None else "\n".join(
        f"{one['kind']} {one['name'] or '*'} {one['privilege']}" for one in found["privileges"]
    )  # fmt: skip
    response = render_page(
        "federation.html", federation=found, map=draw_federation(found, rules), rules=rules,
        transactions=transactions, now=time.time(), may_change=may_change_members(), text=text, error=error,
    )  # fmt: skip
    response.status_code = status
    return response


@pages.post("/federation/privileges")
def save_privileges() -> Response:
    """Replace the privileges of other superpeers."""
    require_unlimited_editor()
    text = request.form.get("privileges", "")
    try:
        set_grants(services().provider, read_privileges(text))
    except MdvError as error:
        return show_federation(text, error.detail, error.status)
    services().notify_commit()
    return redirect_to("federation")


def read_privileges(text: str) -> list[tuple[str, str, str]]:
    """Return privileges from lines: kind, name and privilege. `*` is the prefix of everything.

    >>> read_privileges("prefix * read-only")
    [('prefix', '', 'read-only')]
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if len(words) != 3:
            raise BadRequest(f"Line {number}: write a kind, a name and a privilege, such as `class Book read-only`.")
        kind, name, privilege = words
        found.append((kind, "" if (kind, name) == ("prefix", "*") else name, privilege))
    return found


@pages.get("/federation/transaction")
def federation_transaction() -> Response:
    """Show a transaction with the copies of the rules that it triggered, and its part of the abort graph."""
    require_viewer()
    with services().snapshot() as connection:
        found = transaction_tree(connection, request.args.get("id", ""))
    return render_page("federation_transaction.html", found=found)


def draw_federation(found: dict[str, Any], rules: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the boxes of the superpeers in a circle, with the number of classes and properties that each has data of
    and of its rules here, and the links of this MDP."""
    own = found["superpeer"] or found["name"]
    names = [one["name"] for one in found["superpeers"] if not one["has_left"]] or [own]
    present = {one["name"]: len(one["present"]) for one in found["superpeers"]}
    boxes: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(names):
        angle = 2 * math.pi * number / len(names) - math.pi / 2
        boxes[name] = {
            "name": name,
            "x": round(MAP_WIDTH / 2 + (MAP_WIDTH - BOX_WIDTH) / 2.2 * math.cos(angle) * (len(names) > 1)),
            "y": round(MAP_HEIGHT / 2 + (MAP_HEIGHT - BOX_HEIGHT) / 2.2 * math.sin(angle) * (len(names) > 1)),
            "is_self": name == own,
            "present": present.get(name, 0),
            "rules": sum(rule["origin"] == name for rule in rules),
        }
    links = [
        {"x1": boxes[own]["x"], "y1": boxes[own]["y"], "x2": boxes[one["name"]]["x"], "y2": boxes[one["name"]]["y"],
         "state": "broken" if one["error"] else "behind" if one["waiting"] else "current"}
        for one in found["links"] if one["name"] in boxes and own in boxes and one["name"] != own
    ]  # fmt: skip
    return {"boxes": list(boxes.values()), "links": links, "width": MAP_WIDTH, "height": MAP_HEIGHT,
            "box_width": BOX_WIDTH, "box_height": BOX_HEIGHT}  # fmt: skip
