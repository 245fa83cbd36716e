"""Manage users: create, change and remove them. Pages and commands call these functions."""

from __future__ import annotations

from sqlalchemy import Connection

from mdv.db import users as db
from mdv.db.tokens import ROLES
from mdv.db.users import MAX_NAME_LENGTH, MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH, Administrators, User
from mdv.errors import Conflict, NotFound
from mdv.query.offload import Offload, run_inline

__all__ = ["MAX_NAME_LENGTH", "MAX_PASSWORD_LENGTH", "MIN_PASSWORD_LENGTH", "ROLES", "Administrators", "User",
           "add_user", "count_administrators", "get_user", "is_last_administrator", "list_users", "remove_user",
           "set_password", "set_role"]  # fmt: skip

list_users = db.list_users
count_administrators = db.count_administrators


def add_user(connection: Connection, name: str, role: str, password: str, apart: Offload = run_inline) -> None:
    """Create a user. `apart` runs the hash of the password."""
    db.create_user(connection, name, role, password, lambda text: apart(db.hash_password, text))


def get_user(connection: Connection, name: str) -> User:
    found = db.find_user(connection, name)
    if found is None:
        raise NotFound(f"There is no user {name}: `mdv user list` shows all users.")
    return found


def set_password(connection: Connection, name: str, password: str, apart: Offload = run_inline) -> None:
    """Change a user's password, and end all sessions of the user."""
    get_user(connection, name)
    db.change_password(connection, name, password, lambda text: apart(db.hash_password, text))


def is_last_administrator(connection: Connection, user: User) -> bool:
    """True if no other user is an administrator. Tokens do not count: who has one is not known."""
    return user.role == "admin" and count_administrators(connection).users <= 1


def set_role(connection: Connection, name: str, role: str, knows_last: bool = False) -> User:
    """Change a user's role, also in open sessions. Return the user as before. Raise Conflict if no user would be an
    administrator, unless the caller `knows_last`."""
    db.lock_administrators(connection)
    user = get_user(connection, name)
    if role != "admin" and not knows_last and is_last_administrator(connection, user):
        raise _last_administrator(name)
    db.change_role(connection, name, role)
    return user


def remove_user(connection: Connection, name: str, knows_last: bool = False) -> User:
    """Delete a user, and end all sessions of the user. Return the user. Raise Conflict if no user would be an
    administrator, unless the caller `knows_last`."""
    db.lock_administrators(connection)
    user = get_user(connection, name)
    if not knows_last and is_last_administrator(connection, user):
        raise _last_administrator(name)
    db.delete_user(connection, name)
    return user


def _last_administrator(name: str) -> Conflict:
    return Conflict(f"{name} is the last user who is an administrator. Without one, only tokens can administer.")
