"""The pages of an LMR: access, content, changes, and operation while the MDP is unreachable."""

from __future__ import annotations

import itertools
import re
import string
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from mdv.embedded import Postgres
from tests.support import local_http
from tests.support.eventually import eventually
from tests.support.lmr_server import Lmr, Proxy, create, hosts, rule, start_lmr_server
from tests.support.local_http import local_client
from tests.support.page_visitor import Page, Visitor
from tests.support.server import ADMIN, Api, Server, turtle
from web.lmr.sessions import MAX_SESSION_SECONDS, WINDOW_SECONDS, SignInAttempts, begin_session

pytestmark = pytest.mark.full

BASE64 = string.ascii_letters + string.digits + "-_"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
_numbers = itertools.count(1)

Start = Callable[..., Lmr]


@pytest.fixture(scope="module")
def start(api: Api, server: Server, folder: Path) -> Iterator[Start]:
    """Starts an LMR of the running system."""
    started: list[Lmr] = []

    def make(url: str | None = None, store: str | None = None, **settings: str) -> Lmr:
        name = f"pages-{next(_numbers)}"
        number, token = create(api, name)
        kept = store or f"sqlite:///{folder / name}.db"
        process = start_lmr_server(folder, url or server.url, token, kept, **settings)
        started.append(Lmr(number, name, token, kept, process))
        return started[-1]

    yield make
    for lmr in started:
        lmr.kill()


@pytest.fixture(scope="module")
def shared(start: Start) -> Lmr:
    return start()


@pytest.fixture
def lmr(shared: Lmr) -> Iterator[Lmr]:
    """The LMR of most tests. Their subscriptions are removed."""
    yield shared
    for item in shared.own.all("/subscriptions", 1000):
        assert shared.call("DELETE", f"/subscriptions/{item['id']}").status_code == 200


@pytest.fixture(scope="module")
def empty(start: Start) -> Lmr:
    """An LMR for lists: one test adds subscriptions, another one local documents."""
    return start()


@pytest.fixture
def anybody() -> Iterator[Callable[[Lmr], Visitor]]:
    """Create visitors who have not signed in."""
    made: list[httpx2.Client] = []

    def make(lmr: Lmr) -> Visitor:
        made.append(local_client(base_url=lmr.url, timeout=60, follow_redirects=True))
        return Visitor(made[-1])

    yield make
    for client in made:
        client.close()


@pytest.fixture
def stranger(lmr: Lmr, anybody: Callable[[Lmr], Visitor]) -> Visitor:
    return anybody(lmr)


@pytest.fixture
def user(lmr: Lmr, stranger: Visitor) -> Visitor:
    """A visitor who has signed in with the LMR's token."""
    return stranger.sign_in(lmr.token)


@pytest.fixture(scope="module")
def new_store(postgres: Postgres) -> Callable[[], str]:
    """Create empty databases for caches."""

    def make() -> str:
        name = f"lmr_pages_{next(_numbers)}"
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(f"create database {name}")
        return postgres.url.rsplit("/", 1)[0] + f"/{name}"

    return make


@pytest.fixture(scope="module")
def in_postgres(start: Start, new_store: Callable[[], str]) -> Lmr:
    return start(store=new_store())


@pytest.fixture(params=["sqlite", "postgres"])
def either(request: pytest.FixtureRequest, lmr: Lmr) -> Lmr:
    """An LMR with a cache in SQLite, and one with a cache in Postgres."""
    return lmr if request.param == "sqlite" else request.getfixturevalue("in_postgres")


@pytest.fixture
def mark() -> str:
    return f"mark{next(_numbers)}.example"


@pytest.fixture
def held(api: Api, lmr: Lmr, doc: str, mark: str) -> str:
    """A document of three providers, each with its information, that the LMR subscribes to."""
    assert api.put(doc, hosts(mark, 3)).status_code == 201
    lmr.subscribe(rule(mark))
    return doc


def raw(lmr: Lmr, method: str, path: str, **more: Any) -> httpx2.Response:
    """A request that follows no redirect."""
    return local_http.request(method, lmr.url + path, timeout=60, **more)


def cookie_of(visitor: Visitor) -> dict[str, str]:
    return dict(visitor.http.cookies)


PAGES = ("/", "/cache", "/cache/instances", "/subscriptions", "/local", "/local/put", "/rules/words.json")


# Signing in


def test_pages_need_a_sign_in(lmr: Lmr) -> None:
    for path in (*PAGES, "/resource?uri=http://a.org/x", "/local/document?uri=http://a.org/x"):
        answer = raw(lmr, "GET", path)
        assert answer.status_code == 303 and answer.headers["Location"].startswith("/sign-in?to="), path
    assert raw(lmr, "GET", "/overview/now", headers={"HX-Request": "true"}).status_code == 401
    for path in ("/verify", "/check", "/subscriptions", "/subscriptions/1/end", "/subscriptions/1/resume", "/local/put",
                 "/local/delete"):  # fmt: skip
        assert raw(lmr, "POST", path, data={"uri": "http://a.org/x"}).status_code == 401, path


