"""Rules while they are written: what is wrong with one, and the words that one is made of, by the cache's schema. Only
the MDP knows the rules of this LMR that have a name: where one of them may be meant, it is asked, and not for long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Response, jsonify, request

from mdv.errors import InvalidRule, MdvError
from mdv.rdf.schema import Schema
from mdv.rules.ast import ParsedRule
from mdv.rules.normalise import normalise
from mdv.rules.parse import parse
from mdv.rules.words import completions, registered_class
from web.lmr.pages.frame import editor, may_change, pages, part, visitor
from web.lmr.services import asking_mdp, lmr

PATIENCE = 2.0
"""Seconds for which the MDP is waited for while somebody types."""
MOST_ASKED = 1000
"""Subscriptions among which a name is looked for."""


@pages.get("/rules/words.json")
def words() -> Response:
    """Classes, properties and named rules, for an editor that completes them."""
    visitor()
    schema = _schema()
    return jsonify(completions(schema) | {"rules": _Named().told(schema) if may_change() else []})


@pages.post("/rules/look")
def look_at_rule() -> Response:
    """What is wrong with a rule that is being written."""
    editor()
    text = request.form.get("rule", "").replace("\r\n", "\n")
    problem, named = None, _Named()
    if text.strip():
        try:
            normalise(parse(text), _schema(), named)
        except MdvError as error:
            problem = error.problem()
    return part("lmr_own_look.html", written=bool(text.strip()), problem=problem, unknown=named.unknown)


def _schema() -> Schema:
    cache = lmr().cache
    with cache.reading() as connection:
        return cache.schema(connection).schema


class _Named:
    """The named rules of this LMR, asked for when the first of them is looked for."""

    def __init__(self) -> None:
        self._texts: Mapping[str, str] | None = None
        self._is_whole = False
        self.unknown: str | None = None
        """A name that may be a rule's, for all that is known here."""

    def __call__(self, name: str) -> ParsedRule | None:
        self._ask()
        text = (self._texts or {}).get(name)
        if text is None and not self._is_whole:
            self.unknown = name
        return parse(text) if text is not None else None

    def told(self, schema: Schema) -> list[dict[str, Any]]:
        """Each with the class of what it registers."""
        self._ask()
        told = []
        for name, text in (self._texts or {}).items():
            try:
                told.append({"name": name, "iri": registered_class(normalise(parse(text), schema, self))})
            except InvalidRule:  # the cache may be behind the MDP
                continue
        return told

    def _ask(self) -> None:
        if self._texts is not None:
            return
        self._texts = {}
        if lmr().sync.status.last_error is not None:
            return
        try:
            with asking_mdp():
                found = lmr().mdp.subscriptions(None, MOST_ASKED, PATIENCE)
        except MdvError:
            return
        self._texts = {one["name"]: one["rule"] for one in found["items"] if one.get("name")}
        self._is_whole = not found.get("next")
