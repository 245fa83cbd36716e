"""The use of a token is written in the background, at most once a minute, and costs a request no message."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, text

from mdv.accounts.callers import find_caller
from mdv.accounts.sessions import find_session, start_session
from mdv.accounts.token_uses import TokenUses
from mdv.db.tokens import _FIND, Token, create_token, get_token
from mdv.errors import Unauthenticated
from tests.support.eventually import eventually
from tests.support.sent_sql import executed

PAST = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def make(engine: Engine) -> Callable[..., tuple[str, Token]]:
    def make(expires_at: datetime | None = None) -> tuple[str, Token]:
        with engine.begin() as connection:
            return create_token(connection, "ci", expires_at=expires_at)

    return make


def last_use(engine: Engine, token: Token) -> datetime | None:
    with engine.connect() as connection:
        found = get_token(connection, token.id)
    assert found is not None
    return found.used_at


def test_many_requests_write_once(
    engine: Engine, make: Callable[..., tuple[str, Token]], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, token = make()
    uses = TokenUses(engine.execution_options(isolation_level="AUTOCOMMIT"))
    with executed(monkeypatch) as sent:
        for _ in range(20):
            assert find_caller(engine, secret, None, uses).name == f"ci#{token.id}"
        eventually(lambda: last_use(engine, token))
        finds = [query for query in sent if "hash =" in query]
        writes = [query for query in sent if query.lower().startswith("update tokens")]
    assert (len(finds), len(writes)) == (20, 1), sent


def test_a_request_sends_one_statement_and_does_not_wait_for_the_write(
    engine: Engine, make: Callable[..., tuple[str, Token]], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, token = make()
    uses = TokenUses(engine.execution_options(isolation_level="AUTOCOMMIT"))
    with engine.begin() as other:
        other.execute(text("lock table tokens in share mode"))  # reads go on, writes wait
        with executed(monkeypatch) as sent:
            assert find_caller(engine, secret, None, uses).name == f"ci#{token.id}"
            assert [query for query in sent if query.startswith("select") and "tokens" in query] == [_FIND]
        assert last_use(engine, token) is None
    eventually(lambda: last_use(engine, token))


def test_the_uses_of_many_tokens_are_all_recorded(engine: Engine, make: Callable[..., tuple[str, Token]]) -> None:
    made = [make() for _ in range(30)]
    uses = TokenUses(engine.execution_options(isolation_level="AUTOCOMMIT"))
    threads = [threading.Thread(target=find_caller, args=(engine, secret, None, uses)) for secret, _ in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, token in made:
        eventually(lambda token=token: last_use(engine, token))  # type: ignore[misc]


def test_a_use_that_cannot_be_written_harms_nobody(engine: Engine, make: Callable[..., tuple[str, Token]]) -> None:
    secret, token = make()
    with engine.begin() as connection:
        connection.execute(text("alter table tokens rename column used_at to hidden"))
    broken = TokenUses(engine.execution_options(isolation_level="AUTOCOMMIT"))
    broken.record(token)
    eventually(lambda: not broken._is_writing)
    with engine.begin() as connection:
        connection.execute(text("alter table tokens rename column hidden to used_at"))
    assert find_caller(engine, secret, None, broken).name == f"ci#{token.id}"
    assert last_use(engine, token) is None, "it is tried again a minute later"


def test_an_expired_token_is_refused_with_its_expiry(engine: Engine, make: Callable[..., tuple[str, Token]]) -> None:
    secret, token = make(PAST)
    uses = TokenUses(engine.execution_options(isolation_level="AUTOCOMMIT"))
    with pytest.raises(Unauthenticated, match="expired on 2026-01-31 12:00 UTC"):
        find_caller(engine, secret, None, uses)
    with pytest.raises(Unauthenticated, match="expired on 2026-01-31 12:00 UTC"):
        start_session(engine, "", secret, "192.0.2.1", None)
    assert last_use(engine, token) is None


def test_a_session_ends_when_its_token_expires_and_uses_it(
    engine: Engine, make: Callable[..., tuple[str, Token]]
) -> None:
    secret, token = make(datetime.now(UTC) + timedelta(hours=1))
    cookie = start_session(engine, "", secret, "192.0.2.1", None)
    assert last_use(engine, token) is not None
    with engine.begin() as connection:
        connection.execute(text("update web_sessions set seen_at = now() - interval '2 minutes'"))
        connection.execute(text("update tokens set used_at = now() - interval '2 minutes'"))
    before = last_use(engine, token)
    single = engine.execution_options(isolation_level="AUTOCOMMIT")
    found = find_session(single, cookie, None)
    assert found is not None and found.token_id == token.id and last_use(engine, token) != before
    with engine.begin() as connection:
        connection.execute(text("update tokens set expires_at = now() - interval '1 second'"))
    assert find_session(single, cookie, None) is None