def test_the_api_and_its_description_keep_their_paths(lmr: Lmr) -> None:
    assert "swagger" in raw(lmr, "GET", "/docs").text
    assert raw(lmr, "GET", "/api/v1/status").status_code == 401
    lost = raw(lmr, "GET", "/nowhere", headers={"Accept": "text/html"})
    assert lost.status_code == 404 and "does not exist" in lost.text


@pytest.mark.parametrize("token", ["own", "admin"])
def test_a_token_signs_in_and_signing_out_ends_the_session(lmr: Lmr, stranger: Visitor, token: str) -> None:
    secret = lmr.token if token == "own" else ADMIN
    answer = raw(lmr, "POST", "/sign-in", data={"secret": secret, "to": "/cache"})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/cache")
    set_cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in set_cookie and "SameSite=Lax" in set_cookie and "Secure" not in set_cookie
    assert set_cookie.startswith(f"mdv_lmr_{lmr.process.port}="), "cookies are not separated by port"
    assert secret not in set_cookie
    stranger.sign_in(secret)
    assert stranger.get("/cache").title == "Cache"
    kept = cookie_of(stranger)
    assert stranger.post("/sign-out").title == "Sign in"
    assert raw(lmr, "GET", "/cache", cookies=kept).status_code == 303, "a copied cookie is refused"
    # The last character of a signature has two unused bits: the same session, spelled differently.
    ((name, cookie),) = kept.items()
    for last in BASE64:
        assert raw(lmr, "GET", "/cache", cookies={name: cookie[:-1] + last}).status_code == 303
    assert stranger.get("/").title == "Sign in"


def test_a_wrong_token_is_refused(lmr: Lmr, api: Api, stranger: Visitor) -> None:
    _, other = create(api, f"other-{next(_numbers)}")
    for secret in ("wrong", other, "ä", lmr.token + "x"):
        page = stranger.post("/sign-in", secret=secret)
        assert page.status == 401 and "is not valid for this LMR" in page.alert()
    assert not cookie_of(stranger)
    assert "Name" not in stranger.get("/sign-in").words, "an LMR has no user names"


def test_forged_and_expired_cookies_are_refused(lmr: Lmr, user: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    name, good = next(iter(cookie_of(user).items()))
    assert raw(lmr, "GET", "/cache", cookies={name: good}).status_code == 200
    assert raw(lmr, "GET", "/cache", cookies={name: begin_session(lmr.token)}).status_code == 200
    random, began, signature = good.split(".")
    now = time.time()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now - MAX_SESSION_SECONDS - 1)
        expired = begin_session(lmr.token)
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now + 3600)
        later = begin_session(lmr.token)
    refused = [begin_session("another token"), begin_session(""), expired, later,
               f"{random}.{later.split('.')[1]}.{signature}", f"other.{began}.{signature}",
               f"{random}.{began}.{signature[:-1]}", f"{random}.{began}.", f"{random}.{signature}", "...", "x",
               f"{random}.{began}.\xe4", "9" * 5000]  # fmt: skip
    for cookie in refused:
        answer = raw(lmr, "GET", "/cache", headers={"Cookie": f"{name}={cookie}".encode("latin-1")})
        assert answer.status_code == 303, cookie


def test_a_form_needs_a_valid_csrf_token(lmr: Lmr, user: Visitor) -> None:
    cookies, csrf = cookie_of(user), user.csrf()
    for shown in ("", "x", csrf[:-1], begin_session(lmr.token)):
        answer = raw(lmr, "POST", "/check", data={"csrf": shown}, cookies=cookies)
        assert answer.status_code == 403 and "does not belong to your session" in answer.text
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        answer = raw(lmr, "POST", "/check", data={"csrf": csrf}, cookies=cookies, headers=headers)
        assert answer.status_code == 403 and "another site" in answer.text
        assert raw(lmr, "POST", "/sign-in", data={"secret": lmr.token}, headers=headers).status_code == 403
    assert raw(lmr, "POST", "/check", data={"csrf": csrf}, cookies=cookies).status_code == 200
    user.http.cookies.clear()
    assert user.sign_in(lmr.token).csrf() != csrf, "each session has its own token"


def test_sign_in_attempts_are_limited(lmr: Lmr) -> None:
    # From an address that no other test uses: its limit is used up.
    transport = httpx2.HTTPTransport(verify=False, local_address="127.0.0.77")
    visitor = Visitor(httpx2.Client(base_url=lmr.url, timeout=60, follow_redirects=True, transport=transport))
    answers = [visitor.post("/sign-in", secret="wrong") for _ in range(21)]
    assert [page.status for page in answers] == [401] * 20 + [429]
    assert answers[-1].answer.headers["Retry-After"] == str(round(WINDOW_SECONDS))
    assert visitor.post("/sign-in", secret=lmr.token).status == 429
    assert lmr.status()["mdp"], "the API is not affected"


def test_attempts_of_many_addresses_use_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("web.lmr.sessions.MAX_ADDRESSES", 10)
    attempts = SignInAttempts(limit=1)
    assert all(attempts.allow_attempt(f"address {n}") for n in range(100))
    assert len(attempts._failed) == 10
    assert not attempts.allow_attempt("address 99") and attempts.allow_attempt("address 0")


