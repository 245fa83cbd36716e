"""A schema change is a transaction; a change that would break a stored document is refused and names it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from mdv.db.state import lock_state
from mdv.errors import BreakingSchema, InvalidDocument, InvalidSchema, MdvError, NotFound
from mdv.inspect.sql.resources import list_resources
from mdv.mdp.put_schema import SchemaOutcome, put_schema
from mdv.mdp.register import register
from mdv.mdp.schemas import SchemaCache, read_schema_document
from mdv.rdf.classes import resolve_classes
from tests.support.mdp import Mdp

D, E = "http://d/1", "http://d/2"
OPEN = "<> mdv:world mdv:open . "


def test_a_schema_change_is_a_transaction_with_a_version_and_a_position(mdp: Mdp) -> None:
    first = mdp.put_schema(":A a rdfs:Class .")
    assert (first.version, first.position, first.changed) == (1, 1, True)
    mdp.put_one(D, "<#a> a :A .")
    second = mdp.put_schema(":A a rdfs:Class . :B a rdfs:Class .")
    assert (second.version, second.position) == (2, 3)
    assert second.classes == first.classes + 1
    assert mdp.rows("select position, cause from transactions order by 1") == [
        (1, "schema"), (2, "documents"), (3, "schema"),
    ]  # fmt: skip
    assert mdp.rows("select version, position from schema_versions order by 1") == [(1, 1), (2, 3)]


def test_putting_the_same_schema_again_changes_nothing(mdp: Mdp) -> None:
    mdp.put_schema(":A a rdfs:Class . :p rdfs:range :A .")
    again = mdp.put_schema(":p rdfs:range :A .\n :A a rdfs:Class .")
    assert (again.version, again.position, again.changed) == (1, 1, False)
    assert mdp.one("select count(*) from schema_versions") == 1


def test_a_schema_with_other_prefixes_is_a_new_version(mdp: Mdp) -> None:
    mdp.put_schema(":A a rdfs:Class .")
    assert mdp.put_schema("@prefix other: <http://other/> . :A a rdfs:Class .").version == 2


def test_a_contradictory_schema_is_refused_and_the_old_one_stays(mdp: Mdp) -> None:
    mdp.put_schema(":A a rdfs:Class .")
    with pytest.raises(InvalidSchema):
        mdp.put_schema(":A a rdfs:Class, rdf:Property .")
    assert mdp.put_one(D, "<#a> a :A .").position == 2


BREAKING = {
    "range narrowed": ("<#a> :p 'x' .", ":p rdfs:range xsd:string .", ":p rdfs:range xsd:integer ."),
    "range given": ("<#a> :p 'x' .", ":p a rdf:Property .", ":p rdfs:range xsd:integer ."),
    "range from class to datatype": ("<#a> :p <#b> .", ":p rdfs:range :A .", ":p rdfs:range xsd:string ."),
    "range from datatype to class": ("<#a> :p 'x' .", ":p rdfs:range xsd:string .", ":p rdfs:range :A ."),
    "set-valued taken away": ("<#a> :p 1, 2 .", ":p mdv:setValued true .", ":p a rdf:Property ."),
    "property removed": ("<#a> :p 1 ; :q 2 .", ":p a rdf:Property . :q a rdf:Property .", ":q a rdf:Property ."),
    "class removed": ("<#a> a :A .", ":A a rdfs:Class .", ":B a rdfs:Class ."),
    "world closed over a property": ("<#a> :p 1 .", OPEN, ":q a rdf:Property ."),
    "world closed over a class": ("<#a> a :A .", OPEN, ":B a rdfs:Class ."),
    "two values of a superproperty": (
        "<#a> :p 1 ; :q 2 .",
        ":p a rdf:Property . :q a rdf:Property . :up a rdf:Property .",
        ":p rdfs:subPropertyOf :up . :q rdfs:subPropertyOf :up .",
    ),
    "a superproperty between": (
        "<#a> :p 1 ; :q 2 .",
        ":p rdfs:subPropertyOf :up . :q a rdf:Property . :up a rdf:Property .",
        ":p rdfs:subPropertyOf :up . :q rdfs:subPropertyOf :p .",
    ),
    "a superproperty no longer set-valued": (
        "<#a> :p 1 ; :q 2 .",
        ":p rdfs:subPropertyOf :up . :q rdfs:subPropertyOf :up . :up mdv:setValued true . :p mdv:setValued false ."
        " :q mdv:setValued false .",
        ":p rdfs:subPropertyOf :up . :q rdfs:subPropertyOf :up . :p mdv:setValued false . :q mdv:setValued false .",
    ),
    "a class declared as a datatype": (
        "<#a> :p <#b> .", ":p rdfs:range :T .", ":p rdfs:range :T . :T a rdfs:Datatype .",
    ),
    "a used class declared as a datatype": (
        "<#a> a :T .",
        ":T a rdfs:Class .",
        ":T a rdfs:Datatype .",
    ),
    "a datatype declared as a class": (
        "<#a> :p 'x' .", ":p rdfs:range :T . :T a rdfs:Datatype .", ":p rdfs:range :T .",
    ),
    "declared in an open world": ("<#a> :p 'x' .", OPEN, OPEN + ":p rdfs:range xsd:integer ."),
    "declared single-valued in an open world": ("<#a> :p 'x', 'y' .", OPEN, OPEN + ":p a rdf:Property ."),
    "container membership given a range": (
        "<#a> rdf:_1 'x' .", ":q a rdf:Property .", "rdf:_1 rdfs:range xsd:integer .",
    ),
    "types made single": ("<#a> a :A, :B .", ":A a rdfs:Class . :B a rdfs:Class .",
                          ":A a rdfs:Class . :B a rdfs:Class . rdf:type mdv:setValued false ."),
    "inherited range narrowed": ("<#a> :p 'x' .", ":p rdfs:subPropertyOf :up .",
                                 ":p rdfs:subPropertyOf :up . :up rdfs:range xsd:integer ."),
}  # fmt: skip


@pytest.mark.parametrize("what", BREAKING)
def test_a_change_that_breaks_a_stored_document_is_refused_and_names_it(mdp: Mdp, what: str) -> None:
    document, before, after = BREAKING[what]
    mdp.put_schema(before)
    mdp.put_one(D, document)
    harmless = mdp.put_schema(before + " :harmless a rdf:Property .")
    with pytest.raises(BreakingSchema) as refused:
        mdp.put_schema(after)
    assert [flaw.message.split(": ")[0] for flaw in refused.value.flaws] == [D]
    assert mdp.rows("select position, schema_version from mdp_state") == [(harmless.position, harmless.version)]
    mdp.put_one(D, None)
    assert mdp.put_schema(after).version == 3


HARMLESS = {
    "new class and property": (":A a rdfs:Class .", ":A a rdfs:Class . :B a rdfs:Class . :q rdfs:range xsd:integer ."),
    "new subclass": (":A a rdfs:Class . :B a rdfs:Class .", ":B rdfs:subClassOf :A ."),
    "made strong": (":A a rdfs:Class . :p rdfs:range :A .", ":p rdfs:range :A ; mdv:reference mdv:strong ."),
    "made set-valued": (":p a rdf:Property .", ":p mdv:setValued true ."),
    "another class as range": (
        ":A a rdfs:Class . :B a rdfs:Class . :p rdfs:range :A .", ":A a rdfs:Class . :p rdfs:range :B ."),
    "range of text taken away": (":p rdfs:range xsd:string .", ":p a rdf:Property ."),
    "domain": (":p a rdf:Property .", ":p rdfs:domain :A ."),
    "a datatype that nothing uses": (":p a rdf:Property .", ":p a rdf:Property . :T a rdfs:Datatype ."),
    "a superproperty that is set-valued": (
        ":p a rdf:Property .", ":p rdfs:subPropertyOf :up ; mdv:setValued false . :up mdv:setValued true ."),
    "opened": (":p a rdf:Property .", OPEN + ":p a rdf:Property ."),
}  # fmt: skip


@pytest.mark.parametrize("what", HARMLESS)
def test_compatible_growth_is_accepted_without_reading_the_store(
    mdp: Mdp, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scan(*_: object) -> None:
        raise AssertionError("the store was read")

    before, after = HARMLESS[what]
    mdp.put_schema(before)
    monkeypatch.setattr("mdv.mdp.put_schema.iter_stored_values", scan)
    assert mdp.put_schema(after).version == 2


def test_a_property_removed_in_an_open_world_is_kept(mdp: Mdp) -> None:
    mdp.put_schema(OPEN + ":p rdfs:range xsd:integer .")
    mdp.put_one(D, "<#a> :p 1 .")
    assert mdp.put_schema(OPEN).version == 2
    assert mdp.put_one(D, "<#a> :p 'x' .").version == 2


def test_only_some_of_very_many_broken_documents_are_named(mdp: Mdp) -> None:
    mdp.put_schema(":p a rdf:Property .")
    mdp.put({f"http://d/{n}": "<#a> :p 'x' ." for n in range(30)})
    with pytest.raises(BreakingSchema, match="30 stored documents would no longer be valid, and 10 more") as refused:
        mdp.put_schema(":p rdfs:range xsd:integer .")
    assert len(refused.value.flaws) == 20


def test_two_documents_may_give_two_values_to_a_single_valued_property(mdp: Mdp) -> None:
    mdp.put_schema(":p mdv:setValued true .")
    mdp.put({D: "<http://r> :p 1 .", E: "<http://r> :p 2 ."})
    assert mdp.put_schema(":p a rdf:Property .").version == 2


def test_a_past_version_of_a_document_does_not_block_a_schema_change(mdp: Mdp) -> None:
    mdp.put_schema(":p a rdf:Property .")
    mdp.put_one(D, "<#a> :p 'x' .")
    mdp.put_one(D, "<#a> :p '1' .")
    assert mdp.put_schema(":p rdfs:range xsd:integer .").version == 2


def test_a_document_prepared_under_an_older_schema_is_validated_again(mdp: Mdp) -> None:
    mdp.put_schema(":p a rdf:Property .")
    good, bad = mdp.prepare(D, "<#a> :p '1' ."), mdp.prepare(E, "<#a> :p 'x' .")
    mdp.put_schema(":p rdfs:range xsd:integer .")
    first, second = mdp.register_batch([bad, good])
    assert isinstance(first, InvalidDocument)
    assert not isinstance(second, MdvError)
    assert mdp.rows("select value, number from filter_data") == [("1", 1)]


def test_another_process_sees_the_new_schema_immediately(mdp: Mdp, engine: Engine) -> None:
    other = type(mdp)(engine)
    other.put_schema(":A a rdfs:Class .")
    assert mdp.put_one(D, "<#a> a :A .").position == 2
    other.put_schema(":A a rdfs:Class . :B a rdfs:Class .")
    assert mdp.put_one(E, "<#a> a :B .").position == 4


def in_the_background(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    answers: list[object] = []

    def run() -> None:
        try:
            answers.append(call())
        except MdvError as error:
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, answers


def test_a_schema_change_waits_for_a_running_registration_and_sees_it(mdp: Mdp, engine: Engine) -> None:
    mdp.put_schema(":p a rdf:Property .")
    item = mdp.prepare(D, "<#a> :p 'x' .")
    with engine.begin() as connection:
        register(connection, [item], mdp.provider)
        other = type(mdp)(engine)
        thread, answers = in_the_background(lambda: other.put_schema(":p rdfs:range xsd:integer ."))
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(60)
    assert [type(answer) for answer in answers] == [BreakingSchema]


def test_a_registration_waits_for_a_running_schema_change_and_obeys_it(mdp: Mdp, engine: Engine) -> None:
    mdp.put_schema(":p a rdf:Property .")
    item = mdp.prepare(D, "<#a> :p 'x' .")
    other = type(mdp)(engine)
    schema = read_schema_document((mdp.PREFIXES + ":p rdfs:range xsd:integer .").encode(), "text/turtle")
    with engine.begin() as connection:
        put_schema(connection, schema, other.provider)
        thread, answers = in_the_background(lambda: mdp.register_batch([item])[0])
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(60)
    assert [type(answer) for answer in answers] == [InvalidDocument]


def test_positions_follow_commit_order_with_several_writers(mdp: Mdp, engine: Engine) -> None:
    mdp.put_schema(OPEN)

    def write(worker: int) -> list[int]:
        own = type(mdp)(engine)
        return [own.put_one(f"http://d/{worker}", f"<#a> :p '{n}' .").position for n in range(10)]

    running = [in_the_background(lambda n=n: write(n)) for n in range(3)]
    for thread, _ in running:
        thread.join(60)
    positions = [position for _, answers in running for position in answers[0]]  # type: ignore[attr-defined]
    assert sorted(positions) == list(range(2, 32))
    assert mdp.one("select position from mdp_state") == 31


def test_the_lock_is_released_with_the_transaction(engine: Engine) -> None:
    with engine.connect() as one:
        lock_state(one)
        one.rollback()
        with engine.connect() as two:
            two.exec_driver_sql("set lock_timeout = '2s'")
            assert lock_state(two).position == 0


def test_a_class_is_listed_with_its_subclasses_and_an_unknown_one_is_not_found(mdp: Mdp) -> None:
    mdp.put_schema(OPEN + ":B rdfs:subClassOf :A .")
    mdp.put_one(D, "<#a> a :A . <#b> a :B . <#c> a :C . <#n> :p 1 .")
    with mdp.engine.connect() as connection:
        schema = SchemaCache().now(connection).schema

        def listed(name: str) -> list[str]:
            rows = list_resources(connection, resolve_classes(name, schema), 0, 10)
            return [uri.removeprefix(D) for _, uri, _ in rows]

        assert listed("A") == ["#a", "#b"]
        assert listed("<http://v/C>") == ["#c"]
        assert listed("rdfs:Resource") == ["#a", "#b", "#c", "#n"]
        with pytest.raises(NotFound, match="Unknown class"):
            resolve_classes("Nobody", schema)


def test_pages_of_a_class_are_complete(mdp: Mdp) -> None:
    mdp.put_schema(OPEN + ":B rdfs:subClassOf :A .")
    mdp.put({f"http://d/{n}": f"<#a> a :A, :B . <#b{n}> a :B ." for n in range(5)})
    with mdp.engine.connect() as connection:
        for classes in (["http://v/A", "http://v/B"], None):
            whole = list_resources(connection, classes, 0, 100)
            paged, after = [], 0
            while page := list_resources(connection, classes, after, 3):
                paged += page
                after = page[-1][0]
            assert paged == whole
            assert len(whole) == 10


# Descriptions of schema changes


def told(outcome: SchemaOutcome) -> list[tuple[str, str, str]]:
    return [(change.what, change.name, change.change) for change in outcome.changes]


def test_the_outcome_describes_the_changes(mdp: Mdp) -> None:
    mdp.put_schema(":A a rdfs:Class . :B a rdfs:Class . :gone a rdf:Property . :p rdfs:range xsd:string .")
    after = "<> mdv:world mdv:open . :A a rdfs:Class . :B rdfs:subClassOf :A ." \
            " :p rdfs:domain :A ; rdfs:range :A ; mdv:reference mdv:strong ; mdv:setValued true ." \
            " :q rdfs:subPropertyOf :p . @prefix o: <http://o/> ."  # fmt: skip
    outcome = mdp.put_schema(after)
    assert told(outcome) == [
        ("world", "world", "changed"), ("class", "B", "changed"), ("property", "gone", "removed"),
        ("property", "p", "changed"), ("property", "q", "added"), ("prefix", "o:", "added"),
    ]  # fmt: skip
    aspects = {(c.name, a.aspect): (a.before, a.after) for c in outcome.changes for a in c.aspects}
    assert aspects["world", "world"] == (("closed",), ("open",))
    assert aspects["B", "superclasses"] == ((), ("A",))
    assert aspects["p", "range"] == (("xsd:string",), ("A",)) and aspects["p", "domain"] == ((), ("A",))
    assert aspects["p", "reference"] == (("weak",), ("strong",)) and aspects["p", "values"] == (("one",), ("several",))
    assert aspects["q", "superproperties"] == ((), ("p",)) and aspects["q", "range"] == ((), ("A",))
    assert outcome.counts["property"] == {"removed": 1, "changed": 1, "added": 1} and outcome.changes_left_out == 0


def test_the_outcome_names_the_lmrs_and_resources_concerned(mdp: Mdp) -> None:
    schema = ":A a rdfs:Class . :B a rdfs:Class . :to rdfs:range :A . :n rdfs:range xsd:string ."
    mdp.put_schema(schema)
    near, far = mdp.create_lmr("near"), mdp.create_lmr("far")
    mdp.add_rules(["search A a register a", "search A a register a where a.n = '7'"], near.id)
    mdp.put_one(D, "<#a> a :A ; :to <#c> . <#b1> a :B . <#b2> a :B . <#c> :n 'x' .")
    quiet = mdp.put_schema(schema + " :C a rdfs:Class .")
    assert (quiet.lmrs, quiet.matched, quiet.sent, quiet.concerned) == (2, 0, 0, ())
    grown = mdp.put_schema(schema + " :B rdfs:subClassOf :A . :to mdv:reference mdv:strong .")
    assert (grown.matched, grown.unmatched, grown.sent, grown.lmrs) == (2, 0, 3, 2)
    assert [(one.lmr, one.matched, one.sent) for one in grown.concerned] == [("near", 2, 3)]
    shrunk = mdp.put_schema(schema)
    assert (shrunk.matched, shrunk.unmatched, shrunk.left) == (0, 2, 3) and shrunk.rules_anew == 0
    assert [(one.lmr, one.unmatched, one.left) for one in shrunk.concerned] == [("near", 2, 3)]
    assert far.id not in {row[0] for row in mdp.rows("select distinct lmr_id from feed where kind > 0")}


def test_the_outcome_counts_resources_that_leave_when_a_reference_becomes_weak(mdp: Mdp) -> None:
    weak = ":A a rdfs:Class . :B a rdfs:Class . :to rdfs:range :B ."
    mdp.put_schema(weak + " :to mdv:reference mdv:strong .")
    some, all_ = mdp.create_lmr("some"), mdp.create_lmr("all")
    mdp.add_rules(["search A a register a"], some.id)
    mdp.add_rules(["search A a register a", "search B b register b"], all_.id)
    mdp.put_one(
        D, "<#a1> a :A ; :to <#b1> . <#a2> a :A ; :to <#b2> . <#a3> a :A ; :to <#nothing> . <#b1> a :B . <#b2> a :B ."
    )
    outcome = mdp.put_schema(weak)
    assert (outcome.unmatched, outcome.sent, outcome.left) == (0, 0, 2)
    assert [(one.lmr, one.left) for one in outcome.concerned] == [("some", 2)]
    assert mdp.put_schema(weak + " :C a rdfs:Class .").left == 0


def test_the_outcome_counts_the_rules_that_are_decomposed_differently(mdp: Mdp) -> None:
    schema = ":A a rdfs:Class . :B a rdfs:Class . :n rdfs:range xsd:string . :to "
    mdp.put_schema(schema + "a rdf:Property .")
    lmr = mdp.create_lmr("near")
    mdp.add_rules(["search A a register a where a.to.n = 'x'", "search A a register a where a.n = 'y'"], lmr.id)
    mdp.put_one(D, "<#a> a :A ; :to <#b> . <#b> a :B ; :n 'x' .")
    outcome = mdp.put_schema(schema + "rdfs:range :A .")  # <#b> is not one
    assert (outcome.rules_anew, outcome.matched, outcome.unmatched) == (1, 0, 1)


def test_many_changes_are_counted_and_the_first_are_listed(mdp: Mdp) -> None:
    outcome = mdp.put_schema(" ".join(f":c{number:03} a rdfs:Class ." for number in range(600)))
    assert len(outcome.changes) == 500 and outcome.counts["class"] == {"added": 600}
    assert outcome.changes_left_out == 600 + outcome.counts["prefix"]["added"] - 500
