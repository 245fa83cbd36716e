"""`mdv token`: who may do what. Made in the database, so that it takes no token to make one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mdv.cli.database import database
from mdv.cli.frame import Noun, data_option, json_option
from mdv.cli.output import Item, on_terminal, say, write_json, write_table
from mdv.errors import NotFound

if TYPE_CHECKING:
    from mdv.db.tokens import Token


@click.group(cls=Noun, example="mdv token create crawler --documents http://example.org/")
def token() -> None:
    """Who may do what: make, list and revoke tokens."""


@token.command("create", example="mdv token create crawler --documents http://example.org/")
@click.argument("name")
@click.option("--role", type=click.Choice(["admin", "viewer"]), default="admin", show_default=True,
              help="An admin changes things, a viewer reads.")  # fmt: skip
@click.option("--documents", metavar="PREFIX", multiple=True,
              help="May write only documents whose URI starts so; may be given several times.")  # fmt: skip
@click.option("--resources", metavar="PREFIX", multiple=True,
              help="May describe only resources whose URI starts so; may be given several times.")  # fmt: skip
@json_option
@data_option
def create(name: str, role: str, documents: tuple[str, ...], resources: tuple[str, ...], as_json: bool) -> None:
    """Make a token called NAME. It is shown this once."""
    from mdv.db.tokens import create_token
    from mdv.rdf.parse import is_absolute_iri

    for prefix in (*documents, *resources):
        if not is_absolute_iri(prefix):
            raise click.UsageError(f"{prefix!r} is not the beginning of a URI, such as http://example.org/.")
    if role == "viewer" and (documents or resources):
        raise click.UsageError("A viewer writes nothing, so there is nothing to limit: leave the prefixes out.")
    with database() as connection:
        secret, made = create_token(connection, name, role, documents or None, resources or None)
    if as_json:
        write_json({"token": secret} | _shown(made))
    elif on_terminal():
        say(f"Token {made.id}, {made.name}, {made.role}. Keep it: it is not shown again.")
        click.echo(secret)
    else:
        click.echo(secret)


@token.command("list", example="mdv token list")
@json_option
@data_option
def list_(as_json: bool) -> None:
    """List the tokens, also those revoked; never their secrets."""
    from mdv.db.tokens import list_tokens

    with database() as connection:
        items = [_shown(found) for found in list_tokens(connection)]
    if as_json:
        write_json({"items": items, "more": False})
    elif items or not on_terminal():
        write_table(_COLUMNS, ([item[name] for name in _COLUMNS] for item in items))
    else:
        say("There is no token besides the one that MDV was started with.")


@token.command("revoke", example="mdv token revoke 3")
@click.argument("number", metavar="ID", type=int)
@data_option
def revoke(number: int) -> None:
    """Close the token ID for good."""
    from mdv.db.tokens import revoke_token

    with database() as connection:
        if not revoke_token(connection, number):
            raise NotFound(f"There is no open token {number}: `mdv token list` shows them.")
    say(f"Token {number} is revoked.")


_COLUMNS = ("id", "name", "role", "document_prefixes", "resource_prefixes", "created_at", "revoked_at")


def _shown(found: Token) -> Item:
    moments = {"created_at": found.created_at.isoformat()}
    return asdict(found) | moments | {"revoked_at": found.revoked_at.isoformat() if found.revoked_at else None}
