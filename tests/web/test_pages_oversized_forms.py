"""Forms over the size limit: the page names the limit and keeps the form."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.in_process_server import serve_in_process
from tests.support.local_http import local_client
from tests.support.page_visitor import Visitor
from tests.support.server import ADMIN

LIMIT = 300 * 1024
LARGE = b"#" * (LIMIT + 1)
URI = "http://large.example/doc.ttl"


@pytest.fixture(scope="module")
def limited(new_database: Callable[[], str], new_queue: Callable[[], str]) -> Iterator[Visitor]:
    """The administrator of a system with a low limit."""
    with (
        serve_in_process(new_database(), new_queue(), MDV_MAX_DOCUMENT_BYTES=str(LIMIT)) as server,
        local_client(base_url=server.url, timeout=60, follow_redirects=True) as client,
    ):
        yield Visitor(client).sign_in(ADMIN)


@pytest.mark.parametrize("act", ["check", "register"])
def test_a_file_over_the_limit_keeps_the_form_and_names_the_limit(limited: Visitor, act: str) -> None:
    page = limited.post("/register", files={"file": ("a.ttl", LARGE)}, uri=URI, syntax="turtle", version="3", act=act)
    assert page.status == 413 and "300 KiB (307,200 bytes)" in page.alert()
    assert "mdv batch" in page.alert()
    form = page.form("/register")
    assert (form["uri"], form["syntax"], form["version"]) == (URI, "turtle", "3")


def test_several_files_over_the_limit_in_total_keep_the_form(limited: Visitor) -> None:
    files = [("file", (f"{number}.ttl", LARGE[:200_000])) for number in range(2)]
    page = limited.post("/register", files=files, uri="http://large.example/", act="register")
    assert page.status == 413 and page.form("/register")["uri"] == "http://large.example/"


def test_one_of_several_files_over_the_limit_is_answered_with_a_fragment(limited: Visitor) -> None:
    page = limited.post("/register/each", files={"file": ("a.ttl", LARGE)}, uri=URI, act="register")
    assert page.status == 413 and page.answer.headers["X-Part"] == "yes"
    assert "300 KiB (307,200 bytes)" in page.words


def test_a_schema_over_the_limit_keeps_the_form(limited: Visitor) -> None:
    page = limited.post("/schema/change", files={"file": ("a.ttl", LARGE)}, syntax="rdfxml", version="0", act="check")
    assert page.status == 413 and "300 KiB" in page.alert()
    assert page.form("/schema/change")["version"] == "0"


def test_the_form_of_an_oversized_upload_is_not_shown_to_viewers(viewer: Visitor) -> None:
    page = viewer.post("/register", uri=URI, text="x" * 200_000)
    assert page.status == 403 and "/register" not in page.forms()


def test_forms_name_the_limit_of_files(limited: Visitor) -> None:
    for path in ("/register", "/schema/change"):
        page = limited.get(path)
        assert "at most 300 KiB" in page.words
        assert page.tree.xpath("//form/@data-max-bytes") == [str(LIMIT)]


def test_a_pasted_text_over_the_limit_of_fields_is_named(limited: Visitor) -> None:
    page = limited.post("/sign-out", words="x" * 200_000)
    assert page.status == 413 and "128 KiB (131,072 bytes)" in page.alert()
