"""The administration: users, tokens and rules of the provider, by role, with hostile input, without JavaScript."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
import sqlalchemy

from mdv.config import Config
from mdv.db.engine import make_engine
from mdv.db.users import create_user
from tests.support.eventually import eventually
from tests.support.page_visitor import Page, Visitor
from tests.support.server import ADMIN, Server, environment
from web.app import create_app

_numbers = itertools.count(1)
Make = Callable[..., tuple[str, int]]
PASSWORD = "correct horse battery"
OTHER = "another horse, staple"
HOSTILE = "<script>alert(1)</script> & \"q\" 'r' ../x?name=y#z"


@pytest.fixture(scope="module")
def engine(system_database: str) -> Iterator[sqlalchemy.Engine]:
    made = make_engine(system_database)
    yield made
    made.dispose()


@pytest.fixture(autouse=True)
def no_users(engine: sqlalchemy.Engine) -> Iterator[None]:
    """Users of other tests would be further administrators."""
    clean = sqlalchemy.text("delete from users")
    with engine.begin() as connection:
        connection.execute(clean)
        connection.execute(sqlalchemy.text("delete from sign_in_failures"))
    yield
    with engine.begin() as connection:
        connection.execute(clean)


@pytest.fixture
def name() -> str:
    return f"ada {next(_numbers)}"


@pytest.fixture
def admin(engine: sqlalchemy.Engine, new_visitor: Callable[..., Visitor]) -> tuple[str, Visitor]:
    """A user who is the only administrator, signed in by name."""
    name = f"boss {next(_numbers)}"
    with engine.begin() as connection:
        create_user(connection, name, "admin", PASSWORD)
    return name, new_visitor(PASSWORD, name)


def create(visitor: Visitor, name: str, role: str = "viewer", password: str = PASSWORD, **more: str) -> Page:
    return visitor.post("/admin/users", name=name, role=role, password=password, **{"repeated": password, **more})


def fact(page: Page, name: str) -> str:
    found = page.tree.xpath("//dt[normalize-space()=$name]/following-sibling::dd[1]", name=name)
    assert found, f"{name} is not shown"
    return " ".join(found[0].text_content().split())


def row_of(page: Page, name: str) -> list[str]:
    (row,) = [row for row in page.rows() if row[0].startswith(name)]
    return row


def is_signed_in(visitor: Visitor) -> bool:
    return visitor.get("/").title == "Overview"


# Access


@pytest.fixture(scope="module")
def routes() -> list[tuple[str, str]]:
    """The method and path of every route of the administration."""
    app = create_app(Config.from_environment(environment("postgresql://x", "redis://x")))
    found = [
        (method, re.sub(r"<number>", "1", re.sub(r"<message>", "00000000-0000-0000-0000-000000000000", rule.rule)))
        for rule in app.url_map.iter_rules()
        for method in sorted((rule.methods or set()) & {"GET", "POST"})
        if rule.rule.startswith("/admin")
    ]
    assert len(found) > 25
    return found


def test_every_route_is_open_to_unlimited_admins_only(
    new_visitor: Callable[..., Visitor], viewer: Visitor, make_token: Make, routes: list[tuple[str, str]]
) -> None:
    limited = [new_visitor(make_token(**limits)[0]) for limits in (
        {"documents": ["http://mine.example/"]}, {"resources": ["http://mine.example/"]}, {"role": "viewer"},
    )]  # fmt: skip
    known = [(visitor, visitor.csrf()) for visitor in (viewer, *limited)]
    stranger = new_visitor()
    for method, path in routes:
        for visitor, csrf in known:
            refused = visitor.get(path) if method == "GET" else visitor.post(path, csrf=csrf, name="x")
            assert refused.status == 403, path
        if method == "GET":
            assert stranger.get(path).path.startswith("/sign-in?to="), path
        else:
            assert stranger.post(path, csrf="guess", name="x").status == 401, path


def test_every_form_needs_the_csrf_token_of_the_session(visitor: Visitor, routes: list[tuple[str, str]]) -> None:
    for path in [path for method, path in routes if method == "POST"]:
        for csrf in ("", "guess"):
            refused = visitor.post(path, csrf=csrf, name="x")
            assert refused.status == 403 and "does not belong to your session" in refused.alert(), path


def test_the_token_of_an_lmr_opens_no_page(new_visitor: Callable[..., Visitor], server: Server, name: str) -> None:
    token = server.api().http.post("/api/v1/lmrs", json={"name": name}).json()["token"]
    stranger = new_visitor()
    headers = {"Authorization": f"Bearer {token}"}
    assert stranger.get("/admin/users", headers=headers).path.startswith("/sign-in?to=")
    assert stranger.http.post("/sign-in", data={"secret": token}).status_code == 401


def test_pages_link_to_the_administration_for_those_who_may(
    visitor: Visitor, viewer: Visitor, new_visitor: Callable[..., Visitor], make_token: Make
) -> None:
    limited = new_visitor(make_token(documents=["http://mine.example/"])[0])
    for path in ("/", "/documents", "/lmrs"):
        assert visitor.get(path).tree.xpath("//nav//a[@href='/admin']"), path
        for other in (viewer, limited):
            assert not other.get(path).tree.xpath("//nav//a[@href='/admin']"), path
    start = visitor.get("/admin")
    links = {"/admin/users", "/admin/tokens", "/admin/webhooks", "/admin/rules", "/lmrs", "/jobs?state=dead"}
    assert links <= set(start.links())
    for link in links:
        assert visitor.get(link).status == 200, link


# Users


def test_a_user_is_created_and_signs_in(visitor: Visitor, new_visitor: Callable[..., Visitor], name: str) -> None:
    made = create(visitor, f" {name} ", "admin")
    assert (
        made.path == f"/admin/user?name={quote(name, safe='').replace('%20', '+')}" and PASSWORD not in made.answer.text
    )
    assert fact(made, "Open sessions") == "0"
    assert row_of(visitor.get("/admin/users"), name)[1:4] == ["admin", "0", "not signed in"]
    own = new_visitor(PASSWORD, name)
    assert own.get("/admin/users").status == 200
    row = row_of(visitor.get("/admin/users"), name)
    assert row[2] == "1" and re.match(r"\d{4}-", row[3])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"name": ""}, "1 to 100"),
        ({"name": "x" * 101}, "1 to 100"),
        ({"name": "a\tb"}, "printable"),
        ({"role": "king"}, "role"),
        ({"role": "lmr"}, "role"),
        ({"password": "short", "repeated": "short"}, "10 to 1,000"),
        ({"password": "x" * 1001, "repeated": "x" * 1001}, "10 to 1,000"),
        ({"repeated": OTHER}, "differ"),
        ({"password": f" {PASSWORD}", "repeated": f" {PASSWORD}"}, "begin or end with a space"),
        ({"name": "nul\0"}, "NUL"),
    ],
)
def test_an_invalid_user_is_refused_with_a_reason(
    visitor: Visitor, name: str, wrong: dict[str, str], sentence: str
) -> None:
    valid = {"name": name, "role": "viewer", "password": PASSWORD, "repeated": PASSWORD}
    page = visitor.post("/admin/users", **(valid | wrong))
    assert page.status == 400 and sentence in page.alert()
    assert PASSWORD not in page.answer.text, "the page does not repeat the password"
    assert not visitor.get("/admin/users").rows()


def test_a_name_that_is_taken_is_refused_and_kept_in_the_form(visitor: Visitor, name: str) -> None:
    create(visitor, name)
    page = create(visitor, name, "admin", OTHER)
    assert page.status == 409 and "already exists" in page.alert()
    form = page.form("/admin/users")
    assert (form["name"], form["role"], form.get("password")) == (name, "admin", None)
    assert row_of(page, name)[1] == "viewer"


def test_a_hostile_name_is_text_everywhere(visitor: Visitor, new_visitor: Callable[..., Visitor]) -> None:
    made = create(visitor, HOSTILE, "admin")
    assert made.status == 200 and made.title.startswith(f"User {HOSTILE}")
    for page in (made, visitor.get("/admin/users"), visitor.get("/admin/user/remove", name=HOSTILE),
                 new_visitor(PASSWORD, HOSTILE).get("/admin")):  # fmt: skip
        assert "<script>alert" not in page.answer.text and HOSTILE in page.tree.text_content()
    (link,) = [link for link in visitor.get("/admin/users").links() if "/remove" in link]
    assert visitor.get(link).form("/admin/user/remove")["name"] == HOSTILE
    assert visitor.post("/admin/user/remove", name=HOSTILE, last="yes").path == "/admin/users"
    assert visitor.get("/admin/user", name=HOSTILE).status == 404


def test_users_are_listed_fifty_per_page(visitor: Visitor, engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        made = "select 'many ' || n, 'viewer', '' from generate_series(101, 151) n"
        connection.execute(sqlalchemy.text(f"insert into users (name, role, password) {made}"))
    first = visitor.get("/admin/users")
    (more,) = first.tree.xpath("//a[@rel='next']/@href")
    second = visitor.get(str(more))
    names = [row[0] for row in (*first.rows(), *second.rows())]
    assert names == [f"many {number}" for number in range(101, 152)] and len(second.rows()) == 1
    assert "no more users" in visitor.get("/admin/users", after="zzz").words


def test_a_changed_role_takes_effect_in_open_sessions(
    visitor: Visitor, new_visitor: Callable[..., Visitor], name: str
) -> None:
    create(visitor, "boss", "admin")
    create(visitor, name)
    own = new_visitor(PASSWORD, name)
    assert own.get("/admin").status == 403
    page = visitor.post("/admin/user/role", name=name, role="admin")
    assert page.path.startswith("/admin/user?name=") and "role was changed" in page.words
    assert own.get("/admin").status == 200
    visitor.post("/admin/user/role", name=name, role="viewer")
    assert own.get("/admin").status == 403 and is_signed_in(own)
    assert visitor.post("/admin/user/role", name=name, role="king").status == 400
    assert visitor.post("/admin/user/role", name="nobody", role="admin").status == 404


def test_a_new_password_ends_the_sessions_of_the_user(
    visitor: Visitor, new_visitor: Callable[..., Visitor], name: str
) -> None:
    create(visitor, name)
    own = new_visitor(PASSWORD, name)
    wrong = visitor.post("/admin/user/password", name=name, password=OTHER, repeated=PASSWORD)
    assert wrong.status == 400 and "differ" in wrong.alert() and OTHER not in wrong.answer.text
    assert is_signed_in(own)
    page = visitor.post("/admin/user/password", name=name, password=OTHER, repeated=OTHER)
    assert "password was changed" in page.words and not is_signed_in(own)
    assert new_visitor().http.post("/sign-in", data={"name": name, "secret": PASSWORD}).status_code == 401
    assert is_signed_in(new_visitor(OTHER, name))
    assert visitor.post("/admin/user/password", name="nobody", password=OTHER, repeated=OTHER).status == 404


def test_a_removed_user_is_signed_out_after_a_confirmation(
    visitor: Visitor, new_visitor: Callable[..., Visitor], name: str
) -> None:
    create(visitor, name)
    own = new_visitor(PASSWORD, name)
    ask = visitor.get("/admin/user/remove", name=name)
    assert name in ask.words and "1 open session" in ask.words and is_signed_in(own)
    assert "was removed" in visitor.post("/admin/user/remove", **ask.form("/admin/user/remove")).words
    assert not is_signed_in(own)
    assert new_visitor().http.post("/sign-in", data={"name": name, "secret": PASSWORD}).status_code == 401
    assert visitor.get("/admin/user/remove", name=name).status == 404
    assert visitor.post("/admin/user/remove", name=name).status == 404


def test_the_last_administrator_is_told_before_being_removed(admin: tuple[str, Visitor]) -> None:
    name, own = admin
    ask = own.get("/admin/user/remove", name=name)
    assert "This is you" in ask.words and "only user with the role admin" in ask.words
    refused = own.post("/admin/user/remove", name=name)
    assert refused.status == 409 and "last user who is an administrator" in refused.alert()
    assert own.get("/admin").status == 200
    (box,) = refused.tree.xpath("//main//input[@type='checkbox']")
    gone = own.post("/admin/user/remove", name=name, **{box.get("name"): box.get("value")})
    assert gone.title == "Sign in" and "Your user was removed" in gone.words
    assert not is_signed_in(own)


def test_the_last_administrator_is_told_before_becoming_a_viewer(admin: tuple[str, Visitor]) -> None:
    name, own = admin
    refused = own.post("/admin/user/role", name=name, role="viewer")
    assert refused.status == 409 and "last user who is an administrator" in refused.alert()
    assert refused.form("/admin/user/role")["role"] == "viewer", "what was chosen stays chosen"
    assert own.post("/admin/user/role", name=name, role="admin").status == 200
    done = own.post("/admin/user/role", name=name, role="viewer", last="yes")
    assert done.title == "Overview" and "You can no longer administer" in done.words
    assert own.get("/admin").status == 403


def test_an_administrator_among_others_needs_no_extra_confirmation(admin: tuple[str, Visitor], name: str) -> None:
    _, own = admin
    create(own, name, "admin")
    assert not own.get("/admin/user", name=name).tree.xpath("//main//input[@type='checkbox']")
    assert own.post("/admin/user/role", name=name, role="viewer").status == 200
    assert own.post("/admin/user/remove", name=name).status == 200


def test_the_own_password_is_changed_with_a_new_sign_in(
    admin: tuple[str, Visitor], new_visitor: Callable[..., Visitor]
) -> None:
    name, own = admin
    assert "also this one: you sign in again" in own.get("/admin/user", name=name).words
    page = own.post("/admin/user/password", name=name, password=OTHER, repeated=OTHER)
    assert page.title == "Sign in" and "Sign in with the new one" in page.words
    assert is_signed_in(new_visitor(OTHER, name))


# Tokens


def create_token(visitor: Visitor, name: str, **more: str) -> Page:
    return visitor.post("/admin/tokens", name=name, **{"role": "viewer", "expires": "", **more})


def secret_of(page: Page) -> str:
    return str(page.tree.xpath("string(//*[@id='secret'])")).strip()


def test_the_secret_of_a_new_token_is_shown_exactly_once(visitor: Visitor, server: Server, name: str) -> None:
    made = create_token(visitor, name)
    secret = secret_of(made)
    assert made.status == 200 and re.fullmatch(r"/admin/tokens/\d+", made.path) and secret.startswith("mdv_")
    assert made.answer.headers["Cache-Control"] == "no-store" and made.tree.xpath("//button[@data-copy='secret']")
    assert server.api(secret).get("/documents").status_code == 200
    for path in (made.path, "/admin/tokens", f"{made.path}/revoke", "/admin/tokens?state=all"):
        again = visitor.get(path)
        assert again.status == 200 and secret not in again.answer.text and name in again.words
    assert "was shown once" in visitor.get(made.path).words
    assert not [cookie for cookie in visitor.http.cookies if cookie.startswith("mdv_once")]


def test_a_secret_is_not_shown_to_another_session(
    visitor: Visitor, new_visitor: Callable[..., Visitor], name: str
) -> None:
    visitor.http.follow_redirects = False
    redirect = create_token(visitor, name).answer
    (cookie,) = [text for text in redirect.headers.get_list("Set-Cookie") if text.startswith("mdv_once")]
    assert (
        redirect.status_code == 303 and "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Max-Age=120" in cookie
    )
    path, (key, _, value) = redirect.headers["Location"], cookie.partition(";")[0].partition("=")
    other = new_visitor(ADMIN)
    other.http.cookies.set(key, value)
    assert secret_of(other.get(path)) == ""
    other.http.cookies.set(key, "forged")
    assert secret_of(other.get(path)) == ""
    visitor.http.follow_redirects = True
    assert secret_of(visitor.get(path)).startswith("mdv_"), "the first session still sees it"


def test_a_token_is_listed_with_its_limits_expiry_and_last_use(visitor: Visitor, server: Server, name: str) -> None:
    day = (datetime.now(UTC) + timedelta(days=40)).date().isoformat()
    prefixes = "http://docs.example/\r\nhttp://more.example/"
    made = create_token(visitor, name, role="admin", documents=prefixes, resources="http://r.example/", expires=day)
    limits = "documents below http://docs.example/, http://more.example/; resources below http://r.example/"
    assert (fact(made, "Limits"), fact(made, "Expires")) == (limits, f"{day} 00:00:00 UTC")
    row = row_of(visitor.get("/admin/tokens"), f"{name} #")
    assert row[1:3] == ["admin", limits] and "by token admin" in row[3] and row[4:6] == [f"{day} 00:00:00 UTC", "never"]
    server.api(secret_of(made)).get("/documents")
    eventually(lambda: row_of(visitor.get("/admin/tokens"), f"{name} #")[5] != "never")
    assert datetime.now(UTC).date().isoformat() in fact(visitor.get(made.path), "Last use")


def test_a_token_of_an_lmr_is_listed_with_its_lmr(visitor: Visitor, server: Server, name: str) -> None:
    made = server.api().http.post("/api/v1/lmrs", json={"name": name}).json()
    row = row_of(visitor.get("/admin/tokens"), f"{name} #")
    assert row[1] == "lmr" and "own feed" in row[2]
    (link,) = [link for link in visitor.get("/admin/tokens").links() if link.endswith("/revoke")][:1]
    ask = visitor.get(link)
    assert "It belongs to an LMR" in ask.words and f"/lmrs/{made['id']}" in ask.links()
    assert visitor.get(f"/lmrs/{made['id']}").status == 200


def test_a_revoked_token_is_refused_and_listed_on_demand(
    visitor: Visitor, server: Server, new_visitor: Callable[..., Visitor], name: str
) -> None:
    made = create_token(visitor, name)
    secret = secret_of(made)
    own = new_visitor(secret)
    ask = visitor.get(f"{made.path}/revoke")
    assert ask.title == "Revoke this token?" and server.api(secret).get("/documents").status_code == 200
    done = visitor.post(f"{made.path}/revoke")
    assert done.path == "/admin/tokens" and "The token was revoked." in done.words
    assert server.api(secret).get("/documents").status_code == 401 and not is_signed_in(own)
    assert not [row for row in done.rows() if row[0].startswith(f"{name} #")]
    assert row_of(visitor.get("/admin/tokens", state="all"), f"{name} #")[6:] == ["revoked", ""]
    assert visitor.post(f"{made.path}/revoke").status == 404


def test_an_expired_token_is_listed_on_demand_and_cannot_sign_in(
    visitor: Visitor, new_visitor: Callable[..., Visitor], make_token: Make, engine: sqlalchemy.Engine
) -> None:
    secret, number = make_token("admin")
    own = new_visitor(secret)
    assert own.get("/admin").status == 200
    with engine.begin() as connection:
        expire = "update tokens set expires_at = '2026-01-31T12:00Z' where id = :id"
        connection.execute(sqlalchemy.text(expire), {"id": number})
    assert not is_signed_in(own), "its session ends, too"
    refused = new_visitor().http.post("/sign-in", data={"name": "", "secret": secret})
    assert refused.status_code == 401 and "The token expired on 2026-01-31 12:00 UTC" in refused.text
    path = f"/admin/tokens/{number}"
    assert path not in visitor.get("/admin/tokens").links()
    assert path in visitor.get("/admin/tokens", state="all").links()
    assert fact(visitor.get(path), "Expired") == "2026-01-31 12:00:00 UTC"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"name": " "}, "1 to 100"),
        ({"name": "x" * 101}, "1 to 100"),
        ({"name": "a\x07b"}, "printable"),
        ({"role": "lmr"}, "role"),
        ({"role": ""}, "role"),
        ({"expires": "2031-02-30"}, "is not an expiry"),
        ({"expires": "31.12.2031"}, "is not an expiry"),
        ({"expires": "'; drop table tokens"}, "is not an expiry"),
        ({"expires": "1999-12-31"}, "not in the future"),
        ({"documents": "http://a/"}, "nothing to limit"),
        ({"role": "admin", "documents": "not-a-uri"}, "not the prefix of a URI"),
        ({"role": "admin", "resources": "http://a/../b"}, "segment"),
        ({"role": "admin", "documents": "http://a/ " * 101}, "maximum is 100"),
    ],
)
def test_an_invalid_token_is_refused_and_kept_in_the_form(
    visitor: Visitor, name: str, wrong: dict[str, str], sentence: str
) -> None:
    newest = visitor.get("/admin/tokens", state="all").rows()[:1]
    page = create_token(visitor, **({"name": name} | wrong))
    assert page.status == 400 and sentence in page.alert()
    form = page.form("/admin/tokens")
    for field, value in wrong.items():
        assert form[field] == (value or "viewer") or field == "role", field
    assert visitor.get("/admin/tokens", state="all").rows()[:1] == newest


def test_a_hostile_token_name_is_text_everywhere(visitor: Visitor) -> None:
    made = create_token(visitor, HOSTILE)
    assert made.title.startswith(f"Token {HOSTILE}")
    for path in (made.path, "/admin/tokens", f"{made.path}/revoke"):
        assert "<script>alert" not in visitor.get(path).answer.text
    again = create_token(visitor, HOSTILE)
    assert again.path != made.path, "names of tokens need not be unique: they have numbers"


@pytest.mark.parametrize("number", ["0", "x", "-1", "2147483648", "99999999999999999999"])
def test_an_unknown_number_is_not_found(visitor: Visitor, number: str) -> None:
    for kind in ("tokens", "webhooks"):
        assert visitor.get(f"/admin/{kind}/{number}").status == 404
    assert visitor.post(f"/admin/tokens/{number}/revoke").status == 404


def test_revoking_the_own_token_signs_out(new_visitor: Callable[..., Visitor], make_token: Make) -> None:
    secret, number = make_token("admin")
    own = new_visitor(secret)
    assert "you will be signed out" in own.get(f"/admin/tokens/{number}/revoke").words
    done = own.post(f"/admin/tokens/{number}/revoke")
    assert done.title == "Sign in" and "was revoked" in done.words


def test_tokens_are_listed_fifty_per_page(visitor: Visitor, make_token: Make) -> None:
    made = [make_token("viewer")[1] for _ in range(51)]
    first = visitor.get("/admin/tokens")
    (more,) = first.tree.xpath("//a[@rel='next']/@href")
    second = visitor.get(str(more))
    listed = re.findall(r"/admin/tokens/(\d+)\"", first.answer.text + second.answer.text)
    assert len(first.rows()) == 50 and [int(number) for number in listed][:51] == made[::-1]


# Rules of the provider


def test_a_rule_of_the_provider_is_added_and_listed(visitor: Visitor) -> None:
    name = f"Own{next(_numbers)}"
    rule = "search CycleProvider c\nregister c\nwhere c.serverPort = 4711"
    made = visitor.post("/admin/rules", rule=rule.replace("\n", "\r\n"), name=name)
    assert re.fullmatch(r"/rules/own/\d+", made.path) and "The rule was added." in made.words
    (row,) = [row for row in visitor.get("/admin/rules").rows() if row[2] == name]
    assert row[1].startswith("search CycleProvider c register c") and row[3] == "token admin"
    assert made.path in visitor.get("/admin/rules").links()
    taken = visitor.post("/admin/rules", rule=rule, name=name)
    assert taken.status == 409 and taken.form("/admin/rules")["name"] == name
    assert "The rule was removed." in visitor.post(f"{made.path}/end").words
    assert made.path not in visitor.get("/admin/rules").links()


@pytest.mark.parametrize("rule", ["", "search Nothing n register n", "<script>alert(1)</script>", "x" * 9000])
def test_an_invalid_rule_is_refused_and_kept_in_the_form(visitor: Visitor, rule: str) -> None:
    page = visitor.post("/admin/rules", rule=rule, name="x")
    assert page.status in (400, 422) and page.alert()
    assert page.form("/admin/rules")["rule"] == rule and "<script>alert" not in page.answer.text


def test_the_start_page_counts_and_warns(visitor: Visitor, make_token: Make, engine: sqlalchemy.Engine) -> None:
    assert "Create a user for each person" in visitor.get("/admin").words
    create(visitor, "counted", "admin")
    _, number = make_token("viewer")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("update tokens set expires_at = null"))
        expire = "update tokens set expires_at = now() + interval '13 days' where id = :id"
        connection.execute(sqlalchemy.text(expire), {"id": number})
    page = visitor.get("/admin")
    assert "1 user, 1 with the role admin" in page.words and "1 token will expire within 14 days" in page.words
