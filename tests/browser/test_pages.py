"""Every page in a real browser, with and without JavaScript, also with hostile literals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image, ImageColor
from playwright.sync_api import expect

from mdv.client import Client
from mdv.errors import NotFound
from tests.support.browser_visit import Visit
from tests.support.eventually import eventually
from tests.support.whole_system import Up

DOC = "http://mdv.example/doc.rdf"
SCHEMA = "http://mdv.example/schema#"
RTL = "\u202eevil \u05d0\u05d1\u05d2\u202c"
SCRIPT = "<script>document.title = 'broken'</script><img src=x onerror=\"document.title='broken'\">"

PAGES = [
    "/",
    "/?range=7d",
    "/register",
    f"/register?uri={DOC}",
    "/documents",
    "/documents?prefix=http://mdv.example/",
    f"/document?uri={DOC}",
    f"/document?uri={DOC}&edit=1",
    f"/document/delete?uri={DOC}",
    "/jobs",
    "/jobs?state=dead",
    "/jobs?state=failed&range=24h",
    "/jobs?kind=register&by=token+admin&first=1&last=100",
    "/lmrs?state=behind",
    "/browse",
    f"/browse?find={DOC}",
    f"/browse/instances?class={SCHEMA}CycleProvider".replace("#", "%23"),
    f"/resource?uri={DOC}%23host",
    f"/resource?uri={SCHEMA}CycleProvider".replace("#", "%23"),
    f"/like?uri={DOC}%23host",
    "/lmrs",
    "/lmrs/local",
    f"/lmrs/local/explain?uri={DOC}%23host",
]


def provider(name: str, host: str, memory: int = 92) -> str:
    return f"""@prefix s: <{SCHEMA}> .
