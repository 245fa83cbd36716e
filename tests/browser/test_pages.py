"""Every page, in a real browser: what people do there, with and without scripts, whatever the literals hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect
from visiting import Visit

from mdv.client import Client
from mdv.errors import NotFound

DOC = "http://mdv.example/doc.rdf"
SCHEMA = "http://mdv.example/schema#"
RTL = "\u202eevil \u05d0\u05d1\u05d2\u202c"
SCRIPT = "<script>document.title = 'broken'</script><img src=x onerror=\"document.title='broken'\">"

PAGES = [
    "/",
    "/register",
    f"/register?uri={DOC}",
    "/documents",
    "/documents?prefix=http://mdv.example/",
    f"/document?uri={DOC}",
    f"/document/delete?uri={DOC}",
    "/jobs",
    "/jobs?state=dead",
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
def test_a_page_is_sound(visit: Visit, path: str) -> None:
    page = visit.to(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    visit.check()


def test_who_is_not_signed_in_is_asked_to_and_comes_back(visit: Visit) -> None:
    page = visit.page
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


def test_a_document_is_tried_out_and_registered(desk: Visit) -> None:
    page = desk.to("/register")
    uri = "http://mdv.example/tried.ttl"
    page.get_by_label("URI of the document").fill(uri)
    page.get_by_role("textbox", name="The text of the document").fill(provider("a", "a.uni-passau.de"))
    page.get_by_role("button", name="Try it out").click()
    expect(page.get_by_role("heading", name="This is what would happen")).to_be_visible()
    expect(page.get_by_label("What would happen")).to_contain_text("2 resources new")
    expect(page.get_by_label("What would happen").get_by_role("link", name="local")).to_be_visible()
    desk.check()
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Registered")
    expect(page.get_by_role("cell", name=re.compile("search CycleProvider"))).to_be_visible()
    expect(page.get_by_role("link", name=f"{uri}#a")).to_be_visible()
    desk.check()


def test_errors_stand_at_their_lines(desk: Visit) -> None:
    page = desk.to("/register")
    page.get_by_label("URI of the document").fill("http://mdv.example/wrong.rdf")
    text = f"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="{SCHEMA}">
  <ServerInformation rdf:ID="info">
    <memory>much</memory>
  </ServerInformation>
</rdf:RDF>"""
    page.get_by_role("textbox", name="The text of the document").fill(text)
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("alert")).to_contain_text("much")
    page.get_by_role("alert").get_by_role("link", name=re.compile("Line 3")).click()
    expect(page.locator(".cm-activeLine")).to_contain_text("much")
    expect(page.locator(".cm-lint-marker-error")).to_be_visible()
    desk.check()


