"""The administration in a real browser: with and without JavaScript, reloaded, and left and entered again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser_visit import Visit

PASSWORD = "correct horse battery"
SCRIPT = "<script>document.title = 'broken'</script>"
HOOK = "https://192.0.43.8/hook"
"""A public address. Nothing is sent to it: the webhook is paused at once, and its LMR has no new events."""


def create_token(visit: Visit, name: str) -> str:
    """Create a token in the form, and return its secret."""
    page = visit.to("/admin/tokens")
    form = page.locator("#create")
    form.get_by_label("Name").fill(name)
    form.get_by_label("Expires on").fill((datetime.now(UTC) + timedelta(days=30)).date().isoformat())
    form.get_by_role("button", name="Create token").click()
    expect(page.locator("#secret")).to_contain_text("mdv_")
    return str(page.locator("#secret").inner_text()).strip()


def create_user(visit: Visit, name: str) -> Page:
    page = visit.to("/admin/users")
    form = page.locator("#create")
    form.get_by_label("Name").fill(name)
    form.get_by_label("Password", exact=False).first.fill(PASSWORD)
    form.get_by_label("Repeat the password").fill(PASSWORD)
    form.get_by_role("button", name="Create user").click()
    expect(page.get_by_role("status")).to_contain_text("The user was created")
    return page


def add_webhook(visit: Visit) -> Page:
    page = visit.to("/admin/webhooks")
    page.get_by_label("LMR", exact=False).fill("school")
    page.get_by_label("URL", exact=False).fill(HOOK)
    page.get_by_role("button", name="Add webhook").click()
    expect(page.locator("#secret")).to_contain_text("whsec_")
    return page


PATHS = [
    "/admin",
    "/admin/users",
    "/admin/tokens",
    "/admin/tokens?state=all",
    "/admin/tokens/1",
    "/admin/tokens/1/revoke",
    "/admin/webhooks",
    "/admin/rules",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_page_of_the_administration_is_accessible(visit: Visit, path: str) -> None:
    page = visit.to(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    visit.check()


def test_the_pages_of_a_user_and_of_a_webhook_are_accessible(visit: Visit) -> None:
    name = f"{SCRIPT} {visit.page.viewport_size}"[:100]
    page = create_user(visit, name)
    visit.check()
    page.get_by_role("link", name="Remove user…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Remove this user?")
    visit.check()
    page.get_by_role("button", name="Remove user").click()
    expect(page.get_by_role("status")).to_contain_text("The user was removed")
    page = add_webhook(visit)
    visit.check()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_contain_text("paused")
    visit.check()
    page.get_by_role("link", name="Remove webhook…").click()
    visit.check()
    page.get_by_role("button", name="Remove webhook").click()
    expect(page.get_by_role("status")).to_contain_text("The webhook was removed")
    assert "broken" not in page.title()


@pytest.mark.parametrize("kind", ["desk", "plain"])
def test_a_secret_is_gone_after_reload_and_back(request: pytest.FixtureRequest, kind: str) -> None:
    visit: Visit = request.getfixturevalue(kind)
    secret, page = create_token(visit, f"shown once {kind}"), visit.page
    shown_at = page.url
    page.reload()
    expect(page.get_by_role("main")).to_contain_text("was shown once")
    assert secret not in page.content() and page.url == shown_at, "a reload creates no other token"
    other = create_token(visit, f"left and entered {kind}")
    page.get_by_role("link", name="Jobs").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Jobs")
    page.go_back()
    expect(page.get_by_role("main")).to_contain_text("was shown once")
    assert other not in page.content()
    page.go_forward()
    page.go_back()
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Tokens")
    names = [text for text in page.locator("tbody tr td:first-child").all_inner_texts() if kind in text]
    assert len(names) == 2, "neither reload nor back created another"
    assert not visit.troubles


def test_the_administration_works_without_javascript(plain: Visit) -> None:
    page = create_user(plain, "without script")
    page.get_by_label("Role", exact=False).select_option("admin")
    page.get_by_role("button", name="Change role").click()
    expect(page.get_by_role("status")).to_contain_text("The role was changed")
    page.get_by_role("link", name="Remove user…").click()
    page.get_by_role("button", name="Remove user").click()
    expect(page.get_by_role("alert")).to_contain_text("last user who is an administrator")
    page.get_by_role("checkbox").check()
    page.get_by_role("button", name="Remove user").click()
    expect(page.get_by_role("status")).to_contain_text("The user was removed")

    create_token(plain, "without script")
    page.get_by_role("link", name="Revoke token…").click()
    page.get_by_role("button", name="Revoke token").click()
    expect(page.get_by_role("status")).to_contain_text("The token was revoked")

    page = add_webhook(plain)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("main")).to_contain_text("Paused: no messages are sent.")
    page.get_by_role("link", name="New secret…").click()
    page.get_by_role("button", name="Create a new secret").click()
    expect(page.locator("#secret")).to_contain_text("whsec_")
    page.get_by_role("link", name="Remove webhook…").click()
    page.get_by_role("button", name="Remove webhook").click()
    expect(page.get_by_role("status")).to_contain_text("The webhook was removed")

    page = plain.to("/admin/rules")
    page.get_by_label("Rule", exact=False).first.fill("search Book b register b where b.copies > 3")
    page.get_by_role("button", name="Add rule").click()
    expect(page.get_by_role("status")).to_contain_text("The rule was added")
    page.get_by_role("link", name="Remove…").click()
    page.get_by_role("button", name="Remove rule").click()
    expect(page.get_by_role("status")).to_contain_text("The rule was removed")


def test_the_overview_leads_to_the_administration(desk: Visit) -> None:
    page = desk.to("/")
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Admin").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Administration")
    for name, title in (("Users", "Users"), ("Tokens", "Tokens"), ("Webhooks", "Webhooks"), ("Rules of this MDP",) * 2):
        page.get_by_role("navigation", name="Administration").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(title)
    assert not desk.troubles


def test_the_token_of_a_new_lmr_is_gone_after_a_reload(desk: Visit) -> None:
    page = desk.to("/lmrs")
    page.get_by_label("Name").fill("shown once")
    page.get_by_role("button", name="Create").click()
    token = page.locator("#token").inner_text().strip()
    assert token.startswith("mdv_")
    page.reload()
    expect(page.get_by_role("main")).to_contain_text("The token was shown once")
    assert token not in page.content()