def test_pages_have_a_strict_content_security_policy(lmr: Lmr, user: Visitor, held: str) -> None:
    for path in (*PAGES, f"/resource?uri={held}%23h0", "/sign-in"):
        headers = raw(lmr, "GET", path, cookies=cookie_of(user)).headers
        assert headers["Cache-Control"] == "no-store", path
        assert "default-src 'none'; script-src 'self';" in headers["Content-Security-Policy"], path
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"] and "unsafe" not in str(headers), path
    for path in PAGES[:-1]:
        text = user.get(path).answer.text
        assert not re.search(r"\sstyle=|<style|<script(?! src)|\son\w+=", text), path


def test_with_public_reading_anyone_can_read_and_changes_need_a_sign_in(
    start: Start, anybody: Callable[[Lmr], Visitor]
) -> None:
    public = start(MDV_PUBLIC_READ="true")
    visitor = anybody(public)
    for path in ("/", "/cache", "/subscriptions", "/local"):
        page = visitor.get(path)
        assert page.status == 200 and "Sign in" not in page.title, path
        assert not page.tree.xpath("//main//form[@method='post']"), path
    assert visitor.get("/local/put").title == "Sign in"
    assert visitor.post("/check").status == 401


# The overview


def tiles_of(page: Page) -> list[str]:
    return [" ".join(tile.text_content().split()) for tile in page.tree.xpath("//ul[@class='tiles']/li")]


def test_the_overview_shows_the_state_of_the_cache(lmr: Lmr, user: Visitor, server: Server, held: str) -> None:
    page = user.get("/")
    status = lmr.status()
    assert page.title == f"Overview LMR {lmr.name}"
    facts = dict(zip(page.tree.xpath("//dt/text()"), page.tree.xpath("//dd"), strict=True))
    told = {name: " ".join(value.text_content().split()) for name, value in facts.items()}
    assert told["MDP"] == server.url
    assert told["Position"].startswith(f"{status['position']:,} all transactions")
    assert told["Cursor"] == status["cursor"]
    assert "Up to date" in told and "20" in told["Up to date"], "with the time since when"
    counted = {f"{status['roots']}selected by rules", f"{status['strong']}strongly referenced"}
    tiles = eventually(lambda: counted <= set(found := tiles_of(user.get("/"))) and found)  # counts are cached
    subscribed = len(lmr.own.all("/subscriptions", limit=1000))
    assert any(re.fullmatch(rf"{subscribed}subscriptions?", tile) for tile in tiles), tiles
    part = user.get("/overview/now", headers={"HX-Request": "true"})
    assert "<html" not in part.answer.text and "Position" in part.words


def test_the_cache_is_verified_and_checked(start: Start, api: Api, doc: str, mark: str,
                                           anybody: Callable[[Lmr], Visitor]) -> None:  # fmt: skip
    lmr = start()
    api.put(doc, hosts(mark, 2))
    lmr.subscribe(rule(mark))
    user = anybody(lmr).sign_in(lmr.token)
    assert "the cache matches the MDP" in user.post("/verify").words
    assert "The cache is consistent" in user.post("/check").words
    with lmr.file() as cache:
        cache.execute("update resources set referrers = 7 where uri = ?", [f"{doc}#i0"])
        cache.execute("update statements set value = 'spoilt', hash = 1 where value = ?", [f"0.{mark}"])
    checked = user.post("/check")
    assert f"{doc}#i0: the count of strong references is 7, but there are 1" in checked.words
    verified = user.post("/verify")
    assert re.search(r"1 bucket of 256 differed and was fetched again", verified.words), verified.words
    assert "spoilt" not in user.get("/resource", uri=f"{doc}#h0").words
    part = Page(user.http.post("/verify", data={"csrf": user.csrf()}, headers={"HX-Request": "true"}))
    (refreshed,) = user.get("/").tree.xpath("//*[@hx-get='/overview/now']/@hx-trigger")
    event = part.answer.headers["HX-Trigger"]
    assert f"{event} from:body" in refreshed.split(", "), "the time of the comparison is shown at once"
    assert "<html" not in part.answer.text and "Compared at position" in part.words
    (compared,) = user.get("/").tree.xpath("//dt[text()='Last compared']/following-sibling::dd[1]")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d [\d:]+ UTC runs every hour", " ".join(compared.text_content().split()))


# The cache


