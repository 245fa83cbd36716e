"""The provider's own rules on pages: changed and removed."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from mdv.db.engine import make_engine
from mdv.mdp.provider import Provider
from mdv.mdp.rules.operations import AddRules, carry_out
from mdv.mdp.rules.planning import PROVIDER_OWNER, RuleDraft
from tests.support.page_visitor import Visitor

_numbers = itertools.count(1)
RULE = "search CycleProvider c register c where c.serverPort = "


@pytest.fixture
def add_rule(system_database: str) -> Callable[..., int]:
    """Add a rule of the provider, as `mdv rule add` does. Returns its id."""

    def add(text: str, name: str | None = None) -> int:
        engine = make_engine(system_database)
        with engine.connect() as connection:
            draft = RuleDraft(PROVIDER_OWNER, name, text, "test")
            (added,) = carry_out(connection, AddRules([draft]), Provider(engine))
            connection.commit()
        engine.dispose()
        return added.id

    return add


def test_a_rule_of_the_provider_is_changed_and_removed(visitor: Visitor, add_rule: Callable[..., int]) -> None:
    number = add_rule(RULE + "1")
    shown = visitor.get("/rules", id=number)
    assert f"/rules/own/{number}" in shown.links() and shown.title.startswith(f"Rule {number}")
    assert "rule of this MDP" in shown.words and "Subscription" not in shown.words
    page = visitor.get(f"/rules/own/{number}")
    assert page.form(f"/rules/own/{number}")["rule"] == RULE + "1"
    changed = visitor.post(f"/rules/own/{number}", rule=RULE + "2")
    assert changed.status == 200 and "The rule was changed." in changed.words
    assert changed.form(f"/rules/own/{number}")["rule"] == RULE + "2"
    ask = visitor.get(f"/rules/own/{number}/end")
    assert RULE + "2" in ask.words
    removed = visitor.post(f"/rules/own/{number}/end")
    assert removed.title == "All rules" and "The rule was removed." in removed.words
    assert visitor.get(f"/rules/own/{number}").status == 404
    assert visitor.get("/rules", id=number).status == 404


def test_an_invalid_change_of_a_rule_keeps_the_text_and_the_rule(
    visitor: Visitor, add_rule: Callable[..., int]
) -> None:
    number = add_rule(RULE + "3")
    page = visitor.post(f"/rules/own/{number}", rule="search Nothing n register n")
    assert page.status == 422 and page.form(f"/rules/own/{number}")["rule"] == "search Nothing n register n"
    assert "Nothing" in page.alert()
    assert visitor.get(f"/rules/own/{number}").form(f"/rules/own/{number}")["rule"] == RULE + "3"


def test_a_rule_that_another_rule_searches_is_not_removed(visitor: Visitor, add_rule: Callable[..., int]) -> None:
    name = f"Searched{next(_numbers)}"
    number = add_rule(RULE + "4", name)
    other = add_rule(f"search {name} s register s where s.serverPort > 0")
    assert f"first: {other}" in visitor.get(f"/rules/own/{number}/end").words
    assert visitor.post(f"/rules/own/{number}/end").status == 409
    assert visitor.get(f"/rules/own/{number}").status == 200


def test_rules_of_the_provider_are_changed_by_unlimited_admins_only(
    viewer: Visitor, visitor: Visitor, add_rule: Callable[..., int]
) -> None:
    number = add_rule(RULE + "5")
    assert viewer.get(f"/rules/own/{number}").status == 403
    assert viewer.post(f"/rules/own/{number}", rule=RULE + "6").status == 403
    assert viewer.post(f"/rules/own/{number}/end").status == 403
    assert f"/rules/own/{number}" not in viewer.get("/rules", id=number).links()
    assert visitor.get(f"/rules/own/{number}").form(f"/rules/own/{number}")["rule"] == RULE + "5"


def test_a_subscription_of_an_lmr_is_no_rule_of_the_provider(visitor: Visitor) -> None:
    visitor.post("/lmrs", name="not the provider")
    visitor.post("/rules/subscribe", rule=RULE + "7", lmr="not the provider")
    links = visitor.get("/lmrs/not the provider").links()
    (link,) = {link for link in links if "/subscriptions/" in link and not link.endswith("/end")}
    number = link.rpartition("/")[2]
    assert visitor.get(f"/rules/own/{number}").status == 404
    assert visitor.post(f"/rules/own/{number}/end").status == 404
    assert visitor.get(link).status == 200


def test_jobs_about_rules_of_the_provider_name_it(visitor: Visitor, add_rule: Callable[..., int]) -> None:
    visitor.post(f"/rules/own/{add_rule(RULE + '8')}", rule=RULE + "9")
    assert "change rule this MDP" in visitor.get("/jobs").words
