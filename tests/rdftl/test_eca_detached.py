"""Detached copies and compensation on a real store, with the worker that runs their jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mdv.db.jobs import add_job
from mdv.errors import Conflict, NotFound
from mdv.feed import EventKind
from mdv.mdp.provider import Provider
from mdv.mdp.retention import apply_retention
from tests.support.eca_system import RULES, SCHEMA, add, causes, compensate, put, rule_named, statements, submit, work
from tests.support.mdp import Mdp


@pytest.fixture
def eca(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    return mdp


def test_a_detached_copy_runs_in_a_transaction_of_its_own(eca: Mdp) -> None:
    add(eca, "RULE later COUPLING Detached ABORT Independent ON INSERT (_, subject, _) IF TRUE"
             " DO INSERT ($delta, tag, $delta.target)")  # fmt: skip

    ended = put(eca, "http://d/1", "<http://r/1> :subject 'x' .")

    assert [(kind, state) for kind, state, _ in ended] == [("register", "done"), ("detached", "done")]
    assert ended[1][2]["position"] == ended[0][2]["position"] + 1
    assert statements(eca, RULES) == {("http://r/1", "tag", "x")}
    assert eca.rows("select cause, parent_run, parent_copy, origin from eca_runs order by id") == [
        ("registration", None, None, None),
        ("detached", 1, 0, 1),
    ]


def test_a_detached_copy_triggers_rules(eca: Mdp) -> None:
    add(
        eca,
        "COUPLING Detached ABORT Independent ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'a')",
        "COUPLING Deferred ON INSERT (_, tag, 'a') IF TRUE DO INSERT ($delta, tag, 'b')",
        "COUPLING Detached ABORT Independent ON INSERT (_, tag, 'b') IF TRUE DO DELETE ($delta, tag, 'a')",
    )

    ended = put(eca, "http://d/1", "<http://r/1> :subject 'x' .")

    assert [kind for kind, _, _ in ended] == ["register", "detached", "detached"]
    assert statements(eca, RULES) == {("http://r/1", "tag", "b")}


FAILING = "ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'late'), ($delta, level, 1), ($delta, level, 2)"


@pytest.mark.parametrize(("abort", "stays"), [("ParentChild", True), ("Independent", True),
                                              ("ChildParent", False), ("Mutual", False)])  # fmt: skip
def test_a_failing_detached_copy_compensates_its_parent(eca: Mdp, abort: str, stays: bool) -> None:
    put(eca, "http://d/1", "<http://r/1> :level 1 .")
    add(eca, f"RULE late COUPLING Detached ABORT {abort} {FAILING}")

    ended = put(eca, "http://d/1", "<http://r/1> :level 7 ; :subject 'x' .")

    kinds = [(kind, state) for kind, state, _ in ended[1:]]
    assert kinds[:2] == [("register", "done"), ("detached", "failed")]
    assert kinds[2:] == ([] if stays else [("compensate", "done")])
    after = {("http://r/1", "level", "7"), ("http://r/1", "subject", "x")}
    assert statements(eca, "http://d/1") == (after if stays else {("http://r/1", "level", "1")})
    assert causes(eca, "http://d/1")[2:] == ([] if stays else [("compensation", None)])


@pytest.mark.parametrize(("abort", "stays"), [("ParentChild", False), ("Independent", True),
                                              ("ChildParent", True), ("Mutual", False)])  # fmt: skip
def test_a_compensated_parent_takes_its_detached_children_with_it(eca: Mdp, abort: str, stays: bool) -> None:
    add(eca, f"COUPLING Detached ABORT {abort} ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'late')",
             f"ABORT {abort} ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'now')")  # fmt: skip
    put(eca, "http://d/1", "<http://r/1> :subject 'x' .")

    done = compensate(eca, 1)

    assert statements(eca, "http://d/1") == set()
    kept = {("http://r/1", "tag", "late"), ("http://r/1", "tag", "now")}
    assert statements(eca, RULES) == (kept if stays else set())
    assert (done.undone, done.skipped) == ((1 if stays else 3), 0)
    assert eca.rows("select outcome from eca_runs where id = 1") == [("compensated",)]


def test_a_queued_detached_copy_is_dropped_with_its_parent(eca: Mdp) -> None:
    add(eca, "COUPLING Detached ABORT Mutual ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'late')")
    eca.put_one("http://d/1", "<http://r/1> :subject 'x' .")
    compensate(eca, 1)

    ((_, state, result),) = work(eca)

    assert (state, result["dropped"]) == ("done", True)
    assert statements(eca, RULES) == set()


def test_compensation_skips_what_has_changed_since(eca: Mdp) -> None:
    add(eca, "ABORT ParentChild ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'a'), ($delta, tag, 'b')",
             "ABORT ParentChild ON UPDATE (_, level, _ -> _) IF TRUE DO UPDATE ($delta, level, _ -> 9)")  # fmt: skip
    put(eca, "http://d/1", "<http://r/1> :subject 'x' ; :level 1 .")
    put(eca, "http://d/1", "<http://r/1> :subject 'x' ; :level 2 .")
    submit(eca, "update", "urn:mdv:updates", "DELETE (resource('http://r/1'), tag, 'a')")
    submit(eca, "update", "urn:mdv:updates", "DELETE (resource('http://r/1'), level, _)")
    work(eca)

    first, second = compensate(eca, 1, 0), compensate(eca, 2, 0)

    assert (first.undone, first.skipped) == (1, 1)
    assert first.not_undone[0]["added"][2]["value"] == "a"
    assert (second.undone, second.skipped) == (0, 1)
    assert statements(eca, RULES) == set()
    assert statements(eca, "http://d/1") == {("http://r/1", "subject", "x")}


def test_compensation_triggers_no_rules_and_is_published(eca: Mdp) -> None:
    lmr = eca.create_lmr("near")
    eca.subscribe(lmr, "search User u register u where u.tag? = 'new'")
    add(eca, "ABORT ParentChild ON INSERT resource() AS INSTANCE OF User IF TRUE DO INSERT ($delta, tag, 'new')",
             "ON DELETE (_, tag, _) IF TRUE DO INSERT ($delta, tag, 'gone')")  # fmt: skip
    put(eca, "http://d/1", "<http://r/1> a :User .")
    before = eca.feed(lmr).cursor

    done = compensate(eca, 1, 0)

    assert done.lmrs == 1
    assert statements(eca, RULES) == set()
    assert [event.kind for event in eca.feed(lmr, before).events] == [EventKind.UNMATCH]
    assert causes(eca, RULES) == [("rule", "rule 1"), ("compensation", "rule 1")]


def test_a_registration_with_blank_nodes_is_compensated(eca: Mdp) -> None:
    put(eca, "http://d/1", "<http://r/1> :seen [ a :Course ; :level 1 ] .")
    before = statements(eca, "http://d/1")
    add(eca, f"RULE late COUPLING Detached ABORT Mutual {FAILING}")

    put(eca, "http://d/1", "<http://r/1> :subject 'x' ; :seen [ a :Course ; :level 2 ] .")

    assert statements(eca, "http://d/1") == before
    assert eca.put_one("http://d/1", "<http://r/1> :seen [ a :Course ; :level 1 ] .").unchanged == 2


def test_a_compensation_is_not_repeated(eca: Mdp) -> None:
    add(eca, "ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'a')")
    put(eca, "http://d/1", "<http://r/1> :subject 'x' .")
    compensate(eca, 1)
    eca.put_one("http://d/1", "<http://r/1> :subject 'x' .")

    assert compensate(eca, 1).run is None
    assert statements(eca, RULES) == {("http://r/1", "tag", "a")}


def test_a_detached_rule_that_fails_again_and_again_is_quarantined(eca: Mdp) -> None:
    add(eca, f"RULE late COUPLING Detached ABORT Independent {FAILING}")

    for number in range(6):
        put(eca, f"http://d/{number}", f"<http://r/{number}> :subject 'x' .")

    rule = rule_named(eca, "late")
    assert (rule.state, rule.fired, rule.failed) == ("quarantined", 5, 5)


def test_a_rule_deletes_what_it_was_triggered_by(eca: Mdp) -> None:
    add(eca, "ON INSERT (_, tag, 'a') IF TRUE DO DELETE ($delta, tag, 'a')")
    submit(eca, "update", "urn:mdv:updates", "INSERT (resource('http://r/new'), tag, 'a')")

    ((_, state, result),) = work(eca)
    put(eca, "http://d/1", "<http://r/other> :seen <http://r/another> .")

    assert (state, result["fired"]) == ("done", 1)
    assert statements(eca, "urn:mdv:updates") == set()
    assert statements(eca, "http://d/1") == {("http://r/other", "seen", "http://r/another")}
    assert eca.one("select count(*) from resources where uri = 'http://r/other'") == 1


def test_reactions_are_switched_off_for_one_change(eca: Mdp) -> None:
    add(eca, "ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'seen')")
    updates = "INSERT (resource('http://r/2'), subject, 'x')"
    body = '{"add": [["http://r/1", "http://v/subject", {"type": "literal", "value": "y"}]]}'
    with eca.engine.begin() as connection:
        for kind, uri, text in (("register", "http://d/1", eca.PREFIXES + "<http://r/1> :subject 'x' ."),
                                ("update", "urn:mdv:updates", updates)):  # fmt: skip
            add_job(connection, kind, uri, "test", text.encode(), "text/turtle", {"eca": "off", "by": "admin"})
    work(eca)
    with eca.engine.begin() as connection:
        add_job(connection, "edit", "http://d/1", "test", body.encode(), None, {"eca": "off"})
    work(eca)

    assert statements(eca, RULES) == set()
    assert causes(eca, "http://d/1") == [("registration", "eca=off"), ("update", "eca=off")]
    assert causes(eca, "urn:mdv:updates") == [("update", "eca=off")]


def test_reactions_are_switched_off_for_some_documents_of_a_batch(eca: Mdp) -> None:
    add(eca, "ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'seen')")
    items = [eca.prepare(f"http://d/{n}", f"<http://r/{n}> :subject 'x' .") for n in range(3)]

    eca.register_batch([replace(items[0], reacts=False), items[1], replace(items[2], reacts=False)])

    assert statements(eca, RULES) == {("http://r/1", "tag", "seen")}


WRITER = "ABORT ParentChild ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'a')"
READER = "ABORT ParentChild ON INSERT (_, level, _) IF resource()/target(tag) = 'a' DO INSERT ($delta, subject, 'read')"


@pytest.mark.parametrize("cascades", [False, True])
def test_later_rules_that_read_what_is_undone(eca: Mdp, cascades: bool) -> None:
    eca.provider = Provider(eca.engine, cascades_to_readers=cascades)
    add(eca, WRITER, READER, "ABORT ParentChild ON INSERT (_, level, _) IF TRUE DO INSERT ($delta, seen, <http://r/3>)")
    put(eca, "http://d/1", "<http://r/1> :subject 'x' .")
    put(eca, "http://d/2", "<http://r/2> :level 1 .")
    assert ("http://r/2", "subject", "read") in statements(eca, RULES)

    done = compensate(eca, 1, 0)

    left = {("http://r/2", "seen", "http://r/3")}
    assert (done.readers, done.readers_left) == (2 if cascades else 0, 0)  # with the copy that the reader triggered
    read = {("http://r/2", "subject", "read"), ("http://r/2", "tag", "a")}  # it triggers the writer
    assert statements(eca, RULES) == (left if cascades else left | read)


def test_readers_beyond_the_limit_are_reported(eca: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.mdp.eca.compensate.MAX_READERS", 2)
    eca.provider = Provider(eca.engine, cascades_to_readers=True)
    add(eca, WRITER, "ABORT ParentChild ON INSERT (_, level, _) IF resource()/target(tag) = 'a'"
                     " DO INSERT ($delta, seen, <http://r/3>)")  # fmt: skip
    put(eca, "http://d/1", "<http://r/1> :subject 'x' .")
    for number in range(2, 6):
        put(eca, f"http://d/{number}", f"<http://r/{number}> :level 1 .")

    done = compensate(eca, 1, 0)

    assert (done.readers, done.readers_left) == (2, 2)
    assert statements(eca, RULES) == {(f"http://r/{number}", "seen", "http://r/3") for number in (4, 5)}


def test_old_runs_are_deleted_and_their_changes_stay(eca: Mdp) -> None:
    add(eca, WRITER)
    put(eca, "http://d/1", "<http://r/1> :subject 'x' .")
    put(eca, "http://d/2", "<http://r/2> :subject 'x' .")
    eca.run("update eca_runs set at = at - interval '8 days' where id = 1")

    apply_retention(eca.engine, 3600, 1000)

    assert eca.rows("select id from eca_runs") == [(2,)]
    assert eca.rows("select run_id, subject from eca_changes order by id") == [(1, "http://r/1"), (2, "http://r/2")]
    with pytest.raises(NotFound, match="no run 1"):
        compensate(eca, 1)


def test_runs_that_cannot_be_compensated_are_refused(eca: Mdp) -> None:
    add(eca, f"ABORT Mutual {FAILING}")
    (ended,) = put(eca, "http://d/1", "<http://r/1> :subject 'x' .")
    add(eca, "ON INSERT (_, level, _) IF TRUE DO INSERT ($delta, tag, 'a')")
    put(eca, "http://d/2", "<http://r/2> :level 1 .")
    run = eca.one("select max(id) from eca_runs")
    compensation = compensate(eca, run).run

    with pytest.raises(Conflict, match="was refused"):
        compensate(eca, ended.answer["run"])
    with pytest.raises(Conflict, match="is a compensation"):
        compensate(eca, compensation or 0)
    with pytest.raises(NotFound, match="has no copy 7"):
        compensate(eca, run, 7)


def test_a_compensation_that_fails_inside_is_retried_and_ends_as_a_dead_letter(eca: Mdp) -> None:
    add(eca, f"RULE late COUPLING Detached ABORT Mutual {FAILING}")
    put(eca, "http://d/0", "<http://r/0> :level 1 .")
    eca.run("create function refuse() returns trigger language plpgsql as $$ begin raise 'broken'; end $$")
    eca.run("create trigger broken before update on eca_runs for each row execute function refuse()")

    ended = put(eca, "http://d/1", "<http://r/1> :subject 'x' .")
    for _ in range(5):
        ended = work(eca)
    assert [(job.kind, job.state) for job in ended if job.kind == "compensate"] == [("compensate", "dead")]
    assert statements(eca, "http://d/1") == {("http://r/1", "subject", "x")}

    eca.run("drop trigger broken on eca_runs")
    eca.run("update jobs set state = 'queued', attempts = 0, not_before = now(), ended_at = null where state = 'dead'")
    work(eca)
    assert statements(eca, "http://d/1") == set()


def test_the_actions_that_are_remembered_are_limited(eca: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each detached copy has actions of its own."""
    monkeypatch.setattr("mdv.mdp.eca.rule_set.MAX_KNOWN_ACTIONS", 3)
    add(eca, "COUPLING Detached ABORT Independent ON INSERT (_, subject, _) IF TRUE"
             " DO INSERT ($delta, tag, 'a') INSERT ($delta, tag, 'b')")  # fmt: skip

    for number in range(4):
        put(eca, f"http://d/{number}", f"<http://r/{number}> :subject 'x' .")

    assert len(statements(eca, RULES)) == 8
    with eca.engine.connect() as connection:
        version = eca.one("select eca_version from mdp_state")
        rules = eca.provider.eca_rules.at(connection, version, eca.schemas.now(connection))
    assert all(0 < len(memo) <= 3 for memo in (rules.is_unwatched_insert, rules.inserts_without_reading))
