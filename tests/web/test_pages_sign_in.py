"""Signing in: who gets in, for how long, and what a form must show."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import sqlalchemy
from running import ADMIN, Server

from mdv.db.engine import make_engine
from mdv.db.people import change_password, create_user, delete_user, fits, hash_password
from mdv.errors import BadRequest, Conflict

PASSWORD = "correct horse battery"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def engine(system_database: str) -> Iterator[sqlalchemy.Engine]:
    made = make_engine(system_database)
    with made.begin() as connection:
        connection.execute(sqlalchemy.text("delete from sign_in_failures"))
    yield made
    with made.begin() as connection:
        connection.execute(sqlalchemy.text("delete from sign_in_failures"))
        connection.execute(sqlalchemy.text("delete from users"))
    made.dispose()


@pytest.fixture
def browser(server: Server, engine: sqlalchemy.Engine) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client


def enter(client: httpx.Client, secret: str = ADMIN, name: str = "", **more: str) -> httpx.Response:
    return client.post("/sign-in", data={"name": name, "secret": secret, **more})


def csrf_of(client: httpx.Client) -> str:
    found = re.search(r'<meta name="csrf" content="([^"]+)">', client.get("/jobs").text)
    assert found is not None
    return found[1]


def test_nobody_sees_a_page_before(browser: httpx.Client) -> None:
    for path in ("/", "/documents", "/jobs", "/register", "/overview/events", "/document?uri=http://a.org/x"):
        answer = browser.get(path)
        assert answer.status_code == 303 and answer.headers["Location"].startswith("/sign-in?to="), path
    assert browser.get("/overview/now", headers={"HX-Request": "true"}).status_code == 401
    assert browser.post("/document/delete", data={"uri": "http://a.org/x"}).status_code == 401


def test_the_admin_token_opens_and_signing_out_closes(browser: httpx.Client) -> None:
    answer = enter(browser, to="/jobs?state=done")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/jobs?state=done")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Secure" not in cookie, "there is no TLS here"
    old = dict(browser.cookies)
    page = browser.get("/jobs")
    assert page.status_code == 200 and "no-store" in page.headers["Cache-Control"]
    assert browser.post("/sign-out", data={"csrf": csrf_of(browser)}).status_code == 303
    assert browser.get("/jobs", cookies=old).status_code == 303, "the cookie is worth nothing any more"


@pytest.mark.parametrize(
    "to", ["http://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", ""]
)
def test_after_signing_in_one_stays_here(browser: httpx.Client, to: str) -> None:
    assert enter(browser, to=to).headers["Location"] == "/"


def test_a_user_signs_in_by_name(browser: httpx.Client, engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        create_user(connection, "ada", "viewer", PASSWORD)
    assert enter(browser, "wrong password", "ada").status_code == 401
    assert enter(browser, PASSWORD, "bob").status_code == 401
    assert enter(browser, PASSWORD, "ada").status_code == 303
    assert "ada" in browser.get("/").text
    refused = browser.get("/register")
    assert refused.status_code == 403 and "takes the role admin" in refused.text
    with engine.begin() as connection:
        assert change_password(connection, "ada", PASSWORD + "!")
    assert browser.get("/").status_code == 303, "another password ends what was begun with the old one"
    assert enter(browser, PASSWORD + "!", "ada").status_code == 303
    with engine.begin() as connection:
        assert delete_user(connection, "ada") and not delete_user(connection, "ada")
    assert browser.get("/").status_code == 303


def test_a_token_opens_what_it_opens_elsewhere_until_it_is_revoked(
    browser: httpx.Client, engine: sqlalchemy.Engine, make_token: Callable[..., tuple[str, int]]
) -> None:
    secret, number = make_token("admin", documents=["http://mine.example/"])
    assert enter(browser, secret).status_code == 303
    form = {"csrf": csrf_of(browser), "uri": "http://other.example/x", "text": "<#a> a <#b> .", "act": "check"}
    refused = browser.post("/register", data=form)
    assert refused.status_code == 403 and "limited to http://mine.example/" in refused.text
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("update tokens set revoked_at = now() where id = :id"), {"id": number})
    assert browser.get("/").status_code == 303


def test_the_token_of_an_lmr_opens_no_page(browser: httpx.Client, server: Server) -> None:
    made = server.api().http.post("/api/v1/lmrs", json={"name": "no-pages"}).json()
    assert enter(browser, made["token"]).status_code == 401


def test_a_session_that_is_not_used_ends(browser: httpx.Client, engine: sqlalchemy.Engine) -> None:
    enter(browser)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("update web_sessions set seen_at = now() - interval '11 hours'"))
    assert browser.get("/").status_code == 200
    with engine.begin() as connection:
        seen = sqlalchemy.text("select min(now() - seen_at) < interval '1 minute' from web_sessions")
        assert connection.execute(seen).scalar_one(), "it was used"
        connection.execute(sqlalchemy.text("update web_sessions set seen_at = now() - interval '13 hours'"))
    assert browser.get("/").status_code == 303
    enter(browser)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("update web_sessions set created_at = now() - interval '8 days'"))
    assert browser.get("/").status_code == 303


def test_a_form_that_is_not_ours_is_refused(browser: httpx.Client) -> None:
    enter(browser)
    form = {"uri": "http://forged.example/x", "text": "<#a> a <#b> .", "act": "register"}
    assert browser.post("/register", data=form).status_code == 403
    assert browser.post("/register", data=form | {"csrf": "guess"}).status_code == 403
    token = csrf_of(browser)
    foreign = ("http://evil.example", "null", "http://[x")
    for headers in (*({"Origin": origin} for origin in foreign), {"Sec-Fetch-Site": "cross-site"}):
        assert browser.post("/register", data=form | {"csrf": token}, headers=headers).status_code == 403, headers
    assert (
        browser.post("/sign-in", data={"secret": ADMIN}, headers={"Origin": "http://evil.example"}).status_code == 403
    )
    ours = browser.post("/register", data=form | {"csrf": token}, headers={"Origin": str(browser.base_url).rstrip("/")})
    assert ours.status_code == 422, "the form was taken; the schema knows no such class"


def test_a_form_with_nul_in_it_is_refused(browser: httpx.Client) -> None:
    enter(browser)
    refused = browser.post("/lmrs", data={"csrf": csrf_of(browser), "name": "a\0b"})
    assert refused.status_code == 400 and "NUL" in refused.text


def test_the_cookie_opens_no_call(browser: httpx.Client) -> None:
    enter(browser)
    assert browser.get("/api/v1/status").status_code == 401


def test_guessing_is_stopped(browser: httpx.Client, engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        create_user(connection, "eve", "admin", PASSWORD)
    for _ in range(10):
        assert enter(browser, "guess", "eve").status_code == 401
    stopped = enter(browser, PASSWORD, "eve")
    assert stopped.status_code == 429 and int(stopped.headers["Retry-After"]) > 0 and "Try again in" in stopped.text
    assert enter(browser).status_code == 303, "others from there still get in"
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("update sign_in_failures set at = now() - interval '16 minutes'"))
    assert enter(browser, PASSWORD, "eve").status_code == 303


def test_guesses_at_the_same_time_are_all_counted(server: Server, engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        create_user(connection, "mallory", "admin", PASSWORD)

    def guess(number: int) -> int:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            return enter(client, f"guess {number}", "mallory").status_code

    with ThreadPoolExecutor(12) as guessers:
        statuses = list(guessers.map(guess, range(24)))
    assert statuses.count(401) == 10 and statuses.count(429) == 14


def test_a_name_that_nobody_can_have_is_nobodys(browser: httpx.Client) -> None:
    assert enter(browser, "x", "n" * 9000).status_code == 401


def test_of_a_form_little_is_read_and_of_a_strangers_nothing(browser: httpx.Client) -> None:
    assert browser.post("/sign-in", content="a=b&" * 100_000, headers=FORM).status_code == 413
    assert browser.post("/register", content="a=b&" * 100_000, headers=FORM).status_code == 401
    enter(browser)
    assert browser.post("/register", content="a=b&" * 100_000, headers=FORM).status_code == 413
    parts = [("x", (None, "y"))] * 300
    token = {"X-CSRF-Token": csrf_of(browser)}
    assert browser.post("/register", files=parts, headers=token).status_code == 413


def test_a_form_that_does_not_arrive_is_not_waited_for(small: Server) -> None:
    with socket.create_connection(("127.0.0.1", small.port), timeout=30) as slow:
        head = "POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        slow.sendall(f"{head}Content-Length: 1000\r\n\r\ns".encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_what_a_browser_may_do(browser: httpx.Client) -> None:
    enter(browser)
    page = browser.get("/")
    policy = page.headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy and "unsafe" not in policy and "default-src 'none'" in policy
    assert page.headers["X-Frame-Options"] == "DENY" and page.headers["X-Content-Type-Options"] == "nosniff"
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|style=", page.text), "nothing inline"


def test_where_reading_is_public_pages_are_and_changing_is_not(small: Server) -> None:
    with httpx.Client(base_url=small.url) as anyone:
        assert anyone.get("/documents").status_code == 200
        for path in ("/register", "/lmrs/anyone", "/lmrs/anyone/checksum", "/like/subscribed"):
            assert anyone.get(path).headers["Location"].startswith("/sign-in"), path


def test_a_password_is_kept_as_a_hash(engine: sqlalchemy.Engine) -> None:
    kept = hash_password(PASSWORD)
    assert PASSWORD not in kept and kept != hash_password(PASSWORD)
    assert fits(PASSWORD, kept) and not fits(PASSWORD + "x", kept) and not fits(PASSWORD, None)
    with engine.begin() as connection, pytest.raises(BadRequest):
        create_user(connection, "ada", "viewer", "short")
    with engine.begin() as connection, pytest.raises(BadRequest):
        create_user(connection, "ada", "king", PASSWORD)
    with engine.begin() as connection:
        create_user(connection, "ada", "viewer", PASSWORD)
        with pytest.raises(Conflict):
            create_user(connection, "ada", "viewer", PASSWORD)