def test_many_files_are_registered_each_with_how_it_went(desk: Visit, mdp: Client, tmp_path: Path) -> None:
    files = []
    for number in range(4):
        file = tmp_path / f"{number}.ttl"
        file.write_text(provider("x", f"{number}.example") if number != 2 else "<#x> nonsense", "utf-8")
        files.append(file)
    page = desk.to("/register")
    page.get_by_label("URI of the document").fill("http://mdv.example/many/")
    page.get_by_label("Files, dropped here or chosen").set_input_files(files)
    page.get_by_role("button", name="Try it out").click()
    rows = page.locator("#files tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(3)).to_contain_text("would be: 2 resources new")
    with pytest.raises(NotFound):
        mdp.get("/documents/history", uri="http://mdv.example/many/3.ttl")
    page.get_by_role("button", name="Register").click()
    expect(rows.nth(3)).to_contain_text("http://mdv.example/many/3.ttl: 2 resources new")
    expect(rows.nth(2)).to_contain_text("line 1")
    expect(page.locator("#files tr.bad")).to_have_count(1)
    desk.check()


def test_without_scripts_a_document_is_registered_read_and_deleted(plain: Visit) -> None:
    page = plain.to("/register")
    uri = "http://mdv.example/plain.ttl"
    page.get_by_label("URI of the document").fill(uri)
    page.get_by_label("The text of the document").fill(provider("p", "p.example"))
    page.get_by_role("button", name="Try it out").click()
    expect(page.get_by_label("What would happen")).to_contain_text("2 resources new")
    page.get_by_role("button", name="Register").click()
    page.get_by_role("link", name="To the document").click()
    expect(page.get_by_role("cell", name="p.example")).to_be_visible()
    page.get_by_role("link", name="Delete …").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Delete this document?")
    page.get_by_role("button", name="Delete it").click()
    expect(page.get_by_text("It was deleted in version 2")).to_be_visible()
    page.get_by_role("link", name="Restore …").click()
    page.get_by_role("button", name="Restore it").click()
    expect(page.get_by_role("cell", name="p.example")).to_be_visible()


def test_without_scripts_several_files_are_sent_too(plain: Visit, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.ttl" for number in range(3)]
    for number, file in enumerate(files):
        file.write_text(provider("x", f"{number}.example") if number else "nonsense", "utf-8")
    page = plain.to("/register")
    page.get_by_label("URI of the document").fill("http://mdv.example/few/")
    page.get_by_label("Files, dropped here or chosen").set_input_files(files)
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("3 files sent")
    expect(page.locator("tr.good")).to_have_count(2)
    expect(page.locator("tr.bad")).to_have_count(1)


def test_nobodys_newer_change_is_replaced_unseen(desk: Visit, mdp: Client) -> None:
    uri = "http://mdv.example/raced.ttl"
    mdp.register(uri, provider("r", "r.example", 1).encode(), "text/turtle")
    page = desk.to(f"/register?uri={uri}")
    mdp.register(uri, provider("r", "r.example", 2).encode(), "text/turtle")
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("alert")).to_contain_text("Somebody was faster")
    page.get_by_role("button", name="Try it out").click()
    expect(page.locator("tr.minus")).to_contain_text("2")
    desk.check()
    mdp.register(uri, provider("r", "r.example", 3).encode(), "text/turtle")
    page.get_by_role("button", name="Try it out").click()
    expect(page.get_by_role("alert")).to_contain_text("Somebody changed the document since you opened it")
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Changed")

    page = desk.to("/register")
    page.get_by_label("URI of the document").fill(uri)
    page.get_by_role("textbox", name="The text of the document").fill(provider("r", "r.example", 4))
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("alert")).to_contain_text("There is such a document already")
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Changed")


def test_a_text_of_a_megabyte_can_be_edited(desk: Visit) -> None:
    page = desk.to("/register")
    page.get_by_label("URI of the document").fill("http://mdv.example/long.ttl")
    page.get_by_role("textbox", name="The text of the document").fill(provider("l", "x" * 1_000_000))
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Registered")
    desk.check()


def test_a_page_that_is_not_there_is_a_page(desk: Visit) -> None:
    page = desk.to("/nonsense")
    expect(page.get_by_role("alert")).to_contain_text("There is no page /nonsense")
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


def test_hostile_literals_are_text(visit: Visit, mdp: Client) -> None:
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
    expect(page.get_by_text("No document's URI begins with")).to_be_visible()
    visit.check()


def test_the_overview_tells_what_happens_while_it_is_open(desk: Visit, mdp: Client) -> None:
    page = desk.to("/")
    expect(page.locator(".u-over")).to_have_count(3)
    mdp.register("http://mdv.example/live.ttl", provider("l", "l.example").encode(), "text/turtle")
    expect(page.get_by_role("link", name="http://mdv.example/live.ttl")).to_be_visible()
    desk.check()


def test_one_browses_to_a_resource_and_subscribes_to_things_like_it(desk: Visit) -> None:
    page = desk.to("/browse")
    page.get_by_role("link", name="CycleProvider").first.click()
    page.get_by_role("link", name=f"{DOC}#host").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("host")
    page.get_by_role("link", name=re.compile("things like this", re.I)).click()
    desk.check()
    page.get_by_role("button", name=re.compile("Subscribe")).first.click()
    expect(page.get_by_text("Subscribed").first).to_be_visible()
    desk.check()


def test_an_lmr_is_made_paused_and_ended(desk: Visit) -> None:
    page = desk.to("/lmrs")
    page.get_by_label("Name").fill("reading room")
    page.get_by_role("button", name=re.compile("Create")).click()
    expect(page.locator("#token")).to_contain_text("mdv_")
    desk.check()
    page = desk.to("/lmrs/reading%20room")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    desk.check()
    page.get_by_role("link", name=re.compile("End")).last.click()
    desk.check()
    page.get_by_role("button", name=re.compile("End")).click()
    expect(page.get_by_role("status")).to_have_text("The LMR is ended.")