<#{name}> a s:CycleProvider ; s:serverHost {_quoted(host)} ; s:serverPort 80 ; s:serverInformation <#info> .
<#info> a s:ServerInformation ; s:memory {memory} ; s:cpu 600 .
"""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_and_without_errors(visit: Visit, path: str) -> None:
    page = visit.to(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    visit.check()


def test_docs_shows_every_call_and_contacts_no_other_host(visit: Visit) -> None:
    page = visit.to("/docs")
    expect(page.locator(".opblock").first).to_be_visible(timeout=20_000)
    calls = page.evaluate("() => fetch('/openapi.json').then((answer) => answer.json())")["paths"]
    expect(page.locator(".opblock")).to_have_count(sum(len(methods) for methods in calls.values()))
    assert page.evaluate("() => getComputedStyle(document.querySelector('.opblock')).borderRadius") != "0px"
    brightness = """() => {
        const colour = getComputedStyle(document.querySelector('.opblock-tag')).color.match(/[0-9]+/g);
        return [Math.max(...colour.slice(0, 3).map(Number)), matchMedia('(prefers-color-scheme: dark)').matches]; }"""
    ink, is_dark = page.evaluate(brightness)
    assert (ink > 128) == is_dark, "the page has the theme of the browser"
    assert not visit.troubles


@pytest.mark.parametrize("width", [360, 390, 430, 1280])
def test_the_search_box_has_room_for_a_query(desk: Visit, width: int) -> None:
    page = desk.to("/")
    page.set_viewport_size({"width": width, "height": 800})
    box = page.locator(".top").get_by_role("searchbox").bounding_box()
    page.set_viewport_size({"width": 1280, "height": 800})
    assert box is not None and box["width"] >= 150


def test_an_anonymous_visitor_is_asked_to_sign_in_and_returns_to_the_page(guest: Visit) -> None:
    visit, page = guest, guest.page
    visit.sign_in()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    visit.check()
    visit.to("/jobs?state=done")
    page.get_by_label("Password or token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown or was revoked")
    visit.check()
    page.get_by_label("Password or token").fill(visit.token)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{visit.home}/jobs?state=done")


def test_a_document_is_previewed_and_registered(desk: Visit) -> None:
    page = desk.to("/register")
    uri = "http://mdv.example/tried.ttl"
    page.get_by_label("URI of the document").fill(uri)
    page.get_by_role("textbox", name="Document text").fill(provider("a", "a.uni-passau.de"))
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="Preview")).to_be_visible()
    expect(page.get_by_label("Preview")).to_contain_text("2 resources inserted")
    expect(page.get_by_label("Preview").get_by_role("link", name="local")).to_be_visible()
    desk.check()
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Registered")
    expect(page.get_by_role("cell", name=re.compile("search CycleProvider"))).to_be_visible()
    expect(page.get_by_role("link", name=f"{uri}#a")).to_be_visible()
    desk.check()


@pytest.mark.parametrize("kind", ["desk", "plain"])
def test_back_returns_to_the_preview_and_to_a_refused_text(request: pytest.FixtureRequest, kind: str) -> None:
    visit: Visit = request.getfixturevalue(kind)
    page = visit.to("/register")
    page.get_by_label("URI of the document").fill(f"http://mdv.example/back-{kind}.ttl")
    page.get_by_role("textbox", name="Document text").fill("<#a> a <http://mdv.example/schema#Unknown> .")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("not declared")
    page.get_by_role("textbox", name="Document text").fill(provider("a", "a.example"))
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="Preview")).to_be_visible()
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Registered")
    page.go_back()
    expect(page.get_by_role("heading", name="Preview")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("alert")).to_contain_text("not declared")
    page.go_forward()
    page.go_forward()
    expect(page.get_by_role("heading", level=1)).to_have_text("Registered")


def test_errors_are_shown_at_their_lines(desk: Visit) -> None:
    page = desk.to("/register")
    page.get_by_label("URI of the document").fill("http://mdv.example/wrong.rdf")
    text = f"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="{SCHEMA}">
  <ServerInformation rdf:ID="info">
    <memory>much</memory>
  </ServerInformation>
</rdf:RDF>"""
    page.get_by_role("textbox", name="Document text").fill(text)
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("alert")).to_contain_text("much")
    page.get_by_role("alert").get_by_role("link", name=re.compile("Line 3")).click()
    expect(page.locator(".cm-activeLine")).to_contain_text("much")
    expect(page.locator(".cm-lint-marker-error")).to_be_visible()
    desk.check()


def test_many_files_are_registered_and_each_result_is_shown(desk: Visit, mdp: Client, tmp_path: Path) -> None:
    files = []
    for number in range(4):
        file = tmp_path / f"{number}.ttl"
        file.write_text(provider("x", f"{number}.example") if number != 2 else "<#x> nonsense", "utf-8")
        files.append(file)
    page = desk.to("/register")
    page.get_by_label("URI of the document").fill("http://mdv.example/many/")
    page.get_by_label("Drop files here or choose them").set_input_files(files)
    page.get_by_role("button", name="Preview").click()
    rows = page.locator("#files tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(3)).to_contain_text("(preview): 2 resources inserted")
    with pytest.raises(NotFound):
        mdp.get("/documents/history", uri="http://mdv.example/many/3.ttl")
    page.get_by_role("button", name="Register").click()
    expect(rows.nth(3)).to_contain_text("http://mdv.example/many/3.ttl: 2 resources inserted")
    expect(rows.nth(2)).to_contain_text("line 1")
    expect(page.locator("#files tr.bad")).to_have_count(1)
    desk.check()


def test_without_javascript_a_document_is_registered_read_and_deleted(plain: Visit) -> None:
    page = plain.to("/register")
    uri = "http://mdv.example/plain.ttl"
    page.get_by_label("URI of the document").fill(uri)
    page.get_by_label("Document text").fill(provider("p", "p.example"))
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_label("Preview")).to_contain_text("2 resources inserted")
    page.get_by_role("button", name="Register").click()
    page.get_by_role("link", name="Go to the document").click()
    expect(page.get_by_role("cell", name="p.example")).to_be_visible()
    page.get_by_role("link", name="Delete …").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Delete this document?")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("This document was deleted in version 2")).to_be_visible()
    page.get_by_role("link", name="Restore …").click()
    page.get_by_role("button", name="Restore").click()
    expect(page.get_by_role("cell", name="p.example")).to_be_visible()


