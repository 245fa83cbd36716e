"""The pages for browsing: classes, instances, a resource with its neighbours, and rules for similar resources."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
import rdflib

from tests.support import local_http
from tests.support.page_visitor import Page, Visitor
from tests.support.server import Api, Server, V, turtle

_numbers = itertools.count(1)
SCRIPT = "<script>alert(1)</script>"
ARABIC = "نص من اليمين"


@pytest.fixture
def host(api: Api, doc: str) -> str:
    """A provider with a unique host, its references, and its referrers."""
    text = turtle(
        f"<#p> a ex:CycleProvider ; ex:serverHost '{doc}' ; ex:serverPort 80 ; ex:serverInformation <#info> ;",
        f"  ex:note '''{SCRIPT}''', '{ARABIC}'@ar ; ex:knows <javascript:alert(1)>, <#nobody>, [ ex:note 'blank' ] .",
        "<#info> a ex:ServerInformation ; ex:memory 64 . <#friend> ex:knows <#p> .",
    )
    assert api.put(doc, text).status_code == 201
    return f"{doc}#p"


@pytest.fixture
def lmr(api: Api) -> str:
    name = f"browsing-{next(_numbers)}"
    assert api.http.post("/api/v1/lmrs", json={"name": name}).status_code == 201
    return name


def section(page: Page, anchor: str) -> list[list[str]]:
    """The cells of one list of the page."""
    return [
        [" ".join(cell.text_content().split()) for cell in row.xpath("./td")]
        for row in page.tree.xpath(f"//section[@id='{anchor}']//tbody/tr")
    ]


def test_classes_are_shown_as_a_tree_with_their_instance_counts(visitor: Visitor, host: str) -> None:
    page = visitor.get("/browse")
    rows = {row[0]: row for row in page.rows()}
    assert page.status == 200 and rows["ex:CycleProvider"][1] == "ex:Provider"
    assert int(rows["ex:CycleProvider"][2].replace(",", "").rstrip("+")) >= 1
    order = [row[0] for row in page.rows()]
    assert order.index("ex:Provider") + 1 == order.index("ex:CycleProvider")
    assert page.tree.xpath("//td[@class='depth-1']//a[@title=$iri]", iri=V + "CycleProvider")


def test_without_a_schema_the_page_says_how_to_add_one(small: Server) -> None:
    text = local_http.get(small.url + "/browse").text
    assert "mdv schema put" in text and "/register" in text


def test_a_resource_is_found_by_its_uri_and_by_a_prefix(visitor: Visitor, host: str, doc: str) -> None:
    exact = visitor.get("/browse", find=host)
    assert exact.path.startswith("/resource?") and exact.title.startswith("p ")
    some = visitor.get("/browse", find=doc + "#")
    assert some.path.startswith("/browse") and host in some.words and f"{doc}#nobody not described" in some.words
    assert "No URI starts with this text" in visitor.get("/browse", find="zzz:").words


def test_the_instances_of_a_class_are_shown_as_a_table_of_its_properties(visitor: Visitor, host: str, doc: str) -> None:
    page = visitor.get("/browse/instances", **{"class": V + "CycleProvider", "property": V + "serverHost",
                                               "op": "=", "value": doc})  # fmt: skip
    heads = [" ".join(head.text_content().split()) for head in page.tree.xpath("//th")]
    assert heads[0] == "URI" and {"ex:serverHost", "ex:serverPort"} <= set(heads)
    ((uri, *cells),) = page.rows()
    assert uri == host and doc in cells and "80" in cells
    assert "where c.ex:serverHost" in page.words and any(link.startswith("/like?") for link in page.links())


def test_filter_and_order_work_with_and_without_javascript(visitor: Visitor, host: str) -> None:
    asked = {"class": V + "CycleProvider", "property": V + "serverPort", "op": ">=", "value": "80",
             "sort": V + "serverPort", "order": "desc"}  # fmt: skip
    page = visitor.get("/browse/instances", **asked)
    assert page.tree.xpath("//th[@aria-sort='descending']") and host in page.words
    part = visitor.get("/browse/instances", {"HX-Request": "true"}, **asked)
    assert part.answer.headers["X-Part"] == "yes" and "<html" not in part.answer.text and host in part.words
    back = visitor.get("/browse/instances", {"HX-Request": "true", "HX-History-Restore-Request": "true"}, **asked)
    assert "<html" in back.answer.text


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"property": V + "serverPort", "op": ">", "value": "many"}, "write a number"),
        ({"property": V + "serverInformation", "op": "=", "value": "x"}, "absolute URI"),
        ({"property": V + "unheard", "op": "=", "value": "x"}, "no property"),
        ({"sort": V + "unheard"}, "no property"),
        ({"after": "x"}, "previous page"),
    ],
)
def test_an_invalid_filter_is_shown_with_a_message(
    visitor: Visitor, host: str, asked: dict[str, str], words: str
) -> None:
    page = visitor.get("/browse/instances", **{"class": V + "CycleProvider"}, **asked)
    assert 400 <= page.status < 500 and words in page.alert()
    assert page.tree.xpath("//form//select[@name='property']/option")


def test_many_instances_are_paged(visitor: Visitor, api: Api, doc: str) -> None:
    said = [f"<#{n}> a ex:CycleProvider ; ex:serverHost '{doc}' ." for n in range(120)]
    assert api.put(doc, turtle(*said)).status_code == 201
    found: list[str] = []
    page = visitor.get("/browse/instances", **{"class": V + "CycleProvider", "property": V + "serverHost",
                                               "op": "=", "value": doc})  # fmt: skip
    while True:
        found += [row[0] for row in page.rows()]
        following = page.tree.xpath("//a[@rel='next']/@href")
        if not following:
            break
        page = visitor.get(str(following[0]))
    assert sorted(found) == sorted(f"{doc}#{n}" for n in range(120))


def test_a_resource_shows_its_statements_and_strong_and_weak_references(visitor: Visitor, host: str, doc: str) -> None:
    page = visitor.get("/resource", uri=host)
    assert page.status == 200 and doc in page.tree.xpath("//section[@id='documents']//dd/div/a/bdi/text()")
    values = section(page, "values")
    assert ["ex:note", SCRIPT, ""] in values and ["ex:note", ARABIC, "ar"] in values
    targets = {(row[0], row[1]): row[2] for row in section(page, "references")}
    assert targets["ex:serverInformation", f"{doc}#info"] == "strong"
    assert targets["ex:knows", f"{doc}#nobody not described"] == "weak"
    (blank,) = [strength for (name, uri), strength in targets.items() if "#_:" in uri]
    assert blank == "strong"
    assert section(page, "referrers") == [[f"{doc}#friend", "ex:knows", "weak"]]
    assert section(visitor.get("/resource", uri=f"{doc}#info"), "referrers")[0][2] == "strong"


def test_document_content_never_becomes_a_script_or_an_external_link(visitor: Visitor, host: str) -> None:
    page = visitor.get("/resource", uri=host)
    assert SCRIPT not in page.answer.text
    links = [str(link) for link in page.tree.xpath("//@href")]
    assert all(link.startswith(("/", "#")) for link in links)
    assert not page.tree.xpath("//@style | //@onclick | //script[not(@src)]")
    target = visitor.get("/resource", uri="javascript:alert(1)")
    assert target.status == 200 and "No document describes this resource" in target.words and host in target.words


def test_the_neighbourhood_shows_named_links_and_strong_and_weak_references(visitor: Visitor, host: str) -> None:
    (drawing,) = visitor.get("/resource", uri=host).tree.xpath("//*[local-name()='svg'][@role='group']")
    labels = [str(label) for label in drawing.xpath(".//a/@aria-label")]
    assert any("referenced with serverInformation, strong" in label for label in labels)
    assert any("refers to it with knows, weak" in label for label in labels)
    assert len(drawing.xpath(".//path")) == 5 and len(drawing.xpath(".//path[@class='strong']")) == 2


def test_a_long_value_is_cut_and_complete_behind_a_link(visitor: Visitor, api: Api, doc: str) -> None:
    long = "<b>" + "x" * 1_000_000
    assert api.put(doc, turtle(f"<#a> ex:note '{long}' .")).status_code == 201
    page = visitor.get("/resource", uri=f"{doc}#a")
    assert len(page.answer.text) < 20_000
    (link,) = [link for link in page.links() if link.startswith("/resource/value")]
    answer = visitor.get(link).answer
    assert answer.text == long and answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert visitor.get("/resource/value", uri=f"{doc}#a", property=V + "note", n="9" * 30).status == 404


def test_many_references_to_a_resource_are_paged(visitor: Visitor, api: Api, doc: str) -> None:
    assert api.put(doc, turtle(*(f"<#{n}> ex:knows <#hot> ." for n in range(120)))).status_code == 201
    page = visitor.get("/resource", uri=f"{doc}#hot")
    assert "No document describes this resource" in page.words and "and 114 more" in page.words
    found: list[str] = []
    while True:
        found += [row[0] for row in section(page, "referrers")]
        following = page.tree.xpath("//section[@id='referrers']//a[@rel='next']/@href")
        if not following:
            break
        page = visitor.get(str(following[0]).partition("#")[0])
    assert sorted(found) == sorted(f"{doc}#{n}" for n in range(120))


def test_an_unmentioned_uri_is_not_found(visitor: Visitor, doc: str) -> None:
    page = visitor.get("/resource", uri=doc + "#never")
    assert page.status == 404 and "No document describes this URI or refers to it" in page.words
    assert visitor.get("/resource").status == 400


def test_the_lmrs_that_hold_a_resource_are_shown_with_the_reason(
    visitor: Visitor, api: Api, host: str, doc: str, lmr: str
) -> None:
    rule = f"search CycleProvider c register c where c.serverHost = '{doc}'"
    assert api.http.post(f"/api/v1/lmrs/{lmr}/subscriptions", json={"rule": rule}).status_code == 201
    page = visitor.get("/resource", uri=host)
    ((name, why, _),) = section(page, "holders")
    assert name == lmr and why.startswith("selected") and f"/lmrs/{lmr}" in page.links()
    explained = visitor.get(next(link for link in page.links() if "/explain" in link))
    assert explained.status == 200
    ((name, why, _),) = section(visitor.get("/resource", uri=f"{doc}#info"), "holders")
    assert name == lmr and why.startswith("reached")


@pytest.mark.parametrize(("suffix", "form"), [("rdf", "xml"), ("ttl", "turtle"), ("jsonld", "json-ld"), ("nt", "nt")])
def test_a_resource_can_be_downloaded_in_each_syntax(visitor: Visitor, host: str, suffix: str, form: str) -> None:
    answer = visitor.get(f"/resource/file.{suffix}", uri=host).answer
    assert answer.headers["Content-Disposition"] == f'attachment; filename="resource.{suffix}"'
    graph = rdflib.Graph().parse(data=answer.text, format=form)
    assert (rdflib.URIRef(host), rdflib.URIRef(V + "serverPort"), None) in graph
    assert visitor.get("/resource/file.exe", uri=host).status == 404


def test_similar_resources_can_be_subscribed(visitor: Visitor, api: Api, host: str, doc: str, lmr: str) -> None:
    page = visitor.get("/like", uri=host)
    rules = [str(rule) for rule in page.tree.xpath("//input[@name='rule']/@value")]
    assert len(rules) > 2 and "Exactly this resource. Selects 1 now." in page.words
    assert lmr in page.tree.xpath("//select[@name='lmr']/option/@value")
    wanted = next(rule for rule in rules if f"'{doc}'" in rule)
    done = visitor.post("/like", uri=host, lmr=lmr, rule=wanted.replace("\n", "\r\n"))
    assert done.title == "Subscribed" and f"/lmrs/{lmr}" in done.links() and host in done.words
    assert [item["rule"] for item in api.get(f"/lmrs/{lmr}/subscriptions").json()["items"]] == [wanted]
    ((name, why, _),) = section(visitor.get("/resource", uri=host), "holders")
    assert name == lmr and why.startswith("selected")


def test_a_second_subscription_to_the_same_rule_is_confirmed(visitor: Visitor, api: Api, host: str, lmr: str) -> None:
    rule = str(visitor.get("/like", uri=host).tree.xpath("//input[@name='rule']/@value")[0])
    assert visitor.post("/like", uri=host, lmr=lmr, rule=rule).title == "Subscribed"
    (first,) = api.get(f"/lmrs/{lmr}/subscriptions").json()["items"]
    other_layout = re.sub(r"\s+", " ", rule)
    assert other_layout != rule
    for path, text in itertools.product(
        ("/like", "/rules/subscribe", f"/lmrs/{lmr}/subscriptions"), (rule, other_layout)
    ):
        page = visitor.post(path, uri=host, lmr=lmr, rule=text)
        assert page.status == 409 and f"already has this rule as subscription {first['id']}" in page.words
        assert page.tree.xpath("//input[@type='checkbox'][@name='again']")
        assert len(api.get(f"/lmrs/{lmr}/subscriptions").json()["items"]) == 1
    assert visitor.post("/like", uri=host, lmr=lmr, rule=rule, again="yes").title == "Subscribed"
    assert len(api.get(f"/lmrs/{lmr}/subscriptions").json()["items"]) == 2


def test_a_rule_with_only_some_of_the_matches_of_another_is_not_the_same(visitor: Visitor, api: Api, lmr: str) -> None:
    one, two = (f"c.serverPort = {port}" for port in (4711, 4712))
    rules = [
        f"search CycleProvider c register c where {where}" for where in (f"{one} or {two}", one, f"{two} or {one}")
    ]
    titles = [visitor.post("/rules/subscribe", lmr=lmr, rule=rule).title for rule in rules]
    assert titles[:2] == ["Subscribed", "Subscribed"] and titles[2] != "Subscribed"
    assert len(api.get(f"/lmrs/{lmr}/subscriptions").json()["items"]) == 2


def test_the_result_of_a_filter_can_be_subscribed(visitor: Visitor, host: str, doc: str) -> None:
    page = visitor.get("/like", **{"class": V + "CycleProvider", "property": V + "serverHost", "op": "=", "value": doc})
    (chosen,) = page.tree.xpath("//input[@name='rule'][@checked]/@value")
    assert f"'{doc}'" in chosen and "Selects 1 now." in page.words


def test_a_refused_subscription_is_shown_on_its_form(visitor: Visitor, host: str, lmr: str) -> None:
    page = visitor.post("/like", uri=host, lmr=lmr, rule="search Nonsense n register n")
    assert page.status == 422 and "Nonsense" in page.alert() and page.tree.xpath("//input[@name='rule']")
    assert (
        "There is no LMR" in visitor.post("/like", uri=host, lmr="no one", rule="search Provider p register p").alert()
    )
    assert "Choose or write one" in visitor.post("/like", uri=host, lmr=lmr).alert()


def test_a_viewer_sees_the_proposed_rules_and_cannot_subscribe(viewer: Visitor, api: Api, host: str, lmr: str) -> None:
    page = viewer.get("/like", uri=host)
    assert page.status == 200 and not page.tree.xpath("//main//button")
    assert viewer.post("/like", uri=host, lmr=lmr, rule="search Provider p register p").status == 403
    assert api.get(f"/lmrs/{lmr}/subscriptions").json()["items"] == []


def test_a_form_with_a_wrong_csrf_token_subscribes_nothing(visitor: Visitor, api: Api, host: str, lmr: str) -> None:
    page = visitor.post("/like", csrf="wrong", uri=host, lmr=lmr, rule="search Provider p register p")
    assert page.status == 403 and api.get(f"/lmrs/{lmr}/subscriptions").json()["items"] == []


@pytest.mark.parametrize("path", ["/browse", "/browse/instances", "/resource?uri=x:y", "/resource/value?uri=x:y",
                                  "/resource/file.nt?uri=x:y", "/like?uri=x:y"])  # fmt: skip
def test_an_anonymous_visitor_is_asked_to_sign_in(new_visitor: Callable[..., Visitor], path: str) -> None:
    assert new_visitor().get(path).title == "Sign in"
