"""The examples of section 3 of the paper "Event-Condition-Action Rules on RDF Metadata in P2P Environments".

Its figures are lost. The schemas S1 and S2 and the abort graph are rebuilt from the text.
"""

from __future__ import annotations

import pytest

from mdv.errors import InvalidRule
from mdv.federation.global_rules import compile_global_rules
from mdv.federation.messages import Act, Flooded, RunAction
from mdv.federation.privileges import Grant, GrantKind, Privilege
from mdv.federation.relevance import nodes_of_rule
from mdv.federation.superpeer_state import SagaState
from mdv.model import RDF, RDF_TYPE, Statement, Term
from mdv.rdftl.compile import compile_rules
from mdv.rdftl.model import AbortDependency, Always, Coupling, EcaRule
from tests.support.federation_simulation import ALL, SimulatedFederation
from tests.support.rdftl_rules import (
    ANY,
    DELTA,
    EVERYTHING,
    SEQ_NEXT,
    V,
    do_arcs,
    equal,
    on_arc,
    path,
    schema_of_turtle,
    target,
    text,
    triple,
    turtle,
)
from tests.support.rdftl_texts import FOLDER, rdftl_schema

DC = "http://purl.org/dc/elements/1.1/"
USER = "http://www.dcs.bbk.ac.uk/~gpapa05/semapeer/user#"
LO = "http://www.dcs.bbk.ac.uk/~gpapa05/semapeer/lo#"
USERS = "http://www.dcs.bbk.ac.uk/users/"


def printed(name: str) -> EcaRule:
    """Return a printed rule."""
    (rule,) = compile_rules((FOLDER / "printed" / f"{name}.rule").read_text("utf-8"), rdftl_schema())
    return rule.rule


def said(*triples: tuple[str, str, str]) -> set[Statement]:
    """Return statements. A target with a colon is a URI."""
    return {Statement(s, p, Term.uri(o) if ":" in o else Term.literal(o)) for s, p, o in triples}


def learning_object(uri: str, subject: str) -> set[Statement]:
    return said((uri, RDF_TYPE, LO + "LO"), (uri, DC + "subject", subject), (uri, DC + "type", "Book"))


def user(uri: str, lists: str = "new_LOs") -> set[Statement]:
    """Return a user who is interested in Law, with messages that have a list."""
    return said(
        (uri, RDF_TYPE, LO + "Learner"),
        (uri, USER + "interests", uri + "/interests"),
        (uri + "/interests", RDF_TYPE, RDF + "Bag"),
        (uri + "/interests", RDF + "_1", uri + "/law"),
        (uri + "/law", USER + "interest_typename", "Law"),
        (uri, LO + "messages", uri + "/messages"),
        (uri + "/messages", RDF_TYPE, LO + "Messages"),
        (uri + "/messages", LO + lists, uri + "/list"),
        (uri + "/list", RDF_TYPE, RDF + "Seq"),
    )


def libraries() -> SimulatedFederation:
    """Two superpeers. The first has learning objects (S1), the second users and one learning object (S2)."""
    federation = SimulatedFederation(rdftl_schema())
    federation.add_superpeer("S1", learning_object("http://lo/1", "Music"))
    users = user(USERS + "128") | said(("http://lo/2", RDF_TYPE, LO + "LO"))
    federation.add_superpeer("S2", users)
    federation.connect("S1", "S2")
    federation.rest()
    return federation


# Examples 1 to 3


def test_example_3_is_relevant_where_the_paper_says() -> None:
    """e-relevant to S1 and S2, c-relevant to S1 and S2, a-relevant to S2 alone."""
    federation, rule = libraries(), printed("p2p_3")
    federation.add_rule("S1", rule)
    federation.rest()
    nodes = nodes_of_rule(rule, federation.schema)
    present = {name: federation.state_of(name).index.present() for name in ("S1", "S2")}
    assert [name for name in present if nodes.is_e_relevant(present[name])] == ["S1", "S2"]
    assert [name for name in present if nodes.is_c_relevant(present[name])] == ["S1", "S2"]
    assert [name for name in present if nodes.is_a_relevant(present[name])] == ["S2"]
    annotations = {name: federation.state_of(name).annotations["S1.1"] for name in present}
    assert annotations == {"S1": ({"0"}, {"0"}, set()), "S2": ({"0"}, {"0"}, {"0"})}


