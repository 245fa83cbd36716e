"""`mdv token`: manage tokens. It works on the database, so that no token is needed to create one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mdv.cli.command import ExampleGroup, data_option, json_option
from mdv.cli.database import database
from mdv.cli.output import Item, on_terminal, print_line, write_json, write_table
from mdv.errors import NotFound

if TYPE_CHECKING:
    from mdv.db.tokens import Token


@click.group(cls=ExampleGroup, example="mdv token create crawler --documents http://example.org/")
def token() -> None:
    """Create, list and revoke tokens."""


@token.command("create", example="mdv token create crawler --documents http://example.org/")
@click.argument("name")
@click.option("--role", type=click.Choice(["admin", "viewer"]), default="admin", show_default=True,
              help="An admin can read and write, a viewer can only read.")  # fmt: skip
@click.option("--documents", metavar="PREFIX", multiple=True,
              help="Register and delete only documents whose URI is PREFIX or below it. Repeatable.")  # fmt: skip
@click.option("--resources", metavar="PREFIX", multiple=True,
              help="Add and remove only statements about resources whose URI is PREFIX or below it, and about"
              " blank nodes of the document. Repeatable.")  # fmt: skip
@json_option
@data_option
def create(name: str, role: str, documents: tuple[str, ...], resources: tuple[str, ...], as_json: bool) -> None:
    """Create a token named NAME. It is shown only once.

    A token without --documents can write any document, one without --resources can describe any resource. With both
    options, both limits apply. A document that describes a resource outside of --resources can be neither replaced nor
    deleted with this token. Both limits refuse URIs with a `.` or `..` segment, plain or percent-encoded. A limited
    token can change only documents and event-condition-action rules, which act within its limits: not the schema,
    LMRs or their rules.
    """
    from mdv.db.tokens import create_token
    from mdv.rdf.parse import is_absolute_iri
    from mdv.uris import has_dot_segments

    for prefix in (*documents, *resources):
        if not is_absolute_iri(prefix):
            raise click.UsageError(f"{prefix!r} is not the prefix of a URI: use one such as http://example.org/.")
        if has_dot_segments(prefix):
            raise click.UsageError(f"{prefix!r} has a '.' or '..' segment: give the prefix without it.")
    if role == "viewer" and (documents or resources):
        raise click.UsageError("A viewer cannot write, so there is nothing to limit: omit --documents and --resources.")
    with database() as connection:
        secret, made = create_token(connection, name, role, documents or None, resources or None)
    if as_json:
        write_json({"token": secret} | _shown(made))
    elif on_terminal():
        print_line(f"Token {made.id}, {made.name}, {made.role}. Store it: it is not shown again.")
        click.echo(secret)
    else:
        click.echo(secret)


@token.command("list", example="mdv token list")
@json_option
@data_option
def list_(as_json: bool) -> None:
    """List the tokens, including revoked ones. Secrets are not shown."""
    from mdv.db.tokens import list_tokens

    with database() as connection:
        items = [_shown(found) for found in list_tokens(connection)]
    if as_json:
        write_json({"items": items, "more": False})
    elif items or not on_terminal():
        write_table(_COLUMNS, ([item[name] for name in _COLUMNS] for item in items))
    else:
        print_line("There are no tokens except the admin token that MDV was started with.")


@token.command("revoke", example="mdv token revoke 3")
@click.argument("number", metavar="ID", type=int)
@data_option
def revoke(number: int) -> None:
    """Revoke the token ID. This cannot be undone."""
    from mdv.db.tokens import revoke_token

    with database() as connection:
        if not revoke_token(connection, number):
            raise NotFound(f"There is no valid token {number}: `mdv token list` shows all tokens.")
    print_line(f"Token {number} is revoked.")


_COLUMNS = ("id", "name", "role", "document_prefixes", "resource_prefixes", "created_at", "revoked_at")


def _shown(found: Token) -> Item:
    moments = {"created_at": found.created_at.isoformat()}
    return asdict(found) | moments | {"revoked_at": found.revoked_at.isoformat() if found.revoked_at else None}
