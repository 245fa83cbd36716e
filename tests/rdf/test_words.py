"""Words of texts, URIs and queries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdv.errors import BadRequest
from mdv.rdf.words import (
    MAX_WORD_CHARACTERS,
    QueryWord,
    ResourceWords,
    contains_word,
    find_words,
    query_words,
    uri_words,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ÅNGSTRÖM", ["angstrom"]),
        ("Straße", ["strasse"]),
        ("ﬁne ２０２４", ["fine", "2024"]),
        ("snake_case", ["snake", "case"]),
        ("Ελλάδα", ["ελλαδα"]),
        ("日本語x", ["日", "本", "語", "x"]),
        ("- . *", []),
    ],
)
def test_words_have_no_case_accents_and_width(text: str, words: list[str]) -> None:
    assert find_words(text) == words


@given(st.text())
def test_words_of_words_are_the_same_words(text: str) -> None:
    words = find_words(text)
    assert find_words(" ".join(words)) == words
    assert all(word.isalnum() and len(word) <= MAX_WORD_CHARACTERS for word in words)


@given(st.text(min_size=1))
def test_a_text_contains_each_of_its_words(text: str) -> None:
    for word in find_words(text):
        assert contains_word(text, [QueryWord(word)]) and contains_word(text, [QueryWord(word[:1], True)])


def test_a_long_word_is_found_by_its_beginning() -> None:
    assert query_words("x" * 1000) == (QueryWord("x" * MAX_WORD_CHARACTERS),)
    assert contains_word("x" * 1000, query_words("x" * 1000))


def test_a_scheme_is_no_word_and_escaped_characters_are_decoded() -> None:
    assert uri_words("urn:isbn:3-16") == ["isbn", "3", "16"]
    assert uri_words("http://a.example/b%20c?d=e") == ["a", "example", "b", "c", "d", "e"]


def test_queries_without_words_and_with_too_many_are_refused() -> None:
    for query in ("", " ", "*", "!?"):
        with pytest.raises(BadRequest, match="no word"):
            query_words(query)
    with pytest.raises(BadRequest, match="at most 10"):
        query_words(" ".join(f"w{n}" for n in range(11)))
    with pytest.raises(BadRequest, match="2,000 characters"):
        query_words("x" * 2001)


def test_the_words_of_labels_are_also_words_of_the_resource() -> None:
    words = ResourceWords.of_uri("http://e/doc#it")
    words.add("Green Machine", True)
    words.add("other", False)
    assert words.labels == {"green", "machine"} and words.all == {"e", "doc", "it", "green", "machine", "other"}
