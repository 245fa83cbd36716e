"""Publication by examples: the events of each LMR when documents, rules and the schema change."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from mdv.db.lmrs import Lmr
from mdv.feed import EventKind
from mdv.mdp.register import RegistrationOutcome
from mdv.mdp.schemas import build_schema, read_schema_document
from mdv.mdp.subscribe import delete_lmr
from mdv.model import is_blank
from mdv.rdf.gate import gate
from mdv.rdf.parse import parse as parse_rdf
from mdv.rdf.syntax import syntax_of_media_type
from mdv.rules.parse import parse
from tests.support.closure_oracle import Closure, closure_of
from tests.support.mdp import Mdp

SCHEMA = """
<> mdv:world mdv:open .
:Host a rdfs:Class . :Info a rdfs:Class . :Server a rdfs:Class .
:info a rdf:Property ; rdfs:range :Info ; mdv:reference mdv:strong .
:next a rdf:Property ; mdv:reference mdv:strong ; mdv:setValued true .
:near a rdf:Property ; mdv:setValued true .
:memory a rdf:Property ; rdfs:range xsd:integer .
:name a rdf:Property ; rdfs:range xsd:string .
"""
D = "http://d/"
BIG = "search Host h register h where h.memory > 64"
EVERY = "search Host h register h"


class Told:
    """An LMR that has read its feed up to now."""

    def __init__(self, mdp: Mdp, name: str, *rules: str) -> None:
        self.mdp = mdp
        self.lmr: Lmr = mdp.create_lmr(name)
        self.rules = [made.id for made in mdp.subscribe(self.lmr, *rules)] if rules else []
        self.cursor = mdp.feed(self.lmr).cursor

    def events(self) -> list[tuple[str, str]]:
        """Return the events since the last call: kinds, and resources by the last part of their URIs."""
        page = self.mdp.feed(self.lmr, self.cursor)
        self.cursor = page.cursor
        assert page.up_to_date
        return [(event.kind.value, event.resource.removeprefix(D)) for event in page.events]

    def held(self) -> set[str]:
        """Return the resources that the MDP has recorded for the LMR."""
        rows = self.mdp.rows(
            "select r.uri from lmr_resources c join resources r on r.id = c.resource_id where c.lmr_id = :lmr",
            lmr=self.lmr.id,
        )
        return {uri.removeprefix(D) for (uri,) in rows}


@pytest.fixture
def mdp(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    return mdp


def host(name: str, memory: int, *said: str) -> str:
    return " ".join([f"<{D}{name}> a :Host ; :memory {memory} .", *said])


def test_blank_nodes_are_sent_over_any_reference(mdp: Mdp) -> None:
    lmr = Told(mdp, "north", BIG)
    mdp.put_one(D + "1", host("a", 92, f"<{D}a> :near [ :name 'x' ; :near <{D}b> ] . <{D}b> :name 'weak' ."))
    kinds = [(kind, "blank" if is_blank(D + uri) else uri) for kind, uri in lmr.events()]
    assert sorted(kinds) == [("match", "a"), ("put", "a"), ("put", "blank")]


def test_a_target_registered_after_its_referrer_is_sent(mdp: Mdp) -> None:
    lmr = Told(mdp, "north", BIG)
    mdp.put_one(D + "1", host("a", 92, f"<{D}a> :info <{D}i> ."))
    assert lmr.events() == [("put", "a"), ("match", "a")]
    mdp.put_one(D + "2", f"<{D}i> :memory 600 .")
    assert lmr.events() == [("put", "i")]


def test_a_target_that_left_and_returned_is_sent_again(mdp: Mdp) -> None:
    lmr = Told(mdp, "north", BIG)
    mdp.put_one(D + "2", f"<{D}i> :memory 600 .")
    mdp.put_one(D + "1", host("a", 92, f"<{D}a> :info <{D}i> ."))
    assert set(lmr.events()) == {("put", "a"), ("put", "i"), ("match", "a")}
    mdp.put_one(D + "1", host("a", 92))
    assert lmr.events() == [("put", "a")], "a resource that leaves the closure causes no event"
    mdp.put_one(D + "2", f"<{D}i> :memory 700 .")
    assert lmr.events() == [], "a resource outside the closure causes no event"
    mdp.put_one(D + "1", host("a", 92, f"<{D}a> :info <{D}i> ."))
    assert sorted(lmr.events()) == [("put", "a"), ("put", "i")]


def test_a_chain_of_strong_references_enters_and_leaves_as_a_whole(mdp: Mdp) -> None:
    lmr = Told(mdp, "north", BIG)
    mdp.put_one(D + "chain", f"<{D}b> :next <{D}c> . <{D}c> :next <{D}e> . <{D}e> :name 'end' .")
    mdp.put_one(D + "1", host("a", 92, f"<{D}a> :next <{D}b> ."))
    assert set(lmr.events()) == {("put", uri) for uri in "abce"} | {("match", "a")}
    mdp.put_one(D + "chain", f"<{D}b> :next <{D}c> . <{D}c> :next <{D}e> . <{D}e> :name 'other end' .")
    assert lmr.events() == [("put", "e")]
    mdp.put_one(D + "1", host("a", 2, f"<{D}a> :next <{D}b> ."))
    assert lmr.events() == [("unmatch", "a")], "a resource that leaves is not sent again"
    assert lmr.held() == set()


def test_a_cycle_leaves_with_its_last_reason(mdp: Mdp) -> None:
    lmr = Told(mdp, "north", BIG)
    mdp.put_one(D + "cycle", f"<{D}b> :next <{D}c> . <{D}c> :next <{D}b> .")
    mdp.put({D + name: host(name, 92, f"<{D}{name}> :next <{D}b> .") for name in ("a", "e")})
    assert lmr.held() == {"a", "b", "c", "e"}
    mdp.put_one(D + "a", None)
    assert lmr.held() == {"b", "c", "e"}
    mdp.put_one(D + "e", host("e", 92))
    assert lmr.held() == {"e"}


def test_a_resource_selected_by_several_rules_is_matched_once_and_unmatched_once(mdp: Mdp) -> None:
    lmr = Told(mdp, "north", BIG, EVERY, "search Host h register h where h.name = 'x'")
    mdp.put_one(D + "1", host("a", 92, f"<{D}a> :name 'x' ."))
    assert lmr.events() == [("put", "a"), ("match", "a")]
    mdp.put_one(D + "1", host("a", 2))
    assert lmr.events() == [("put", "a")], "one rule of three still selects it"
    mdp.unsubscribe(lmr.lmr, lmr.rules[0])
    assert lmr.events() == []
    mdp.unsubscribe(lmr.lmr, *lmr.rules[1:])
    assert lmr.events() == [("unmatch", "a")]


def test_changing_a_constant_of_a_rule_sends_only_the_difference(mdp: Mdp) -> None:
    lmr = Told(mdp, "north", BIG)
    mdp.put({D + name: host(name, memory) for name, memory in (("a", 50), ("b", 70), ("c", 90))})
    assert set(lmr.events()) == {("put", "b"), ("put", "c"), ("match", "b"), ("match", "c")}
    mdp.change_subscription(lmr.lmr, lmr.rules[0], BIG.replace("64", "80"))
    assert lmr.events() == [("unmatch", "b")]
    mdp.change_subscription(lmr.lmr, lmr.rules[0], BIG.replace("64", "40"))
    assert sorted(lmr.events()) == [("match", "a"), ("match", "b"), ("put", "a"), ("put", "b")]
    mdp.change_subscription(lmr.lmr, lmr.rules[0], BIG.replace("64", "45"))
    assert lmr.events() == []


def test_an_identical_registration_sends_no_event(mdp: Mdp) -> None:
    lmr = Told(mdp, "north", EVERY)
    mdp.put_one(D + "1", host("a", 92))
    lmr.events()
    position = mdp.one("select position from mdp_state")
    assert mdp.put_one(D + "1", host("a", 92)).lmrs == 0
    assert lmr.events() == []
    assert mdp.one("select position from mdp_state") == position


def test_moving_a_statement_between_documents_sends_no_event(mdp: Mdp) -> None:
    lmr = Told(mdp, "north", EVERY)
    mdp.put_one(D + "1", host("a", 92))
    lmr.events()
    moved = mdp.put({D + "1": f"<{D}a> a :Host .", D + "2": f"<{D}a> :memory 92 ."})
    assert [answer.lmrs for answer in moved if isinstance(answer, RegistrationOutcome)] == [0, 0]
    assert lmr.events() == []


def test_a_registration_returns_the_number_of_lmrs_concerned(mdp: Mdp) -> None:
    for name, rule in (("north", BIG), ("south", BIG), ("west", "search Host h register h where h.memory < 10")):
        Told(mdp, name, rule)
    answers = mdp.put({D + "1": host("a", 92), D + "2": host("b", 5), D + "3": host("c", 30)})
    assert [answer.lmrs for answer in answers if isinstance(answer, RegistrationOutcome)] == [2, 1, 0]


def test_references_that_become_strong_send_their_targets_and_weak_ones_drop_them(mdp: Mdp) -> None:
    lmr = Told(mdp, "north", EVERY)
    mdp.put_one(D + "1", host("a", 92, f"<{D}a> :near <{D}b> . <{D}b> :next <{D}c> . <{D}c> :name 'x' ."))
    assert lmr.events() == [("put", "a"), ("match", "a")]
    strong = SCHEMA.replace(":near a rdf:Property ;", ":near a rdf:Property ; mdv:reference mdv:strong ;")
    mdp.put_schema(strong)
    assert lmr.events() == [("schema", ""), ("put", "b"), ("put", "c")]
    mdp.put_schema(SCHEMA)
    assert lmr.events() == [("schema", "")]
    assert lmr.held() == {"a"}


def test_a_reference_may_become_weak_while_its_target_is_unselected(mdp: Mdp) -> None:
    """One schema change removes both reasons."""
    strong = SCHEMA + ":Server rdfs:subClassOf :Host ."
    mdp.put_schema(strong)
    lmr = Told(mdp, "north", EVERY)
    mdp.put_one(D + "1", f"<{D}a> a :Host ; :info <{D}b> . <{D}b> a :Server ; :next <{D}c> . <{D}c> :name 'x' .")
    assert lmr.held() == {"a", "b", "c"}
    lmr.events()
    mdp.put_schema(SCHEMA.replace("rdfs:range :Info ; mdv:reference mdv:strong", "rdfs:range :Info"))
    assert lmr.events() == [("schema", ""), ("unmatch", "b")]
    assert lmr.held() == {"a"}


def test_an_added_subclass_brings_its_instances(mdp: Mdp) -> None:
    lmr = Told(mdp, "north", EVERY)
    mdp.put_one(D + "1", f"<{D}s> a :Server ; :info <{D}i> . <{D}i> :memory 5 .")
    assert lmr.events() == []
    mdp.put_schema(SCHEMA + ":Server rdfs:subClassOf :Host .")
    first, *puts, last = lmr.events()
    assert (first, sorted(puts), last) == (("schema", ""), [("put", "i"), ("put", "s")], ("match", "s"))
    mdp.put_schema(SCHEMA)
    assert lmr.events() == [("schema", ""), ("unmatch", "s")]


def test_two_lmrs_get_the_same_content_and_feeds_store_no_content(mdp: Mdp) -> None:
    lmrs = [Told(mdp, name, BIG) for name in ("north", "south")]
    mdp.put_one(D + "1", host("a", 92, f"<{D}a> :name 'a long text that is nowhere in the feed' ."))
    first, second = (mdp.feed(lmr.lmr, lmr.cursor) for lmr in lmrs)
    assert [event.statements for event in first.events] == [event.statements for event in second.events]
    assert first.events[0].kind is EventKind.PUT
    assert "a long text that is nowhere in the feed" in {s.object.value for s in first.events[0].statements}
    tables = ("feed", "publications", "snapshots", "snapshot_events")
    stored = "".join(str(mdp.rows(f"select t::text from {table} t")) for table in tables)
    assert stored
    assert "long text" not in stored


def test_an_lmr_without_rules_gets_only_schema_events(mdp: Mdp) -> None:
    lmr = Told(mdp, "north")
    Told(mdp, "south", EVERY)
    mdp.put_one(D + "1", host("a", 92))
    mdp.put_schema(SCHEMA + ":Server rdfs:subClassOf :Host .")
    mdp.put_one(D + "1", None)
    assert lmr.events() == [("schema", "")]


def test_deleted_lmr_leaves_no_row_in_any_table(mdp: Mdp) -> None:
    tables = [name for (name,) in mdp.rows("select tablename from pg_tables where schemaname = 'public'")]
    mdp.put({D + name: host(name, 20 * n, f"<{D}{name}> :info <{D}i> .") for n, name in enumerate("abcde")})
    remains = {"mdp_state", "transactions", "publications", "vocabulary", "rule_predicates", "filter_data_history",
               "document_versions", "result_objects", "result_ranges"}  # fmt: skip
    """Tables of the history, and of names and numbers."""
    before = counts(mdp, set(tables) - remains)
    lmr = Told(mdp, "north", BIG, EVERY, "search Host h register h where h.memory != 3 or h.name contains 'x'")
    mdp.put_one(D + "a", host("a", 99))
    mdp.put_one(D + "a", host("a", 0, f"<{D}a> :info <{D}i> ."))
    assert lmr.held()
    with mdp.engine.begin() as connection:
        delete_lmr(connection, lmr.lmr, mdp.provider)
    assert counts(mdp, set(tables) - remains) == before
    assert mdp.one("select lmrs from mdp_state") == 0


def counts(mdp: Mdp, tables: Iterable[str]) -> dict[str, int]:
    return {name: mdp.one(f'select count(*) from "{name}"') for name in tables}


def test_rules_of_other_owners_have_no_effect(mdp: Mdp) -> None:
    """Neither rules of other LMRs nor those of the MDP; a name means a rule of the same LMR."""
    mdp.add_rules([EVERY, ("big", EVERY)], owner=0)
    north = Told(mdp, "north", "search Host h register h where h.name = 'north'")
    south = Told(mdp, "south", "search Host h register h where h.name = 'south'")
    for lmr in (north, south):
        name = lmr.lmr.name
        mdp.subscribe(lmr.lmr, ("mine", f"search Host h register h where h.name contains '{name}'"))
        mdp.subscribe(lmr.lmr, "search mine m register m where m.memory > 64")
    mdp.put_one(D + "1", host("a", 92, f"<{D}a> :name 'north' ."))
    mdp.put_one(D + "2", host("b", 92, f"<{D}b> :name 'nobody' ."))
    assert north.events() == [("put", "a"), ("match", "a")]
    assert south.events() == []
    assert south.held() == set()


@pytest.mark.parametrize(("said", "constants"), [(":memory 7", ("0", "4")), (":name 'x'", ("'a'", "'b'"))])
def test_a_first_value_matches_two_unequal_rules_and_its_removal_unmatches_both(
    mdp: Mdp, said: str, constants: tuple[str, str]
) -> None:
    """A missing value does not satisfy `!=`."""
    name = said.split()[0].removeprefix(":")
    lmr = Told(mdp, "north", *(f"search Host h register h where h.{name} != {constant}" for constant in constants))
    mdp.put_one(D + "1", f"<{D}a> a :Host .")
    assert lmr.events() == []
    mdp.put_one(D + "1", f"<{D}a> a :Host ; {said} .")
    assert lmr.events() == [("put", "a"), ("match", "a")]
    mdp.put_one(D + "1", f"<{D}a> a :Host .")
    assert lmr.events() == [("unmatch", "a")]


# -- many rules of one group in one call


def oracle(mdp: Mdp, documents: dict[str, str], rules: Iterable[str]) -> Closure:
    """Return the resources that an LMR with these rules should hold."""
    read = read_schema_document((mdp.PREFIXES + SCHEMA).encode(), "text/turtle")
    schema = build_schema(1, read.statements, dict(read.prefixes)).schema
    syntax, charset = syntax_of_media_type("text/turtle")
    said = [
        statement
        for uri, text in documents.items()
        for statement in parse_rdf(gate((mdp.PREFIXES + text).encode(), syntax, charset), uri).statements
    ]
    return closure_of(schema, said, [parse(rule) for rule in rules], {})


SHAPES = [
    "search Host h register h where h.memory > {}",
    "search Host h register h where h.memory <= {}",
    "search Host h register h where h.memory != {}",
    "search Host h register h where h.memory = {}",
    "search Host h register h where h.info.memory >= {}",
    "search Host h register h where h.name != 'n{}'",
    "search Host h register h where h.name contains '{}'",
    "search Host h, Host g register h where h.next? = g and g.memory < {}",
]


@pytest.mark.parametrize("rule", SHAPES)
def test_thirty_rules_of_one_group_are_subscribed_by_several_lmrs(mdp: Mdp, rule: str) -> None:
    """Bulk and single evaluation: subscribed, changed, removed, while documents change."""

    def document(number: int, memory: int) -> str:
        uri = f"<{D}{number}>"
        links = f"{uri} :next <{D}{(number * 3) % 8}>, <{D}{(number + 1) % 8}> ; :info <{D}i{number % 3}> ."
        return host(str(number), memory, f"{uri} :name 'n{memory % 7}' .", links,
                    f"<{D}i{number % 3}> :memory {number % 3 * 10} .")  # fmt: skip

    documents = {f"{D}doc{number}": document(number, number * 5) for number in range(8)}
    mdp.put(dict(documents))
    wanted: dict[str, dict[int, str]] = {}
    lmrs = {name: Told(mdp, name) for name in ("north", "south", "west")}

    def check() -> None:
        for name, lmr in lmrs.items():
            closure = oracle(mdp, documents, wanted[name].values())
            rows = mdp.rows(
                "select r.uri, c.reasons > 0 from lmr_resources c join resources r on r.id = c.resource_id"
                " where c.lmr_id = :lmr", lmr=lmr.lmr.id,
            )  # fmt: skip
            assert {uri for uri, _ in rows} == closure.held
            assert {uri for uri, selected in rows if selected} == closure.selected

    for name, constants in (("north", range(5, 35)), ("south", range(0, 90, 3)), ("west", [10, 20])):
        texts = [rule.format(constant) for constant in constants]
        added = mdp.subscribe(lmrs[name].lmr, *texts)
        wanted[name] = {made.id: made.rule for made in added}
        for other in lmrs:
            wanted.setdefault(other, {})
        check()
    for number, memory in ((0, 40), (7, 0), (3, 16)):
        documents[f"{D}doc{number}"] = document(number, memory)
        mdp.put_one(f"{D}doc{number}", documents[f"{D}doc{number}"])
        check()
    for name in ("south", "west"):
        first = next(iter(wanted[name]))
        for constant in (31, 2):
            wanted[name][first] = rule.format(constant)
            mdp.change_subscription(lmrs[name].lmr, first, wanted[name][first])
            check()
    for name, some in (("north", 25), ("south", 1), ("north", 4), ("west", 2), ("south", 29), ("north", 1)):
        ended = list(wanted[name])[:some]
        mdp.unsubscribe(lmrs[name].lmr, *ended)
        for number in ended:
            del wanted[name][number]
        check()
    assert mdp.one("select count(*) from lmr_resources") == 0
    assert mdp.one("select count(*) from lmr_ranges") == 0
