"""The console of programs in a real browser: completion, live check, solutions as they arrive, plans, examples."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.browser_visit import Visit
from tests.support.whole_system import Up

PAGES = [
    "/programs",
    "/programs?example=example-6c",
    "/programs/examples",
    "/programs/examples?artist=absent",
    "/programs/actions",
    "/programs/processes",
    "/programs/processes?state=waiting",
]
PREFIX = "PREFIX ex: <http://mdv.example/art#>\n"
NOTED = PREFIX + "rdf:type(?work, ex:ArtWork) AND +rdfs:comment(?work, 'seen in a browser')"
WORKS = PREFIX + "rdf:type(?work, ex:ArtWork) AND -ex:creator(?work, ?artist) AND +ex:creator(?work, ex:Unknown)"
WAITING = PREFIX + "(ex:creator(?work, ex:NamJunePaik) UNION WAIT ex:creator(?work, ex:Nobody))"


def editor(page: Page) -> Locator:
    return page.get_by_role("textbox", name="The program")


def write(page: Page, text: str) -> None:
    editor(page).click()
    page.keyboard.press("Control+A")
    page.keyboard.press("Backspace")
    page.keyboard.insert_text(text)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_and_without_errors(visit: Visit, path: str) -> None:
    page = visit.to(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    visit.check()


def test_the_header_of_an_admin_is_one_line(visits: Callable[..., Visit], up: Up) -> None:
    page = visits(up.system.url, "light", 1280).to("/programs")
    expect(page.get_by_role("link", name="Programs", exact=True)).to_be_visible()
    middles = [one.evaluate("one => one.offsetTop + one.offsetHeight / 2") for one in page.locator(".top > *").all()]
    assert max(middles) - min(middles) < 5


def test_a_program_is_checked_while_it_is_typed(desk: Visit) -> None:
    page = desk.to("/programs")
    write(page, "rdf:type(?x, nothing:y")
    expect(page.locator("#look").get_by_role("alert")).to_contain_text("Line 1")
    write(page, "+rdfs:label(?x, 'a')")
    expect(page.locator("#look")).to_contain_text("?x is never bound before '+'")
    expect(page.locator(".cm-lintRange-warning")).to_have_text("?x")
    write(page, "TRUE")
    expect(page.locator("#look")).to_contain_text("The program is valid.")
    desk.check()


def test_names_variables_and_keywords_are_completed(desk: Visit) -> None:
    page = desk.to("/programs")
    options = page.locator(".cm-tooltip-autocomplete li")
    for typed, wanted in (
        ("art:cre", "art:creator"),
        ("rdf:type(?w, art:Art", "art:ArtWork"),
        ("rdf:type(?work, art:ArtWork) AND art:creator(?wo", "?work"),
        ("TRUE UNI", "UNION"),
        ("CALL prim", "primitive:equal"),
    ):
        write(page, "")
        page.keyboard.type(typed, delay=5)
        expect(options.filter(has_text=wanted).first).to_be_visible()
        page.keyboard.press("Escape")
    desk.check()


def test_a_sandbox_shows_solutions_difference_and_trace(desk: Visit) -> None:
    page = desk.to("/programs")
    write(page, WORKS)
    page.get_by_role("button", name="Run in a sandbox").click()
    end = page.locator('[data-part="end"]')
    expect(end).to_contain_text("4 solutions")
    expect(end).to_contain_text("4 statements would be added, 4 removed. Nothing was changed.")
    expect(page.locator('[data-part="solutions"] tr')).to_have_count(4)
    expect(page.locator("tr.minus")).to_have_count(4)
    page.get_by_text("Trace", exact=False).first.click()
    expect(page.locator(".trace li").first).to_contain_text("Five Angels for the Millennium")
    assert page.url.endswith("/programs")
    desk.check()
    page.get_by_role("button", name="Run read-only").click()
    expect(end.get_by_role("alert")).to_contain_text("may only read")
    expect(page.locator(".cm-lintRange-error").first).to_be_visible()


def test_solutions_arrive_while_the_program_waits(desk: Visit) -> None:
    page = desk.to("/programs")
    write(page, WAITING)
    page.keyboard.press("Control+Enter")
    expect(page.locator('[data-part="solutions"] tr')).to_have_count(1)
    expect(page.get_by_text("The program runs …")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("The program was stopped.")).to_be_visible()
    desk.check()


def test_a_program_is_run_for_real_after_a_sandbox(desk: Visit) -> None:
    page = desk.to("/programs")
    write(page, NOTED)
    page.get_by_label("Additions go to").fill("http://mdv.example/art/browser")
    page.get_by_role("button", name="Run in a sandbox").click()
    page.get_by_role("button", name="Run for real").click()
    expect(page.get_by_text("4 statements added, 0 removed.")).to_be_visible()
    expect(page.get_by_role("heading", name="What changed")).to_be_visible()
    desk.check()
    page.get_by_text("As the process").get_by_role("link").click()
    expect(page.get_by_text("4 statements added, 0 removed")).to_be_visible()
    expect(page.get_by_text("additions go to")).to_contain_text("http://mdv.example/art/browser")
    desk.check()


def test_the_processes_of_the_demo_are_a_tree_that_can_be_stopped(desk: Visit) -> None:
    page = desk.to("/programs/processes?state=waiting")
    describing = page.get_by_role("row").filter(has_text="Describe works")
    expect(describing).to_contain_text("toDescribe(The studio, ?)")
    describing.get_by_role("link").first.click()
    expect(page.get_by_role("heading", name="Family")).to_be_visible()
    expect(page.locator("td.depth-1")).to_have_count(2)
    desk.check()
    page.get_by_role("link", name="Stop").click()
    desk.check()
    page.get_by_label("Message").fill("closed for today")
    page.get_by_role("button", name="Stop the process").click()
    expect(page.locator("#process")).to_contain_text("closed for today")


def test_a_plan_is_shown(desk: Visit) -> None:
    page = desk.to("/programs?example=example-6")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("heading", name="Plan")).to_be_visible()
    expect(page.get_by_role("heading", name="May change")).to_be_visible()
    desk.check()


def test_the_examples_of_the_paper_differ_without_works(desk: Visit) -> None:
    page = desk.to("/programs/examples")
    expect(page.get_by_text("3 solutions")).to_have_count(3)
    page.get_by_role("link", name="Ann Hamilton, who has none").click()
    expect(page.get_by_text("0 solutions, 1 statement would be added")).to_have_count(1)
    expect(page.get_by_text("0 solutions, 0 statements would be added")).to_have_count(2)
    page.get_by_role("link", name="Open in the console").last.click()
    expect(editor(page)).to_contain_text("ex:AnnHamilton")


def test_a_program_runs_without_scripts(plain: Visit) -> None:
    page = plain.to("/programs")
    page.get_by_role("textbox", name="The program").fill(WORKS)
    page.get_by_role("button", name="Run in a sandbox").click()
    expect(page.get_by_text("4 statements would be added, 4 removed.")).to_be_visible()
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_text("The program is valid.")).to_be_visible()
