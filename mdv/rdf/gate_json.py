"""The gate for JSON-LD: JSON to the letter, and contexts that cost no more than they should."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from mdv.errors import NotWellFormed
from mdv.rdf.gated import not_well_formed
from mdv.rdf.syntax import JSON_LD

MAX_NAME = 2048
"""The longest string in a JSON-LD context, so that terms cannot be made to grow; no longer name is stored anyway."""

MAX_TERM_CHAIN = 20
MAX_CONTEXT_WORK = 2_000_000
"""Objects times terms that the JSON-LD reader may have to look at again for each object: about three seconds."""


def refuse_bad_json(text: str) -> None:
    try:
        read = json.loads(text, object_pairs_hook=_object, parse_int=str, parse_float=str, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise not_well_formed(JSON_LD, f"JSON: {error.msg}", error.lineno, error.colno) from None
    except ValueError as error:
        raise not_well_formed(JSON_LD, str(error), None, None) from None
    if not isinstance(read, dict | list):
        raise NotWellFormed("The JSON-LD is neither an object nor an array, so it says nothing.")
    _refuse_costly_contexts(read)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return read


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse_costly_contexts(read: Any) -> None:
    """Terms may be defined through each other, and contexts are applied again for each object: both within limits."""
    objects = contexts = terms = scoped_terms = 0
    waiting: list[tuple[Any, bool]] = [(read, False)]
    while waiting:
        value, in_context = waiting.pop()
        if isinstance(value, list):
            waiting += [(item, in_context) for item in value]
        elif isinstance(value, dict):
            objects += not in_context
            for key, inner in value.items():
                if key != "@context":
                    waiting.append((inner, in_context))
                    continue
                for context in inner if isinstance(inner, list) else [inner]:
                    if isinstance(context, dict):
                        _refuse_grown_terms(context)
                        contexts += not in_context
                        terms += len(context)
                        scoped_terms += len(context) if in_context else 0
                        waiting.append((context, True))
    again = (max(contexts - 1, 0) * terms) // 10 + objects * scoped_terms
    if again > MAX_CONTEXT_WORK:
        raise NotWellFormed(
            f"The JSON-LD has contexts within contexts, or in many of its {objects:,} objects, with {terms:,} terms "
            "in all: too many to apply again and again. Put the terms into one @context at the top."
        )


def _refuse_grown_terms(context: dict[str, Any]) -> None:
    waits: dict[str, int] = {}
    users: dict[str, list[str]] = {}
    for term, definition in context.items():
        said = [term, *_strings(definition)]
        for text in said:
            if len(text) > MAX_NAME:
                raise NotWellFormed(
                    f"The JSON-LD has a name of {len(text):,} characters in a @context; that is too long."
                )
        others = {other for text in said for other in _terms_in(text) if other != term and other in context}
        waits[term] = len(others)
        for other in others:
            users.setdefault(other, []).append(term)
    ready = [term for term, others_left in waits.items() if not others_left]
    for _ in range(MAX_TERM_CHAIN):
        for term in ready:
            del waits[term]
        if not waits:
            return
        now_ready = []
        for user in (user for term in ready for user in users.get(term, ())):
            waits[user] -= 1
            if not waits[user]:
                now_ready.append(user)
        ready = now_ready
    raise NotWellFormed(
        f"The JSON-LD defines the term {min(waits)!r} through more than {MAX_TERM_CHAIN} others, or through itself: "
        "write its URI in full."
    )


def _strings(definition: Any) -> list[str]:
    if isinstance(definition, str):
        return [definition]
    return [text for text in definition.values() if isinstance(text, str)] if isinstance(definition, dict) else []


def _terms_in(text: str) -> Iterator[str]:
    yield text
    prefix, colon, rest = text.partition(":")
    if colon and not rest.startswith("//"):
        yield prefix
