"""Sort keys of numbers: texts that sort by code point as the numbers do, for databases without exact decimals.

A key consists of the sign, the exponent of the first digit, and the digits without trailing zeros. For a negative
number, exponent and digits are complemented and followed by `~`, which sorts after every digit: so -95 comes before
-9. Equal numbers have equal keys, whatever their notation.
"""

from __future__ import annotations

from decimal import Decimal

_NEGATIVE, _ZERO, _POSITIVE = "0", "1", "2"
_END = "~"
_MIDDLE = 50_000
"""Exponents have five digits. `mdv.rdf.values` accepts only much smaller exponents."""
_COMPLEMENT = str.maketrans("0123456789", "9876543210")


def sort_key(number: Decimal) -> str:
    """Return the key of a finite number.

    >>> sort_key(Decimal("92")), sort_key(Decimal("92.0")), sort_key(Decimal("-92")), sort_key(Decimal("-0.0"))
    ('25000192', '25000192', '04999807~', '1')
    >>> sorted(map(Decimal, "3 -95 1e300 -9 0 0.02 -1e-300".split()), key=sort_key) == sorted(
    ...     map(Decimal, "3 -95 1e300 -9 0 0.02 -1e-300".split()))
    True
    """
    if not number:
        return _ZERO
    if not number.is_finite() or not 0 <= (exponent := number.adjusted() + _MIDDLE) < 2 * _MIDDLE:
        raise ValueError(f"{number} is too large, too small or not a number")
    # Taken from the digits, because arithmetic (`normalize`) would round to the precision of the context.
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    key = f"{exponent:05}{digits}"
    return _POSITIVE + key if number > 0 else _NEGATIVE + key.translate(_COMPLEMENT) + _END