def test_classes_are_counted_and_link_to_their_instances(lmr: Lmr, user: Visitor, held: str) -> None:
    page = user.get("/cache")
    counts = {row[0]: int(row[1].replace(",", "")) for row in page.rows() if len(row) > 1 and row[1]}
    everything = lmr.own.all("/resources", limit=1000)
    for name in ("CycleProvider", "ServerInformation"):
        assert counts[f"ex:{name}"] == sum(
            item["classes"] == [f"http://mdv.example/schema#{name}"] for item in everything
        )
    assert counts["ex:Provider"] == counts["ex:CycleProvider"], "subclasses are included"
    link = next(link for link in page.links() if "ServerInformation" in link)
    found = user.get(link)
    row = next(row for row in found.rows() if row[0] == f"{held}#i1")
    assert row == [f"{held}#i1", "ex:ServerInformation", "strongly referenced"]
    providers = user.get("/cache/instances", **{"class": "CycleProvider"})
    assert [row[2] for row in providers.rows() if row[0] == f"{held}#h1"] == ["selected"]
    assert user.get("/cache/instances", **{"class": "Nonsense"}).status == 404


def test_instances_and_uris_with_a_prefix_are_paged(api: Api, lmr: Lmr, user: Visitor, doc: str, mark: str) -> None:
    assert api.put(doc, hosts(mark, 60)).status_code == 201
    lmr.subscribe(rule(mark))
    for path in ("/cache/instances?class=CycleProvider", f"/cache?find={doc}%23h"):
        seen: list[str] = []
        page = user.get(path)
        while True:
            assert len(page.rows()) <= 50
            seen += [row[0] for row in page.rows()]
            following = page.tree.xpath("//a[@rel='next']/@href")
            if not following:
                break
            page = user.get(str(following[0]))
        assert len(seen) == len(set(seen)) and {f"{doc}#h{n}" for n in range(60)} <= set(seen)
    assert user.get("/cache", find=f"{doc}#h7").path.startswith("/resource?uri="), "there is only one"
    assert "No URI in the cache starts with this text" in user.get("/cache", find="gopher://").words


def test_a_resource_shows_its_statements_and_the_reason_it_is_cached(
    lmr: Lmr, user: Visitor, server: Server, held: str, mark: str
) -> None:
    local = f"http://local.example/{mark}"
    assert lmr.put_local(local, turtle(f"<{held}#h1> ex:note 'ours' ; ex:knows <{held}#h0> .")).status_code == 201
    page = user.get("/resource", uri=f"{held}#h1")
    assert page.status == 200
    assert "selected by a rule of this LMR" in page.words and "strongly referenced" not in page.words
    assert f"local documents describe it; they are never sent to the MDP: {local}" in page.words
    rows = page.rows()
    assert ["ex:serverHost", f"1.{mark}", ""] in rows and ["ex:serverPort", "1", "integer"] in rows
    assert ["ex:note", "ours local", ""] in rows
    assert ["ex:serverInformation", f"{held}#i1", "strong"] in rows and ["ex:knows", f"{held}#h0", "local"] in rows
    explained = [link for link in page.links() if link.startswith(server.url)]
    assert explained and f"/lmrs/{lmr.name}/explain?uri=" in explained[0]

    (more,) = page.tree.xpath("//*[@hx-get][starts-with(@hx-get, '/resource/why')]/@hx-get")
    assert rule(mark) in user.get(str(more)).words
    assert user.get("/resource/why").status == 400

    info = user.get("/resource", uri=f"{held}#i1")
    assert "strongly referenced by 1 strong reference in the cache:" in info.words and f"{held}#h1" in info.words
    assert "selected by a rule" not in info.words
    assert [f"{held}#h1", "ex:serverInformation", "strong"] in info.rows()
    for suffix, media_type in (("ttl", "text/turtle"), ("rdf", "application/rdf+xml"),
                               ("jsonld", "application/ld+json"), ("nt", "application/n-triples")):  # fmt: skip
        file = user.get(f"/resource/file.{suffix}", uri=f"{held}#h1").answer
        assert (
            file.headers["Content-Type"].startswith(media_type) and "attachment" in file.headers["Content-Disposition"]
        )
        assert f"1.{mark}" in file.text and "ours" in file.text
    assert user.get("/resource/file.exe", uri=f"{held}#h1").status == 404


def test_resources_are_shown_by_their_labels(
    api: Api, either: Lmr, anybody: Callable[[Lmr], Visitor], doc: str, mark: str
) -> None:
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    text = turtle(
        f"<#p> a ex:CycleProvider ; ex:serverHost '{mark}' ; {label} 'Grün'@de ; ex:serverInformation <#info> .",
        f"<#info> a ex:ServerInformation ; {label} 'Its memory' .",
    )
    assert api.put(doc, text).status_code == 201
    user = anybody(either).sign_in(either.token)
    either.subscribe(rule(mark))
    german = {"Accept-Language": "de"}
    page = user.get("/resource", german, uri=f"{doc}#p")
    assert page.title == f"Grün {doc}#p" and f"Its memory {doc}#info" in page.words
    assert f"Grün {doc}#p" in user.get("/cache", german, find=doc).words
    assert f"Grün {doc}#p" in user.get("/query", german, q=f"search CycleProvider c where c = <{doc}#p> return c").words


