"""Words: how pages write numbers, moments, names and values. Everything is escaped by the templates; what is marked as
safe here is made of nothing but tags and numbers of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from markupsafe import Markup, escape

from mdv.model import XSD

MOST_SHOWN = 2000
"""Characters of a value that are shown in a list; the whole is behind it."""


def number(value: int | float) -> Markup:
    """A number, which the page's script writes as its reader does.

    >>> number(1234)
    Markup('<data value="1234">1,234</data>')
    """
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    return Markup('<data value="{}">{}</data>').format(value, shown)


def moment(at: datetime | None) -> Markup:
    """A moment, in the reader's words and time zone where there is a script, else in UTC."""
    if at is None:
        return Markup('<span class="quiet">never</span>')
    return Markup('<time datetime="{}">{:%Y-%m-%d %H:%M:%S} UTC</time>').format(at.isoformat(), at)


def ago(at: datetime | None) -> Markup:
    """A moment, by how long ago it was."""
    if at is None:
        return Markup('<span class="quiet">never</span>')
    return Markup('<time datetime="{}" data-ago>{:%Y-%m-%d %H:%M:%S} UTC</time>').format(at.isoformat(), at)


def short(uri: str) -> str:
    """The last part of a URI, by which people know it.

    >>> [short(uri) for uri in ("http://a.org/b/c.rdf#x", "http://a.org/b/", "http://a.org/b/c?d=1", "urn:isbn:1")]
    ['x', 'b', 'c?d=1', '1']
    """
    last = uri.rstrip("/#").replace("#", "/").rpartition("/")[2] or uri
    return last.rpartition(":")[2] or last


def cut(text: str, most: int = MOST_SHOWN) -> str:
    """The beginning of a text.

    >>> cut("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def size(number: int) -> str:
    """Bytes, for people.

    >>> size(512), size(2048), size(5 * 2**20)
    ('512 bytes', '2.0 KiB', '5.0 MiB')
    """
    amount, units = float(number), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:,.0f} {units[0]}" if units[0] == "bytes" else f"{amount:,.1f} {units[0]}"


def count(found: Any) -> Markup:
    """A count that may be about so many."""
    about = "" if found.exact else "about "
    return escape(about) + number(found.count)


SAID = {
    "deleted": "It is deleted. Each of its versions can be restored.",
    "restored": "It is what it was in that version, as a new version.",
    "paused": "It is paused: it is told nothing until it is resumed.",
    "resumed": "It is resumed, and hears now what it missed.",
    "refetch": "At its next call it fetches everything anew.",
    "ended": "The LMR is ended.",
    "unsubscribed": "The subscription is ended.",
}
"""What a page says after a form was sent; an address can ask for no other words."""


def counted(number_: int, word: str) -> Markup:
    """How many of something.

    >>> str(counted(1, "resource").striptags()), str(counted(1200, "LMR").striptags())
    ('1 resource', '1,200 LMRs')
    """
    return number(number_) + escape(f" {word}" if number_ == 1 else f" {word}s")


def result_words(result: Mapping[str, Any]) -> Markup:
    """What a registration did.

    >>> str(result_words({"inserted": 2, "updated": 0, "deleted": 1, "unchanged": 1}).striptags())
    '2 resources new, 1 gone'
    >>> str(result_words({"inserted": 0, "updated": 0, "deleted": 0, "unchanged": 3}).striptags())
    'nothing changed'
    """
    words = (("inserted", "new"), ("updated", "changed"), ("deleted", "gone"))
    told = [(result[name], word) for name, word in words if result.get(name)]
    if not told:
        return Markup("nothing changed")
    (first, word), *others = told
    return Markup(", ").join(
        [counted(first, "resource") + f" {word}", *(number(many) + f" {word}" for many, word in others)]
    )


def table_name(name: str) -> str:
    """A table of triggering rules as the paper calls it.

    >>> table_name("filter_rules"), table_name("filter_rules_gt")
    ('FilterRules', 'FilterRulesGT')
    """
    operator = name.removeprefix("filter_rules").strip("_")
    return "FilterRules" + operator.upper()


_NUMBERS = frozenset(
    XSD + name
    for name in "integer decimal double float int long short byte nonNegativeInteger positiveInteger".split()  # noqa: SIM905
)


def is_number(datatype: str | None) -> bool:
    """Whether a datatype says no more than that a number is one.

    >>> is_number(XSD + "integer"), is_number(XSD + "date"), is_number(None)
    (True, False, False)
    """
    return datatype in _NUMBERS


FILTERS: dict[str, Callable[..., Any]] = {
    "number": number,
    "moment": moment,
    "ago": ago,
    "short": short,
    "cut": cut,
    "size": size,
    "about": count,
    "result_words": result_words,
    "counted": counted,
    "table_name": table_name,
    "is_number": is_number,
    "capitalize_first": lambda text: text[:1].upper() + text[1:],
    "said_words": lambda key: SAID.get(key or ""),
}
