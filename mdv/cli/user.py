"""`mdv user`: people who sign in to the pages by name. Made in the database, so that it takes no token to make one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from mdv.cli.database import database
from mdv.cli.frame import Noun, data_option, json_option
from mdv.cli.output import Item, on_terminal, say, write_json, write_table
from mdv.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from mdv.db.people import User

MOST_READ = 100_000
"""Of what standard input holds: no password is so long."""

stdin_option = click.option(
    "--password-stdin", "from_stdin", is_flag=True, help="Read the password from standard input: its first line."
)


@click.group(cls=Noun, example="mdv user create ada --role admin")
def user() -> None:
    """People who sign in to the pages: make, list and delete them, and change their passwords.

    Only a hash of a password is kept, by scrypt. Programs have tokens instead: `mdv token`.
    """


@user.command("create", example="mdv user create ada --role admin")
@click.argument("name")
@click.option("--role", type=click.Choice(["admin", "viewer"]), default="viewer", show_default=True,
              help="An admin changes things, a viewer looks.")  # fmt: skip
@stdin_option
@data_option
def create(name: str, role: str, from_stdin: bool) -> None:
    """Make a user called NAME, with a password that is asked for."""
    from mdv.db.people import create_user

    password = _password(from_stdin)
    with database() as connection:
        create_user(connection, name, role, password)
    say(f"The {role} {name} may sign in.")


@user.command("list", example="mdv user list")
@json_option
@data_option
def list_(as_json: bool) -> None:
    """List the users; never their passwords."""
    from mdv.db.people import list_users

    with database() as connection:
        items = [_shown(found) for found in list_users(connection)]
    if as_json:
        write_json({"items": items, "more": False})
    elif items or not on_terminal():
        write_table(_COLUMNS, ([item[name] for name in _COLUMNS] for item in items))
    else:
        say("There is no user yet: `mdv user create NAME --role admin` makes one. Tokens sign in, too.")


@user.command("password", example="mdv user password ada")
@click.argument("name")
@stdin_option
@data_option
def password(name: str, from_stdin: bool) -> None:
    """Give the user NAME another password, and sign them out everywhere."""
    from mdv.db.people import change_password

    wanted = _password(from_stdin)
    with database() as connection:
        if not change_password(connection, name, wanted):
            raise _nobody(name)
    say(f"{name} has another password, and was signed out everywhere.")


@user.command("delete", example="mdv user delete ada")
@click.argument("name")
@data_option
def delete(name: str) -> None:
    """Delete the user NAME, and sign them out everywhere."""
    from mdv.db.people import delete_user

    with database() as connection:
        if not delete_user(connection, name):
            raise _nobody(name)
    say(f"The user {name} is deleted, and was signed out everywhere.")


_COLUMNS = ("name", "role", "created_at")


def _password(from_stdin: bool) -> str:
    """A password: asked for twice without being shown, or the first line of standard input."""
    if from_stdin:
        try:
            given = sys.stdin.readline(MOST_READ).rstrip("\r\n")
        except UnicodeDecodeError:
            raise BadRequest("Standard input is not UTF-8.") from None
        if not given:
            raise BadRequest("Standard input holds no password.")
        return given
    if not sys.stdin.isatty():
        raise click.UsageError("Nobody is here to be asked for a password: write it to --password-stdin.")
    asked: str = click.prompt("Password", hide_input=True, confirmation_prompt="The same again", err=True)
    return asked


def _nobody(name: str) -> NotFound:
    return NotFound(f"There is no user {name}: `mdv user list` shows them.")


def _shown(found: User) -> Item:
    return {"name": found.name, "role": found.role, "created_at": found.created_at.isoformat()}