def test_the_search_box_finds_cached_resources_by_words(
    api: Api, either: Lmr, anybody: Callable[[Lmr], Visitor], doc: str, mark: str
) -> None:
    text = turtle(
        f"<#p> a ex:CycleProvider ; ex:serverHost '{mark}' ; ex:note 'searchable' .",
        "<#other> a ex:CycleProvider ; ex:note 'searchable' .",
    )
    assert api.put(doc, text).status_code == 201
    user = anybody(either).sign_in(either.token)
    either.subscribe(rule(mark))
    assert user.get("/").tree.xpath("//header//form[@role='search']/@action") == ["/search"]
    page = user.get("/search", q="Searchable")
    assert page.tree.xpath("//ol/li/a/@title") == [f"{doc}#p"] and "ex:note searchable" in page.words
    body = either.get("/search", q="search*", **{"class": "Provider"}).json()
    assert [item["uri"] for item in body["items"]] == [f"{doc}#p"] and body["up_to_date"] is True
    assert either.get("/search", q="!").status_code == 400


def test_a_resource_outside_the_cache_is_reported_as_such(lmr: Lmr, user: Visitor, held: str, mark: str) -> None:
    page = user.get("/resource", uri="http://nowhere.example/x")
    assert page.status == 404 and "This resource is not in the cache" in page.words
    assert "No cached statement mentions it" in page.words
    assert [link for link in page.links() if f"/lmrs/{lmr.name}/explain" in link]
    spoken = f"http://elsewhere.example/{mark}"
    lmr.put_local(f"http://local.example/{mark}", turtle(f"<#a> ex:knows <{spoken}> ."))
    page = user.get("/resource", uri=spoken)
    assert page.status == 404 and "Cached resources refer to it" in page.words
    assert [f"http://local.example/{mark}#a", "ex:knows", "local"] in page.rows()
    assert user.get("/resource").status == 400
    assert user.get("/resource/file.ttl", uri=spoken).status == 404


def test_long_lists_of_a_resource_are_paged_and_long_values_are_complete(lmr: Lmr, user: Visitor, mark: str) -> None:
    uri, long = f"http://local.example/{mark}", "0123456789" * 3000
    notes = ", ".join(f"'note {n}'" for n in range(120))
    others = ", ".join(f"<#other{n}>" for n in range(120))
    text = turtle(f"<#a> ex:note {notes}, '{long}' ; ex:knows {others} .",
                  *(f"<#other{n}> ex:knows <#b> ." for n in range(120)))  # fmt: skip
    assert lmr.put_local(uri, text).status_code == 201
    for subject, name, column, expected in (
        ("#a", "values", 1, {f"note {n} local" for n in range(120)}),
        (
            "#a",
            "references",
            1,
            {f"{uri}#other{n}" for n in range(120)},
        ),
        ("#b", "referrers", 0, {f"{uri}#other{n}" for n in range(120)}),
    ):
        page, seen = user.get("/resource", uri=uri + subject), list[str]()
        for _ in range(5):
            section = page.tree.xpath(f"//section[@id='{name}']")[0]
            seen += [" ".join(row.xpath("./td")[column].text_content().split()) for row in section.xpath(".//tbody/tr")]
            following = section.xpath(".//a[@rel='next']/@href")
            if not following:
                break
            page = user.get(str(following[0]))
        assert expected <= set(seen) and len(seen) == len(set(seen)), name
    page = user.get("/resource", uri=f"{uri}#a")
    whole = None
    while whole is None:
        whole = next((link for link in page.links() if link.startswith("/resource/value")), None)
        if whole is None:
            page = user.get(str(page.tree.xpath("//section[@id='values']//a[@rel='next']/@href")[0]))
    value = user.get(whole).answer
    assert value.text == long and value.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert user.get(whole.replace("&n=", "&n=9")).status == 404


def test_hostile_values_are_shown_as_text(lmr: Lmr, user: Visitor, mark: str) -> None:
    uri = f"http://local.example/{mark}"
    literal = HOSTILE.replace('"', '\\"')
    text = turtle(f'<#a> ex:note "{literal}", "\u202e{literal}"@en ; ex:knows <javascript:alert(3)> .')
    assert lmr.put_local(uri, text).status_code == 201
    for path in (f"/resource?uri={uri}%23a", f"/local/document?uri={uri}", f"/local/put?uri={uri}"):
        page = user.get(path)
        assert page.status == 200 and HOSTILE not in page.answer.text and "alert(1)" in page.answer.text, path
        assert not page.tree.xpath("//img[@src='x']") and not page.tree.xpath("//main//script")
        assert not [link for link in page.links() if link.lower().startswith("javascript")], path
    for path in (f"/cache?find={HOSTILE}", f"/resource?uri={HOSTILE}", f"/cache/instances?class={HOSTILE}",
                 f"/subscriptions?added={HOSTILE}", f"/local?after={HOSTILE}",
                 f"/local/document?uri={HOSTILE}"):  # fmt: skip
        assert HOSTILE not in user.get(path).answer.text, path
    refused = user.post("/subscriptions", rule=HOSTILE, name=HOSTILE)
    assert refused.status == 422 and HOSTILE not in refused.answer.text