def test_example_3_links_a_new_learning_object_of_one_site_at_the_other() -> None:
    federation = libraries()
    federation.add_rule("S1", printed("p2p_3"))
    federation.rest()
    law = learning_object("http://lo/law", "Law")
    federation.register("S1", law | learning_object("http://lo/art", "Art"))
    federation.rest()
    added = {one for one in federation.fragments["S2"].state.stated if one.subject == USERS + "128/list"}
    assert added == said((USERS + "128/list", RDF_TYPE, RDF + "Seq"), (USERS + "128/list", RDF + "_1", "http://lo/law"))
    federation.check()


def test_example_1_an_event_with_a_path_is_evaluated_at_the_peer_alone() -> None:
    event = (FOLDER / "printed" / "p2p_1_event.event").read_text("utf-8")
    action = "DO INSERT (resource(http://log), dc:description, 'seen')"
    (rule,) = compile_rules(f"ON {event} IF TRUE {action}", rdftl_schema())
    book = "http://www.dcs.bbk.ac.uk/LOs/BK187"
    log = said(("http://log", DC + "description", "log"))
    federation = SimulatedFederation(rdftl_schema())
    federation.add_superpeer("S1", user(USERS + "sys", "updated_LOs") | said((USERS + "sys/list", RDF + "_1", book)))
    federation.add_superpeer("S2", log)
    federation.connect("S1", "S2")
    federation.add_rule("S2", rule.rule)
    federation.rest()
    federation.register("S2", learning_object(book, "Law"))  # no user has it on a list there
    federation.rest()
    assert not any(one.object.value == "seen" for one in federation.union())
    federation.register("S1", learning_object(book, "Law"))
    federation.rest()
    seen = [name for name, fragment in federation.fragments.items() if "seen" in str(fragment.state.stated)]
    assert seen == ["S2"]


def test_example_2_appends_to_the_list_of_another_site() -> None:
    federation = SimulatedFederation(rdftl_schema())
    federation.add_superpeer("S1")
    federation.add_superpeer("S2")
    federation.connect("S1", "S2")
    federation.add_peer("p1", "S1", learning_object("http://lo/1", "Music"))
    federation.add_peer("p2", "S2", user(USERS + "sys", "updated_LOs"))
    federation.add_rule("p2", printed("p2p_2"))
    federation.rest()
    assert set(federation.state_of("S1").rules) == {"S2.1"} == set(federation.state_of("S2").rules)
    book = "http://www.dcs.bbk.ac.uk/LOs/BK187"
    federation.register("p1", said((book, DC + "type", "Book")))
    federation.rest()
    assert said((USERS + "sys/list", RDF + "_1", book)) <= federation.fragments["p2"].state.stated
    ((transaction, _),) = federation.fragments["p2"].executed
    assert federation.outcomes() == {"T1": SagaState.DONE, transaction: SagaState.DONE}


# The abort graph

FIGURE_SCHEMA = schema_of_turtle("""
:start mdv:setValued true . :five mdv:setValued true . :six mdv:setValued true . :seven mdv:setValued true .
:box mdv:setValued true . :topic rdfs:range xsd:string ; mdv:setValued true .
""")


def copy_rule(name: str, abort: AbortDependency, coupling: Coupling = Coupling.IMMEDIATE) -> EcaRule:
    """Return a rule whose copies run where its property is, and fail there if `box` is no collection."""
    actions = (
        do_arcs("INSERT", triple(DELTA, name, text("done"))),
        do_arcs("INSERT", triple("box", SEQ_NEXT, DELTA)),
    )
    return EcaRule(
        on_arc("INSERT", triple(None, "start", ANY)), Always(), actions, name=name, coupling=coupling, abort=abort
    )


