"""Template filters for numbers, times, names and values. Templates escape everything; the Markup built here contains
only our own tags and escaped values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from markupsafe import Markup, escape

from mdv.inspect.rule_explanation import measured_cost_text
from mdv.model import XSD, Statement, is_blank
from mdv.rdf.term_json import write_statement

MAX_VALUE_CHARS = 2000
"""Longest value that is shown in full."""


def number(value: int | float) -> Markup:
    """Format a number; the script of the page localises it.

    >>> number(1234)
    Markup('<data value="1234">1,234</data>')
    """
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    return Markup('<data value="{}">{}</data>').format(value, shown)


def timestamp(at: datetime | None) -> Markup:
    """Format a time in UTC; the script of the page localises it."""
    if at is None:
        return Markup('<span class="quiet">never</span>')
    return Markup('<time datetime="{}">{:%Y-%m-%d %H:%M:%S} UTC</time>').format(at.isoformat(), at)


def ago(at: datetime | None) -> Markup:
    """Format a time; the script of the page shows how long ago it was."""
    if at is None:
        return Markup('<span class="quiet">never</span>')
    return Markup('<time datetime="{}" data-ago>{:%Y-%m-%d %H:%M:%S} UTC</time>').format(at.isoformat(), at)


def moment_ago(text: str | None) -> Markup:
    """Format a time that is given as text in ISO form."""
    return ago(None if text is None else datetime.fromisoformat(text))


def short(uri: str) -> str:
    """Return the last part of a URI.

    >>> [short(uri) for uri in ("http://a.org/b/c.rdf#x", "http://a.org/b/", "http://a.org/b/c?d=1", "urn:isbn:1")]
    ['x', 'b', 'c?d=1', '1']
    """
    last = uri.rstrip("/#").replace("#", "/").rpartition("/")[2] or uri
    return last.rpartition(":")[2] or last


def cut(text: str, most: int = MAX_VALUE_CHARS) -> str:
    """Truncate a text.

    >>> cut("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def size(number: int) -> str:
    """Format a number of bytes.

    >>> size(512), size(2048), size(5 * 2**20)
    ('512 bytes', '2.0 KiB', '5.0 MiB')
    """
    amount, units = float(number), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:,.0f} {units[0]}" if units[0] == "bytes" else f"{amount:,.1f} {units[0]}"


def approximate(found: Any) -> Markup:
    """Format a count that may be an estimate."""
    return escape("" if found.exact else "about ") + number(found.count)


NOTICES = {
    "deleted": "The document was deleted. You can restore any version.",
    "restored": "The version was restored as a new version.",
    "value_changed": "The value was changed.",
    "value_removed": "The value was removed.",
    "value_same": "Nothing was changed.",
    "paused": "The LMR is paused. It receives no events until it is resumed.",
    "resumed": "The LMR is resumed and receives the events it missed.",
    "refetch": "The LMR will take a new snapshot at its next request.",
    "ended": "The LMR was removed.",
    "unsubscribed": "The subscription was removed.",
    "rule_changed": "The rule was changed.",
    "rule_resumed": "The rule is active again.",
    "rule_removed": "The rule was removed.",
    "eca_added": "The event rule was added. It looks at changes from now on.",
    "eca_active": "The event rule is active.",
    "eca_shadow": "The event rule is in shadow: its runs are recorded, and its actions do not run.",
    "eca_disabled": "The event rule is disabled.",
    "process_stopped": "The process was asked to stop. It ends with its current slice.",
    "user_created": "The user was created and can sign in.",
    "role_changed": "The role was changed. It takes effect at once.",
    "own_role_changed": "Your role was changed. You can no longer administer.",
    "password_changed": "The password was changed, and all sessions of the user were ended.",
    "own_password_changed": "Your password was changed. Sign in with the new one.",
    "user_removed": "The user was removed, and all sessions of the user were ended.",
    "own_user_removed": "Your user was removed, and your sessions were ended.",
    "token_revoked": "The token was revoked. It is refused from now on.",
    "own_token_revoked": "The token that you signed in with was revoked.",
    "webhook_paused": "The webhook is paused. No messages are sent until it is resumed.",
    "webhook_resumed": "The webhook is active. If the feed has advanced, a message is sent now.",
    "webhook_removed": "The webhook was removed.",
    "message_sent": "A message with the newest offset will be sent now. Reload the page to see the answer.",
    "message_replayed": "The message will be sent again now. Reload the page to see the answer.",
    "rule_added": "The rule was added.",
    "subscription_resumed": "The subscription is active again. The difference was sent to the LMR.",
}
"""Notices after a form was sent, by the URL parameter `said`. Other values of the parameter show nothing."""


def counted(number_: int, noun: str) -> Markup:
    """Format a number with a noun.

    >>> str(counted(1, "resource").striptags()), str(counted(1200, "LMR").striptags())
    ('1 resource', '1,200 LMRs')
    """
    return number(number_) + escape(f" {noun}" if number_ == 1 else f" {noun}s")


def result_summary(result: Mapping[str, Any]) -> Markup:
    """Summarise the result of a registration.

    >>> str(result_summary({"inserted": 2, "updated": 0, "deleted": 1, "unchanged": 1}).striptags())
    '2 resources inserted, 1 deleted'
    >>> str(result_summary({"inserted": 0, "updated": 0, "deleted": 0, "unchanged": 3}).striptags())
    'no changes'
    """
    changes = [(result[name], name) for name in ("inserted", "updated", "deleted") if result.get(name)]
    if not changes:
        return Markup("no changes")
    (first, name), *others = changes
    return Markup(", ").join(
        [counted(first, "resource") + f" {name}", *(number(many) + f" {name}" for many, name in others)]
    )


def table_name(name: str) -> str:
    """Return the paper's name of a table of triggering rules.

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
    """True if the datatype is a plain number type, which the page does not show.

    >>> is_number(XSD + "integer"), is_number(XSD + "date"), is_number(None)
    (True, False, False)
    """
    return datatype in _NUMBERS


MAX_EDITED_CHARS = 10_000
"""Longest value that can be edited in a form."""


def is_editable(statement: Statement) -> bool:
    """True if the value of a statement can be edited in a form: no blank node, and text that a form can keep.

    >>> from mdv.model import Term
    >>> is_editable(Statement("http://d#_:b", "http://v/p", Term.literal("x")))
    False
    """
    value = statement.object.value
    return (
        not is_blank(statement.subject)
        and not (statement.object.is_uri and is_blank(value))
        and "\r" not in value
        and len(value) <= MAX_EDITED_CHARS
    )


def statement_json(statement: Statement) -> str:
    """Return a statement as JSON, for a form.

    >>> from mdv.model import Term
    >>> statement_json(Statement("http://d", "http://v/p", Term.literal("x")))
    '["http://d", "http://v/p", {"type": "literal", "value": "x"}]'
    """
    return json.dumps(write_statement(statement), ensure_ascii=False)


FILTERS: dict[str, Callable[..., Any]] = {
    "is_editable": is_editable,
    "statement_json": statement_json,
    "number": number,
    "timestamp": timestamp,
    "ago": ago,
    "moment_ago": moment_ago,
    "short": short,
    "cut": cut,
    "size": size,
    "approximate": approximate,
    "result_summary": result_summary,
    "counted": counted,
    "measurement": measured_cost_text,
    "table_name": table_name,
    "is_number": is_number,
    "capitalize_first": lambda text: text[:1].upper() + text[1:],
    "notice": lambda key: NOTICES.get(key or ""),
}
