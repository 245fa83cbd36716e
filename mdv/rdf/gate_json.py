"""The gate for JSON-LD: strict JSON, and limits on the cost of contexts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NoReturn

from mdv.errors import NotWellFormed
from mdv.rdf.gated import Gated, line_and_column, not_well_formed
from mdv.rdf.syntax import JSON_LD

MAX_NAME_CHARACTERS = 2048
"""The longest string in a JSON-LD context. It keeps expanded terms short. Longer names cannot be stored anyway."""

MAX_TERM_CHAIN = 20
MAX_CONTEXT_WORK = 2_000_000
"""The JSON-LD parser can process every term again for every object. This limits objects times terms to about 3 s."""

MAX_PARSED_STRING_CHARACTERS = 1_000_000
"""The longest string, in source characters, that is passed to the parser, which has a limit of 8 MiB. Longer strings
are replaced by placeholders and restored after parsing."""

_MAX_ESCAPED = len(r"\ud83d\ude00")
"""The most source characters that JSON uses for one character."""
_STRING = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+")(\s*+:)?+', re.DOTALL)
"""A string, and the colon after it if it is a key."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""A JSON escape sequence. A surrogate pair counts as one sequence. The group matches an unpaired surrogate."""


def gate_json(gated: Gated) -> Gated:
    text = gated.text.decode()
    longest = _refuse_bad_json(text)
    _refuse_lone_surrogates(text)
    return _without_long_strings(gated, text) if longest > MAX_PARSED_STRING_CHARACTERS // _MAX_ESCAPED else gated


def _refuse_bad_json(text: str) -> int:
    """Raise `NotWellFormed` unless `text` is valid JSON. Return the length of the longest string value."""
    try:
        read = json.loads(text, object_pairs_hook=_object, parse_int=str, parse_float=str, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise not_well_formed(JSON_LD, f"JSON: {error.msg}", error.lineno, error.colno) from None
    except ValueError as error:
        raise not_well_formed(JSON_LD, str(error), None, None) from None
    if not isinstance(read, dict | list):
        raise NotWellFormed("The JSON-LD is neither an object nor an array, so it has no statements.")
    return _refuse_costly_contexts(read)


def _refuse_lone_surrogates(text: str) -> None:
    if not _SURROGATE.search(text):
        return
    for escape in _ESCAPE.finditer(text):
        if escape[1] is not None:
            reason = f"\\{escape[1]} is an unpaired surrogate, which is not a character; write both surrogates"
            raise not_well_formed(JSON_LD, reason, *line_and_column(text[: escape.start()]))


def _without_long_strings(gated: Gated, text: str) -> Gated:
    # The digest makes the placeholder unique: a text cannot contain its own digest.
    stem = f"long-value-{blake2b(gated.text, digest_size=16).hexdigest()}-"
    found: dict[str, str] = {}

    def shortened(string: re.Match[str]) -> str:
        if string.end() - string.start() <= MAX_PARSED_STRING_CHARACTERS or string[2] is not None:
            return string[0]
        placeholder = f"{stem}{len(found)}-"
        found[placeholder] = json.loads(string[1])
        return f'"{placeholder}"'

    shortened_text = _STRING.sub(shortened, text)
    return replace(gated, text=shortened_text.encode(), long_values=found) if found else gated


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        seen: set[str] = set()
        duplicate = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {duplicate!r} occurs twice in one object")
    return read


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse_costly_contexts(read: Any) -> int:
    """Limit the chains of terms that are defined through each other, and the contexts that are applied per object.

    Return the length of the longest string that is not a key, since this function visits all strings.
    """
    objects = contexts = terms = scoped_terms = longest = 0
    pending: list[tuple[Any, bool]] = [(read, False)]
    while pending:
        value, in_context = pending.pop()
        if isinstance(value, list):
            pending += [(item, in_context) for item in value]
        elif isinstance(value, str):
            longest = max(longest, len(value))
        elif isinstance(value, dict):
            objects += not in_context
            for key, inner in value.items():
                if key != "@context":
                    pending.append((inner, in_context))
                    continue
                for context in inner if isinstance(inner, list) else [inner]:
                    if isinstance(context, dict):
                        _refuse_long_term_chains(context)
                        contexts += not in_context
                        terms += len(context)
                        scoped_terms += len(context) if in_context else 0
                        pending.append((context, True))
    repeated_work = (max(contexts - 1, 0) * terms) // 10 + objects * scoped_terms
    if repeated_work > MAX_CONTEXT_WORK:
        raise NotWellFormed(
            f"The JSON-LD has nested contexts, or contexts in many of its {objects:,} objects, with {terms:,} terms "
            "in total. Applying them for every object takes too long. Put the terms into one @context at the top."
        )
    return longest


def _refuse_long_term_chains(context: dict[str, Any]) -> None:
    unresolved: dict[str, int] = {}
    users: dict[str, list[str]] = {}
    for term, definition in context.items():
        names = [term, *_strings(definition)]
        for text in names:
            if len(text) > MAX_NAME_CHARACTERS:
                raise NotWellFormed(
                    f"The JSON-LD has a name of {len(text):,} characters in a @context; "
                    f"the limit is {MAX_NAME_CHARACTERS:,}. Use a shorter name."
                )
        others = {other for text in names for other in _terms_in(text) if other != term and other in context}
        unresolved[term] = len(others)
        for other in others:
            users.setdefault(other, []).append(term)
    ready = [term for term, count in unresolved.items() if not count]
    for _ in range(MAX_TERM_CHAIN):
        for term in ready:
            del unresolved[term]
        if not unresolved:
            return
        now_ready = []
        for user in (user for term in ready for user in users.get(term, ())):
            unresolved[user] -= 1
            if not unresolved[user]:
                now_ready.append(user)
        ready = now_ready
    raise NotWellFormed(
        f"The JSON-LD defines the term {min(unresolved)!r} through more than {MAX_TERM_CHAIN} other terms, or through "
        "itself. Write its URI in full."
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