def figure(failing: str) -> tuple[SimulatedFederation, dict[str, str]]:
    """Return the federation of the figure after a failure, and its transactions by their name in the figure.

    T1 at SP2 has the children T5 at SP2 (ParentChild), T6 at SP5 (Mutual) and T7 at SP3 (Independent). The text names
    only these.
    """
    federation = SimulatedFederation(FIGURE_SCHEMA)
    for superpeer, name in (("SP2", "five"), ("SP5", "six"), ("SP3", "seven")):
        box = ":other a rdf:Bag . :box :start 'x' ." if name == failing else ":box a rdf:Bag ."
        federation.add_superpeer(superpeer, turtle(f":x :{name} 'x' . {box}".replace("'", '"')))
    federation.connect("SP2", "SP3")
    federation.connect("SP3", "SP5")
    federation.rest()
    federation.add_rule("SP2", copy_rule("five", AbortDependency.PARENT_CHILD))
    federation.add_rule("SP2", copy_rule("six", AbortDependency.MUTUAL))
    federation.add_rule("SP2", copy_rule("seven", AbortDependency.INDEPENDENT))
    federation.rest()
    names = {federation.register("SP2", turtle(':u :start "go" .')): "T1"}
    federation.rest()
    for superpeer, name in (("SP2", "T5"), ("SP5", "T6"), ("SP3", "T7")):
        (transaction,) = {one for one, _ in federation.fragments[superpeer].executed}
        names[transaction] = name
    federation.check()
    return federation, names


def compensated(federation: SimulatedFederation, names: dict[str, str]) -> set[str]:
    found = set()
    for superpeer in federation.superpeers.values():
        for one in superpeer.superpeer.state.transactions.values():
            if one.state is SagaState.COMPENSATED:
                found.add(f"{names[one.id]}@{superpeer.name}")
    return found


def test_a_failure_of_t7_compensates_t7_alone() -> None:
    federation, names = figure("seven")
    assert compensated(federation, names) == {"T7@SP3"}
    left = {one for one in federation.union() if one.object.value == "done"}
    assert left == turtle(':u :five "done" ; :six "done" .')


def test_a_failure_of_t6_compensates_its_parent_and_the_child_of_that() -> None:
    federation, names = figure("six")
    assert compensated(federation, names) == {"T6@SP5", "T1@SP2", "T5@SP2"}
    left = {one for one in federation.union() if one.subject == V + "u"}
    assert left == turtle(':u :seven "done" .'), "T7 is independent; the change of the peer itself is undone"


# Sites that do not answer


def pair(abort: AbortDependency, coupling: Coupling = Coupling.IMMEDIATE) -> SimulatedFederation:
    """Return two superpeers. A rule of the first has copies that run at peer `p` of the second."""
    federation = SimulatedFederation(FIGURE_SCHEMA)
    federation.add_superpeer("S1", turtle(':x :start "x" .'))
    federation.add_superpeer("S2")
    federation.connect("S1", "S2")
    federation.add_peer("p", "S2", turtle(':x :six "x" . :box a rdf:Bag .'))
    federation.add_rule("S1", copy_rule("six", abort, coupling))
    federation.rest()
    return federation


def exchange_among(federation: SimulatedFederation, *names: str, rounds: int = 10) -> None:
    """Let some sites exchange messages, and the others be silent."""
    for _ in range(rounds):
        for name in names:
            for neighbour in federation.site(name).links:
                if neighbour in names:
                    federation.send(name, neighbour)
            federation.deliver_all()


def wait(federation: SimulatedFederation, seconds: float) -> None:
    federation.now += seconds
    for name in federation.sites:
        federation.site(name).tick(federation.now)


def test_a_peer_that_is_gone_between_act_and_acted_fails_its_copy_and_undoes_it_later() -> None:
    federation = pair(AbortDependency.MUTUAL)
    before = federation.fragments["p"].state.stated
    federation.register("S1", turtle(':u :start "go" .'))
    exchange_among(federation, "S1", "S2")
    (waiting,) = federation.superpeers["S2"].links["p"].outbox
    assert isinstance(waiting, RunAction)
    assert federation.outcomes()["T1"] is SagaState.RUNNING
    wait(federation, 30)
    exchange_among(federation, "S1", "S2")
    assert federation.outcomes()["T1"] is SagaState.COMPENSATING, "its child can only be undone when the peer returns"
    assert turtle(':u :start "go" .') & federation.union() == set()
    federation.rest()
    assert federation.fragments["p"].executed, "act and abort arrived in order"
    assert federation.fragments["p"].state.stated == before
    assert set(federation.outcomes().values()) == {SagaState.COMPENSATED}
    federation.check()


