"""The choice of a label: by the languages of the reader, then by property."""

from __future__ import annotations

import pytest

from mdv.rdf.labels import LabelValue, choose_label, language_ranges

P, Q = "http://v/p", "http://v/q"


def chosen(languages: list[str], *values: tuple[str, str, str | None]) -> str | None:
    return choose_label([LabelValue(*value) for value in values], (P, Q), language_ranges(languages))


def test_the_language_of_the_reader_wins_over_the_order_of_properties() -> None:
    values = (P, "Wirt", "de"), (Q, "host", "en")
    assert chosen(["en"], *values) == "host" and chosen(["de"], *values) == "Wirt"


def test_the_order_of_properties_decides_within_a_language() -> None:
    assert chosen(["en"], (Q, "a", "en"), (P, "b", "en")) == "b"


@pytest.mark.parametrize(
    ("languages", "expected"),
    [
        (["de-CH"], "Velo"),  # the exact region
        (["de-AT"], "Fahrrad"),  # its language
        (["fr", "de"], "Fahrrad"),  # the second choice
        (["fr"], "bike"),  # no language
        ([], "bike"),
    ],
)
def test_regions_match_their_language(languages: list[str], expected: str) -> None:
    values = (P, "Velo", "de-CH"), (P, "Fahrrad", "de"), (P, "bike", None), (P, "bici", "es")
    assert chosen(languages, *values) == expected


def test_a_general_range_matches_the_tag_of_a_region() -> None:
    assert chosen(["en"], (P, "colour", "en-GB"), (P, "a", None)) == "colour"
    assert chosen(["en"], (P, "enlarged", "enx"), (P, "z", None)) == "z"


def test_empty_values_are_no_labels_and_spaces_are_normalised() -> None:
    assert chosen([], (P, " \n ", None)) is None
    assert chosen([], (P, " \n ", None), (Q, " a\n  b ", None)) == "a b"
    assert len(chosen([], (P, "x" * 1000, None)) or "") == 200
