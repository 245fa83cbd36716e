"""CALL of a Detached rule: a process that starts in the commit of the transaction that triggered the rule."""

from __future__ import annotations

import pytest

from mdv.errors import InvalidRule
from mdv.mdp.eca.change_rules import EcaDraft, add_rules
from mdv.mdp.eca.update import UpdateRequest, execute_update
from mdv.mdp.real.quotas import ProcessQuotas
from mdv.mdp.write_limits import WriteLimits
from tests.support.eca_system import RULES, SCHEMA, statements
from tests.support.mdp import Mdp
from tests.support.real_actions import action_turtle
from tests.support.real_processes import Programs

DETACHED = "COUPLING Detached ABORT Independent "


@pytest.fixture
def programs(mdp: Mdp) -> Programs:
    mdp.put_schema(SCHEMA)
    return Programs(mdp)


def define(programs: Programs, code: str, inputs: str = "x", outputs: str = "") -> None:
    put(programs, "http://d/actions", action_turtle("http://act/a", code, inputs, outputs))


def put(programs: Programs, uri: str, turtle: str) -> None:
    (result,) = programs.mdp.put({uri: turtle})
    if isinstance(result, Exception):
        raise result


def add(programs: Programs, text: str, **more: object) -> None:
    with programs.mdp.engine.begin() as connection:
        add_rules(connection, EcaDraft(text, **more), programs.mdp.provider)  # type: ignore[arg-type]


ON_LO = "ON INSERT resource() AS INSTANCE OF Lo IF TRUE DO "


def test_a_process_starts_with_the_commit(programs: Programs) -> None:
    define(programs, "+:tag(?x, 'begun') AND WAIT -:subject(?x, ?s) AND +:tag(?x, ?s)", outputs="s")
    add(programs, f"RULE mark {DETACHED}{ON_LO}CALL <http://act/a>($delta)")

    put(programs, "http://d/1", "<http://r/1> a :Lo . <http://r/2> a :User .")
    assert programs.states() == ["ready"] and statements(programs.mdp, RULES) == set()
    programs.run()
    assert programs.states() == ["waiting"]
    assert statements(programs.mdp, RULES) == {("http://r/1", "tag", "begun")}
    put(programs, "http://d/2", "<http://r/1> :subject 'art' .")
    programs.run()

    assert programs.states() == ["done"]
    assert statements(programs.mdp, RULES) == {("http://r/1", "tag", "begun"), ("http://r/1", "tag", "art")}
    assert programs.mdp.rows("select caller, into_document from real_processes") == [("rule mark", RULES)]
    cause = (
        "select cause, changed_by from document_versions v join documents d on d.id = v.document_id where d.uri = :d"
    )
    assert set(programs.mdp.rows(cause, d=RULES)) == {("program", "rule mark")}
    ((trace,),) = programs.mdp.rows("select trace from eca_runs order by id limit 1")
    ((process,),) = programs.mdp.rows("select iri from real_processes")
    assert trace["fired"][0]["processes"] == [process]


def test_arguments_are_evaluated_at_the_end_of_the_transaction(programs: Programs) -> None:
    define(programs, "+:tag(?x, ?t)", "x, t")
    add(
        programs,
        f"{DETACHED}{ON_LO}CALL <http://act/a>($delta, $delta/target(subject)); CALL <http://act/a>($delta, 1)",
    )
    add(programs, f"COUPLING Deferred {ON_LO}INSERT ($delta, subject, 'late')")

    put(programs, "http://d/1", "<http://r/1> a :Lo ; :subject 'early' .")
    programs.run()

    tags = {value for _, name, value in statements(programs.mdp, RULES) if name == "tag"}
    assert tags == {"early", "late", "1"} and len(programs.states()) == 3


def test_no_process_starts_if_the_transaction_is_refused_or_a_dry_run(programs: Programs) -> None:
    define(programs, "TRUE")
    add(programs, f"{DETACHED}{ON_LO}CALL <http://act/a>($delta)")
    add(programs, "ON INSERT (_, level, 9) IF TRUE DO INSERT (resource(http://r/9), seq++, $delta)")

    with pytest.raises(Exception, match="no collection"):
        put(programs, "http://d/1", "<http://r/1> a :Lo ; :level 9 .")
    with programs.mdp.engine.connect() as connection:
        execute_update(
            connection,
            UpdateRequest("INSERT resource(http://r/2) AS INSTANCE OF Lo"),
            programs.mdp.provider.for_dry_run(),
        )
        assert connection.exec_driver_sql("select count(*) from real_processes").scalar() == 1
        connection.rollback()

    assert programs.states() == []


def test_a_process_has_the_permissions_of_the_author(programs: Programs) -> None:
    define(programs, "(+:tag(?x, 'mine') OR TRUE) AND (IN <http://d/1> { +:subject(?x, 's') } OR TRUE)")
    limits = WriteLimits((RULES,), ("http://r/",))
    add(programs, f"{DETACHED}{ON_LO}CALL <http://act/a>($delta)", limits=limits)

    put(programs, "http://d/1", "<http://r/1> a :Lo . <http://q/1> a :Lo .")
    programs.run()

    assert programs.states() == ["done", "done"]
    assert statements(programs.mdp, RULES) == {("http://r/1", "tag", "mine")}
    assert not [one for one in statements(programs.mdp, "http://d/1") if one[1] == "subject"]


def test_a_rule_has_a_limited_number_of_processes(programs: Programs) -> None:
    programs.mdp.provider.process_quotas = ProcessQuotas(processes=2)
    define(programs, "WAIT :tag(?x, 'never')")
    add(programs, f"RULE many {DETACHED}{ON_LO}CALL <http://act/a>($delta)")

    put(programs, "http://d/1", "<http://r/1> a :Lo . <http://r/2> a :Lo . <http://r/3> a :Lo .")

    assert len(programs.states()) == 2
    ((trace,),) = programs.mdp.rows("select trace from eca_runs order by id desc limit 1")
    assert [one["reason"] for one in trace["failed"]] == [
        "2 processes of this rule have not ended (MDV_REAL_PROCESSES)"
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"COUPLING Detached ABORT Mutual {ON_LO}CALL <http://act/a>($delta)", "write ABORT Independent"),
        (f"{DETACHED}{ON_LO}INSERT ($delta, tag, 'x'); CALL <http://act/a>($delta)", "write two rules"),
    ],
)
def test_a_detached_call_that_cannot_be_a_process_is_refused(programs: Programs, text: str, reason: str) -> None:
    with pytest.raises(InvalidRule) as refused:
        add(programs, text)
    assert [flaw.hint for flaw in refused.value.flaws] == [reason]


def test_a_spawned_action_may_have_outputs(programs: Programs) -> None:
    define(programs, "+:tag(?x, 'seen')", "x", "x")

    programs.run_one("SPAWN <http://act/a>(<http://r/1>)")
    programs.run()

    assert programs.states() == ["done", "done"]
