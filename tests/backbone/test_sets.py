"""The two replicated sets: the figures of the C-Set paper, and laws."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdv.backbone.cset import CSet
from mdv.backbone.orset import AddWinsSet
from mdv.backbone.vector import Dot
from tests.support.lost_additions import MODES, count_lost_additions

cset, orset = CSet(), AddWinsSet()
DOT: Dot = ("site", 1)


class Site:
    """A site of the paper with one element. Its operations return what it sends: +n or -n."""

    def __init__(self) -> None:
        self.k = cset.absent

    def ins(self) -> int:
        self.k, number = cset.insert(self.k, DOT)
        return number

    def delete(self) -> int:
        self.k, number = cset.delete(self.k)
        return -number

    def receive(self, *numbers: int) -> None:
        for number in numbers:
            if number > 0:
                self.k = cset.remote_insert(self.k, number, DOT)
            else:
                self.k = cset.remote_delete(self.k, -number, {})


def test_figure_2_a_plain_set_does_not_converge() -> None:
    def execute(operations: Sequence[str]) -> set[str]:
        plain: set[str] = set()
        for operation in operations:
            (plain.add if operation == "ins" else plain.discard)("x")
        return plain

    op1, op2, op3 = "ins", "ins", "del"
    assert execute([op1, op2, op3]) == set()
    assert execute([op1, op3, op2]) == {"x"}


def test_figure_3a_the_sites_of_figure_2_converge_to_1() -> None:
    site1, site2, site3 = Site(), Site(), Site()
    op1 = site1.ins()
    op2 = site2.ins()
    site3.receive(op1)
    op3 = site3.delete()
    assert (op1, op2, op3) == (1, 1, -1)
    site1.receive(op2, op3)
    site2.receive(op1, op3)
    site3.receive(op2)
    assert (site1.k, site2.k, site3.k) == (1, 1, 1)


def test_figure_3b_a_deletion_after_both_insertions_sends_minus_2() -> None:
    site1, site2, site3 = Site(), Site(), Site()
    op1 = site1.ins()
    op2 = site2.ins()
    site3.receive(op1, op2)
    op3 = site3.delete()
    assert op3 == -2
    site1.receive(op2, op3)
    site2.receive(op3, op1)
    assert (site1.k, site2.k, site3.k) == (0, 0, 0)


def test_figure_4_concurrent_deletions_leave_a_tombstone() -> None:
    site1, site2, site3 = Site(), Site(), Site()
    op1 = site1.ins()
    site2.receive(op1)
    site3.receive(op1)
    op2, op3 = site2.delete(), site3.delete()
    assert (op2, op3) == (-1, -1)
    site1.receive(op2, op3)
    site2.receive(op3)
    site3.receive(op2)
    assert (site1.k, site2.k, site3.k) == (-1, -1, -1)
    op4 = site1.ins()
    assert op4 == 2, "the insertion compensates the deletions that were received"
    site2.receive(op4)
    assert (site1.k, site2.k) == (1, 1)


def test_an_insertion_has_precedence_only_over_deletions_already_received() -> None:
    site1, site2 = Site(), Site()
    site2.receive(site1.ins())
    first, again = site1.delete(), site1.ins()
    other = site2.delete()
    site1.receive(other)
    site2.receive(first, again)
    assert (site1.k, site2.k) == (0, 0)


def test_a_deletion_of_what_is_not_visible_sends_nothing() -> None:
    assert cset.delete(0) == (0, 0)
    assert cset.delete(-3) == (-3, 0)
    assert orset.delete(orset.absent) == (orset.absent, 0)


def test_only_deviations_are_marked() -> None:
    assert [cset.mark(k, DOT) for k in (-1, 0, 1, 2)] == [-1, None, None, 2]
    assert orset.mark(frozenset([DOT]), DOT) is None
    assert orset.mark(frozenset(), None) is None
    both = frozenset([DOT, ("other", 4)])
    assert orset.mark(both, DOT) == both
    assert orset.mark(frozenset([("other", 4)]), DOT) == {("other", 4)}


def test_marks_of_the_add_wins_set_go_once_all_their_operations_are_stable() -> None:
    both = frozenset([DOT, ("other", 4)])
    assert not orset.is_settled(both, DOT, {"site": 1, "other": 3})
    assert orset.is_settled(both, DOT, {"site": 1, "other": 4})
    assert not orset.is_settled(frozenset([DOT]), ("other", 5), {"site": 1, "other": 4})


remote = st.tuples(st.booleans(), st.integers(1, 4))


@given(st.lists(remote, max_size=8).flatmap(lambda some: st.tuples(st.just(some), st.permutations(some))))
def test_cset_operations_commute_in_any_order(orders: tuple[list[tuple[bool, int]], list[tuple[bool, int]]]) -> None:
    def execute(operations: list[tuple[bool, int]]) -> int:
        k = cset.absent
        for inserts, number in operations:
            k = cset.remote_insert(k, number, DOT) if inserts else cset.remote_delete(k, number, {})
        return k

    assert execute(orders[0]) == execute(orders[1])


@given(st.integers(-5, 5))
def test_what_cset_sends_brings_others_to_the_same_counter(k: int) -> None:
    after, number = cset.insert(k, DOT)
    assert cset.remote_insert(k, number, DOT) == after
    after, number = cset.delete(k)
    assert cset.remote_delete(k, number, {}) == after


dots = st.frozensets(st.tuples(st.sampled_from("ab"), st.integers(1, 4)), max_size=4)
vectors = st.dictionaries(st.sampled_from("abc"), st.integers(0, 4))


@given(dots, st.integers(1, 4), vectors)
def test_concurrent_operations_of_the_add_wins_set_commute(
    state: frozenset[Dot], seq: int, deps: dict[str, int]
) -> None:
    dot = ("c", seq)
    deps = deps | {"c": seq - 1}  # the deletion has not seen the insertion
    one = orset.remote_delete(orset.remote_insert(state, 1, dot), 1, deps)
    other = orset.remote_insert(orset.remote_delete(state, 1, deps), 1, dot)
    assert one == other
    assert orset.is_visible(one)


@given(dots, st.integers(1, 4), vectors)
def test_operations_of_the_add_wins_set_are_idempotent(state: frozenset[Dot], seq: int, deps: dict[str, int]) -> None:
    once = orset.remote_insert(state, 1, ("c", seq))
    assert orset.remote_insert(once, 1, ("c", seq)) == once
    less = orset.remote_delete(state, 1, deps)
    assert orset.remote_delete(less, 1, deps) == less


@given(dots)
def test_a_deletion_that_saw_everything_leaves_nothing(state: frozenset[Dot]) -> None:
    assert orset.remote_delete(state, 1, {"a": 4, "b": 4}) == orset.absent
    assert orset.delete(state)[0] == orset.absent


@given(dots)
def test_states_survive_json(state: frozenset[Dot]) -> None:
    assert orset.from_json(orset.to_json(state)) == state


@pytest.mark.parametrize("mode", MODES)
def test_additions_are_lost_by_counters_and_causal_lengths_but_not_by_the_add_wins_set(mode: str) -> None:
    lost = count_lost_additions(mode, histories=400, seed=1)
    assert (lost == 0) == (mode == "orset")
