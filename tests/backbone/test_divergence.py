"""When a difference between two members is a divergence, and whose content is right."""

from __future__ import annotations

from mdv.backbone.divergence import Difference, DivergenceSearch, DocumentList, majority_content

OLD, NEW, OTHER = (1, 7), (2, 8), (2, 9)


def test_a_difference_that_an_operation_on_its_way_explains_is_pending() -> None:
    search = DivergenceSearch()
    search.compare(DocumentList({"a": 1}, {"d": OLD}), DocumentList({"a": 1, "b": 1}, {"d": NEW}))
    assert search.pending == ["d"] and not search.certain
    search.compare(DocumentList({"a": 1, "b": 1}, {"d": NEW}), DocumentList({"a": 1, "b": 1}, {"d": NEW}))
    assert search.pending == [] and not search.certain


def test_a_difference_that_stays_although_both_have_what_the_other_had_is_certain() -> None:
    search = DivergenceSearch()
    search.compare(DocumentList({"a": 2, "b": 1}, {"d": OLD}), DocumentList({"a": 1, "b": 2}, {"d": OTHER}))
    search.compare(DocumentList({"a": 3, "b": 1}, {"d": OLD}), DocumentList({"a": 2, "b": 3}, {"d": OTHER}))
    assert search.pending == ["d"]  # we still lack b:2
    search.compare(DocumentList({"a": 4, "b": 2}, {"d": OLD}), DocumentList({"a": 2, "b": 4}, {"d": OTHER}))
    assert search.certain == {"d": Difference(OLD, OTHER)} and search.pending == []


def test_a_document_that_changes_is_compared_from_the_beginning() -> None:
    search = DivergenceSearch()
    search.compare(DocumentList({"a": 1}, {"d": OLD}), DocumentList({"b": 1}, {"d": NEW}))
    search.compare(DocumentList({"a": 2, "b": 1}, {"d": OTHER}), DocumentList({"a": 1, "b": 1}, {"d": NEW}))
    assert search.pending == ["d"] and not search.certain


def test_a_document_that_one_of_them_never_had_differs() -> None:
    search = DivergenceSearch()
    search.compare(DocumentList({}, {}), DocumentList({}, {"d": OLD}))
    assert search.certain == {"d": Difference((0, 0), OLD)}


def test_more_than_half_of_all_members_decide() -> None:
    assert majority_content({"a": OLD, "b": NEW, "c": NEW}, 3) == NEW
    assert majority_content({"b": NEW, "c": NEW}, 4) is None
    assert majority_content({"a": OLD, "b": NEW}, 2) is None
    assert majority_content({}, 0) is None