def test_a_parent_goes_on_without_a_child_that_does_not_answer_if_it_does_not_depend_on_it() -> None:
    federation = pair(AbortDependency.PARENT_CHILD)
    federation.register("S1", turtle(':u :start "go" .'))
    exchange_among(federation, "S1", "S2")
    wait(federation, 30)
    assert federation.outcomes()["T1"] is SagaState.DONE
    federation.rest()
    assert turtle(':u :start "go" .') <= federation.union()
    assert turtle(':u :six "done" .') & federation.union() == set()
    federation.check()


def test_a_superpeer_that_is_away_counts_as_failed_at_once_and_cancels_the_copy_when_it_returns() -> None:
    federation = pair(AbortDependency.CHILD_PARENT)
    wait(federation, 300)
    federation.register("S1", turtle(':u :start "go" .'))
    assert federation.outcomes() == {"T1": SagaState.COMPENSATING}
    federation.rest()
    assert federation.fragments["p"].state.stated == turtle(':x :six "x" . :box a rdf:Bag .')
    assert federation.outcomes()["T1"] is SagaState.COMPENSATED
    federation.check()


def test_an_abort_that_overtakes_its_copy_cancels_it() -> None:
    federation = pair(AbortDependency.MUTUAL)
    federation.register("S1", turtle(':u :start "go" .'))
    link = federation.superpeers["S1"].links["S2"]
    (act,) = [one for one in link.outbox if isinstance(one, Flooded) and isinstance(one.body, Act)]
    link.outbox.remove(act)
    wait(federation, 30)
    link.outbox.append(act)
    federation.rest()
    assert federation.fragments["p"].executed == []
    federation.check()


def test_the_copies_at_a_peer_that_leaves_fail() -> None:
    federation = pair(AbortDependency.CHILD_PARENT)
    federation.register("S1", turtle(':u :start "go" .'))
    exchange_among(federation, "S1", "S2")
    federation.peers["p"].leave()
    federation.flying.append(("S2", federation.peers["p"].links["S2"].exchange()))
    federation.deliver_all()
    del federation.peers["p"], federation.superpeers["S2"].links["p"]
    federation.rest()
    assert federation.outcomes()["T1"] is SagaState.COMPENSATED
    assert federation.state_of("S2").index.present() == frozenset()
    federation.check_rules()


def test_a_superpeer_that_leaves_takes_its_rules_and_its_presence_along() -> None:
    federation = SimulatedFederation(FIGURE_SCHEMA)
    for name in ("S1", "S2", "S3"):
        federation.add_superpeer(name, turtle(':x :start "x" ; :six "x" . :box a rdf:Bag .'))
    federation.connect("S1", "S2")
    federation.connect("S2", "S3")
    federation.add_rule("S3", copy_rule("six", AbortDependency.MUTUAL))
    federation.add_rule("S1", copy_rule("seven", AbortDependency.INDEPENDENT))
    federation.rest()
    assert set(federation.state_of("S2").rules) == {"S1.1", "S3.1"}
    federation.leave_superpeer("S3")
    federation.rest()
    for name in ("S1", "S2"):
        assert set(federation.state_of(name).rules) == {"S1.1"}
        assert set(federation.state_of(name).superpeers()) == {"S1", "S2"} - {name}
    federation.register("S1", turtle(':u :start "go" .'))
    federation.rest()
    assert federation.outcomes()["T1"] is SagaState.DONE


# Restores


def test_a_restored_superpeer_is_the_authority_for_its_rules_and_its_neighbours_start_again() -> None:
    federation = SimulatedFederation(FIGURE_SCHEMA)
    federation.crashes = 0
    for name in ("S1", "S2", "S3"):
        federation.add_superpeer(name, turtle(':x :start "x" ; :six "x" ; :seven "x" . :box a rdf:Bag .'))
    federation.connect("S1", "S2")
    federation.connect("S2", "S3")
    federation.add_rule("S1", copy_rule("six", AbortDependency.INDEPENDENT))
    federation.rest()
    federation.back_up("S1")
    federation.add_rule("S1", copy_rule("seven", AbortDependency.INDEPENDENT))
    federation.superpeers["S1"].end_rule("S1.1", federation.now)
    federation.rest()
    assert set(federation.state_of("S3").rules) == {"S1.2"}
    federation.restore("S1")
    federation.rest()
    for name in federation.superpeers:
        assert set(federation.state_of(name).rules) == {"S1.1"}, "S1.2 is lost, S1.1 has not ended"
    federation.add_rule("S1", copy_rule("five", AbortDependency.INDEPENDENT))
    federation.rest()
    assert set(federation.state_of("S3").rules) == {"S1.1", "S1.1000000001"}, "no number is used twice"
    federation.register("S3", turtle(':u :start "go" .'))
    federation.rest()
    assert turtle(':u :six "done" .') <= federation.fragments["S1"].state.stated
    federation.check()


