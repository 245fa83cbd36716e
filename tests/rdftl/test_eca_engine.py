"""Event-condition-action rules in the transactions of a real store."""

from __future__ import annotations

import pytest

from mdv.db.eca.rules import list_eca_rules
from mdv.errors import BreakingSchema, RuleFailed
from mdv.feed import EventKind
from mdv.mdp.eca.change_rules import AddedEcaRule, EcaDraft, add_rules, change_state, remove_rule, replace_rule
from mdv.mdp.edit_document import DocumentEdit, edit_document
from mdv.mdp.register import RegistrationOutcome
from mdv.model import XSD, Statement, Term
from tests.support.mdp import Mdp

SCHEMA = """
:Lo a rdfs:Class . :Course rdfs:subClassOf :Lo . :User a rdfs:Class . :Note a rdfs:Class .
:subject rdfs:range xsd:string ; mdv:setValued true .
:level rdfs:range xsd:integer .
:owner rdfs:range :User . :editor rdfs:subPropertyOf :owner ; mdv:setValued true .
:seen rdfs:range :Lo ; mdv:setValued true .
:tag rdfs:range xsd:string ; mdv:setValued true .
"""


@pytest.fixture
def eca(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    return mdp


def add(mdp: Mdp, text: str) -> list[AddedEcaRule]:
    with mdp.engine.begin() as connection:
        return add_rules(connection, EcaDraft(text), mdp.provider)


def put(mdp: Mdp, uri: str, turtle: str | None) -> RegistrationOutcome:
    (result,) = mdp.put({uri: turtle})
    if isinstance(result, Exception):
        raise result
    return result


def statements(mdp: Mdp, document: str) -> set[tuple[str, str, str]]:
    with mdp.engine.connect() as connection:
        rows = connection.exec_driver_sql(
            "select r.uri, v.uri, coalesce(f.value, t.uri) from filter_data f join documents d on d.id = f.document_id"
            " join resources r on r.id = f.resource_id join vocabulary v on v.id = f.property_id"
            " left join resources t on t.id = f.target_id where d.uri = %s",
            (document,),
        )
        return {(s, p.removeprefix("http://v/"), o) for s, p, o in rows}


def test_a_rule_inserts_into_the_document_of_its_set(eca: Mdp) -> None:
    add(eca, "RULE mark ON INSERT resource() AS INSTANCE OF Lo IF TRUE DO INSERT ($delta, tag, 'new')")

    put(eca, "http://d/1", "<http://r/1> a :Course ; :level 1 . <http://r/2> a :User .")

    assert statements(eca, "urn:mdv:eca:main") == {("http://r/1", "tag", "new")}


def test_a_condition_is_evaluated_with_its_constant(eca: Mdp) -> None:
    add(eca, "ON INSERT (_, subject, _) IF $delta.target = 'databases' DO INSERT ($delta, tag, 'db')")
    add(eca, "ON INSERT (_, subject, _) IF $delta.target = 'music' DO INSERT ($delta, tag, 'mu')")

    put(eca, "http://d/1", '<http://r/1> a :Lo ; :subject "databases" . <http://r/2> a :Lo ; :subject "art" .')

    assert statements(eca, "urn:mdv:eca:main") == {("http://r/1", "tag", "db")}


@pytest.mark.parametrize("qualifier", ["target(tag) = 'a'", "target(seen) = resource('http://r/2')"])
def test_a_comparison_whose_path_has_a_qualifier_with_a_constant(eca: Mdp, qualifier: str) -> None:
    add(eca, f"ON INSERT (_, level, _) IF $delta[{qualifier}]/target(subject) = 'x' DO INSERT ($delta, tag, 'fired')")

    put(eca, "http://d/1", "<http://r/1> :level 1 ; :subject 'x' ; :tag 'a' ; :seen <http://r/2> .")
    put(eca, "http://d/3", "<http://r/3> :level 1 ; :subject 'x' .")

    assert statements(eca, "urn:mdv:eca:main") == {("http://r/1", "tag", "fired")}


def test_an_update_event_has_old_and_new_targets(eca: Mdp) -> None:
    put(eca, "http://d/1", "<http://r/1> a :Lo ; :level 1 .")
    add(eca, "ON UPDATE (_, level, _ -> _) IF $delta/target(level) > 1 DO INSERT ($delta, tag, $delta.old_target)")

    put(eca, "http://d/1", "<http://r/1> a :Lo ; :level 2 .")

    assert statements(eca, "urn:mdv:eca:main") == {("http://r/1", "tag", "1")}


def test_old_and_new_targets_are_compared_as_numbers(eca: Mdp) -> None:
    put(eca, "http://d/1", "<http://r/1> a :Lo ; :level 9 . <http://r/2> a :Lo ; :level 9 .")
    add(eca, "ON UPDATE (_, level, _ -> _) IF $delta.new_target > $delta.old_target DO INSERT ($delta, tag, 'more')")
    add(eca, "ON UPDATE (_, level, _ -> _) IF $delta.new_target = '010' DO INSERT ($delta, tag, 'ten')")

    put(eca, "http://d/1", "<http://r/1> a :Lo ; :level 10 . <http://r/2> a :Lo ; :level 8 .")

    found = statements(eca, "urn:mdv:eca:main")
    assert found == {("http://r/1", "tag", "more"), ("http://r/1", "tag", "ten")}


def test_an_action_updates_an_arc_of_a_document_that_is_registered_now(eca: Mdp) -> None:
    add(eca, "ON INSERT (_, subject, _) IF TRUE DO UPDATE ($delta, level, _ -> 2)")

    put(eca, "http://d/1", "<http://r/1> :level 1 ; :subject 'x' .")

    assert statements(eca, "http://d/1") == {("http://r/1", "level", "2"), ("http://r/1", "subject", "x")}
    assert statements(eca, "urn:mdv:eca:main") == set()


def test_a_deletion_looks_at_the_state_before(eca: Mdp) -> None:
    put(eca, "http://d/1", '<http://r/1> a :Lo ; :subject "x" . <http://r/2> a :Lo ; :subject "y" .')
    add(eca, "ON DELETE resource()[target(subject) = 'x'] AS INSTANCE OF Lo IF TRUE DO INSERT ($delta, tag, 'gone')")

    put(eca, "http://d/1", None)

    assert statements(eca, "urn:mdv:eca:main") == {("http://r/1", "tag", "gone")}


def test_rules_trigger_rules(eca: Mdp) -> None:
    add(eca, "ON INSERT resource() AS INSTANCE OF Lo IF TRUE DO INSERT ($delta, tag, 'a')")
    add(eca, "ON INSERT (_, tag, 'a') IF TRUE DO INSERT ($delta, tag, 'b')")
    add(eca, "ON INSERT (_, tag, 'b') IF TRUE DO DELETE ($delta, tag, 'a')")

    put(eca, "http://d/1", "<http://r/1> a :Lo .")

    assert statements(eca, "urn:mdv:eca:main") == {("http://r/1", "tag", "b")}


def test_a_failing_rule_refuses_the_registration(eca: Mdp) -> None:
    add(eca, "RULE bad ON INSERT (_, level, _) IF TRUE DO INSERT ($delta, level, 7), ($delta, level, 8)")

    with pytest.raises(RuleFailed, match="bad"):
        put(eca, "http://d/1", "<http://r/1> a :Lo ; :level 1 .")

    assert statements(eca, "http://d/1") == set() == statements(eca, "urn:mdv:eca:main")


def test_a_registration_that_no_rule_watches_is_not_looked_at(eca: Mdp) -> None:
    add(eca, "ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'x')")

    put(eca, "http://d/1", "<http://r/1> a :Lo ; :level 1 .")

    assert statements(eca, "urn:mdv:eca:main") == set()


def test_a_schema_that_breaks_a_rule_is_refused(eca: Mdp) -> None:
    add(eca, "RULE mark ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'new')")

    with pytest.raises(BreakingSchema, match="rule mark"):
        eca.put_schema(SCHEMA.replace(":tag", ":label"))


def test_a_rule_follows_a_new_subclass(eca: Mdp) -> None:
    add(eca, "ON INSERT resource() AS INSTANCE OF Lo IF $delta/target(rdf:type) = 'http://v/Lo'"
             " DO INSERT ($delta, tag, 'new')")  # fmt: skip

    eca.put_schema(SCHEMA + ":Tutorial rdfs:subClassOf :Course .")
    put(eca, "http://d/1", "<http://r/1> a :Tutorial .")

    assert statements(eca, "urn:mdv:eca:main") == {("http://r/1", "tag", "new")}


def test_a_change_of_the_schema_is_no_event(eca: Mdp) -> None:
    """The resource becomes a Lo, and its editor an owner."""
    schema = SCHEMA + ":Talk a rdfs:Class . :host mdv:setValued true ."
    eca.put_schema(schema)
    add(eca, "ON INSERT resource() AS INSTANCE OF Lo IF TRUE DO INSERT ($delta, tag, 'new')")
    add(eca, "ON INSERT (_, owner, _) IF TRUE DO INSERT ($delta, tag, 'owned')")
    put(eca, "http://d/1", "<http://r/1> a :Talk ; :host <http://r/2> .")

    eca.put_schema(schema + ":Talk rdfs:subClassOf :Lo . :host rdfs:subPropertyOf :owner .")
    put(eca, "http://d/2", "<http://r/3> a :Talk .")

    assert statements(eca, "urn:mdv:eca:main") == {("http://r/3", "tag", "new")}


def test_lmrs_are_sent_the_net_change_of_a_transaction(eca: Mdp) -> None:
    lmr = eca.create_lmr("near")
    eca.subscribe(lmr, "search Lo l register l where l.level > 5", "search User u register u where u.tag? = 'x'")
    add(eca, "RULE withdraw ON INSERT (_, tag, 'x') IF TRUE DO DELETE ($delta, tag, 'x')")
    add(eca, "RULE raise ON INSERT (_, level, 1) IF TRUE"
             " DO UPDATE ($delta, level, _ -> 2); UPDATE ($delta, level, _ -> 7)")  # fmt: skip
    before = eca.feed(lmr).cursor

    done = put(eca, "http://d/1", "<http://r/1> a :Lo ; :level 1 . <http://r/2> a :User ; :tag 'x' .")

    assert (done.fired, done.matched, done.lmrs) == (2, 1, 1)
    found = [(event.kind, event.resource) for event in eca.feed(lmr, before).events]
    assert found == [(EventKind.PUT, "http://r/1"), (EventKind.MATCH, "http://r/1")]


def test_a_constant_is_compared_as_the_new_range_says(eca: Mdp) -> None:
    schema = SCHEMA + ":size mdv:setValued true ."
    eca.put_schema(schema)
    for text in ("5", "5.0"):
        add(eca, f"ON INSERT (_, size, '{text}') IF TRUE DO INSERT ($delta, tag, '{text}')")
    put(eca, "http://d/1", "<http://r/1> :size '5' .")
    eca.put_schema(schema + ":size rdfs:range xsd:decimal .")

    put(eca, "http://d/2", "<http://r/2> :size '5.00' .")

    assert statements(eca, "urn:mdv:eca:main") == {
        ("http://r/1", "tag", "5"), ("http://r/2", "tag", "5"), ("http://r/2", "tag", "5.0"),
    }  # fmt: skip


def test_rules_are_disabled_enabled_replaced_and_removed(eca: Mdp) -> None:
    (rule,) = add(eca, "RULE mark ON INSERT (_, subject, 'x') IF TRUE DO INSERT ($delta, tag, 'old')")
    with eca.engine.begin() as connection:
        change_state(connection, "mark", "disabled", None, eca.provider)
    put(eca, "http://d/1", "<http://r/1> :subject 'x' .")
    assert statements(eca, "urn:mdv:eca:main") == set()

    with eca.engine.begin() as connection:
        change_state(connection, str(rule.id), "active", None, eca.provider)
    put(eca, "http://d/2", "<http://r/2> :subject 'x' .")
    assert statements(eca, "urn:mdv:eca:main") == {("http://r/2", "tag", "old")}

    with eca.engine.begin() as connection:
        text = "RULE mark ON INSERT (_, subject, 'x') IF TRUE DO INSERT ($delta, tag, 'new')"
        assert replace_rule(connection, "mark", EcaDraft(text), eca.provider).id == rule.id
    put(eca, "http://d/3", "<http://r/3> :subject 'x' .")
    with eca.engine.begin() as connection:
        remove_rule(connection, "mark", eca.provider)
    put(eca, "http://d/4", "<http://r/4> :subject 'x' .")
    assert statements(eca, "urn:mdv:eca:main") == {("http://r/2", "tag", "old"), ("http://r/3", "tag", "new")}


def test_the_id_of_a_removed_rule_is_not_used_again(eca: Mdp) -> None:
    """Its failures, and what refers to it, would be taken for those of another rule."""
    text = "ON INSERT (_, subject, 'x') IF TRUE DO INSERT ($delta, tag, 'a')"
    (first,) = add(eca, text)
    with eca.engine.begin() as connection:
        remove_rule(connection, str(first.id), eca.provider)
    (second,) = add(eca, text)
    assert second.id > first.id


@pytest.mark.parametrize("change", ["remove", "replace"])
def test_a_rule_that_is_not_preceded_any_more_runs_by_its_id(eca: Mdp, change: str) -> None:
    event = "ON INSERT (_, subject, 'x') IF TRUE DO"
    add(eca, f"RULE first {event} INSERT ($delta, level, 1)")
    add(eca, f"RULE second {event} UPDATE ($delta, level, _ -> 2)")
    add(eca, f"RULE third PRECEDES first {event} DELETE ($delta, level, 7)")
    put(eca, "http://d/1", "<http://r/1> :subject 'x' .")
    assert statements(eca, "urn:mdv:eca:main") == {("http://r/1", "level", "1")}, "second, third, first"

    with eca.engine.begin() as connection:
        if change == "remove":
            remove_rule(connection, "third", eca.provider)
        else:
            text = f"RULE third {event} DELETE ($delta, level, 7)"
            replace_rule(connection, "third", EcaDraft(text), eca.provider)

    put(eca, "http://d/2", "<http://r/2> :subject 'x' .")
    assert ("http://r/2", "level", "2") in statements(eca, "urn:mdv:eca:main"), "first, second"


def test_a_shadow_rule_is_recorded_and_does_nothing(eca: Mdp) -> None:
    with eca.engine.begin() as connection:
        text = "RULE mark ON INSERT (_, subject, 'x') IF TRUE DO INSERT ($delta, tag, 'old')"
        add_rules(connection, EcaDraft(text, state="shadow"), eca.provider)

    put(eca, "http://d/1", "<http://r/1> :subject 'x' .")

    assert statements(eca, "urn:mdv:eca:main") == set()
    with eca.engine.connect() as connection:
        (rule,) = list_eca_rules(connection)
        assert (rule.fired, rule.failed) == (1, 0)


def test_a_rule_that_fails_again_and_again_is_quarantined(eca: Mdp) -> None:
    add(
        eca,
        "RULE bad ABORT ParentChild ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, level, 1), ($delta, level, 2)",
    )

    for number in range(6):
        put(eca, f"http://d/{number}", f"<http://r/{number}> :subject 'x' .")

    with eca.engine.connect() as connection:
        (rule,) = list_eca_rules(connection)
        assert (rule.state, rule.failed) == ("quarantined", 5)


def test_rules_see_an_edit_of_a_document(eca: Mdp) -> None:
    put(eca, "http://d/1", "<http://r/1> :level 1 .")
    add(eca, "ON UPDATE (_, level, _ -> _) IF TRUE DO INSERT ($delta, tag, $delta.new_target)")

    with eca.engine.begin() as connection:
        old, new = (Statement("http://r/1", "http://v/level", Term.literal(v, datatype=XSD + "integer")) for v in "12")
        edit_document(connection, DocumentEdit("http://d/1", (new,), (old,)), eca.provider)

    assert statements(eca, "urn:mdv:eca:main") == {("http://r/1", "tag", "2")}


def test_the_size_of_a_batch_changes_nothing(eca: Mdp) -> None:
    add(eca, "ON INSERT (_, subject, _) IF not resource()/target(tag) = 'first' DO INSERT ($delta, tag, 'first')")

    eca.put({f"http://d/{number}": f"<http://r/{number}> :subject 'x' ." for number in range(3)})

    assert statements(eca, "urn:mdv:eca:main") == {("http://r/0", "tag", "first")}


def test_a_large_document_triggers_rules_like_a_small_one(eca: Mdp) -> None:
    put(eca, "http://d/1", "".join(f"<http://r/{n}> :subject 'x' . " for n in range(300)))
    add(eca, "ON DELETE (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'gone')")
    add(eca, "ON UPDATE (_, subject, _ -> _) IF TRUE DO INSERT ($delta, tag, $delta.new_target)")

    put(eca, "http://d/1", "".join(f"<http://r/{n}> :subject '{'x' if n else 'y'}' . " for n in range(299)))

    assert statements(eca, "urn:mdv:eca:main") == {("http://r/0", "tag", "y"), ("http://r/299", "tag", "gone")}
