"""`mdv user`: manage users of the web UI. It works on the database, so that no token is needed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from mdv.cli.command import ExampleGroup, data_option, json_option
from mdv.cli.database import database
from mdv.cli.output import Columns, Item, on_terminal, print_line, short_time, write_json, write_table
from mdv.errors import BadRequest

if TYPE_CHECKING:
    from mdv.accounts.users import Administrators, User

MAX_CHARACTERS_READ = 100_000
"""How much of standard input is read; no password is longer."""

stdin_option = click.option(
    "--password-stdin", "from_stdin", is_flag=True, help="Read the password from the first line of standard input."
)


@click.group(cls=ExampleGroup, example="mdv user create ada --role admin")
def user() -> None:
    """Manage users of the web UI: create, list and delete them, and change their roles and passwords.

    Only a scrypt hash of the password is stored. Programs use tokens instead: `mdv token`.
    """


@user.command("create", example="mdv user create ada --role admin")
@click.argument("name")
@click.option("--role", type=click.Choice(["admin", "viewer"]), default="viewer", show_default=True,
              help="An admin can read and write, a viewer can only read.")  # fmt: skip
@stdin_option
@data_option
def create(name: str, role: str, from_stdin: bool) -> None:
    """Create a user named NAME. The command asks for the password."""
    from mdv.accounts.users import add_user

    password = _password(from_stdin)
    with database() as connection:
        add_user(connection, name, role, password)
    print_line(f"The {role} {name} is created and can sign in.")


@user.command("list", example="mdv user list")
@json_option
@data_option
def list_(as_json: bool) -> None:
    """List the users with their open sessions. Passwords are not shown."""
    from mdv.accounts.users import list_users

    with database() as connection:
        items = [_shown(found) for found in list_users(connection)]
    if as_json:
        write_json({"items": items, "more": False})
    elif items or not on_terminal():
        columns = _TERMINAL_COLUMNS if on_terminal() else _COLUMNS
        write_table(columns, ([value(item) for value in columns.values()] for item in items))
    else:
        print_line("There are no users yet: `mdv user create NAME --role admin` creates one. You can also use a token.")


@user.command("password", example="mdv user password ada")
@click.argument("name")
@stdin_option
@data_option
def password(name: str, from_stdin: bool) -> None:
    """Change the password of the user NAME, and end all their sessions."""
    from mdv.accounts.users import set_password

    wanted = _password(from_stdin)
    with database() as connection:
        set_password(connection, name, wanted)
    print_line(f"The password of {name} is changed, and all their sessions are ended.")


@user.command("role", example="mdv user role ada admin")
@click.argument("name")
@click.argument("role", type=click.Choice(["admin", "viewer"]))
@data_option
def role(name: str, role: str) -> None:
    """Change the role of the user NAME. It takes effect at once, also in open sessions."""
    from mdv.accounts.users import count_administrators, set_role

    with database() as connection:
        before = set_role(connection, name, role, knows_last=True)
        left = count_administrators(connection)
    print_line(f"{name} has the role {role}.")
    if before.role == "admin" and role != "admin":
        warn_without_administrator(left)


@user.command("delete", example="mdv user delete ada")
@click.argument("name")
@data_option
def delete(name: str) -> None:
    """Delete the user NAME, and end all their sessions."""
    from mdv.accounts.users import count_administrators, remove_user

    with database() as connection:
        removed = remove_user(connection, name, knows_last=True)
        left = count_administrators(connection)
    print_line(f"The user {name} is deleted, and all their sessions are ended.")
    if removed.role == "admin":
        warn_without_administrator(left)


_COLUMNS: Columns = {
    name: lambda item, name=name: item[name]  # type: ignore[misc]
    for name in ("name", "role", "created_at", "sessions", "seen_at")
}
_TERMINAL_COLUMNS: Columns = {
    **_COLUMNS,
    "created_at": lambda item: short_time(item["created_at"]),
    "seen_at": lambda item: short_time(item["seen_at"]),
}


def warn_without_administrator(left: Administrators) -> None:
    """Warn if only the owner of the admin token of the settings can still administer."""
    if left.users == 0 and left.tokens == 0:
        click.echo("mdv: No user and no token can administer now, except for MDV_ADMIN_TOKEN if it is set:"
                   " `mdv user create NAME --role admin` creates an administrator.", err=True)  # fmt: skip


def _password(from_stdin: bool) -> str:
    """Return a password: typed twice at a hidden prompt, or the first line of standard input."""
    if from_stdin:
        try:
            given = sys.stdin.readline(MAX_CHARACTERS_READ).rstrip("\r\n")
        except UnicodeDecodeError:
            raise BadRequest("Standard input is not UTF-8.") from None
        if not given:
            raise BadRequest("Standard input is empty: write the password to it.")
        return given
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask for a password: use --password-stdin.")
    typed: str = click.prompt("Password", hide_input=True, confirmation_prompt="Repeat the password", err=True)
    return typed


def _shown(found: User) -> Item:
    seen_at = found.seen_at.isoformat() if found.seen_at else None
    created_at = found.created_at.isoformat()
    return {"name": found.name, "role": found.role, "created_at": created_at, "sessions": found.sessions,
            "seen_at": seen_at}  # fmt: skip
