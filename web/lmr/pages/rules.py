"""Checks and completions for rules in the editor, by the cached schema. Named rules of this LMR are stored at the MDP
and are fetched with a short timeout if a rule may refer to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Response, jsonify, request

from mdv.errors import InvalidRule, MdvError
from mdv.rdf.schema import Schema
from mdv.rules.ast import ParsedRule
from mdv.rules.completion import completions, registered_class
from mdv.rules.normalise import normalise
from mdv.rules.parse import parse
from web.labels import schema_labels
from web.lmr.pages.base import may_change, pages, render_fragment, require_editor, require_viewer
from web.lmr.services import lmr, mdp_request_slot

MDP_TIMEOUT_SECONDS = 2.0
"""Timeout of requests to the MDP while the user types."""
MAX_SUBSCRIPTIONS_READ = 1000
"""Maximum number of subscriptions that are searched for a name."""


@pages.get("/rules/words.json")
def rule_completions() -> Response:
    """Return the classes, properties and named rules for completion in the editor."""
    require_viewer()
    cache = lmr().cache
    with cache.reading() as connection:
        in_force = cache.schema(connection)
    schema = in_force.schema
    labels = schema_labels(in_force.statements, schema)
    return jsonify(
        completions(schema, labels) | {"rules": _NamedRules().as_completions(schema) if may_change() else []}
    )


@pages.post("/rules/look")
def check_rule() -> Response:
    """Check a rule while the user types."""
    require_editor()
    text = request.form.get("rule", "").replace("\r\n", "\n")
    problem, named = None, _NamedRules()
    if text.strip():
        try:
            normalise(parse(text), _schema(), named)
        except MdvError as error:
            problem = error.problem()
    return render_fragment("lmr_own_look.html", written=bool(text.strip()), problem=problem, unknown=named.unknown)


def _schema() -> Schema:
    cache = lmr().cache
    with cache.reading() as connection:
        return cache.schema(connection).schema


class _NamedRules:
    """The named rules of this LMR, fetched from the MDP on first use."""

    def __init__(self) -> None:
        self._texts: Mapping[str, str] | None = None
        self._is_complete = False
        self.unknown: str | None = None
        """A name that could not be resolved and may be a named rule."""

    def __call__(self, name: str) -> ParsedRule | None:
        self._fetch()
        text = (self._texts or {}).get(name)
        if text is None and not self._is_complete:
            self.unknown = name
        return parse(text) if text is not None else None

    def as_completions(self, schema: Schema) -> list[dict[str, Any]]:
        """Return the named rules, each with the class that it registers."""
        self._fetch()
        named_rules = []
        for name, text in (self._texts or {}).items():
            try:
                named_rules.append({"name": name, "iri": registered_class(normalise(parse(text), schema, self))})
            except InvalidRule:  # the cache may be behind the MDP
                continue
        return named_rules

    def _fetch(self) -> None:
        if self._texts is not None:
            return
        self._texts = {}
        if lmr().sync.status.last_error is not None:
            return
        try:
            with mdp_request_slot():
                named_rules = lmr().mdp.subscriptions(None, MAX_SUBSCRIPTIONS_READ, MDP_TIMEOUT_SECONDS)
        except MdvError:
            return
        self._texts = {one["name"]: one["rule"] for one in named_rules["items"] if one.get("name")}
        self._is_complete = not named_rules.get("next")
