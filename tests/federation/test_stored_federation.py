"""Federations of real MDPs: each a database, with the core over its store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine

from mdv.errors import InvalidRule, SiteWasRestored
from mdv.mdp.federation.fragment import StoredFragment
from mdv.mdp.federation.members import set_grants
from mdv.model import RDF, RDF_TYPE, RDFS_RESOURCE
from tests.support.stored_federation import StoredFederation

SCHEMA = """
:Book a rdfs:Class . :Novel rdfs:subClassOf :Book . :Reader a rdfs:Class .
:subject rdfs:range xsd:string ; mdv:setValued true .
:interest rdfs:range xsd:string ; mdv:setValued true .
:new rdfs:range :Book ; mdv:setValued true .
:title rdfs:range xsd:string . :copies rdfs:range xsd:integer .
"""
BOOKS = "http://a.example/books"
ON_BOOK = "ON INSERT resource() AS INSTANCE OF Book"


@pytest.fixture
def federation(new_database: Callable[[], Engine]) -> Iterator[StoredFederation]:
    federation = StoredFederation(new_database)
    yield federation
    federation.close()


def libraries(federation: StoredFederation) -> None:
    """Two superpeers: the first has books, the second readers and one book."""
    federation.superpeer("lib-a", SCHEMA, {BOOKS: "<http://a.example/1> a :Book ; :subject 'Music' ."})
    reader = "<http://b.example/ann> a :Reader ; :interest 'Law' ; :new <http://b.example/2> ."
    federation.superpeer("lib-b", SCHEMA, {"http://b.example/d": reader + " <http://b.example/2> a :Book ."})
    federation.connect("lib-b", "lib-a")
    federation.rest()


def test_a_new_book_of_one_library_reaches_the_readers_of_the_other(federation: StoredFederation) -> None:
    libraries(federation)
    rule = (
        "RULE tell ABORT Independent ON INSERT resource() AS INSTANCE OF Book"
        " IF $delta/target(subject) = resource(http://b.example/ann)/target(interest)"
        " DO INSERT (resource(http://b.example/ann), new, $delta)"
    )
    assert federation.rule("lib-a", rule) == ["lib-a.1"]
    federation.rest()
    law = "<http://a.example/law> a :Novel ; :subject 'Law' ."
    art = "<http://a.example/art> a :Novel ; :subject 'Art' ."
    federation["lib-a"].put({"http://a.example/new": law + art})
    federation.rest()
    told = {one for one in federation["lib-b"].everything() if one[1] == "new"}
    assert told == {
        ("http://b.example/ann", "new", "http://b.example/2"),
        ("http://b.example/ann", "new", "http://a.example/law"),
    }
    assert federation["lib-b"].said("urn:mdv:federation:lib-a") == {
        ("http://b.example/ann", "new", "http://a.example/law")
    }


# Failures

FIGURE_SCHEMA = """
:start rdfs:range xsd:string ; mdv:setValued true . :five rdfs:range xsd:string ; mdv:setValued true .
:six rdfs:range xsd:string ; mdv:setValued true . :seven rdfs:range xsd:string ; mdv:setValued true .
:topic rdfs:range xsd:string ; mdv:setValued true .
"""
GO = {"http://d/go": '<http://v/u> :start "go" .'}


def copy_rule(name: str, abort: str, condition: str = "TRUE", header: str = "") -> str:
    """Return a rule that copies what starts, and adds it to the box: that fails where the box is no collection."""
    return (
        f"{header} ABORT {abort} ON INSERT (_, start, _) IF {condition}"
        f" DO INSERT ($delta.source, {name}, 'done'); INSERT (resource(http://v/box), seq++, $delta.source)"
    )


def box(is_collection: bool = True) -> str:
    return "<http://v/box> a rdf:Bag ." if is_collection else '<http://v/other> a rdf:Bag . <http://v/box> :start "x" .'


def figure(federation: StoredFederation, failing: str) -> dict[str, str]:
    """Return the states of the transactions of the abort figure after a failure. T1 at SP2 has the children T5 at SP2
    (ParentChild), T6 at SP5 (Mutual) and T7 at SP3 (Independent)."""
    for superpeer, name in (("SP2", "five"), ("SP5", "six"), ("SP3", "seven")):
        held = f'<http://v/x> :{name} "x" . {box(name != failing)}'
        federation.superpeer(superpeer, FIGURE_SCHEMA, {f"http://d/{superpeer}": held})
    federation.connect("SP2", "SP3")
    federation.connect("SP3", "SP5")
    federation.rest()
    for name, abort in (("five", "ParentChild"), ("six", "Mutual"), ("seven", "Independent")):
        federation.rule("SP2", copy_rule(name, abort))
    federation.rest()
    federation["SP2"].put(GO)
    federation.rest()
    found = {}
    for superpeer, name in (("SP2", "T5"), ("SP5", "T6"), ("SP3", "T7")):
        (found[name],) = federation[superpeer].outcomes().values()
    (found["T1"],) = [one.state.value for one in federation["SP2"].state().transactions.values() if one.shared is None]
    return found


def done(federation: StoredFederation) -> set[str]:
    """Return the properties that copies have set."""
    return {name for mdp in federation.mdps.values() for _, name, value in mdp.everything() if value == "done"}


def test_a_failure_of_t7_compensates_t7_alone(federation: StoredFederation) -> None:
    assert figure(federation, "seven") == {"T1": "done", "T5": "done", "T6": "done", "T7": "compensated"}
    assert done(federation) == {"five", "six"}


def test_a_failure_of_t6_compensates_its_parent_and_the_child_of_that(federation: StoredFederation) -> None:
    states = figure(federation, "six")
    assert states == {"T1": "compensated", "T5": "compensated", "T6": "compensated", "T7": "done"}
    assert done(federation) == {"seven"}, "T7 is independent"
    assert ("http://v/u", "start", "go") not in federation["SP2"].everything(), "the change of the MDP itself is undone"
    assert federation["SP2"].one(
        "select v.cause from document_versions v join documents d on d.id = v.document_id"
        " where d.uri = 'http://d/go' order by v.version desc limit 1"
    ) == "compensation"  # fmt: skip


def pair(federation: StoredFederation, abort: str) -> None:
    """Two superpeers. A rule of the first has copies that run at peer `p` of the second."""
    federation.superpeer("S1", FIGURE_SCHEMA, {"http://d/1": '<http://v/x> :start "x" .'})
    federation.superpeer("S2", FIGURE_SCHEMA, {})
    federation.connect("S1", "S2")
    federation.peer("p", "S2", FIGURE_SCHEMA, {"http://d/p": f'<http://v/x> :six "x" . {box()}'})
    federation.rule("S1", copy_rule("six", abort))
    federation.rest()


def test_a_peer_that_is_gone_between_act_and_acted_fails_its_copy_and_undoes_it_later(
    federation: StoredFederation,
) -> None:
    pair(federation, "Mutual")
    before = federation["p"].everything()
    federation.cut.add(frozenset(("p", "S2")))
    federation["S1"].put(GO)
    federation.rest()
    assert federation["S2"].one("select count(*) from federation_outbox where neighbour = 'p'") == 1
    assert {one.state.value for one in federation["S1"].state().transactions.values()} == {"running"}
    federation.now += 30
    federation.rest()
    assert {one.state.value for one in federation["S1"].state().transactions.values()} == {"compensating"}
    assert ("http://v/u", "start", "go") not in federation["S1"].everything()
    federation.cut.clear()
    federation.rest()
    assert federation["p"].everything() == before
    assert federation["p"].one("select count(*) from federation_journal where transaction not like 'undo%'") == 1, (
        "the abort followed"
    )
    assert len(federation.compensated()) == 2


def test_processes_that_are_restarted_between_all_messages_go_on(federation: StoredFederation) -> None:
    pair(federation, "Mutual")
    federation["S1"].put(GO)
    for _ in range(40):
        for mdp in federation.mdps.values():
            mdp.restart()
            mdp.site.step(1)
        for link in federation.links():
            federation.call(*link)
            federation.call(*link)
    assert done(federation) == {"six"}
    assert set(federation["S2"].outcomes().values()) == {"done"}
    for mdp in federation.mdps.values():
        assert (
            mdp.one("select count(*) from federation_inbox") == mdp.one("select count(*) from federation_outbox") == 0
        )


def test_a_private_step_is_left_out_of_a_condition(federation: StoredFederation) -> None:
    federation.superpeer("S1", FIGURE_SCHEMA, {"http://d/1": '<http://v/x> :start "x" .'})
    secret = f'<http://v/u> :topic "secret" . <http://v/x> :six "x" . {box()}'
    federation.superpeer("S2", FIGURE_SCHEMA, {"http://d/2": secret}, [["prefix", "", "private"]])
    federation.connect("S1", "S2")
    federation.rule("S1", copy_rule("six", "Independent", "$delta/target(topic) = 'secret'"))
    federation.rest()
    federation["S1"].put(GO)
    federation.rest()
    assert not federation["S1"].state().copies
    set_grants(federation["S2"].provider, [["prefix", "", "read-only"]])
    federation.rest()
    federation["S1"].put({"http://d/go2": '<http://v/u> :start "again" .'})
    federation.rest()
    assert federation["S2"].outcomes() == dict.fromkeys(federation["S2"].outcomes(), "refused")
    assert federation["S2"].outcomes(), "the condition holds, but the action is not permitted"
    assert done(federation) == set()


# Rules


def test_local_rules_run_in_the_transaction_and_global_ones_after_it(federation: StoredFederation) -> None:
    pair(federation, "Independent")
    assert federation.rule("S1", copy_rule("seven", "Mutual", header="LOCAL")) == []
    federation["S1"].put({"http://d/box": box()})
    federation["S1"].put(GO)
    assert ("http://v/u", "seven", "done") in federation["S1"].everything(), "before the federation has worked"
    assert ("http://v/u", "six", "done") not in federation["p"].everything()
    federation.rest()
    assert ("http://v/u", "six", "done") in federation["p"].everything()
    assert federation["p"].said("urn:mdv:federation:S1") == {
        ("http://v/u", "six", "done"),
        ("http://v/box", f"{RDF}_1", "http://v/u"),
    }


def test_a_rule_without_abort_or_of_a_limited_token_is_refused(federation: StoredFederation) -> None:
    federation.superpeer("S1", FIGURE_SCHEMA, {})
    with pytest.raises(InvalidRule, match="a global rule needs ABORT"):
        federation.rule("S1", "ON INSERT (_, start, _) IF TRUE DO DELETE $delta.source")
    assert federation["S1"].one("select count(*) from federation_inbox where kind = 'rule'") == 0


# Indexes


def test_presence_and_the_resource_index_follow_the_documents(federation: StoredFederation) -> None:
    federation.superpeer("S1", SCHEMA, {})
    federation.peer("p", "S1", SCHEMA, {})
    documents = {
        "http://d/1": "<http://r/1> a :Novel ; :subject 'Law', 'Art' ; :new <http://r/2> .",
        "http://d/2": "<http://r/2> a :Book . <http://r/l> a rdf:Bag ; rdf:_1 <http://r/1> .",
        "http://d/3": "<http://r/1> a :Book ; :subject 'Law' .",
    }
    for name in ("S1", "p"):
        federation[name].put(documents)
    federation.rest()
    check_index(federation)
    for name in ("S1", "p"):
        federation[name].put({"http://d/1": "<http://r/1> :title 'A' .", "http://d/2": None})
    federation.rest()
    check_index(federation)
    present = federation["S1"].state().index.nodes
    assert present["0"] == present["p"] == {
        "http://v/Book", "http://v/subject", "http://v/title", RDF_TYPE, RDFS_RESOURCE
    }  # fmt: skip
    federation["S1"].put_schema(SCHEMA + ":Book rdfs:subClassOf :Thing . :Thing a rdfs:Class .")
    federation.rest()
    check_index(federation)
    assert "http://v/Thing" in federation["S1"].state().index.nodes["0"]


def check_index(federation: StoredFederation) -> None:
    """Compare what S1 knows with what the databases contain."""
    index = federation["S1"].state().index
    for peer, mdp in (("0", federation["S1"]), ("p", federation["p"])):
        with mdp.engine.begin() as connection:
            schema = mdp.schemas.now(connection).schema
            contents = StoredFragment(mdp.provider, connection, schema).contents()
            connection.rollback()
        assert index.nodes[peer] == contents.grown
        assert index.resources[peer] == dict(contents.came)


def test_the_state_in_memory_is_the_state_that_is_stored(federation: StoredFederation) -> None:
    figure(federation, "six")
    for mdp in federation.mdps.values():
        core = mdp.site._core
        assert core is not None
        assert core.stored.state == mdp.state()


# Restores


def test_a_restored_superpeer_starts_its_links_again(federation: StoredFederation) -> None:
    pair(federation, "Independent")
    federation["S2"].run("update mdp_state set epoch = gen_random_uuid()")
    federation["S2"].restart()
    federation["S2"].site.work()
    with pytest.raises(SiteWasRestored):
        federation.call("S1", "S2")
    federation.rest_after_restore("S2")
    federation["S1"].put(GO)
    federation.rest()
    assert done(federation) == {"six"}
    check_rules(federation)


def check_rules(federation: StoredFederation) -> None:
    assert set(federation["S1"].state().rules) == {"S1.1"}
    assert federation["S1"].state().life_of("S2") == 1