def test_a_file_in_another_encoding_is_sent_as_it_is(desk: Visit, mdp: Client, tmp_path: Path) -> None:
    rdf, uri = tmp_path / "latin.rdf", "http://mdv.example/latin.rdf"
    text = f"""<?xml version="1.0" encoding="ISO-8859-1"?>
        <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="{SCHEMA}">
        <CycleProvider rdf:ID="a"><serverHost>m\u00fcller</serverHost></CycleProvider></rdf:RDF>"""
    rdf.write_bytes(text.encode("latin-1"))
    page = desk.to("/register")
    page.get_by_label("URI of the document").fill("http://mdv.example/")
    page.get_by_label("Drop files here or choose them").set_input_files(rdf)
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Registered")
    assert "m\u00fcller".encode() in mdp.rdf("/documents", "application/n-triples", uri=uri)
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG\r\n" + bytes(range(256)))
    page = desk.to("/register")
    page.get_by_label("URI of the document").fill("http://mdv.example/")
    page.get_by_label("Drop files here or choose them").set_input_files(picture)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("picture.png seems to be a PNG image")
    table = tmp_path / "table.csv"
    table.write_text("name,port\nhost,80\n", "utf-8")
    page = desk.to("/register")
    page.get_by_label("URI of the document").fill("http://mdv.example/")
    page.get_by_label("Drop files here or choose them").set_input_files(table)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("table.csv seems to be a table")


def test_a_file_over_the_limit_keeps_the_form(desk: Visit, plain: Visit, tmp_path: Path) -> None:
    large, uri = tmp_path / "large.ttl", "http://mdv.example/large.ttl"
    large.write_bytes(b"#" * (40 * 2**20))
    page = plain.to("/register")
    page.get_by_label("URI of the document").fill(uri)
    page.get_by_label("Drop files here or choose them").set_input_files(large)
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("alert")).to_contain_text("The limit is 32 MiB (33,554,432 bytes)")
    expect(page.get_by_label("URI of the document")).to_have_value(uri)
    page = desk.to("/register")
    page.get_by_label("URI of the document").fill(uri)
    field = page.get_by_label("Drop files here or choose them")
    field.set_input_files(large)
    page.get_by_role("button", name="Register").click()
    refusal = field.evaluate("field => field.validationMessage")
    assert refusal == "large.ttl has 40 MiB. The limit is 32 MiB." and page.url.endswith("/register")
    expect(page.get_by_role("heading", level=1)).to_have_text("Register a document")


def test_a_value_is_edited_in_place(desk: Visit, mdp: Client) -> None:
    uri = "http://mdv.example/edited.ttl"
    mdp.register(uri, provider("e", "before.example").encode(), "text/turtle")
    page = desk.to(f"/document?uri={uri}")
    page.get_by_role("link", name=f"Edit serverHost of {uri}#e").click()
    expect(page.get_by_label("Value")).to_be_focused()
    page.get_by_label("Value").fill("after.example")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_have_text("The value was changed.")
    expect(page.get_by_role("cell", name="after.example")).to_be_visible()
    page.get_by_role("link", name=f"Edit serverPort of {uri}#e").click()
    page.get_by_role("button", name="Remove this value").click()
    expect(page.get_by_role("status")).to_have_text("The value was removed.")
    assert b"serverPort" not in mdp.rdf("/documents", "application/n-triples", uri=uri)


