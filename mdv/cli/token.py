"""`mdv token`: manage tokens. It works on the database, so that no token is needed to create one."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from mdv.cli.command import ExampleGroup, data_option, json_option
from mdv.cli.database import database
from mdv.cli.output import Columns, Item, on_terminal, print_line, write_json, write_table

if TYPE_CHECKING:
    from mdv.accounts.tokens import Token


@click.group(cls=ExampleGroup, example="mdv token create crawler --documents http://example.org/")
def token() -> None:
    """Create, list and revoke tokens."""


@token.command("create", example="mdv token create crawler --documents http://example.org/ --expires 90d")
@click.argument("name")
@click.option("--role", type=click.Choice(["admin", "viewer"]), default="admin", show_default=True,
              help="An admin can read and write, a viewer can only read.")  # fmt: skip
@click.option("--documents", metavar="PREFIX", multiple=True,
              help="Register and delete only documents whose URI is PREFIX or below it. Repeatable.")  # fmt: skip
@click.option("--resources", metavar="PREFIX", multiple=True,
              help="Add and remove only statements about resources whose URI is PREFIX or below it, and about"
              " blank nodes of the document. Repeatable.")  # fmt: skip
@click.option("--expires", metavar="WHEN", default=None,
              help="Refuse the token from this date (2031-12-24), time (2031-12-24T18:00Z) or duration from now (90d,"
              " 12h, 8w) on. Dates and times are in UTC.  [default: never]")  # fmt: skip
@json_option
@data_option
def create(
    name: str, role: str, documents: tuple[str, ...], resources: tuple[str, ...], expires: str | None, as_json: bool
) -> None:
    """Create a token named NAME. It is shown only once.

    A token without --documents can write any document, one without --resources can describe any resource. With both
    options, both limits apply. A document that describes a resource outside of --resources can be neither replaced nor
    deleted with this token. Both limits refuse URIs with a `.` or `..` segment, plain or percent-encoded. A limited
    token can change only documents and event-condition-action rules, which act within its limits: not the schema,
    LMRs or their rules.
    """
    from mdv.accounts.expiry import format_expiry
    from mdv.accounts.tokens import TokenDraft, issue_token
    from mdv.errors import BadRequest

    if expires is not None and not expires.strip():
        raise click.UsageError("--expires is empty: give a date, a time or a duration, or omit it.")
    draft = TokenDraft(name, role, documents, resources, expires or "")
    with database() as connection:
        try:
            secret, made = issue_token(connection, draft, datetime.now(UTC), "command line")
        except BadRequest as error:
            raise click.UsageError(error.detail) from None
    if as_json:
        write_json({"token": secret} | _shown(made))
    elif on_terminal():
        until = f", valid until {format_expiry(made.expires_at)}" if made.expires_at else ""
        print_line(f"Token {made.id}, {made.name}, {made.role}{until}. Store it: it is not shown again.")
        click.echo(secret)
    else:
        click.echo(secret)


@token.command("list", example="mdv token list")
@json_option
@data_option
def list_(as_json: bool) -> None:
    """List the tokens, including revoked and expired ones. Secrets are not shown.

    Times are in UTC; the time of last use is exact to a minute. A terminal shows days, --json shows all details.
    """
    from mdv.accounts.tokens import list_all_tokens

    with database() as connection:
        items = [_shown(found) for found in list_all_tokens(connection)]
    if as_json:
        write_json({"items": items, "more": False})
    elif items and on_terminal():
        write_table(_TERMINAL_COLUMNS, ([value(item) for value in _TERMINAL_COLUMNS.values()] for item in items))
    elif items or not on_terminal():
        write_table(_COLUMNS, ([item[name] for name in _COLUMNS] for item in items))
    else:
        print_line("There are no tokens except the admin token that MDV was started with.")


@token.command("revoke", example="mdv token revoke 3")
@click.argument("number", metavar="ID", type=int)
@data_option
def revoke(number: int) -> None:
    """Revoke the token ID. This cannot be undone."""
    from mdv.accounts.tokens import revoke_token
    from mdv.accounts.users import count_administrators
    from mdv.cli.user import warn_without_administrator

    with database() as connection:
        revoked = revoke_token(connection, number, knows_last=True)
        left = count_administrators(connection)
    print_line(f"Token {number} is revoked.")
    if revoked.role == "admin":
        warn_without_administrator(left)


_COLUMNS = ("id", "name", "role", "document_prefixes", "resource_prefixes", "created_at", "revoked_at", "expires_at",
            "used_at", "state", "created_by")  # fmt: skip
_TERMINAL_COLUMNS: Columns = {
    "id": lambda item: item["id"],
    "name": lambda item: item["name"],
    "role": lambda item: item["role"],
    "limits": lambda item: [*(item["document_prefixes"] or ()), *(item["resource_prefixes"] or ())],
    "expires": lambda item: item["state"] if item["state"] == "revoked" else _day(item["expires_at"]),
    "last use": lambda item: _day(item["used_at"]),
}


def _day(moment: str | None) -> str:
    """
    >>> _day("2031-12-24T18:00:59+00:00"), _day(None)
    ('2031-12-24', 'never')
    """
    return moment[:10] if moment else "never"


def _shown(found: Token) -> Item:
    moments = ("created_at", "revoked_at", "expires_at", "used_at")
    item = asdict(found) | {"state": found.state}
    for name in ("is_expired", "is_use_due"):
        del item[name]
    return item | {name: item[name].astimezone(UTC).isoformat() if item[name] else None for name in moments}
