"""Sort keys of numbers: their order by code point is the order of the numbers."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mdv.rdf.sortkey import sort_key

numbers = st.one_of(
    st.integers(-200, 200).map(Decimal),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.builds(
        lambda sign, digits, exponent: Decimal(f"{sign}{digits}E{exponent}"),
        st.sampled_from(["", "-"]),
        st.text("0123456789", min_size=1, max_size=12) | st.just("123456789" * 111),
        st.sampled_from([-1400, -12, -2, -1, 0, 1, 2, 12, 1400]),
    ),
)


@given(numbers, numbers)
@example(Decimal(-9), Decimal(-95))
@example(Decimal(10), Decimal("1e1"))
def test_keys_have_the_order_of_their_numbers(a: Decimal, b: Decimal) -> None:
    assert (sort_key(a) < sort_key(b)) == (a < b)
    assert (sort_key(a) == sort_key(b)) == (a == b)


@given(numbers, st.integers(0, 30))
def test_trailing_zeros_do_not_change_the_key(number: Decimal, zeros: int) -> None:
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    assert sort_key(Decimal((sign, digits + (0,) * zeros, exponent - zeros))) == sort_key(number)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e60000", "-1e-60000"])
def test_numbers_without_an_order_have_no_key(text: str) -> None:
    with pytest.raises(ValueError):
        sort_key(Decimal(text))
