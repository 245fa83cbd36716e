"""Links, messages as text, privileges and levels of a federation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdv.federation.encode import UnreadableMessage, decode, encode
from mdv.federation.levels import ForeignOrder, levels_of
from mdv.federation.link import FederationLink, LinkGap, OtherEpoch
from mdv.federation.messages import FederatedRule, Flooded, RuleEnded, RuleMessage
from mdv.federation.privileges import Grant, GrantKind, Privilege, privilege_on
from mdv.federation.superpeer_state import SeenNumbers
from mdv.model import RDF_TYPE, Statement, Term
from mdv.rdftl.compile import compile_rules
from mdv.rdftl.model import Always, EcaRule
from tests.support.federation_cost import messages_per_firing
from tests.support.rdftl_rules import ANY, V, do_node, on_arc, on_node, resource, schema_of_turtle, triple
from tests.support.rdftl_texts import FOLDER, rdftl_schema

# Links


def pair() -> tuple[FederationLink, FederationLink]:
    return FederationLink("a", "a-1"), FederationLink("b", "b-1")


def test_a_link_delivers_each_message_once_and_in_order() -> None:
    one, other = pair()
    for number in range(5):
        one.send(RuleEnded(f"a.{number}"))
    first = one.exchange(limit=3)
    assert [message.rule for message in other.accept(first, 0)] == ["a.0", "a.1", "a.2"]
    assert other.accept(first, 0) == (), "repeated"
    assert [message.rule for message in other.accept(one.exchange(), 0)] == ["a.3", "a.4"], "not acknowledged yet"
    assert one.outbox and one.accept(other.exchange(), 0) == ()
    assert one.outbox == [] and one.exchange().first == 6


def test_a_gap_names_the_expected_number() -> None:
    one, other = pair()
    one.acknowledged = 3
    one.send(RuleEnded("a.1"))
    with pytest.raises(LinkGap, match="expected message 1"):
        other.accept(one.exchange(), 0)
    assert other.received == 0


def test_another_life_of_either_side_is_refused() -> None:
    one, other = pair()
    one.accept(other.exchange(), 0)
    restored = FederationLink("b", "b-2")
    with pytest.raises(OtherEpoch, match="b-2"):
        restored.accept(one.exchange(), 0)
    with pytest.raises(OtherEpoch, match="a-1"):
        one.accept(restored.exchange(), 0)
    one.restart("b-2")
    assert one.accept(restored.exchange(), 0) == ()


@given(st.permutations(range(1, 9)), st.lists(st.integers(1, 8), max_size=8))
def test_numbers_are_new_once_in_any_order(order: list[int], again: list[int]) -> None:
    seen = SeenNumbers()
    assert all(seen.add(number) for number in order)
    assert not any(seen.add(number) for number in again)
    assert (seen.floor, seen.beyond) == (8, set())


# Messages as text


@pytest.mark.parametrize("path", sorted((FOLDER / "printed").glob("*.rule")), ids=lambda path: path.stem)
def test_printed_rules_are_read_back_as_written(path: object) -> None:
    text = path.read_text("utf-8")  # type: ignore[attr-defined]
    if "..." in text:
        return  # a scheme, not a rule
    for compiled in compile_rules(text, rdftl_schema()):
        message = Flooded("a", 1, RuleMessage(FederatedRule("a", 1, compiled.rule, 5.0)))
        assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"RuleEnded": [1]}',
        '{"Flooded": ["a", "1", {"RuleEnded": ["a.1"]}]}',
        "[1",
        '{"os.system": ["x"]}',
        '{"RuleEnded": [1, 2]}',
        '{"RuleEnded": ["x"], "set": []}',
        "[" * 9999,
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UnreadableMessage, match="not a message of a federation"):
        decode(text)


# Privileges

SCHEMA = schema_of_turtle("""
:Book a rdfs:Class . :Novel rdfs:subClassOf :Book . :owner mdv:setValued true . :author rdfs:subPropertyOf :owner .
""")


@pytest.mark.parametrize(
    ("grants", "expected"),
    [
        ([], "private"),
        ([("class", "Book", "read-only")], "read-only"),
        ([("class", "Book", "read-only"), ("class", "Novel", "read-write")], "read-write"),
        ([("class", "Novel", "read-write"), ("property", "owner", "read-only")], "read-only"),
        ([("property", "owner", "private"), ("property", "author", "read-write")], "read-write"),
        ([("property", "author", "read-write"), ("prefix", "", "private")], "private"),
        ([("prefix", "", "private"), ("prefix", "b", "read-only")], "read-only"),
        ([("prefix", "bo", "read-write"), ("resource", "bo", "private")], "read-write"),
        ([("prefix", "book", "read-write"), ("resource", "book", "private")], "private"),
        ([("class", "Book", "read-write"), ("class", "Book", "read-only")], "read-only"),
    ],
)
def test_the_most_specific_grant_wins(grants: list[tuple[str, str, str]], expected: str) -> None:
    given_ = [Grant(GrantKind(kind), V + name, Privilege(privilege)) for kind, name, privilege in grants]
    statement = Statement(V + "book", V + "author", Term.literal("x"))
    assert privilege_on(statement, {V + "Novel"}, given_, SCHEMA).value == expected


def test_a_type_belongs_to_the_class_that_it_states() -> None:
    grants = [Grant(GrantKind.CLASS, V + "Book", Privilege.READ_WRITE)]
    for name, expected in (("Novel", Privilege.READ_WRITE), ("Other", Privilege.PRIVATE)):
        statement = Statement(V + "x", RDF_TYPE, Term.uri(V + name))
        assert privilege_on(statement, (), grants, SCHEMA) is expected


# Levels


def rule(origin: str, number: int, name: str, at: float = 0, **more: object) -> FederatedRule:
    event = on_arc("INSERT", triple("x" if more.pop("specific", False) else None, "owner", ANY))
    actions = (do_node("DELETE", resource("x")),)
    return FederatedRule(origin, number, EcaRule(event, Always(), actions, name, **more), at)  # type: ignore[arg-type]


def names(levels: list[list[FederatedRule]]) -> list[list[str]]:
    return [[one.id for one in level] for level in levels]


def test_own_rules_run_first_in_levels_and_foreign_ones_by_origin_and_number() -> None:
    rules = [
        rule("b", 2, "y", precedes=("x",)),
        rule("b", 1, "x"),
        rule("a", 9, "x"),
        rule("me", 1, "one", follows=("three",)),
        rule("me", 2, "two"),
        rule("me", 3, "three"),
    ]
    assert names(levels_of(rules, "me")) == [["me.2", "me.3"], ["me.1"], ["a.9"], ["b.2"], ["b.1"]]


def test_foreign_rules_can_run_by_time_or_the_most_specific_first() -> None:
    rules = [
        rule("a", 1, "x", at=3),
        rule("a", 2, "y", at=2, follows=("x",)),
        rule("b", 1, "x", at=1),
        rule("b", 2, "z", at=4, specific=True),
    ]
    by_time = levels_of(rules, "me", ForeignOrder.TIMESTAMP)
    assert names(by_time) == [["b.1"], ["a.1"], ["a.2"], ["b.2"]]
    assert names(levels_of(rules, "me", ForeignOrder.SPECIFIC_FIRST))[0] == ["b.2"]


def test_a_node_event_has_no_target() -> None:
    event = on_node("INSERT", resource("x"), "Book")
    assert decode(encode(event)) == event


# Cost


@pytest.mark.parametrize(("shape", "messages"), [("line", 20), ("ring", 14), ("star", 9)])
def test_the_messages_of_a_firing_over_five_superpeers(shape: str, messages: int) -> None:
    assert messages_per_firing(shape, 5) == messages