def test_a_transaction_that_was_running_in_a_backup_fails_after_the_restore() -> None:
    federation = pair(AbortDependency.MUTUAL)
    federation.crashes = 0
    federation.register("S1", turtle(':u :start "go" .'))
    federation.back_up("S1")
    federation.rest()
    assert set(federation.outcomes().values()) == {SagaState.DONE}
    federation.restore("S1")
    federation.rest()
    assert set(federation.outcomes().values()) == {SagaState.COMPENSATED}
    assert not {one for one in federation.union() if one.subject == V + "u"}
    federation.check_rules()


# Privileges

CONDITIONAL = EcaRule(
    on_arc("INSERT", triple(None, "start", ANY)),
    equal(path(DELTA, target("topic")), text("secret")),
    (do_arcs("INSERT", triple(DELTA, "six", text("done"))),),
    abort=AbortDependency.INDEPENDENT,
)


def shared(*grants: Grant) -> SimulatedFederation:
    """Return two superpeers. The second has what a rule of the first reads, and where its action runs."""
    federation = SimulatedFederation(FIGURE_SCHEMA)
    federation.add_superpeer("S1", turtle(':x :start "x" .'))
    federation.add_superpeer("S2", turtle(':u :topic "secret" . :x :six "x" .'), grants)
    federation.connect("S1", "S2")
    federation.add_rule("S1", CONDITIONAL)
    federation.rest()
    federation.register("S1", turtle(':u :start "go" .'))
    federation.rest()
    federation.check()
    return federation


def is_done(federation: SimulatedFederation) -> bool:
    return turtle(':u :six "done" .') <= federation.union()


def test_a_private_step_is_left_out_of_a_condition() -> None:
    assert is_done(shared(*ALL))
    write = Grant(GrantKind.PROPERTY, V + "six", Privilege.READ_WRITE)
    assert is_done(shared(write, Grant(GrantKind.PROPERTY, V + "topic", Privilege.READ_ONLY)))
    federation = shared(write)
    assert not is_done(federation) and not federation.state_of("S1").copies
    private = Grant(GrantKind.RESOURCE, V + "u", Privilege.PRIVATE)
    assert not is_done(shared(*ALL, private)), "the resource is more specific than the prefix"


def test_an_action_that_is_not_permitted_changes_nothing_and_fails_nothing() -> None:
    federation = shared(Grant(GrantKind.PREFIX, V, Privilege.READ_ONLY))
    assert not is_done(federation)
    (copy,) = federation.state_of("S1").copies.values()
    ((result,), outcomes) = copy.results["S2"], federation.outcomes()
    assert result.outcome.value == "not permitted" and "read-write" in result.reason
    assert outcomes == {"T1": SagaState.DONE, result.transaction: SagaState.REFUSED}


def test_the_own_group_is_not_limited() -> None:
    federation = SimulatedFederation(FIGURE_SCHEMA)
    federation.add_superpeer("S1", turtle(':x :start "x" .'), grants=())
    federation.add_peer("p", "S1", turtle(':u :topic "secret" . :x :six "x" .'))
    federation.add_rule("S1", CONDITIONAL)
    federation.rest()
    federation.register("S1", turtle(':u :start "go" .'))
    federation.rest()
    assert is_done(federation)


# Growth, order


def test_a_global_rule_needs_abort_for_every_coupling_mode() -> None:
    rule = "on insert resource() if true do delete $delta"
    with pytest.raises(InvalidRule, match="line 2, column 1: a global rule needs ABORT"):
        compile_global_rules(f"local {rule};;\n{rule}", FIGURE_SCHEMA)
    assert compile_global_rules(f"local {rule}", FIGURE_SCHEMA) == ()


