"""Event-condition-action rules in the transactions of a real store."""

from __future__ import annotations

import pytest

from mdv.errors import RuleFailed
from mdv.mdp.eca.change_rules import AddedEcaRule, EcaDraft, add_rules
from mdv.mdp.register import RegistrationOutcome
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


def test_an_update_event_has_old_and_new_targets(eca: Mdp) -> None:
    put(eca, "http://d/1", "<http://r/1> a :Lo ; :level 1 .")
    add(eca, "ON UPDATE (_, level, _ -> _) IF $delta/target(level) > 1 DO INSERT ($delta, tag, $delta.old_target)")

    put(eca, "http://d/1", "<http://r/1> a :Lo ; :level 2 .")

    assert statements(eca, "urn:mdv:eca:main") == {("http://r/1", "tag", "1")}


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
