"""Parse lexical forms of XSD datatypes into exact typed values. Only ASCII forms are accepted.

Law: for a numeric datatype, `parse_number` returns a number if and only if `find_flaw` finds no flaw and the value is
finite. For a date or time, `parse_instant` returns an instant if and only if `find_flaw` finds no flaw.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import TypeAlias

from mdv.model import RDF, RDFS, XSD

MAX_DIGITS = 1000
"""Digits of a number. Exact arithmetic on longer numbers would use too much CPU time."""

Check: TypeAlias = Callable[[str], str | None]


class ValueKind(Enum):
    """How the values of a range are compared."""

    NUMBER = "number"
    INSTANT = "instant"
    TRUTH = "truth"
    TEXT = "text"


# The integer types of XSD with their least and greatest values.
_INTEGERS: dict[str, tuple[int | None, int | None]] = {
    "integer": (None, None),
    "nonPositiveInteger": (None, 0),
    "negativeInteger": (None, -1),
    "nonNegativeInteger": (0, None),
    "positiveInteger": (1, None),
    "long": (-(2**63), 2**63 - 1),
    "int": (-(2**31), 2**31 - 1),
    "short": (-(2**15), 2**15 - 1),
    "byte": (-(2**7), 2**7 - 1),
    "unsignedLong": (0, 2**64 - 1),
    "unsignedInt": (0, 2**32 - 1),
    "unsignedShort": (0, 2**16 - 1),
    "unsignedByte": (0, 2**8 - 1),
}

# The binary floating-point types: the least magnitude that rounds to infinity, and the greatest that rounds to zero.
_FLOATS: dict[str, tuple[Decimal, Decimal]] = {
    "float": (Decimal(2**128 - 2**103), Decimal(f"{5**150}E-150")),
    "double": (Decimal(2**1024 - 2**970), Decimal(f"{5**1075}E-1075")),
}

_UNSIGNED = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(rf"[+-]?{_UNSIGNED}")
_FLOAT = re.compile(rf"([+-]?{_UNSIGNED})(?:[eE]([+-]?)0*([0-9]+))?")
_SPECIAL = frozenset(("NaN", "INF", "+INF", "-INF"))

# Every date and time pattern has the same nine groups. `()` stands for a part that the type does not have.
_ZONE = r"(Z|[+-](?:(?:0[0-9]|1[0-3]):[0-5][0-9]|14:00))"
_YEAR = r"(-?(?:[1-9][0-9]{3,}|0[0-9]{3}))"
_MONTH = r"-(0[1-9]|1[0-2])"
_DAY = r"-(0[1-9]|[12][0-9]|3[01])"
_CLOCK = r"(?:([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]+))?|(24):00:00(?:\.0+)?)"
_NO_CLOCK = r"()()()()()"
_INSTANTS: dict[str, tuple[re.Pattern[str], str]] = {
    "dateTime": (re.compile(f"{_YEAR}{_MONTH}{_DAY}T{_CLOCK}{_ZONE}?"), "2024-02-29T12:30:00Z"),
    "dateTimeStamp": (re.compile(f"{_YEAR}{_MONTH}{_DAY}T{_CLOCK}{_ZONE}"), "2024-02-29T12:30:00Z"),
    "date": (re.compile(f"{_YEAR}{_MONTH}{_DAY}{_NO_CLOCK}{_ZONE}?"), "2024-02-29"),
    "gYear": (re.compile(f"{_YEAR}()(){_NO_CLOCK}{_ZONE}?"), "2024"),
    "gYearMonth": (re.compile(f"{_YEAR}{_MONTH}(){_NO_CLOCK}{_ZONE}?"), "2024-02"),
    "time": (re.compile(f"()()(){_CLOCK}{_ZONE}?"), "12:30:00"),
}

# Other XSD types with a lexical form. Their values are compared as text.
_DAY_PART = r"(?:[0-9]+D)?(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]+)?S)?)?"
_OTHERS: dict[str, tuple[re.Pattern[str], str]] = {
    "gMonth": (re.compile(f"-{_MONTH}{_ZONE}?"), "--02"),
    "gDay": (re.compile(f"--{_DAY}{_ZONE}?"), "---29"),
    "gMonthDay": (
        re.compile(
            f"--(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-9])|(?:0[13-9]|1[0-2])-30|(?:0[13578]|1[02])-31){_ZONE}?"
        ),
        "--02-29",
    ),
    "duration": (re.compile(f"-?P(?=[0-9T])(?:[0-9]+Y)?(?:[0-9]+M)?{_DAY_PART}"), "P1Y2M3DT4H5M6S"),
    "yearMonthDuration": (re.compile("-?P(?=[0-9])(?:[0-9]+Y)?(?:[0-9]+M)?"), "P1Y2M"),
    "dayTimeDuration": (re.compile(f"-?P(?=[0-9T]){_DAY_PART}"), "P3DT4H5M6S"),
    "hexBinary": (re.compile("(?:[0-9a-fA-F]{2})*"), "CAFE"),
    "base64Binary": (re.compile("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"), "TUlW"),
    "language": (re.compile("[a-zA-Z]{1,8}(?:-[a-zA-Z0-9]{1,8})*"), "en-GB"),
}

_TRUTHS = {"true": True, "1": True, "false": False, "0": False}

_KINDS: dict[str, ValueKind] = {
    **dict.fromkeys((XSD + name for name in ("decimal", *_INTEGERS, *_FLOATS)), ValueKind.NUMBER),
    **dict.fromkeys((XSD + name for name in _INSTANTS), ValueKind.INSTANT),
    XSD + "boolean": ValueKind.TRUTH,
}

_RDF_DATATYPES = frozenset(
    [RDFS + "Literal", *(RDF + name for name in ("langString", "XMLLiteral", "HTML", "JSON", "PlainLiteral"))]
)

_ZERO = Decimal(0)
_EPOCH = date(1970, 1, 1).toordinal()


def value_kind(range_iri: str | None) -> ValueKind:
    """Return how the values of a range are compared.

    >>> value_kind(XSD + "unsignedByte"), value_kind(XSD + "gYear"), value_kind(XSD + "boolean"), value_kind(None)
    (<ValueKind.NUMBER: 'number'>, <ValueKind.INSTANT: 'instant'>, <ValueKind.TRUTH: 'truth'>, <ValueKind.TEXT: 'text'>)
    """
    return _KINDS.get(range_iri or "", ValueKind.TEXT)


def is_datatype(iri: str) -> bool:
    """True if `iri` is a datatype of XSD or RDF, which needs no declaration.

    >>> is_datatype(XSD + "string"), is_datatype(RDFS + "Literal"), is_datatype(RDFS + "Resource")
    (True, True, False)
    """
    return iri.startswith(XSD) or iri in _RDF_DATATYPES


def find_flaw(lexical: str, datatype: str) -> str | None:
    """Return why `lexical` is not a form of `datatype`; None if it is one, or if the datatype is unknown.

    >>> find_flaw("1_000", XSD + "integer")
    "'1_000' is not an xsd:integer, such as -42"
    >>> find_flaw("2023-02-29", XSD + "date")
    "'2023-02-29' is not an xsd:date: this day does not exist"
    >>> find_flaw("128", XSD + "byte")
    "'128' is not an xsd:byte, which ranges from -128 to 127"
    >>> find_flaw("NaN", XSD + "double") is None, find_flaw("anything", "http://example.org/own") is None
    (True, True)
    """
    check = checker_for(datatype)
    return check(lexical) if check else None


def checker_for(datatype: str) -> Check | None:
    """Return `find_flaw` for one datatype, for repeated calls; None if every text is valid.

    >>> checker_for(XSD + "boolean")("yes")
    "'yes' is not an xsd:boolean, such as true"
    >>> checker_for(XSD + "string") is None
    True
    """
    return _CHECKS.get(datatype)


def parse_number(lexical: str, datatype: str | None = None) -> Decimal | None:
    """Return the exact number; None if it is not a number, NaN or infinite.

    A double or float that is too large for its type is infinite, one that is too small is zero. Otherwise the value is
    the decimal as written, not the nearest binary number. Without a datatype, every numeric form of XSD is accepted.

    >>> parse_number("92.0") == parse_number("92") == 92, parse_number("1e3", XSD + "double") == 1000
    (True, True)
    >>> parse_number("0.1", XSD + "float"), parse_number("1e39", XSD + "float"), parse_number("1e-400", XSD + "double")
    (Decimal('0.1'), None, Decimal('0'))
    >>> [parse_number(text) for text in ("NaN", "-INF", "0x1F", "1_000", "٣", " 3", "")]
    [None, None, None, None, None, None, None]
    """
    read = _NUMBERS.get(datatype)
    return read(lexical) if read else None


def parse_instant(lexical: str, datatype: str | None = None) -> Decimal | None:
    """Return the exact seconds since 1970-01-01T00:00:00Z; None if it is not an instant. The default zone is UTC.

    The calendar is the proleptic Gregorian one, and year 0000 is 1 BCE. A date, month or year stands for its first
    moment. A time stands for that time on 1970-01-01 in its zone, so it can be negative east of Greenwich.

    >>> parse_instant("1970-01-02"), parse_instant("1969-12-31T23:59:59.75Z")
    (Decimal('86400'), Decimal('-0.25'))
    >>> parse_instant("2000-01-01T24:00:00+14:00")
    Decimal('946720800')
    >>> parse_instant("0000", XSD + "gYear"), parse_instant("10:00:00+02:00", XSD + "time")
    (Decimal('-62167219200'), Decimal('28800'))
    >>> parse_instant("2023-02-29"), parse_instant("2023-02-28", XSD + "dateTime")
    (None, None)
    """
    if len(lexical) > MAX_DIGITS and _too_many_digits(lexical):
        return None
    if datatype is not None:
        pattern = _INSTANT_PATTERNS.get(datatype)
        found = pattern.fullmatch(lexical) if pattern else None
    else:
        found = next(filter(None, (pattern.fullmatch(lexical) for pattern, _ in _INSTANTS.values())), None)
    return _seconds(found) if found else None


def parse_boolean(lexical: str) -> bool | None:
    """Return the value of a boolean's lexical form; None if it is not one.

    >>> [parse_boolean(text) for text in ("true", "1", "false", "0", "TRUE", "")]
    [True, True, False, False, None, None]
    """
    return _TRUTHS.get(lexical)


def typed_text(text: str, kind: ValueKind) -> str | None:
    """Return the canonical text of a constant as a value of a kind; None if it is not one.

    Equal values have equal texts. Postgres can cast the text to the type in which values of the kind are stored. An
    instant is a number of seconds.

    >>> typed_text("92.0", ValueKind.NUMBER), typed_text("1e3", ValueKind.NUMBER), typed_text("x", ValueKind.NUMBER)
    ('92', '1000', None)
    >>> typed_text("1970-01-02", ValueKind.INSTANT), typed_text("1", ValueKind.TRUTH), typed_text(" x", ValueKind.TEXT)
    ('86400', 'true', ' x')
    """
    if kind is ValueKind.TEXT:
        return text
    if kind is ValueKind.TRUTH:
        truth = parse_boolean(text)
        return None if truth is None else str(truth).lower()
    value = parse_number(text) if kind is ValueKind.NUMBER else parse_instant(text)
    if value is None:
        return None
    digits = f"{value:f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _too_many_digits(lexical: str) -> bool:
    # No form has more than 32 characters besides its digits, so longer texts need not be counted.
    return len(lexical) > MAX_DIGITS + 32 or sum("0" <= character <= "9" for character in lexical) > MAX_DIGITS


def _decimal(lexical: str) -> Decimal | None:
    if len(lexical) > MAX_DIGITS and _too_many_digits(lexical):
        return None
    # Decimal(text) is exact in every context. `or` turns -0 and 0.00 into 0.
    return (Decimal(lexical) or _ZERO) if _DECIMAL.fullmatch(lexical) else None


def _integer(least: int | None, greatest: int | None) -> Callable[[str], Decimal | None]:
    def read(lexical: str) -> Decimal | None:
        if (len(lexical) > MAX_DIGITS and _too_many_digits(lexical)) or not _INTEGER.fullmatch(lexical):
            return None
        value = Decimal(lexical) or _ZERO
        within = (least is None or value >= least) and (greatest is None or value <= greatest)
        return value if within else None

    return read


def _float(least_infinite: Decimal, greatest_zero: Decimal) -> Callable[[str], Decimal | None]:
    def read(lexical: str) -> Decimal | None:
        if len(lexical) > MAX_DIGITS and _too_many_digits(lexical):
            return None
        found = _FLOAT.fullmatch(lexical)
        if not found:
            return None
        mantissa, sign, exponent = found.groups()
        if exponent is not None and len(exponent) > 4:
            # The mantissa has at most 1,000 digits, so the sign of a five-digit exponent decides.
            return _ZERO if sign == "-" or not Decimal(mantissa) else None
        value = Decimal(lexical)
        size = value.copy_abs()
        if size >= least_infinite:
            return None
        return value if size > greatest_zero else _ZERO

    return read


def _any_number(lexical: str) -> Decimal | None:
    value = _decimal(lexical)
    return value if value is not None else _NUMBERS[XSD + "double"](lexical)


_NUMBERS: dict[str | None, Callable[[str], Decimal | None]] = {
    None: _any_number,
    XSD + "decimal": _decimal,
    **{XSD + name: _integer(*bounds) for name, bounds in _INTEGERS.items()},
    **{XSD + name: _float(*bounds) for name, bounds in _FLOATS.items()},
}

_INSTANT_PATTERNS = {XSD + name: pattern for name, (pattern, _) in _INSTANTS.items()}


def _seconds(found: re.Match[str]) -> Decimal | None:
    year, month, day, hour, minute, second, fraction, midnight, zone = found.groups()
    days = 0
    if year:
        # The calendar repeats every 400 years, so every year is mapped to one that Python supports.
        cycles, year_of_cycle = divmod(int(year), 400)
        try:
            days = date(year_of_cycle + 400, int(month or 1), int(day or 1)).toordinal() - _EPOCH
        except ValueError:
            return None
        days += (cycles - 1) * 146_097
        if midnight:
            days += 1
    seconds = days * 86_400
    if hour:
        seconds += int(hour) * 3600 + int(minute) * 60 + int(second)
    if zone and zone != "Z":
        offset = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
        seconds += offset if zone[0] == "-" else -offset
    if not fraction:
        return Decimal(seconds)
    places = len(fraction)
    return Decimal(f"{seconds * 10**places + int(fraction)}E-{places}")


def _not_a(lexical: str, name: str, rest: str) -> str:
    shown = lexical if len(lexical) <= 60 else lexical[:59] + "…"
    return f"{shown!r} is not an xsd:{name}{rest}"


def _too_long(name: str) -> str:
    return f"the value is too long for an xsd:{name}: the limit is {MAX_DIGITS:,} digits"


def _check_form(name: str, pattern: re.Pattern[str], example: str) -> Check:
    fits = pattern.fullmatch

    def check(lexical: str) -> str | None:
        return None if fits(lexical) else _not_a(lexical, name, f", such as {example}")

    return check


def _check_digits(name: str, pattern: re.Pattern[str], example: str) -> Check:
    fits = pattern.fullmatch

    def check(lexical: str) -> str | None:
        if len(lexical) > MAX_DIGITS and _too_many_digits(lexical):
            return _too_long(name)
        return None if fits(lexical) else _not_a(lexical, name, f", such as {example}")

    return check


def _check_integer(name: str, least: int | None, greatest: int | None) -> Check:
    form = _check_digits(name, _INTEGER, "-42" if least is None or least < 0 else "42")
    if least is None and greatest is None:
        return form
    if least is None:
        bounds = f"which is at most {greatest}"
    elif greatest is None:
        bounds = f"which is at least {least}"
    else:
        bounds = f"which ranges from {least} to {greatest}"

    def check(lexical: str) -> str | None:
        flaw = form(lexical)
        if flaw is not None:
            return flaw
        value = int(lexical)
        within = (least is None or value >= least) and (greatest is None or value <= greatest)
        return None if within else _not_a(lexical, name, f", {bounds}")

    return check


def _check_float(name: str) -> Check:
    form = _check_digits(name, _FLOAT, "1.5E3, INF or NaN")

    def check(lexical: str) -> str | None:
        return None if lexical in _SPECIAL else form(lexical)

    return check


def _check_instant(name: str, pattern: re.Pattern[str], example: str) -> Check:
    def check(lexical: str) -> str | None:
        if len(lexical) > MAX_DIGITS and _too_many_digits(lexical):
            return _too_long(name)
        found = pattern.fullmatch(lexical)
        if not found:
            return _not_a(lexical, name, f", such as {example}")
        # Every month has at least 28 days.
        if (found[3] or "") <= "28" or _seconds(found) is not None:
            return None
        return _not_a(lexical, name, ": this day does not exist")

    return check


def _check_base64(lexical: str) -> str | None:
    # XSD allows single spaces between the characters.
    pattern, example = _OTHERS["base64Binary"]
    return (
        None if pattern.fullmatch(lexical.replace(" ", "")) else _not_a(lexical, "base64Binary", f", such as {example}")
    )


_CHECKS: dict[str, Check] = {
    XSD + "boolean": _check_form("boolean", re.compile("true|false|1|0"), "true"),
    XSD + "decimal": _check_digits("decimal", _DECIMAL, "3.14"),
    **{XSD + name: _check_integer(name, *bounds) for name, bounds in _INTEGERS.items()},
    **{XSD + name: _check_float(name) for name in _FLOATS},
    **{XSD + name: _check_instant(name, *form) for name, form in _INSTANTS.items()},
    **{XSD + name: _check_form(name, *form) for name, form in _OTHERS.items()},
    XSD + "base64Binary": _check_base64,
}
