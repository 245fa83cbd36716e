"""One schema for all members: what it refuses at a member stays, as conflicts and suspended rules."""

from __future__ import annotations

from typing import Any

import pytest

from mdv.backbone.conflicts import MERGED, REFUSED, VALUES
from mdv.cause import UPDATE, Cause
from mdv.db.suspensions import Suspensions
from mdv.errors import BreakingSchema, InvalidDocument, InvalidRule
from mdv.feed import Event
from mdv.mdp.eca.change_rules import EcaDraft, add_rules, find_rule
from mdv.mdp.edit import Edit
from mdv.mdp.replicated_schema import HOLD_SECONDS, try_schema
from mdv.mdp.schemas import read_schema_document
from mdv.mdp.subscribe import get_subscription
from mdv.mdp.transaction import Transaction
from mdv.model import Statement, Term
from tests.support.replicas import NewDatabase, ReplicaMdp, Replicas

TEXTS = ":Book a rdfs:Class . :title a rdf:Property . :size a rdf:Property . :tag a rdf:Property ; mdv:setValued true ."
NUMBERS = f"{TEXTS} :size rdfs:range xsd:integer ."
CLOSED = TEXTS.removeprefix(":Book a rdfs:Class . ")
WITHOUT_BOOKS = f"{CLOSED} <urn:s> mdv:world mdv:open ."
SINGLE_TAGS = ":Book a rdfs:Class . :title a rdf:Property . :size a rdf:Property . :tag a rdf:Property ."
BOOKS = "search Book b register b"
COPY_TAG = "ON INSERT (_, title, _) IF TRUE DO INSERT ($delta, tag, 'book')"
D, E = "http://d/1", "http://d/2"


@pytest.fixture
def pair(new_database: NewDatabase) -> Replicas:
    """Two members, with the schema of texts. The first is the lead."""
    replicas = Replicas.found(new_database, "ab")
    replicas["a"].announce(TEXTS)
    replicas.rest()
    return replicas


def put_book(member: ReplicaMdp, size: str, uri: str = D, tags: str = "'x'") -> None:
    member.put_one(uri, f"<{uri}#x> a :Book ; :size '{size}' ; :tag {tags} .")


def conflicts(member: ReplicaMdp) -> list[tuple[str, str, tuple[str, ...]]]:
    with member.engine.connect() as connection:
        found = member.replica.conflicts(connection)
    return [(one.kind, one.document, tuple(sorted(value.value for value in one.values)))
            for one in found if one.kind != MERGED]  # fmt: skip


def schema_of(member: ReplicaMdp) -> dict[str, Any]:
    with member.engine.connect() as connection:
        schema = member.schemas.now(connection).schema
    return {iri: declared.range for iri, declared in schema.properties.items() if iri.startswith("http://v/")}


def number_of(member: ReplicaMdp, uri: str = D) -> Any:
    return member.one(
        "select f.number from filter_data f join documents d on d.id = f.document_id"
        " join vocabulary v on v.id = f.property_id where d.uri = :uri and v.uri = 'http://v/size'", uri=uri,
    )  # fmt: skip


def test_a_schema_of_the_lead_is_stored_by_all(pair: Replicas) -> None:
    put_book(pair["b"], "12")
    pair.rest()
    pair["a"].announce(NUMBERS)
    pair.rest()
    assert schema_of(pair["b"]) == schema_of(pair["a"])
    assert number_of(pair["a"]) == number_of(pair["b"]) == 12
    assert pair["b"].facts.schema_here == pair["a"].facts.table.schema
    assert conflicts(pair["b"]) == []


def test_a_value_that_a_schema_refuses_stays_untyped_as_a_conflict(pair: Replicas) -> None:
    """The member was away: it has a value that the lead did not know."""
    put_book(pair["b"], "large")
    pair["a"].announce(NUMBERS)
    pair.rest()
    for member in pair.members.values():
        assert conflicts(member) == [(REFUSED, D, ("large",))]
        assert number_of(member) is None
    put_book(pair["a"], "12")
    pair.rest()
    assert [conflicts(member) for member in pair.members.values()] == [[], []]
    assert number_of(pair["b"]) == 12