def test_a_cache_in_postgres_is_shown_the_same(
    start: Start, api: Api, new_store: Callable[[], str], doc: str, mark: str, anybody: Callable[[Lmr], Visitor]
) -> None:
    lmr = start(store=new_store())
    assert api.put(doc, hosts(mark, 60)).status_code == 201
    lmr.subscribe(rule(mark))
    note = "long " * 200
    lmr.put_local(f"{doc}/local", turtle(f"<{doc}#h1> ex:note 'ours', '{note}' ; ex:knows <{doc}#h0>, <#x> ."))
    user = anybody(lmr).sign_in(lmr.token)
    assert "60selected by rules" in user.get("/").words
    assert ["ex:CycleProvider", "60", ""] in user.get("/cache").rows()
    first = user.get("/cache", find=f"{doc}#")
    second = user.get(str(first.tree.xpath("//a[@rel='next']/@href")[0]))
    assert len(first.rows()) == 50 and [row[0] for row in first.rows()] < [row[0] for row in second.rows()]
    assert len(user.get("/cache/instances", **{"class": "ServerInformation"}).rows()) == 50
    rows = user.get("/resource", uri=f"{doc}#h1").rows()
    assert ["ex:note", "ours local", ""] in rows and ["ex:serverHost", f"1.{mark}", ""] in rows
    assert ["ex:serverInformation", f"{doc}#i1", "strong"] in rows and ["ex:knows", f"{doc}#h0", "local"] in rows
    assert ["ex:knows", f"{doc}/local#x not cached", "local"] in rows
    whole = next(link for link in user.get("/resource", uri=f"{doc}#h1").links() if "/value" in link)
    assert user.get(whole).answer.text == note
    info = user.get("/resource", uri=f"{doc}#i1")
    assert "strongly referenced by 1 strong reference" in info.words
    assert f"{doc}#h1 with ex:serverInformation" in info.words
    assert "The cache is consistent" in user.post("/check").words


# Subscriptions


def test_a_subscription_is_added_changed_and_removed(api: Api, lmr: Lmr, user: Visitor, doc: str, mark: str) -> None:
    assert api.put(doc, hosts(mark, 3)).status_code == 201
    page = user.post("/subscriptions", rule=rule(mark).replace(" where", "\r\nwhere"), name=f"named {mark}")
    number = re.search(r"Subscription (\d+) was added\. 6 resources were added to the cache\.", page.words)
    assert page.status == 200 and number, page.words
    row = next(row for row in page.rows() if row[0] == number[1])
    assert row[2] == f"named {mark}" and lmr.has(f"{doc}#h2") and lmr.has(f"{doc}#i2")
    kept = next(item for item in lmr.own.all("/subscriptions", limit=1000) if str(item["id"]) == number[1])
    assert kept["rule"] == rule(mark).replace(" where", "\nwhere"), "as written"

    one = user.get(f"/subscriptions/{number[1]}")
    assert rule(f"1.{mark}") not in one.words and one.tree.xpath("string(//textarea)").strip() == kept["rule"]
    changed = user.post(f"/subscriptions/{number[1]}", rule=rule(f"1.{mark}"))
    assert f"Subscription {number[1]} was changed" in changed.words
    assert [lmr.has(f"{doc}#{name}") for name in ("h0", "i0", "h1", "i1")] == [False, False, True, True]

    asked = user.get(f"/subscriptions/{number[1]}/end")
    assert asked.title == "Remove this subscription?" and rule(f"1.{mark}") in asked.words and lmr.has(f"{doc}#h1")
    ended = user.post(f"/subscriptions/{number[1]}/end")
    assert f"Subscription {number[1]} was removed" in ended.words and not lmr.has(f"{doc}#h1")
    assert number[1] not in [row[0] for row in ended.rows()]
    assert user.get(f"/subscriptions/{number[1]}").status == 404


def test_refusals_of_the_mdp_are_shown_with_their_message(lmr: Lmr, user: Visitor, mark: str) -> None:
    wrong = rule(mark).replace("serverHost", "serverHosd")
    page = user.post("/subscriptions", rule=wrong, name=f"kept {mark}")
    assert page.status == 422 and "serverHosd" in page.alert() and "^" in page.alert()
    assert page.tree.xpath("string(//textarea[@id='rule'])").strip() == wrong
    assert page.tree.xpath("//input[@name='name']/@value") == [f"kept {mark}"]
    assert '"line": 1' in page.tree.xpath("string(//textarea/@data-errors)")
    assert user.post("/subscriptions", rule="  ").status == 400
    made = lmr.subscribe(rule(mark), f"searched {mark}")["id"]
    page = user.post(f"/subscriptions/{made}", rule=wrong)
    assert page.status == 422 and page.tree.xpath("string(//textarea[@id='rule'])").strip() == wrong
    assert lmr.own.all("/subscriptions", limit=1000)[-1]["rule"] == rule(mark)
    for number in ("999999999", "x", "9" * 30):
        for path in (f"/subscriptions/{number}", f"/subscriptions/{number}/end"):
            assert user.get(path).status == 404 and user.post(path, rule=rule(mark)).status == 404