def test_a_rule_is_pulled_through_a_superpeer_that_does_not_store_it_and_fires_for_the_change_that_pulled_it() -> None:
    federation = SimulatedFederation(FIGURE_SCHEMA)
    for name in ("S1", "S2", "S3"):
        federation.add_superpeer(name, turtle(':x :six "x" . :box a rdf:Bag .'))
    federation.connect("S1", "S2")
    federation.connect("S2", "S3")
    federation.add_rule("S1", copy_rule("six", AbortDependency.INDEPENDENT))
    federation.rest()
    assert [sorted(federation.state_of(name).rules) for name in ("S1", "S2", "S3")] == [["S1.1"], [], []]
    federation.register("S3", turtle(':u :start "first" .'))
    federation.rest()
    assert [sorted(federation.state_of(name).rules) for name in ("S1", "S2", "S3")] == [["S1.1"], [], ["S1.1"]]
    assert turtle(':u :six "done" .') <= federation.fragments["S3"].state.stated
    federation.register("S3", [])
    federation.rest()
    assert [sorted(federation.state_of(name).rules) for name in ("S1", "S2", "S3")] == [["S1.1"], [], []]


def test_levels_of_precedence_wait_for_each_other() -> None:
    federation = SimulatedFederation(FIGURE_SCHEMA)
    federation.add_superpeer("S1", turtle(':x :start "x" .'))
    federation.add_peer("p", "S1", turtle(':x :five "x" ; :six "x" ; :seven "x" . :box a rdf:Bag .'))
    for name, coupling in (("seven", Coupling.DEFERRED), ("six", Coupling.IMMEDIATE), ("five", Coupling.IMMEDIATE)):
        rule = copy_rule(name, AbortDependency.INDEPENDENT, coupling)
        follows = ("five",) if name == "six" else ()
        federation.add_rule(
            "S1", EcaRule(rule.event, rule.condition, rule.actions, name, coupling, rule.abort, (), follows)
        )
    federation.rest()
    federation.register("S1", turtle(':u :start "go" .'))
    federation.rest()
    rule_of = {copy.shared.id: copy.shared.rule for copy in federation.state_of("S1").copies.values()}
    order = [rule_of[one.partition("@")[0]] for one, step in federation.fragments["p"].executed if step == 0]
    names = {rule.id: rule.rule.name for rule in federation.state_of("S1").rules.values()}
    assert [names[rule] for rule in order] == ["five", "six", "seven"]


def test_each_step_of_a_condition_can_be_answered_by_another_site() -> None:
    schema = schema_of_turtle(
        ":a mdv:setValued true . :b mdv:setValued true . :go mdv:setValued true . :Done a rdfs:Class ."
    )
    rule = EcaRule(
        on_arc("INSERT", triple(None, "go", ANY)),
        equal(path(DELTA, target("a"), target("b")), text("yes")),
        (do_arcs("INSERT", triple(DELTA, "go", text("done"))),),
        abort=AbortDependency.INDEPENDENT,
    )
    federation = SimulatedFederation(schema)
    federation.add_superpeer("S1", turtle(':x :go "x" .'))
    federation.add_superpeer("S2", turtle(":u :a :v, :w ."))
    federation.add_superpeer("S3")
    federation.add_peer("p", "S3", turtle(':w :b "yes" .'))
    federation.connect("S1", "S2")
    federation.connect("S2", "S3")
    federation.add_rule("S1", rule)
    federation.rest()
    federation.register("S1", turtle(':u :go "now" .'))
    federation.rest()
    assert turtle(':u :go "done" .') <= federation.union()


def test_rules_that_do_not_end_fail_at_the_greatest_depth() -> None:
    federation = SimulatedFederation(FIGURE_SCHEMA)
    federation.max_depth = 5
    federation.add_superpeer("S1", turtle(':box a rdf:Seq ; rdf:_1 "x" ; :start "x" .'))
    event = on_arc("INSERT", triple(EVERYTHING, None, ANY))
    rule = EcaRule(
        event, Always(), (do_arcs("INSERT", triple("box", SEQ_NEXT, text("x"))),), abort=AbortDependency.MUTUAL
    )
    federation.add_rule("S1", rule)
    before = federation.union()
    federation.register("S1", turtle(':u :start "go" .'))
    federation.rest()
    assert federation.union() == before
    assert any("rules may not end" in one.reason for one in federation.state_of("S1").transactions.values())
