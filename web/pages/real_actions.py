"""The page of the actions that programs can call."""

from __future__ import annotations

from flask import Response, request, url_for

from mdv.inspect.real_actions import ListedAction, list_actions
from web.negotiate import run_program_turn
from web.number_params import read_after
from web.pages.base import pages, render_page, require_viewer
from web.services import services

PAGE_SIZE = 25


@pages.get("/programs/actions")
def real_actions() -> Response:
    """List actions; with `holding`, those whose URI contains it."""
    require_viewer()
    after = read_after(request.args.get("after"))
    holding = request.args.get("holding", "").strip()
    s = services()
    with s.engine.connect() as connection:
        schema = s.schemas.now(connection)
        driver = connection.connection.driver_connection
        found = run_program_turn(list_actions, driver, schema, after, PAGE_SIZE + 1, holding)
    shown = found[:PAGE_SIZE]
    kept = holding or None
    return render_page(
        "real_actions.html",
        actions=[(one, call_text(one)) for one in shown],
        holding=holding,
        next=url_for("pages.real_actions", after=shown[-1].id, holding=kept) if len(found) > PAGE_SIZE else None,
        first=url_for("pages.real_actions", holding=kept) if after else None,
    )


def call_text(action: ListedAction) -> str:
    """Return a program that calls an action.

    >>> from mdv.real.check import Signature
    >>> call_text(ListedAction(1, "urn:a", None, (), Signature(("x",), ("y",)), "", None))
    'CALL <urn:a>(?x >> ?y)'
    """
    inputs, outputs = action.signature or ((), ())
    sign = " >> " if inputs else ">> "
    items = ", ".join(f"?{name}" for name in inputs)
    return f"CALL <{action.uri}>({items}{sign + ', '.join(f'?{name}' for name in outputs) if outputs else ''})"
