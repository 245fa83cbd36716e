"""Rules while they are written: what is wrong with one, and the words that one is made of, by the cache's schema."""

from __future__ import annotations

from flask import Response, jsonify, request

from mdv.errors import MdvError
from mdv.rules.normalise import normalise
from mdv.rules.parse import parse
from mdv.rules.words import completions
from web.lmr.pages.frame import editor, pages, part, visitor
from web.lmr.services import lmr


@pages.get("/rules/words.json")
def words() -> Response:
    """Classes and properties, for an editor that completes them."""
    visitor()
    cache = lmr().cache
    with cache.reading() as connection:
        return jsonify(completions(cache.schema(connection).schema))


@pages.post("/rules/look")
def look_at_rule() -> Response:
    """What is wrong with a rule that is being written; the MDP is not asked."""
    editor()
    text = request.form.get("rule", "").replace("\r\n", "\n")
    problem = None
    if text.strip():
        cache = lmr().cache
        with cache.reading() as connection:
            schema = cache.schema(connection).schema
        try:
            normalise(parse(text), schema)
        except MdvError as error:
            problem = error.problem()
    return part("lmr_own_look.html", written=bool(text.strip()), problem=problem)