def test_subscriptions_are_paged(empty: Lmr, anybody: Callable[[Lmr], Visitor]) -> None:
    lmr = empty
    user = anybody(lmr).sign_in(lmr.token)
    assert "has no subscriptions yet" in user.get("/subscriptions").words
    drafts = [{"rule": rule(f"page{n}.example")} for n in range(53)]
    for draft in drafts:
        lmr.subscribe(draft["rule"])
    first = user.get("/subscriptions")
    second = user.get(str(first.tree.xpath("//a[@rel='next']/@href")[0]))
    assert (len(first.rows()), len(second.rows())) == (50, 3)
    assert [row[1] for row in first.rows() + second.rows()] == [draft["rule"] for draft in drafts]


def test_a_rule_is_checked_while_it_is_typed(user: Visitor, mark: str) -> None:
    good = user.post("/rules/look", rule=rule(mark))
    assert "The rule is valid" in good.words and good.tree.xpath("string(//@data-errors)") == "[]"
    wrong = user.post("/rules/look", rule=rule(mark).replace("serverHost", "serverHosd"))
    assert wrong.status == 200 and "serverHost" in wrong.words and "^" in wrong.words
    flaw = wrong.tree.xpath("string(//@data-errors)")
    assert '"line": 1' in flaw and '"column": 43' in flaw, flaw
    assert "The rule is valid" not in user.post("/rules/look", rule="").words
    words = user.get("/rules/words.json").answer.json()
    assert "CycleProvider" in [one["name"] for one in words["classes"]]


def test_a_rule_may_search_a_named_rule_of_the_lmr(
    start: Start, server: Server, mark: str, anybody: Callable[[Lmr], Visitor]
) -> None:
    proxy = Proxy(server.port)
    lmr = start(proxy.url)
    user = anybody(lmr).sign_in(lmr.token)
    assert user.post("/subscriptions", rule=rule(mark), name="near").status == 200
    right, wrong = "search near n register n where n.serverPort > 1", "search near n register n where n.nonsense > 1"
    looked = user.post("/rules/look", rule=right)
    assert "The rule is valid" in looked.words and looked.tree.xpath("string(//@data-errors)") == "[]"
    assert '"column"' in user.post("/rules/look", rule=wrong).tree.xpath("string(//@data-errors)")
    assert '"column"' in user.post("/rules/look", rule="search far f register f").tree.xpath("string(//@data-errors)")
    (told,) = user.get("/rules/words.json").answer.json()["rules"]
    assert (told["name"], told["iri"].rpartition("#")[2]) == ("near", "CycleProvider")
    proxy.close()
    proxy.cut()
    eventually(lambda: "may be a named rule" in user.post("/rules/look", rule=right).words)
    assert user.post("/rules/look", rule=right).tree.xpath("string(//@data-errors)") == "[]"
    assert user.get("/rules/words.json").answer.json()["rules"] == []
    assert "Write a rule" in user.post("/subscriptions", rule=" ").alert()


# Local documents


def test_a_local_document_over_the_limit_keeps_the_form(user: Visitor) -> None:
    large = {"file": ("a.ttl", b"#" * (40 * 1024 * 1024))}
    page = user.post("/local/put", files=large, uri="http://docs.example/large", edition="")
    assert page.status == 413 and "32 MiB (33,554,432 bytes)" in page.alert()
    assert "text" in page.form("/local/put") and "at most 32 MiB" in page.words


def test_a_local_document_is_put_edited_and_deleted(lmr: Lmr, user: Visitor, server: Server, mark: str) -> None:
    uri = f"http://local.example/{mark}"
    page = user.post("/local/put", files={"file": ("", b"")}, uri=uri, text=turtle("<#a> ex:note 'one' ."), syntax="")
    assert page.status == 200 and "All queries include it now" in page.words
    assert page.rows() == [["#a", "note", "one"]]
    assert uri in user.get("/local", after=uri[:-1]).words
    for name, begins in (("turtle", "@prefix"), ("rdfxml", "<?xml"), ("ntriples", "<http"), ("jsonld", "[")):
        text = user.get("/local/document/text", uri=uri, syntax=name).answer
        assert text.text.lstrip().startswith((begins, "{" if name == "jsonld" else begins)) and "one" in text.text
        shown = user.get("/local/document", uri=uri, syntax=name).tree.xpath("string(//main//pre)")
        assert shown.strip() == text.text.strip(), name

    form = user.get("/local/put", uri=uri)
    edition = form.tree.xpath("//input[@name='edition']/@value")[0]
    text = form.tree.xpath("string(//textarea)")
    assert "one" in text and edition
    files = {"file": ("", b"")}
    twice = user.post("/local/put", files=files, uri=uri, text=text.replace("one", "two"), syntax="turtle")
    assert twice.status == 409 and "The document already exists" in twice.alert(), "a replacement needs confirmation"
    assert "one" in user.get("/local/document", uri=uri).words
    changed = user.post("/local/put", files=files, uri=uri, text=text.replace("one", "two"), syntax="turtle",
                        edition=edition)  # fmt: skip
    assert "The document was changed" in changed.words and changed.rows() == [["#a", "note", "two"]]
    late = user.post("/local/put", files=files, uri=uri, text=text, syntax="turtle", edition=edition)
    assert late.status == 409 and "The document was changed since you opened it" in late.alert()
    again = late.tree.xpath("//input[@name='edition']/@value")[0]
    assert user.post("/local/put", files=files, uri=uri, text=text, syntax="turtle", edition=again).status == 200

    asked = user.get("/local/delete", uri=uri)
    assert asked.title == "Delete this document?" and "1 statement" in asked.words
    assert user.get("/local/document", uri=uri).status == 200
    assert "The document and its statements were deleted" in user.post("/local/delete", uri=uri).words
    assert user.get("/local/document", uri=uri).status == 404 and not lmr.has(f"{uri}#a")


