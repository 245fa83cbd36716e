"""Terms as JSON, in the form of the feed: `{"type": "uri" | "literal", "value", "lang"?, "datatype"?}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyoxigraph import Literal, NamedNode

from mdv.errors import InvalidDocument
from mdv.model import LANG_STRING, Statement, Term
from mdv.rdf.parse import MAX_VALUE_BYTES, is_absolute_iri, is_value_too_large, read_literal

_KEYS = {"type", "value", "lang", "datatype"}


def read_term(given: Mapping[str, Any]) -> Term:
    """Return the term that a registration of the same value would store. Raise `InvalidDocument` if it is none.

    >>> read_term({"type": "literal", "value": "x", "lang": "EN"})
    Term(type='literal', value='x', lang='en', datatype=None)
    >>> read_term({"type": "uri", "value": "b"})
    Traceback (most recent call last):
    mdv.errors.InvalidDocument: 'b' is not an absolute URI.
    """
    kind, value, lang, datatype = (given.get(name) for name in ("type", "value", "lang", "datatype"))
    if given.keys() - _KEYS or kind not in ("uri", "literal") or not isinstance(value, str):
        raise InvalidDocument(
            'A term is {"type": "uri" or "literal", "value": …}, a literal with "lang" or "datatype".'
        )
    if kind == "uri":
        if lang is not None or datatype is not None:
            raise InvalidDocument('A URI has no "lang" and no "datatype".')
        return Term.uri(_check_uri(value))
    _check_text(value)
    if lang is not None:
        if not isinstance(lang, str) or datatype not in (None, LANG_STRING):
            raise InvalidDocument(
                f"{_shown(value)} has a language, so it cannot have another datatype than langString."
            )
        try:
            return read_literal(Literal(value, language=lang))
        except ValueError:
            raise InvalidDocument(f"{_shown(lang)} is not a language tag.") from None
    if datatype is None:
        return Term.literal(value)
    if not isinstance(datatype, str):
        raise InvalidDocument('"datatype" must be a URI.')
    return read_literal(Literal(value, datatype=NamedNode(_check_uri(datatype))))


def write_statement(statement: Statement) -> list[Any]:
    """Return a statement as JSON: `[subject, property, term]`."""
    return [statement.subject, statement.property, statement.object.as_dict()]


def _check_uri(text: str) -> str:
    if not is_absolute_iri(text):
        raise InvalidDocument(f"{_shown(text)} is not an absolute URI.")
    return text


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidDocument(f"{_shown(text)} contains an unpaired surrogate, which is not a character.") from None
    if is_value_too_large(Term.literal(text)):
        raise InvalidDocument(f"A value has more than {MAX_VALUE_BYTES:,} bytes in N-Triples, which is the limit.")
    if "\0" in text:
        raise InvalidDocument(f"{_shown(text)} contains the character NUL.")


def _shown(text: str) -> str:
    return repr(text[:80].encode("utf-8", "replace").decode())
