"""Words of texts and URIs, for the search.

A word is a run of letters and digits, without case, accents and width. A Chinese or Japanese character is a word of its
own, since these scripts do not separate words. The MDP, LMRs and the query of a user use the same words, so that a
search finds the same everywhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from mdv.errors import BadRequest

MAX_WORD_CHARACTERS = 64
"""Longer words are cut, in texts and in queries."""
MAX_QUERY_WORDS = 10
MAX_QUERY_CHARACTERS = 2000
MAX_RESOURCE_WORDS = 10_000
"""Distinct words of one resource that can be found."""

_CHARACTER = "(?=\\w)[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
_WORD = re.compile(rf"{_CHARACTER}|(?:(?!{_CHARACTER})[^\W_])+")
_QUERY_WORD = re.compile(rf"({_WORD.pattern})(\*?)")
_ACCENTS = re.compile("[\u0300-\u036f]+")
_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True)
class QueryWord:
    """A word of a query. With `is_prefix`, it finds all words that start with it."""

    text: str
    is_prefix: bool = False


@dataclass(slots=True)
class ResourceWords:
    """The words by which a resource is found, and those of them that are in its labels."""

    all: set[str]
    labels: set[str]

    @classmethod
    def of_uri(cls, uri: str) -> ResourceWords:
        return cls(set(uri_words(uri)), set())

    def add(self, text: str, is_label: bool) -> None:
        """Add the words of a value."""
        if len(self.all) < MAX_RESOURCE_WORDS:
            found = find_words(text)
            self.all.update(found)
            if is_label:
                self.labels.update(found)


def find_words(text: str) -> list[str]:
    """Return the words of a text, in order.

    >>> find_words("Die GRÜNE_Maschine (uni-passau.de), 92.5")
    ['die', 'grune', 'maschine', 'uni', 'passau', 'de', '92', '5']
    >>> find_words("東京 Tower")
    ['東', '京', 'tower']
    """
    return [word[:MAX_WORD_CHARACTERS] for word in _WORD.findall(_fold(text))]


def uri_words(uri: str) -> list[str]:
    """Return the words of a URI without its scheme.

    >>> uri_words("http://mdv.example/Gr%C3%BCn.rdf#host")
    ['mdv', 'example', 'grun', 'rdf', 'host']
    """
    text = _SCHEME.sub("", uri, count=1)
    return find_words(unquote(text) if "%" in text else text)


def query_words(query: str) -> tuple[QueryWord, ...]:
    """Return the distinct words of a query. `*` after a word finds all words that start with it.

    >>> query_words("Uni-Pass* uni")
    (QueryWord(text='uni', is_prefix=False), QueryWord(text='pass', is_prefix=True))
    """
    if len(query) > MAX_QUERY_CHARACTERS:
        raise BadRequest(f"The query is longer than {MAX_QUERY_CHARACTERS:,} characters. Use fewer words.")
    found = dict.fromkeys(
        QueryWord(word[:MAX_WORD_CHARACTERS], bool(star)) for word, star in _QUERY_WORD.findall(_fold(query))
    )
    if not found:
        raise BadRequest("The query contains no word. Enter words of labels and values, or the start of a URI.")
    if len(found) > MAX_QUERY_WORDS:
        raise BadRequest(f"The query contains {len(found)} words. Use at most {MAX_QUERY_WORDS}.")
    return tuple(found)


def contains_word(text: str, words: Iterable[QueryWord]) -> bool:
    """True if a text contains any of these words."""
    found = set(find_words(text))
    return any(
        any(word.startswith(one.text) for word in found) if one.is_prefix else one.text in found for one in words
    )


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    return _ACCENTS.sub("", unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold()))
