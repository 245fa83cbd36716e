"""Choose the label of a resource: the value of a label property in the best language for the reader.

Order of preference: the languages of the reader, then values without a language, then other languages; among these the
order of `Schema.label_properties`, then the order of the texts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from mdv.model import Statement

MAX_LABEL_CHARACTERS = 200
"""Longer labels are cut."""


class LabelValue(NamedTuple):
    """A value of a label property."""

    property: str
    text: str
    lang: str | None


def language_ranges(languages: Iterable[str]) -> tuple[str, ...]:
    """Return language ranges in order of preference, each followed by its shorter forms (RFC 4647, section 3.4).

    >>> language_ranges(["de-AT", "en"])
    ('de-at', 'de', 'en')
    """
    found: dict[str, None] = {}
    for language in languages:
        parts = [] if language == "*" else language.lower().split("-")
        found |= dict.fromkeys("-".join(parts[:length]) for length in range(len(parts), 0, -1))
    return tuple(found)


def choose_label(values: Iterable[LabelValue], properties: Sequence[str], languages: Sequence[str]) -> str | None:
    """Return the best label; None if there is none. `languages` is a result of `language_ranges`.

    >>> values = [LabelValue("p", "Hund", "de"), LabelValue("p", "dog", "en-GB"), LabelValue("q", "Canis", None)]
    >>> [choose_label(values, ["p", "q"], wanted) for wanted in (("en",), ("fr",), ("de", "en"))]
    ['dog', 'Canis', 'Hund']
    """
    order = {iri: place for place, iri in enumerate(properties)}
    ranked = [
        (_language_rank(lang, languages), order[name], shown, lang or "")
        for name, text, lang in values
        if name in order and (shown := " ".join(text.split()))
    ]
    return min(ranked)[2][:MAX_LABEL_CHARACTERS] if ranked else None


def choose_labels(
    values: Iterable[tuple[str, LabelValue]], properties: Sequence[str], languages: Sequence[str]
) -> dict[str, str]:
    """Return the best label of each resource that has one, by URI."""
    found: dict[str, list[LabelValue]] = {}
    for uri, value in values:
        found.setdefault(uri, []).append(value)
    chosen = {uri: choose_label(given, properties, languages) for uri, given in found.items()}
    return {uri: label for uri, label in chosen.items() if label is not None}


def label_values(statements: Iterable[Statement], properties: Collection[str]) -> Iterator[tuple[str, LabelValue]]:
    """Yield the values of label properties in statements, for example the labels of classes in a schema."""
    for subject, name, term in statements:
        if name in properties and not term.is_uri:
            yield subject, LabelValue(name, term.value, term.lang)


def _language_rank(lang: str | None, languages: Sequence[str]) -> int:
    if lang is None:
        return len(languages)
    tag = lang.lower()
    matching = (place for place, wanted in enumerate(languages) if tag == wanted or tag.startswith(wanted + "-"))
    return next(matching, len(languages) + 1)