def test_an_operation_under_an_older_schema_is_typed_by_the_one_in_force(pair: Replicas) -> None:
    """It arrives when the schema is stored already."""
    put_book(pair["b"], "12", D)
    put_book(pair["b"], "large", E)
    pair["a"].announce(NUMBERS)
    pair.pull("a", "b")
    assert (number_of(pair["a"], D), number_of(pair["a"], E)) == (12, None)
    assert conflicts(pair["a"]) == [(REFUSED, E, ("large",))]
    pair.rest()
    assert conflicts(pair["b"]) == conflicts(pair["a"])


def test_a_conflict_ends_when_the_schema_accepts_the_value_again(pair: Replicas) -> None:
    put_book(pair["b"], "large")
    pair["a"].announce(NUMBERS)
    pair.rest()
    assert pair["b"].one("select count(*) from refused_documents") == 1
    pair["a"].announce(TEXTS)
    pair.rest()
    for member in pair.members.values():
        assert conflicts(member) == []
        assert member.one("select count(*) from refused_documents") == 0


def test_values_of_a_property_that_is_single_now_are_a_conflict(pair: Replicas) -> None:
    put_book(pair["b"], "1", tags="'x', 'y'")
    pair["a"].announce(SINGLE_TAGS)
    pair.rest()
    assert [conflicts(member) for member in pair.members.values()] == [[(VALUES, D, ("x", "y"))]] * 2


def test_two_values_under_an_older_schema_are_a_conflict_in_any_order(pair: Replicas) -> None:
    """The lead gets both operations after the schema; the other member before."""
    put_book(pair["b"], "1", tags="'x'")
    put_book(pair["b"], "1", tags="'x', 'y'")
    pair["a"].announce(SINGLE_TAGS)
    pair.rest()
    assert conflicts(pair["a"]) == conflicts(pair["b"]) == [(VALUES, D, ("x", "y"))]


def events(member: ReplicaMdp, lmr: Any, after: str | None) -> list[Event]:
    return list(member.feed(lmr, after).events)


def test_a_rule_that_loses_its_meaning_is_suspended_and_resumed(pair: Replicas) -> None:
    a, b = pair["a"], pair["b"]
    lmr = b.create_lmr("reader")
    broken, _ = b.subscribe(lmr, BOOKS, "search rdfs:Resource r register r where r.tag? = 'kept'")
    put_book(a, "1", D)
    put_book(a, "1", E, "'kept'")
    pair.rest()
    cursor = b.feed(lmr).cursor
    a.announce(WITHOUT_BOOKS)
    pair.rest()
    with b.engine.connect() as connection:
        suspended = get_subscription(connection, lmr, broken.id).suspended
    assert suspended is not None and "invalid under the present schema" in suspended.reason
    told = [(one.kind, one.resource) for one in events(b, lmr, cursor)]
    assert ("unmatch", f"{D}#x") in told and ("unmatch", f"{E}#x") not in told
    assert [name for name, _ in told].count("suspended") == 1
    with pytest.raises(InvalidRule):
        b.resume(lmr, broken.id)
    put_book(a, "1", "http://d/3")
    cursor = b.feed(lmr).cursor
    a.announce(TEXTS)
    pair.rest()
    with b.engine.connect() as connection:
        assert get_subscription(connection, lmr, broken.id).suspended is None
        assert Suspensions(connection).count() == 0
    told = [(one.kind, one.resource) for one in events(b, lmr, cursor)]
    assert {("match", f"{D}#x"), ("match", "http://d/3#x")} <= set(told)
    assert ("match", f"{E}#x") not in told
    assert [name for name, _ in told].count("resumed") == 1
    assert b.results_of(broken.id) == {f"{uri}#x" for uri in (D, E, "http://d/3")}


def test_a_schema_that_the_lead_itself_would_break_is_refused(pair: Replicas) -> None:
    put_book(pair["a"], "large")
    with pytest.raises(BreakingSchema, match="no longer be valid"):
        pair["a"].announce(NUMBERS)
    assert pair["a"].facts.table.schema == pair["b"].facts.table.schema


