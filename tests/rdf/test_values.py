"""Lexical forms to typed values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdv.model import RDF, RDFS, XSD
from mdv.rdf.values import (
    ValueKind,
    checker_for,
    find_flaw,
    is_datatype,
    parse_boolean,
    parse_instant,
    parse_number,
    value_kind,
)

NUMERIC = [
    "decimal integer nonPositiveInteger negativeInteger nonNegativeInteger positiveInteger long int short byte",
    "unsignedLong unsignedInt unsignedShort unsignedByte float double",
]
NUMERIC = [name for line in NUMERIC for name in line.split()]
INSTANT = ["dateTime", "dateTimeStamp", "date", "time", "gYear", "gYearMonth"]


def refused(name: str, *lexicals: str) -> list[str]:
    """Return those of `lexicals` that are wrongly accepted."""
    return [lexical for lexical in lexicals if find_flaw(lexical, XSD + name) is None]


def accepted(name: str, *lexicals: str) -> list[str | None]:
    """Return the flaws of `lexicals`, which should have none."""
    return [flaw for lexical in lexicals if (flaw := find_flaw(lexical, XSD + name))]


def test_ranges_have_a_kind():
    assert {value_kind(XSD + name) for name in NUMERIC} == {ValueKind.NUMBER}
    assert {value_kind(XSD + name) for name in INSTANT} == {ValueKind.INSTANT}
    assert value_kind(XSD + "boolean") is ValueKind.TRUTH
    others = [None, "", XSD + "string", XSD + "duration", XSD + "gDay", RDFS + "Resource", "http://a/C"]
    assert {value_kind(iri) for iri in others} == {ValueKind.TEXT}


def test_datatypes_are_those_of_xsd_and_rdf():
    rdf = ["langString", "XMLLiteral", "HTML", "JSON", "PlainLiteral"]
    assert all(map(is_datatype, [XSD + "anything", RDFS + "Literal", *(RDF + name for name in rdf)]))
    assert not any(map(is_datatype, [RDFS + "Resource", RDF + "List", "http://a/b", ""]))


@pytest.mark.parametrize("name", NUMERIC)
def test_forms_that_python_or_postgres_would_take_are_no_numbers(name):
    bad = ["", " ", " 1", "1 ", "1\n", "1_000", "0x1F", "٣", "１", "1,5", "--1", "+-1", "1e", "e1", ".", "+", "inf"]
    bad += ["nan", "Infinity", "-NaN", "1e1.5", "1/2", "½", "1f", "0b1", "1\0", "²"]
    assert refused(name, *bad) == []
    assert [parse_number(text, XSD + name) for text in bad] == [None] * len(bad)


def test_forms_of_decimals_and_integers():
    assert accepted("decimal", "0", "-0", "+5", "5.", ".5", "-.5", "007", "3.1400") == []
    assert refused("decimal", "1e3", "NaN", "INF") == []
    assert accepted("integer", "0", "-0", "+5", "007", "9" * 1000) == []
    assert refused("integer", "1.0", "1.", "1e3") == []


@pytest.mark.parametrize(
    ("name", "least", "greatest"),
    [
        ("byte", -128, 127),
        ("short", -32768, 32767),
        ("int", -2147483648, 2147483647),
        ("long", -9223372036854775808, 9223372036854775807),
        ("unsignedByte", 0, 255),
        ("unsignedShort", 0, 65535),
        ("unsignedInt", 0, 4294967295),
        ("unsignedLong", 0, 18446744073709551615),
        ("positiveInteger", 1, None),
        ("nonNegativeInteger", 0, None),
        ("negativeInteger", None, -1),
        ("nonPositiveInteger", None, 0),
    ],
)
def test_derived_integers_have_the_bounds_of_xsd(name, least, greatest):
    for bound, beyond in ((least, -1), (greatest, 1)):
        if bound is not None:
            assert accepted(name, str(bound)) == []
            assert refused(name, str(bound + beyond)) == []
            assert parse_number(str(bound), XSD + name) == bound
            assert parse_number(str(bound + beyond), XSD + name) is None


def test_minus_zero_is_zero():
    assert accepted("nonNegativeInteger", "-0") == []
    for text in ("-0", "0.00", "-0.0", "0e5", "-0e-99999"):
        assert str(parse_number(text)) == "0"


def test_special_values_of_doubles_and_floats_are_no_numbers():
    for name in ("double", "float"):
        assert accepted(name, "NaN", "INF", "-INF", "+INF", "1", "1.5E-3", "1e999", ".5e+7") == []
        assert [parse_number(text, XSD + name) for text in ("NaN", "INF", "-INF", "+INF")] == [None] * 4
    assert parse_number("NaN") is None


def test_values_beyond_the_range_of_a_type_are_infinite_and_below_it_zero():
    double, single = XSD + "double", XSD + "float"
    assert parse_number("1.7976931348623157e308", double) == Decimal("1.7976931348623157e308")
    assert parse_number("1.7976931348623159e308", double) is None
    assert parse_number("5e-324", double) == Decimal("5e-324")
    assert parse_number("2e-324", double) == 0
    assert parse_number("3.4028235e38", single) == Decimal("3.4028235e38")
    assert parse_number("3.4028236e38", single) is None
    assert parse_number("1e38", single) == 10**38
    assert parse_number("1e-45", single) == Decimal("1e-45")
    assert parse_number("7e-46", single) == 0
    for huge in ("1e999", "-1e999", "1e" + "9" * 500, "1e0000000999", "9" * 400):
        assert parse_number(huge, double) is None
    assert parse_number("1e-" + "9" * 500, double) == 0
    assert parse_number("1e000000003", double) == 1000
    assert parse_number("0." + "0" * 900 + "1e901", double) == 1
    assert parse_number("1" + "0" * 900 + "e-900", double) == 1


def test_the_decimal_written_counts_not_the_nearest_double():
    assert parse_number("0.1", XSD + "double") == Decimal("0.1")
    assert parse_number("9007199254740993", XSD + "double") == 9007199254740993


def test_no_number_needs_more_digits_than_postgres_supports():
    for text in ("1" * 995 + "e-1310", "9." + "9" * 995 + "e307", "0." + "1" * 995 + "e-300", "1" * 1000):
        number = parse_number(text)
        digits = number.as_tuple()
        assert len(digits.digits) + abs(digits.exponent) < 2400
        assert -1400 < digits.exponent < 400


def test_more_than_a_thousand_digits_are_refused():
    for name, text in [("integer", "1" * 1001), ("decimal", "." + "1" * 1001), ("double", "1e" + "0" * 1001)]:
        assert "1,000 digits" in find_flaw(text, XSD + name)
        assert parse_number(text, XSD + name) is None
    assert parse_number("1" * 1001) is None
    assert "1,000 digits" in find_flaw("1" * 1001 + "-01-01", XSD + "date")
    assert parse_instant("1" * 1001 + "-01-01") is None
    assert parse_instant("2000-01-01T00:00:00." + "1" * 1000) is None
    assert find_flaw("-" + "1" * 1000 + ".", XSD + "decimal") is None


def test_a_datatype_that_is_not_numeric_has_no_numbers():
    assert parse_number("5", XSD + "string") is None
    assert parse_number("5", "http://a/own") is None


@settings(deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**40), max_value=10**40))
def test_decimals_are_exact(value):
    text = f"{value:f}"
    assert parse_number(text, XSD + "decimal") == value
    assert parse_number(text) == value


@settings(deadline=None)
@given(st.integers(-(10**400), 10**400), st.integers(0, 400), st.integers(1, 9))
def test_numbers_are_exact_in_any_decimal_context(whole, places, precision):
    text = f"{'-' if whole < 0 else ''}{abs(whole) // 10**places}.{abs(whole) % 10**places:0{places or 1}d}"
    with localcontext() as context:
        context.prec = precision
        number = parse_number(text)
    assert Fraction(number) == Fraction(text)


@settings(deadline=None)
@given(st.integers(-(10**30), 10**30), st.integers(-290, 270))
def test_exponents_are_exact(mantissa, exponent):
    assert Fraction(parse_number(f"{mantissa}e{exponent}", XSD + "double")) == mantissa * Fraction(10) ** exponent


@settings(deadline=None)
@given(st.floats())
def test_a_double_is_finite_exactly_if_python_agrees(value):
    number = parse_number(repr(value).replace("inf", "INF").replace("nan", "NaN"), XSD + "double")
    assert (number is None) == (value != value or abs(value) == float("inf"))
    assert number is None or float(number) == value


@settings(deadline=None)
@given(
    st.sampled_from(NUMERIC + INSTANT + ["boolean"]),
    st.one_of(st.text(alphabet="0123456789+-.eEINFaZT: _", max_size=12), st.text(max_size=5)),
)
def test_a_value_is_typed_exactly_if_it_has_no_flaw(name, lexical):
    typed = [parse_number(lexical, XSD + name), parse_instant(lexical, XSD + name)]
    if name == "boolean":
        typed = [parse_boolean(lexical)]
    is_typed = any(value is not None for value in typed)
    if name in ("float", "double") and not is_typed and find_flaw(lexical, XSD + name) is None:
        assert not abs(float(lexical)) < (3.4e38 if name == "float" else 1.7e308)
    else:
        assert is_typed == (find_flaw(lexical, XSD + name) is None)


def test_forms_of_dates_and_times():
    good = ["2024-02-29T00:00:00", "2024-02-29T24:00:00", "2024-02-29T24:00:00.000Z", "-0044-03-15T12:00:00+14:00"]
    good += ["12024-01-01T00:00:00-13:59", "0000-01-01T00:00:00Z", "2024-01-01T23:59:59.999999999999"]
    assert accepted("dateTime", *good) == []
    bad = ["2024-02-30T00:00:00", "2023-02-29T00:00:00", "2024-13-01T00:00:00", "2024-00-01T00:00:00"]
    bad += ["2024-01-00T00:00:00", "2024-01-01T24:00:01", "2024-01-01T25:00:00", "2024-01-01T00:60:00", "2024-01-01"]
    bad += [
        "2024-01-01T00:00:60",
        "2024-01-01T00:00",
        "2024-01-01 00:00:00",
        "2024-01-01t00:00:00",
        "24-01-01T00:00:00",
    ]
    bad += ["02024-01-01T00:00:00", "+2024-01-01T00:00:00", "2024-01-01T00:00:00+14:01", "2024-01-01T00:00:00+15:00"]
    bad += ["2024-01-01T00:00:00z", "2024-01-01T00:00:00+1:00", "2024-01-01T00:00:00.", "2024-01-01T00:00:00\n"]
    bad += [" 2024-01-01T00:00:00", "２024-01-01T00:00:00", "1900-02-29T00:00:00", "2024-1-1T00:00:00"]
    assert refused("dateTime", *bad) == []
    assert [parse_instant(text, XSD + "dateTime") for text in bad] == [None] * len(bad)
    assert refused("dateTimeStamp", "2024-01-01T00:00:00") == []
    assert accepted("dateTimeStamp", "2024-01-01T00:00:00Z") == []
    assert accepted("date", "2000-02-29", "2024-12-31+01:00", "-0001-02-28Z", "-0004-02-29") == []
    assert refused("date", "2100-02-29", "-0001-02-29", "2024-04-31", "2024-01-01T00:00:00") == []
    assert accepted("gYear", "2024", "-0044", "12024Z") == []
    assert refused("gYear", "24", "2024-01", "") == []
    assert accepted("gYearMonth", "2024-02", "2024-12Z") == []
    assert refused("gYearMonth", "2024-13", "2024") == []
    assert accepted("time", "00:00:00", "24:00:00", "23:59:59.5-05:00") == []
    assert refused("time", "24:00:01", "1:00:00", "12:00") == []


def test_the_other_types_of_xsd_are_checked_by_form():
    assert accepted("boolean", "true", "false", "1", "0") == []
    assert refused("boolean", "True", "yes", "", "01") == []
    assert accepted("duration", "P1Y", "-PT0.5S", "P1Y2M3DT4H5M6S", "PT5M") == []
    assert refused("duration", "P", "PT", "P1YT", "1Y", "P1S", "P-1Y") == []
    assert accepted("dayTimeDuration", "P3DT4H") == []
    assert refused("dayTimeDuration", "P1Y", "P") == []
    assert accepted("yearMonthDuration", "P1Y2M") == []
    assert refused("yearMonthDuration", "P1D", "P") == []
    assert accepted("gMonth", "--02", "--12Z") == []
    assert accepted("gDay", "---31") == []
    assert refused("gDay", "---32", "31") == []
    assert accepted("gMonthDay", "--02-29", "--12-31", "--04-30") == []
    assert refused("gMonthDay", "--02-30", "--04-31", "--13-01") == []
    assert accepted("hexBinary", "", "CAFE", "cafe") == []
    assert refused("hexBinary", "CAF", "xx") == []
    assert accepted("base64Binary", "", "TUlW", "TUk=", "T U k =") == []
    assert refused("base64Binary", "TU", "!!!!") == []
    assert accepted("language", "en", "en-GB") == []
    assert refused("language", "en_GB", "") == []


@pytest.mark.parametrize("name", ["string", "normalizedString", "token", "anyURI", "Name", "QName", "noSuchType"])
def test_text_types_accept_any_text(name):
    assert accepted(name, "", "x", "a b", "ü", "http://a/ü") == []
    assert checker_for(XSD + name) is None


def test_a_flaw_shows_the_value_shortened():
    assert "…" in find_flaw("x" * 500, XSD + "date")
    assert len(find_flaw("x" * 500, XSD + "date")) < 150


@settings(deadline=None)
@given(st.datetimes(), st.integers(-14 * 60, 14 * 60))
def test_instants_agree_with_the_calendar(moment, minutes):
    sign, size = "-" if minutes < 0 else "+", abs(minutes)
    text = f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}.{moment.microsecond:06d}{sign}{size // 60:02d}:{size % 60:02d}"
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    passed = zoned - datetime(1970, 1, 1, tzinfo=UTC)
    expected = Fraction(passed.days * 86400 + passed.seconds) + Fraction(passed.microseconds, 10**6)
    assert Fraction(parse_instant(text, XSD + "dateTime")) == expected


@settings(deadline=None)
@given(st.datetimes(), st.datetimes())
def test_instants_are_ordered_like_datetimes(one, other):
    first, second = (parse_instant(f"{m.year:04d}-{m:%m-%dT%H:%M:%S}.{m.microsecond:06d}") for m in (one, other))
    assert (first < second) == (one < other)
    assert (first == second) == (one == other)


@settings(deadline=None)
@given(st.integers(-30000, 30000), st.integers(1, 12), st.integers(1, 28))
def test_the_calendar_repeats_every_400_years_also_beyond_pythons_range(year, month, day):
    def text(year):
        return f"{'-' if year < 0 else ''}{abs(year):04d}-{month:02d}-{day:02d}"

    assert parse_instant(text(year + 400)) - parse_instant(text(year)) == 146_097 * 86400


def test_instants_without_a_zone_are_utc():
    assert parse_instant("2024-01-01T00:00:00") == parse_instant("2024-01-01T00:00:00Z")
    assert parse_instant("2024-01-01") == parse_instant("2024-01-01T00:00:00Z")


def test_instants_of_shorter_types():
    assert (
        parse_instant("2024", XSD + "gYear")
        == parse_instant("2024-01", XSD + "gYearMonth")
        == parse_instant("2024-01-01")
    )
    assert parse_instant("2024-01-01+02:00") == parse_instant("2023-12-31T22:00:00Z")
    assert parse_instant("24:00:00", XSD + "time") == parse_instant("00:00:00", XSD + "time") == 0
    assert parse_instant("00:00:00+14:00", XSD + "time") == -14 * 3600
    assert parse_instant("12:00:00.25") == Decimal("43200.25")
    assert parse_instant("2024-12-31T24:00:00") == parse_instant("2025-01-01T00:00:00")
    assert parse_instant("-0000") == parse_instant("0000") < parse_instant("0001")


def test_fractions_of_a_second_are_exact():
    tiny = "0" * 900 + "1"
    assert Fraction(parse_instant(f"1969-12-31T23:59:59.{tiny}Z")) == Fraction(1, 10**901) - 1
    assert getcontext().prec < 900


def test_a_year_of_many_digits_is_an_instant():
    assert parse_instant("1" + "0" * 500 + "-01-01") > parse_instant("9999-12-31")
