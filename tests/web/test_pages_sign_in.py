"""Signing in: access, duration of sessions, and CSRF protection."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
import sqlalchemy

from mdv.db.engine import make_engine
from mdv.db.users import change_password, create_user, delete_user, hash_password, verify_password
from mdv.errors import BadRequest, Conflict
from tests.support.local_http import local_client
from tests.support.server import ADMIN, Server, turtle

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
def browser(server: Server, engine: sqlalchemy.Engine) -> Iterator[httpx2.Client]:
    with local_client(base_url=server.url, timeout=60) as client:
        yield client


def enter(client: httpx2.Client, secret: str = ADMIN, name: str = "", **more: str) -> httpx2.Response:
    return client.post("/sign-in", data={"name": name, "secret": secret, **more})


def csrf_of(client: httpx2.Client) -> str:
    found = re.search(r'<meta name="csrf" content="([^"]+)">', client.get("/jobs").text)
    assert found is not None
    return found[1]


def test_pages_need_a_sign_in(browser: httpx2.Client) -> None:
    for path in ("/", "/documents", "/jobs", "/register", "/overview/events", "/document?uri=http://a.org/x"):
        answer = browser.get(path)
        assert answer.status_code == 303 and answer.headers["Location"].startswith("/sign-in?to="), path
    assert browser.get("/overview/now", headers={"HX-Request": "true"}).status_code == 401
    assert browser.post("/document/delete", data={"uri": "http://a.org/x"}).status_code == 401


def test_the_admin_token_signs_in_and_signing_out_ends_the_session(browser: httpx2.Client) -> None:
    answer = enter(browser, to="/jobs?state=done")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/jobs?state=done")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Secure" not in cookie, "there is no TLS here"
    old = dict(browser.cookies)
    page = browser.get("/jobs")
    assert page.status_code == 200 and "no-store" in page.headers["Cache-Control"]
    assert browser.post("/sign-out", data={"csrf": csrf_of(browser)}).status_code == 303
    assert browser.get("/jobs", cookies=old).status_code == 303, "the cookie is no longer valid"


@pytest.mark.parametrize(
    "to", ["http://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", ""]
)
def test_signing_in_redirects_only_to_local_paths(browser: httpx2.Client, to: str) -> None:
    assert enter(browser, to=to).headers["Location"] == "/"


def test_a_user_signs_in_by_name_and_password(browser: httpx2.Client, engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        create_user(connection, "ada", "viewer", PASSWORD)
    assert enter(browser, "wrong password", "ada").status_code == 401
    assert enter(browser, PASSWORD, "bob").status_code == 401
    assert enter(browser, PASSWORD, "ada").status_code == 303
    assert "ada" in browser.get("/").text
    refused = browser.get("/register")
    assert refused.status_code == 403 and "require the admin role" in refused.text
    with engine.begin() as connection:
        assert change_password(connection, "ada", PASSWORD + "!")
    assert browser.get("/").status_code == 303, "a new password ends sessions of the old one"
    assert enter(browser, PASSWORD + "!", "ada").status_code == 303
    with engine.begin() as connection:
        assert delete_user(connection, "ada") and not delete_user(connection, "ada")
    assert browser.get("/").status_code == 303


def test_a_token_signs_in_with_its_limits_until_it_is_revoked(
    browser: httpx2.Client, engine: sqlalchemy.Engine, make_token: Callable[..., tuple[str, int]]
) -> None:
    secret, number = make_token("admin", documents=["http://mine.example/"])
    assert enter(browser, secret).status_code == 303
    form = {"csrf": csrf_of(browser), "uri": "http://other.example/x", "text": "<#a> a <#b> .", "act": "check"}
    refused = browser.post("/register", data=form)
    assert refused.status_code == 403 and "limited to http://mine.example/" in refused.text
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("update tokens set revoked_at = now() where id = :id"), {"id": number})
    assert browser.get("/").status_code == 303


def test_a_session_is_limited_to_the_resource_prefixes_of_its_token(
    browser: httpx2.Client, server: Server, make_token: Callable[..., tuple[str, int]], doc: str
) -> None:
    both = turtle("<http://mine.example/a> ex:note 'x' .", "<http://other.example/b> ex:note 'y' .")
    assert server.api().put(doc, both).status_code == 201
    secret, _ = make_token("admin", resources=["http://mine.example/"])
    assert enter(browser, secret).status_code == 303
    form = {"csrf": csrf_of(browser), "uri": doc, "version": "1"}
    text = turtle("<http://mine.example/a> ex:note 'z' .")
    for refused in (
        browser.get("/document/delete", params={"uri": doc}),
        browser.post("/document/delete", data=form),
        browser.post("/register", data=form | {"text": text, "syntax": "Turtle", "act": "register"}),
    ):
        assert refused.status_code == 403 and "http://other.example/b" in refused.text
    assert server.api().get("/documents", uri=doc).headers["ETag"] == '"1"'


def test_the_token_of_an_lmr_cannot_sign_in(browser: httpx2.Client, server: Server) -> None:
    made = server.api().http.post("/api/v1/lmrs", json={"name": "no-pages"}).json()
    assert enter(browser, made["token"]).status_code == 401


def test_an_unused_or_old_session_expires(browser: httpx2.Client, engine: sqlalchemy.Engine) -> None:
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


def test_a_forged_form_is_refused(browser: httpx2.Client) -> None:
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
    assert ours.status_code == 422, "the form was accepted; the schema has no such class"


def test_a_form_with_nul_in_it_is_refused(browser: httpx2.Client) -> None:
    enter(browser)
    refused = browser.post("/lmrs", data={"csrf": csrf_of(browser), "name": "a\0b"})
    assert refused.status_code == 400 and "NUL" in refused.text


def test_the_session_cookie_is_not_accepted_by_the_api(browser: httpx2.Client) -> None:
    enter(browser)
    assert browser.get("/api/v1/status").status_code == 401


def test_repeated_failures_lock_the_sign_in(browser: httpx2.Client, engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        create_user(connection, "eve", "admin", PASSWORD)
    for _ in range(10):
        assert enter(browser, "guess", "eve").status_code == 401
    stopped = enter(browser, PASSWORD, "eve")
    assert stopped.status_code == 429 and int(stopped.headers["Retry-After"]) > 0 and "Try again in" in stopped.text
    assert enter(browser).status_code == 303, "others from there are still accepted"
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("update sign_in_failures set at = now() - interval '16 minutes'"))
    assert enter(browser, PASSWORD, "eve").status_code == 303


def test_concurrent_failures_are_all_counted(server: Server, engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        create_user(connection, "mallory", "admin", PASSWORD)

    def guess(number: int) -> int:
        with local_client(base_url=server.url, timeout=60) as client:
            return enter(client, f"guess {number}", "mallory").status_code

    with ThreadPoolExecutor(12) as guessers:
        statuses = list(guessers.map(guess, range(24)))
    assert statuses.count(401) == 10 and statuses.count(429) == 14


def test_an_impossible_user_name_is_refused(browser: httpx2.Client) -> None:
    assert enter(browser, "x", "n" * 9000).status_code == 401


def test_forms_are_limited_in_size_and_not_read_from_anonymous_visitors(browser: httpx2.Client) -> None:
    assert browser.post("/sign-in", content="a=b&" * 100_000, headers=FORM).status_code == 413
    assert browser.post("/register", content="a=b&" * 100_000, headers=FORM).status_code == 401
    enter(browser)
    assert browser.post("/register", content="a=b&" * 100_000, headers=FORM).status_code == 413
    parts = [("x", (None, "y"))] * 300
    token = {"X-CSRF-Token": csrf_of(browser)}
    assert browser.post("/register", files=parts, headers=token).status_code == 413


@pytest.mark.full
def test_a_form_that_does_not_arrive_ends_in_408(small: Server) -> None:
    with socket.create_connection(("127.0.0.1", small.port), timeout=60) as slow:
        head = "POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        slow.sendall(f"{head}Content-Length: 1000\r\n\r\ns".encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_pages_have_a_strict_content_security_policy(browser: httpx2.Client) -> None:
    enter(browser)
    page = browser.get("/")
    policy = page.headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy and "unsafe" not in policy and "default-src 'none'" in policy
    assert page.headers["X-Frame-Options"] == "DENY" and page.headers["X-Content-Type-Options"] == "nosniff"
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|style=", page.text), "nothing inline"


def test_with_public_reading_pages_can_be_read_and_changes_need_a_sign_in(small: Server) -> None:
    with local_client(base_url=small.url) as anyone:
        assert anyone.get("/documents").status_code == 200
        for path in ("/register", "/lmrs/anyone", "/lmrs/anyone/checksum", "/like/subscribed"):
            assert anyone.get(path).headers["Location"].startswith("/sign-in"), path


def test_an_unreadable_password_hash_is_refused(browser: httpx2.Client, engine: sqlalchemy.Engine) -> None:
    digest = hashlib.scrypt(PASSWORD.encode(), salt=bytes(16), n=2**15, r=8, p=1, maxmem=2**26)
    earlier = f"scrypt${base64.b64encode(bytes(16)).decode()}${base64.b64encode(digest).decode()}"
    strange = ("", "$", "$$", PASSWORD, "md5$x$y", "scrypt:x:8:1$a$b", "scrypt:3:8:1$a$b", "scrypt:32768:8:1$a$\xe4")
    with engine.begin() as connection:
        create_user(connection, "ada", "viewer", PASSWORD)
    for kept in (earlier, *strange):
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("update users set password = :kept"), {"kept": kept})
            connection.execute(sqlalchemy.text("delete from sign_in_failures"))
        answer = enter(browser, PASSWORD, "ada")
        assert answer.status_code == 401, (kept, answer.text)
    with engine.begin() as connection:
        assert change_password(connection, "ada", PASSWORD)
        connection.execute(sqlalchemy.text("delete from sign_in_failures"))
    assert enter(browser, PASSWORD, "ada").status_code == 303


def test_a_password_is_kept_as_a_hash(engine: sqlalchemy.Engine) -> None:
    kept = hash_password(PASSWORD)
    assert kept.startswith("scrypt:32768:8:1$")
    with pytest.raises(BadRequest, match="not valid Unicode"):
        hash_password("a lone \udce4 surrogate")
    assert not verify_password("a lone \udce4 surrogate", kept)
    assert PASSWORD not in kept and kept != hash_password(PASSWORD)
    assert (
        verify_password(PASSWORD, kept)
        and not verify_password(PASSWORD + "x", kept)
        and not verify_password(PASSWORD, None)
    )
    with engine.begin() as connection, pytest.raises(BadRequest):
        create_user(connection, "ada", "viewer", "short")
    with engine.begin() as connection, pytest.raises(BadRequest):
        create_user(connection, "ada", "king", PASSWORD)
    with engine.begin() as connection:
        create_user(connection, "ada", "viewer", PASSWORD)
        with pytest.raises(Conflict):
            create_user(connection, "ada", "viewer", PASSWORD)