def test_a_suspended_rule_refuses_no_later_schema(pair: Replicas) -> None:
    """At the member that becomes the lead, a rule is broken already."""
    lmr = pair["b"].create_lmr("reader")
    pair["b"].subscribe(lmr, BOOKS)
    pair["a"].announce(WITHOUT_BOOKS)
    pair.rest()
    with pair["a"].replica.member() as member:
        member.hand_over_lead("b", 0)
    pair.rest()
    pair["b"].announce(f"{WITHOUT_BOOKS} :more a rdf:Property .")
    pair.rest()
    assert "http://v/more" in schema_of(pair["a"])


def test_an_event_rule_that_loses_its_meaning_is_stopped_and_resumed(pair: Replicas) -> None:
    b = pair["b"]
    with b.engine.begin() as connection:
        (rule,) = add_rules(connection, EcaDraft(COPY_TAG), b.provider)
    pair["a"].announce(TEXTS.split(":tag")[0])
    pair.rest()
    with b.engine.connect() as connection:
        stored = find_rule(connection, str(rule.id))
    assert stored.state == "quarantined" and "invalid under the present schema" in (stored.reason or "")
    pair["a"].announce(TEXTS)
    pair.rest()
    with b.engine.connect() as connection:
        stored = find_rule(connection, str(rule.id))
    assert (stored.state, stored.reason) == ("active", None)
    b.put_one(E, f"<{E}#x> :title 'a' .")
    assert b.one("select count(*) from filter_data where value = 'book'") == 1


def try_at(member: ReplicaMdp, turtle: str, holds: bool = True) -> None:
    document = read_schema_document((member.PREFIXES + turtle).encode(), "text/turtle")
    with member.engine.begin() as connection:
        try_schema(connection, document, member.provider, holds)


def test_a_trial_names_what_would_break_and_changes_nothing(pair: Replicas) -> None:
    b = pair["b"]
    b.subscribe(b.create_lmr("reader"), BOOKS)
    put_book(b, "large")
    before = schema_of(b)
    with pytest.raises(BreakingSchema, match="no longer be valid"):
        try_at(b, NUMBERS)
    with pytest.raises(BreakingSchema, match="rule 1 of reader"):
        try_at(b, WITHOUT_BOOKS)
    assert schema_of(b) == before and b.facts.hold is None
    put_book(b, "small")


def test_a_member_that_was_asked_holds_new_documents_to_both_schemas(pair: Replicas) -> None:
    a, b = pair["a"], pair["b"]
    try_at(b, NUMBERS)
    assert b.facts.hold is not None
    with pytest.raises(InvalidDocument, match="putting another schema in force"):
        put_book(b, "large")
    with pytest.raises(InvalidDocument, match="size"):
        b.put_one(D, f"<{D}#x> a :Book ; :size '1', '2' .")  # refused by the present one
    put_book(b, "12")
    with pytest.raises(InvalidDocument, match="putting another schema in force"):
        edit(b, D, "size", "12", "large")
    a.announce(NUMBERS)
    pair.rest()
    assert b.facts.hold is None
    assert [conflicts(member) for member in pair.members.values()] == [[], []]


def edit(member: ReplicaMdp, uri: str, name: str, old: str, new: str) -> None:
    with member.engine.begin() as connection:
        tx = Transaction(member.provider, connection)
        one, other = (Edit(Statement(f"{uri}#x", f"http://v/{name}", Term.literal(value)), uri) for value in (old, new))
        tx.edit(Cause(UPDATE), [other], [one], uri)
        tx.finish()


def test_a_hold_ends_by_itself(pair: Replicas) -> None:
    b = pair["b"]
    try_at(b, NUMBERS)
    with b.replica.member() as member:
        assert member.store.facts.hold is not None
        until, text = member.store.facts.hold
        member.store.facts.hold = until - HOLD_SECONDS * 1_000_000, text
    put_book(b, "large")