def test_a_file_is_put_as_a_local_document(lmr: Lmr, user: Visitor, mark: str) -> None:
    file = {"file": ("some thing.nt", f'<http://a.example/{mark}> <http://mdv.example/schema#note> "x" .'.encode())}
    page = user.post("/local/put", files=file, uri=f"http://local.example/{mark}/")
    assert page.status == 200 and f"http://local.example/{mark}/some%20thing.nt" in page.words
    assert lmr.has(f"http://a.example/{mark}")


def test_errors_of_a_local_document_are_shown_at_their_lines(lmr: Lmr, user: Visitor, mark: str) -> None:
    uri, files = f"http://local.example/{mark}", {"file": ("", b"")}
    wrong = turtle("<#a> a ex:CycleProvider ;", " ex:serverPort 'many' ;", " ex:unknown 1 .")
    page = user.post("/local/put", files=files, uri=uri, text=wrong, syntax="turtle")
    assert page.status == 422 and page.alert()
    assert {"3", "4"} & set(page.tree.xpath("//a/@data-line"))
    assert "many" in page.tree.xpath("string(//textarea)") and '"line"' in page.tree.xpath("string(//@data-errors)")
    broken = user.post("/local/put", files=files, uri=uri, text="<#a> <#b", syntax="turtle")
    assert broken.status == 400 and broken.tree.xpath("//a/@data-line") == ["1"]
    assert user.post("/local/put", files=files, uri="no uri", text=turtle(), syntax="turtle").status == 400
    assert user.get("/local/document", uri=uri).status == 404, "nothing was stored"
    assert user.post("/local/delete", uri=uri).status == 404


def test_local_documents_are_paged(empty: Lmr, anybody: Callable[[Lmr], Visitor]) -> None:
    lmr = empty
    user = anybody(lmr).sign_in(lmr.token)
    assert "There are no local documents yet" in user.get("/local").words
    uris = [f"http://local.example/{n:03}" for n in range(55)]
    for uri in uris:
        assert lmr.put_local(uri, turtle("<#a> ex:note 'x' .")).status_code == 201
    first = user.get("/local")
    second = user.get(str(first.tree.xpath("//a[@rel='next']/@href")[0]))
    shown = [str(name) for page in (first, second) for name in page.tree.xpath("//ul[@class='plain']//bdi/text()")]
    assert shown == uris


# Without the MDP


def test_while_the_mdp_is_unreachable_all_reads_use_the_cache(
    start: Start, server: Server, api: Api, doc: str, mark: str, anybody: Callable[[Lmr], Visitor]
) -> None:
    proxy = Proxy(server.port)
    lmr = start(proxy.url)
    api.put(doc, hosts(mark, 2))
    made = lmr.subscribe(rule(mark))["id"]
    user = anybody(lmr).sign_in(lmr.token)
    assert user.get("/").title == f"Overview LMR {lmr.name}"
    proxy.hold()
    assert user.get("/").status == 200, "answered although the MDP does not respond"
    proxy.close()
    eventually(lambda: "Requests to the MDP fail" in user.get("/").words)
    page = user.get("/")
    assert "not up to date" in page.words and "subscription at last contact" in page.words
    assert user.get("/resource", uri=f"{doc}#h1").status == 200
    assert user.get("/resource/why", uri=f"{doc}#h1").answer.text.strip() == ""
    assert f"{doc}#h1" in user.get("/cache/instances", **{"class": "CycleProvider"}).words
    text = turtle(f"<{doc}#h1> ex:note 'still' .")
    assert user.post("/local/put", files={"file": ("", b"")}, uri=f"{doc}/local", text=text).status == 200
    assert "still" in user.get("/resource", uri=f"{doc}#h1").words
    assert "The rule is valid" in user.post("/rules/look", rule=rule(mark)).words

    away = user.get("/subscriptions")
    assert away.status == 503 and "not reachable" in away.alert() and not away.tree.xpath("//main//table")
    kept = user.post("/subscriptions", rule=rule(f"other.{mark}"))
    assert kept.status == 503 and rule(f"other.{mark}") in kept.tree.xpath("string(//textarea)"), "the submitted text"
    for path in (f"/subscriptions/{made}", f"/subscriptions/{made}/end"):
        assert user.get(path).status == 503 and "cannot be reached" in user.get(path).words
    assert user.post("/verify").status == 503
    assert "The cache is consistent" in user.post("/check").words