def test_without_javascript_several_files_are_sent(plain: Visit, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.ttl" for number in range(3)]
    for number, file in enumerate(files):
        file.write_text(provider("x", f"{number}.example") if number else "nonsense", "utf-8")
    page = plain.to("/register")
    page.get_by_label("URI of the document").fill("http://mdv.example/few/")
    page.get_by_label("Drop files here or choose them").set_input_files(files)
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("3 files sent")
    expect(page.locator("tr.good")).to_have_count(2)
    expect(page.locator("tr.bad")).to_have_count(1)


def test_a_newer_change_is_not_overwritten_without_confirmation(desk: Visit, mdp: Client) -> None:
    uri = "http://mdv.example/raced.ttl"
    mdp.register(uri, provider("r", "r.example", 1).encode(), "text/turtle")
    page = desk.to(f"/register?uri={uri}")
    mdp.register(uri, provider("r", "r.example", 2).encode(), "text/turtle")
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("alert")).to_contain_text("Edit conflict")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("tr.minus")).to_contain_text("2")
    desk.check()
    mdp.register(uri, provider("r", "r.example", 3).encode(), "text/turtle")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("The document was changed since you opened it")
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Changed")

    page = desk.to("/register")
    page.get_by_label("URI of the document").fill(uri)
    page.get_by_role("textbox", name="Document text").fill(provider("r", "r.example", 4))
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("alert")).to_contain_text("The document already exists")
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Changed")


def test_a_text_of_a_megabyte_can_be_edited(desk: Visit) -> None:
    page = desk.to("/register")
    page.get_by_label("URI of the document").fill("http://mdv.example/long.ttl")
    page.get_by_role("textbox", name="Document text").fill(provider("l", "x" * 1_000_000))
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Registered")
    desk.check()


def test_an_unknown_path_shows_an_error_page(desk: Visit) -> None:
    page = desk.to("/nonsense")
    expect(page.get_by_role("alert")).to_contain_text("The page /nonsense does not exist")
    desk.check()


def test_versions_are_compared(desk: Visit, mdp: Client) -> None:
    uri = "http://mdv.example/versions.ttl"
    for memory in (1, 2, 3):
        mdp.register(uri, provider("v", "v.example", memory).encode(), "text/turtle")
    page = desk.to(f"/document?uri={uri}")
    page.get_by_label("from version 1").check()
    page.get_by_label("to version 3").check()
    page.get_by_role("button", name="Show the difference").click()
    expect(page.locator("tr.plus")).to_contain_text("3")
    expect(page.locator("tr.minus")).to_contain_text("1")
    desk.check()


def test_hostile_literals_are_shown_as_text(visit: Visit, mdp: Client) -> None:
    uri = "http://mdv.example/hostile.ttl"
    host = f"{SCRIPT} {RTL} " + "x" * 1_000_000
    mdp.register(uri, provider("h", host).encode(), "text/turtle")
    for path in (
        f"/document?uri={uri}", f"/document/delete?uri={uri}", f"/register?uri={uri}", "/jobs", "/",
        f"/resource?uri={uri}%23h", f"/browse/instances?class={SCHEMA}CycleProvider".replace("#", "%23"),
        f"/like?uri={uri}%23h", f"/lmrs/local/explain?uri={uri}%23h",
    ):  # fmt: skip
        page = visit.to(path)
        visit.check()
        assert "broken" not in page.title()
    page = visit.to(f"/documents?prefix={SCRIPT}")
    expect(page.get_by_text("No document URI starts with")).to_be_visible()
    visit.check()


def test_the_overview_updates_itself_while_it_is_open(desk: Visit, mdp: Client) -> None:
    page = desk.to("/?range=24h")
    charts = page.locator("figure[data-points]")
    expect(page.locator(".u-over")).to_have_count(4)
    before = sum(json.loads(charts.first.get_attribute("data-points") or "")[1])
    charts.first.get_by_text("As a table").click()
    mdp.register("http://mdv.example/live.ttl", provider("l", "l.example").encode(), "text/turtle")
    expect(page.get_by_role("link", name="http://mdv.example/live.ttl")).to_be_visible()
    expect(page.locator(".tiles")).to_contain_text("jobs failed in 24 hours")

    def is_drawn() -> bool:
        return sum(json.loads(charts.first.get_attribute("data-points") or "")[1]) > before  # type: ignore[no-any-return]

    eventually(is_drawn, 200)  # charts are read again every minute
    expect(charts.first.locator("details tbody")).to_be_visible()
    expect(page.locator(".u-over")).to_have_count(4)
    desk.check()


