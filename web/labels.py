"""Labels of resources on pages, read with one query per page.

While a template is rendered, the filters put a placeholder for each label and collect the URIs. Then all labels are
read at once, and `fill_labels` replaces the placeholders. So templates need not know in advance which resources they
show, and no list costs a query per row.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence

from flask import g, request
from markupsafe import Markup, escape

from mdv.model import Statement
from mdv.rdf.labels import choose_labels, label_values, language_ranges
from mdv.rdf.schema import Schema
from web.template_filters import cut, short

MAX_LABELS_PER_PAGE = 2000
"""Further resources of a page are shown without labels."""
MAX_LANGUAGES = 20

ReadLabels = Callable[[Sequence[str], Sequence[str]], Mapping[str, str]]
"""Returns the labels of resources, by URI, given the URIs and the languages of the reader."""


class _Placeholders:
    """The labels of one page: the text without a label, and whether that text follows the label."""

    def __init__(self) -> None:
        self._key = secrets.token_hex(8)  # no stored text can contain it
        self._wanted: dict[tuple[str, str, bool, int], int] = {}

    def add(self, uri: str, shown: str, is_kept: bool, most: int) -> Markup:
        number = self._wanted.setdefault((uri, shown, is_kept, most), len(self._wanted))
        return Markup(f"label-{self._key}-{number}.")  # noqa: S704 (a placeholder without markup)

    def fill(self, text: str, read: ReadLabels) -> str:
        wanted = list(self._wanted)
        if not wanted:
            return text
        uris = list(dict.fromkeys(uri for uri, *_ in wanted))
        labels = read(uris[:MAX_LABELS_PER_PAGE], reader_languages())
        filled = [_filled(labels.get(uri), shown, is_kept, most) for uri, shown, is_kept, most in wanted]
        return re.sub(rf"label-{self._key}-(\d+)\.", lambda found: filled[int(found[1])], text)


def _filled(label: str | None, shown: str, is_kept: bool, most: int) -> Markup:
    if label is None:
        return escape(shown)
    if not is_kept:
        return escape(cut(label, most))
    return Markup('<span class="resource-label">{}</span> <small>{}</small>').format(cut(label, most), shown)


def label(uri: str, most: int = 120) -> Markup:
    """Show a resource by its label, or else by the last part of its URI."""
    return _placeholders().add(uri, cut(short(uri), most), False, most)


def label_before(shown: str, uri: str) -> Markup:
    """Put the label of a resource before the text that shows its URI."""
    return _placeholders().add(uri, shown, True, 120)


def fill_labels(text: str, read: ReadLabels) -> str:
    """Replace the placeholders in a rendered page."""
    found: _Placeholders | None = g.pop("label_placeholders", None)
    return found.fill(text, read) if found is not None else text


def discard_labels() -> None:
    """Discard the placeholders of a page that was not completed."""
    g.pop("label_placeholders", None)


def reader_languages() -> tuple[str, ...]:
    """Return the languages that the browser of the reader accepts, in order of preference."""
    accepted = [value for value, quality in request.accept_languages if quality > 0]
    return language_ranges(accepted[:MAX_LANGUAGES])


def schema_labels(statements: Iterable[Statement], schema: Schema) -> dict[str, str]:
    """Return the labels that a schema gives to its classes and properties, for the reader."""
    properties = schema.label_properties
    return choose_labels(label_values(statements, properties), properties, reader_languages())


def _placeholders() -> _Placeholders:
    if "label_placeholders" not in g:
        g.label_placeholders = _Placeholders()
    found: _Placeholders = g.label_placeholders
    return found


LABEL_FILTERS: dict[str, Callable[..., Markup]] = {"label": label, "label_before": label_before}
