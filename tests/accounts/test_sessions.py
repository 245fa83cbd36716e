"""A session of a user never outlives the password that it was started with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from mdv.accounts.sessions import find_session, start_session
from mdv.accounts.users import remove_user, set_password
from mdv.db.users import begin_session, create_user, lock_password_hash
from mdv.errors import Unauthenticated
from tests.support.eventually import eventually

OLD, NEW = "correct horse battery", "another long password"


@pytest.fixture
def eve(engine: Engine) -> Engine:
    with engine.begin() as connection:
        create_user(connection, "eve", "admin", OLD)
    return engine


def change(connection: Connection) -> None:
    set_password(connection, "eve", NEW)


def remove(connection: Connection) -> None:
    remove_user(connection, "eve", knows_last=True)


@pytest.mark.parametrize("act", [change, remove])
def test_no_session_starts_if_the_user_changes_while_the_password_is_verified(
    eve: Engine, act: Callable[[Connection], object]
) -> None:
    def apart(function: Callable[..., Any], *arguments: Any) -> Any:
        """Verify the password. Meanwhile, an administrator changes the user."""
        found = function(*arguments)
        with eve.begin() as connection:
            act(connection)
        return found

    with pytest.raises(Unauthenticated):
        start_session(eve, "eve", OLD, "127.0.0.1", None, apart)
    with eve.connect() as connection:
        assert connection.execute(text("select count(*) from web_sessions")).scalar_one() == 0


def test_a_change_of_the_password_ends_a_session_that_is_just_being_started(eve: Engine) -> None:
    def set_it() -> None:
        with eve.begin() as connection:
            change(connection)

    changes = threading.Thread(target=set_it)
    with eve.begin() as connection:
        assert lock_password_hash(connection, "eve") is not None
        cookie = begin_session(connection, user="eve")
        changes.start()
        with eve.connect() as other:
            waiting = text("select count(*) from pg_locks where not granted")
            eventually(lambda: other.execute(waiting).scalar_one() > 0)
    changes.join()
    assert find_session(eve, cookie, None) is None
    assert find_session(eve, start_session(eve, "eve", NEW, "127.0.0.1", None), None) is not None