@pytest.fixture
def four_paused_lmrs(mdp: Client) -> Iterator[None]:
    """Each of them raises an alert."""
    names = [f"paused {number}" for number in range(4)]
    for name in names:
        mdp.change("POST", "/lmrs", {"name": name})
        mdp.change("POST", f"/lmrs/{name}/subscriptions", [{"rule": "search CycleProvider c register c"}], seconds=60)
        mdp.change("POST", f"/lmrs/{name}/pause")
    yield
    for name in names:
        mdp.change("DELETE", f"/lmrs/{name}", seconds=60)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.usefixtures("four_paused_lmrs")
def test_the_charts_are_above_the_fold(visits: Callable[..., Visit], up: Up, scheme: str) -> None:
    """The colour of the lines is looked for in a picture of the window, even if there are many alerts."""
    visit = visits(up.system.url, scheme, 1280)
    page = visit.to("/")
    expect(page.locator(".u-over")).to_have_count(4)
    expect(page.get_by_role("status", name="Alerts").locator("li")).not_to_have_count(3)
    colour = page.evaluate("() => getComputedStyle(document.documentElement).getPropertyValue('--series-1').trim()")
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    assert picture.size == (1280, 800)
    for chart in page.locator("figure[data-points]").all():
        frame, plot = chart.bounding_box(), chart.locator(".u-over").bounding_box()
        assert frame is not None and plot is not None and frame["y"] + frame["height"] <= 800
        box = (plot["x"], plot["y"], plot["x"] + plot["width"], plot["y"] + plot["height"] + 2)
        seen = {pixel for _, pixel in picture.crop(tuple(map(round, box))).getcolors(1 << 20) or []}
        assert ImageColor.getrgb(colour) in seen, f"{chart.text_content()}: no line"


def test_without_javascript_another_time_range_is_chosen(plain: Visit) -> None:
    page = plain.to("/")
    page.get_by_role("link", name="7 days").click()
    expect(page.locator("nav a[aria-current=page]", has_text="7 days")).to_be_visible()
    page.locator("figure").first.get_by_text("As a table").click()
    expect(page.locator("figure").first.locator("details tbody tr")).not_to_have_count(0)
    page.get_by_role("link", name=re.compile("jobs failed in 7 days")).click()
    expect(page).to_have_url(f"{plain.home}/jobs?state=failed&range=7d")


def test_a_user_browses_to_a_resource_and_subscribes_to_similar_ones(desk: Visit) -> None:
    page = desk.to("/browse")
    page.get_by_role("link", name="CycleProvider").first.click()
    page.get_by_role("link", name=f"{DOC}#host").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("host")
    page.get_by_role("link", name=re.compile("similar resources", re.I)).click()
    desk.check()
    page.get_by_role("button", name=re.compile("Subscribe")).first.click()
    expect(page.get_by_text("Subscribed").first).to_be_visible()
    desk.check()


def test_an_lmr_is_created_paused_and_removed(desk: Visit) -> None:
    page = desk.to("/lmrs")
    page.get_by_label("Name").fill("reading room")
    page.get_by_role("button", name=re.compile("Create")).click()
    expect(page.locator("#token")).to_contain_text("mdv_")
    desk.check()
    page = desk.to("/lmrs/reading%20room")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    desk.check()
    page.get_by_role("link", name=re.compile("Remove")).last.click()
    desk.check()
    page.get_by_role("button", name=re.compile("Remove")).click()
    expect(page.get_by_role("status")).to_have_text("The LMR was removed.")
