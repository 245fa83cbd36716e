"""The filter against a naive oracle: every rule, evaluated over all statements after every step.

Random registrations, deletions and changes of rules over a tiny world, by two processes that share a database. After
each step three things agree for every rule: what follows from the filter's changes so far, a full evaluation by the
MDP, and the oracle. The mutants at the end show that the machine would notice.

MDV_MODEL_EXAMPLES sets the number of runs, for longer searches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from rule_worlds import (
    DOCUMENTS,
    SCHEMA,
    RuleText,
    Said,
    contents,
    in_order,
    lawful,
    populations,
    rule_texts,
    schema_in_force,
    turtle,
    values_of,
    variants,
)
from rules_oracle import World
from sqlalchemy import false, select, true
from systems_of_two import System

import mdv.query.compile as compile_
from mdv.db.filter import statements_now
from mdv.db.tables import filter_data, resources
from mdv.errors import InvalidRule, MdvError
from mdv.model import Statement
from mdv.rules.ast import ParsedRule
from mdv.rules.parse import parse

if TYPE_CHECKING:
    from conftest import Mdp

EXAMPLES = int(os.environ.get("MDV_MODEL_EXAMPLES", "6"))
STEPS = 25
MOST_RULES = 10

Batch: TypeAlias = Mapping[str, Said | None]
T = TypeVar("T")

NAMES = ["first", "second", "third", "Place"]
"""A rule may search rules with earlier names than its own. `Place` is never searched: the class of that name wins."""


@dataclass
class Known:
    """A registered rule."""

    name: str | None
    written: RuleText
    parsed: ParsedRule
    ends: tuple[int, ...] = ()


class Follower:
    """What somebody knows who registers documents and rules, and hears of nothing but the filter's changes."""

    def __init__(self, processes: list[Mdp]) -> None:
        self.processes = processes
        self.acting = 0
        self.store: dict[str, Said] = {}
        self.rules: dict[int, Known] = {}
        self.matched: set[tuple[int, str]] = set()  # end rule and resource
        self.mdp.put_schema(SCHEMA)
        self.schema = schema_in_force(SCHEMA).schema

    @property
    def mdp(self) -> Mdp:
        return self.processes[self.acting]

    # -- acting

    def put(self, batch: Batch) -> None:
        """Register, or (None) delete, in one transaction."""
        texts = {uri: turtle(said) if said is not None else None for uri, said in batch.items()}
        answers = self.transact(lambda: self.mdp.put(texts))
        assert not [answer for answer in answers if isinstance(answer, MdvError)]
        self.store |= {uri: said for uri, said in batch.items() if said is not None}
        for uri in (uri for uri, said in batch.items() if said is None):
            del self.store[uri]

    def add(self, drafts: Sequence[tuple[str | None, RuleText]]) -> None:
        texts = [(name, written.text) if name else written.text for name, written in drafts]
        added = self.transact(lambda: self.mdp.add_rules(texts))
        for (name, written), answer in zip(drafts, added, strict=True):
            assert answer.id not in self.rules
            self.rules[answer.id] = Known(name, written, parse(written.text))
        self.learn_ends()
        assert [self.rules[answer.id].ends for answer in added] == [tuple(sorted(answer.ends)) for answer in added]

    def change(self, rule_id: int, written: RuleText) -> None:
        answer = self.transact(lambda: self.mdp.change_rule(rule_id, written.text))
        assert answer.id == rule_id
        self.rules[rule_id] = Known(self.rules[rule_id].name, written, parse(written.text))
        self.learn_ends()
        assert self.rules[rule_id].ends == tuple(sorted(answer.ends))

    def remove(self, ids: Sequence[int]) -> None:
        self.transact(lambda: self.mdp.remove_rules(ids))
        for rule_id in ids:
            del self.rules[rule_id]
        self.learn_ends()

    def transact(self, act: Callable[[], T]) -> T:
        before = self.position()
        answer = act()
        if self.position() != before:
            self.follow(self.mdp.changes())
        return answer

    def position(self) -> int:
        position = self.mdp.one("select position from mdp_state")
        assert isinstance(position, int)
        return position

    # -- following

    def follow(self, changes: Iterable[tuple[int, str, bool]]) -> None:
        told: set[tuple[int, str]] = set()
        for end, uri, matched in changes:
            assert (end, uri) not in told, f"told twice: {end} {uri}"
            told.add((end, uri))
            known = (end, uri) in self.matched
            assert matched is not known, f"{'a gain that was there' if matched else 'a loss that was not'}: {end} {uri}"
            (self.matched.add if matched else self.matched.remove)((end, uri))

    def learn_ends(self) -> None:
        """A change of one rule may change the ends of others, which search it. What nobody ends in is forgotten."""
        for rule_id, known in self.rules.items():
            known.ends = tuple(sorted(self.mdp.ends_of(rule_id)))
        ends = {end for known in self.rules.values() for end in known.ends}
        self.matched = {(end, uri) for end, uri in self.matched if end in ends}

    # -- comparing

    def check(self) -> None:
        ends = {end for known in self.rules.values() for end in known.ends}
        assert {end for end, _ in self.matched} <= ends, "told of end rules that no rule has"
        followed, evaluated = self.followed(), self.evaluated()
        for rule_id, wanted in self.wanted().items():
            text = self.rules[rule_id].written.text
            assert evaluated[rule_id] == wanted, f"evaluated, not as the oracle does: {text}"
            assert followed[rule_id] == wanted, f"followed, not as the oracle does: {text}"

    def followed(self) -> dict[int, set[str]]:
        return {
            rule_id: {uri for end, uri in self.matched if end in known.ends} for rule_id, known in self.rules.items()
        }

    def evaluated(self) -> dict[int, set[str]]:
        """By the process that did not act last."""
        other = self.processes[1 - self.acting]
        return {rule_id: set(other.results_of(rule_id)) for rule_id in self.rules}

    def wanted(self) -> dict[int, set[str]]:
        named = {known.name: known.parsed for known in self.rules.values() if known.name}
        world = World(self.schema, frozenset().union(*self.store.values()), named)
        return {rule_id: world.registered(known.parsed) for rule_id, known in self.rules.items()}

    # -- which rules may search which

    def searchable(self, name: str | None, beside: Sequence[str | None] = ()) -> list[str]:
        taken = {known.name for known in self.rules.values()} | set(beside)
        earlier = NAMES[:3] if name is None else NAMES[: NAMES.index(name)]
        return [other for other in earlier if other in taken]

    def searched(self, ids: Sequence[int]) -> bool:
        """Whether a rule that is not among them searches one of them."""
        names = {self.rules[rule_id].name for rule_id in ids}
        return any(names & known.written.searches for rule_id, known in self.rules.items() if rule_id not in ids)

    def draw_rule(self, data: st.DataObject, name: str | None, beside: Sequence[str | None] = ()) -> RuleText:
        return data.draw(rule_texts(self.searchable(name, beside), small=name is not None))


SMALL = DOCUMENTS[1:]
"""The first document, which says most, is changed rather than replaced: else there would soon be little to match."""
BATCHES = st.dictionaries(st.sampled_from(SMALL), contents() | st.none(), min_size=1, max_size=3)
PROCESS = st.sampled_from([0, 1])


class FilterMachine(RuleBasedStateMachine):
    def __init__(self, system: System) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.model = Follower(self.stack.enter_context(system()))

    def teardown(self) -> None:
        self.stack.close()

    @initialize(population=populations(), data=st.data())
    def begin(self, population: Said, data: st.DataObject) -> None:
        self.model.put({DOCUMENTS[0]: population})
        self.model.add([(name, self.model.draw_rule(data, name)) for name in (NAMES[0], None, None)])
        self.model.check()

    # -- documents

    def there(self, batch: Batch) -> dict[str, Said | None]:
        """Without the deletion of what is not registered."""
        return {uri: said for uri, said in batch.items() if said is not None or uri in self.model.store}

    @rule(process=PROCESS, uri=st.sampled_from(SMALL), said=contents())
    def register_one(self, process: int, uri: str, said: Said) -> None:
        self.step(process, lambda: self.model.put({uri: said}))

    @rule(process=PROCESS, batch=BATCHES)
    def register_some_and_delete_some_at_once(self, process: int, batch: Batch) -> None:
        if there := self.there(batch):
            self.step(process, lambda: self.model.put(there))

    @rule(process=PROCESS, batch=BATCHES)
    def register_some_and_delete_some_one_by_one(self, process: int, batch: Batch) -> None:
        for uri, said in self.there(batch).items():
            self.step(process, lambda uri=uri, said=said: self.model.put({uri: said}))  # type: ignore[misc]

    @precondition(lambda self: self.model.store)
    @rule(process=PROCESS, data=st.data())
    def change_values(self, process: int, data: st.DataObject) -> None:
        """Of properties that rules speak of, and of types."""
        texts = "".join(known.written.text for known in self.model.rules.values()) + "type"
        spoken = [(uri, s) for uri, s in self.said() if s.property.rpartition("/")[2].rpartition("#")[2] in texts]
        drawn = data.draw(st.lists(st.sampled_from(spoken or self.said()), min_size=1, max_size=4, unique=True))
        new = [s._replace(object=data.draw(st.sampled_from(values_of(s.property)))) for _, s in drawn]
        changed = {uri: [(o, n) for (u, o), n in zip(drawn, new, strict=True) if u == uri] for uri, _ in drawn}
        batch = {uri: self.with_changes(uri, {o for o, _ in c}, [n for _, n in c]) for uri, c in changed.items()}
        self.step(process, lambda: self.model.put(batch))

    @precondition(lambda self: self.model.store)
    @rule(process=PROCESS, data=st.data(), more=contents(most=1))
    def say_more_and_less(self, process: int, data: st.DataObject, more: Said) -> None:
        uri = data.draw(st.sampled_from(sorted(self.model.store)))
        less = data.draw(st.sets(st.sampled_from(in_order(self.model.store[uri])), max_size=3))
        self.step(process, lambda: self.model.put({uri: self.with_changes(uri, less, in_order(more))}))

    @precondition(lambda self: self.model.store)
    @rule(process=PROCESS, data=st.data())
    def describe_a_resource_no_more(self, process: int, data: st.DataObject) -> None:
        """Nowhere: every document that described it is registered again without it, or deleted."""
        subject = data.draw(st.sampled_from(sorted({statement.subject for _, statement in self.said()})))
        left = {u: frozenset(s for s in said if s.subject != subject) for u, said in self.model.store.items()}
        batch = {uri: said or None for uri, said in left.items() if said != self.model.store[uri]}
        self.step(process, lambda: self.model.put(batch))

    @precondition(lambda self: self.model.store)
    @rule(process=PROCESS, data=st.data())
    def move_statements_to_another_document(self, process: int, data: st.DataObject) -> None:
        source = data.draw(st.sampled_from(sorted(self.model.store)))
        target = data.draw(st.sampled_from([uri for uri in DOCUMENTS if uri != source]))
        said = in_order(self.model.store[source])
        moved = data.draw(st.lists(st.sampled_from(said), min_size=1, max_size=6, unique=True))
        rest = self.model.store[source] - set(moved)
        batch = {source: rest or None, target: self.with_changes(target, set(), moved)}
        self.step(process, lambda: self.model.put(batch))

    @precondition(lambda self: self.model.store)
    @rule(process=PROCESS, data=st.data())
    def register_the_same_again(self, process: int, data: st.DataObject) -> None:
        uri = data.draw(st.sampled_from(sorted(self.model.store)))
        before = self.model.position()
        self.step(process, lambda: self.model.put({uri: self.model.store[uri]}))
        assert self.model.position() == before

    @precondition(lambda self: self.model.store)
    @rule(process=PROCESS, data=st.data())
    def delete(self, process: int, data: st.DataObject) -> None:
        uri = data.draw(st.sampled_from(sorted(self.model.store)))
        self.step(process, lambda: self.model.put({uri: None}))

    def said(self) -> list[tuple[str, Statement]]:
        return [(uri, statement) for uri in sorted(self.model.store) for statement in in_order(self.model.store[uri])]

    def with_changes(self, uri: str, less: set[Statement], more: Iterable[Statement]) -> Said:
        """What is new comes first, so that it wins where only one value may be."""
        return lawful([*more, *in_order(self.model.store.get(uri, frozenset()) - less)])

    # -- rules

    @precondition(lambda self: len(self.model.rules) < MOST_RULES)
    @rule(process=PROCESS, data=st.data(), number=st.sampled_from([1, 1, 2, 3]))
    def add_rules(self, process: int, data: st.DataObject, number: int) -> None:
        taken = {known.name for known in self.model.rules.values()}
        free = [name for name in NAMES if name not in taken]
        names: list[str | None] = data.draw(st.permutations([*free[:2], None, None, None]))[:number]
        drafts = [(name, self.model.draw_rule(data, name, names)) for name in names]
        self.step(process, lambda: self.model.add(drafts))

    @precondition(lambda self: 0 < len(self.model.rules) < MOST_RULES)
    @rule(process=PROCESS, data=st.data())
    def add_the_same_text_again(self, process: int, data: st.DataObject) -> None:
        known = data.draw(st.sampled_from(list(self.model.rules.values())))
        self.step(process, lambda: self.model.add([(None, known.written)]))

    @precondition(lambda self: 0 < len(self.model.rules) < MOST_RULES)
    @rule(process=PROCESS, data=st.data(), number=st.sampled_from([1, 2, 4]))
    def add_rules_that_differ_in_their_constants(self, process: int, data: st.DataObject, number: int) -> None:
        known = data.draw(st.sampled_from(list(self.model.rules.values())))
        drafts = [(None, data.draw(variants(known.written))) for _ in range(number)]
        self.step(process, lambda: self.model.add(drafts))

    @precondition(lambda self: len(self.model.rules) > 1)
    @rule(process=PROCESS, data=st.data())
    def remove_rules(self, process: int, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.model.rules)), min_size=1, max_size=3, unique=True))
        if self.model.searched(ids):
            self.refused(process, lambda mdp: mdp.remove_rules(ids))
        else:
            self.step(process, lambda: self.model.remove(ids))

    @precondition(lambda self: self.model.rules)
    @rule(process=PROCESS, data=st.data())
    def change_a_rule(self, process: int, data: st.DataObject) -> None:
        """To another, or to the same with other constants; and what searches it follows."""
        rule_id = data.draw(st.sampled_from(sorted(self.model.rules)))
        known = self.model.rules[rule_id]
        same = data.draw(st.booleans())
        written = data.draw(variants(known.written)) if same else self.model.draw_rule(data, known.name)
        self.step(process, lambda: self.model.change(rule_id, written))

    @rule(process=PROCESS, data=st.data())
    def add_a_rule_beside_a_bad_one(self, process: int, data: st.DataObject) -> None:
        texts = [self.model.draw_rule(data, None).text, "search Nothing n register n"]
        self.refused(process, lambda mdp: mdp.add_rules(texts), InvalidRule)

    # -- carrying out

    def step(self, process: int, act: Callable[[], object]) -> None:
        self.model.acting = process
        act()
        self.model.check()

    def refused(self, process: int, act: Callable[[Mdp], object], error: type[MdvError] = MdvError) -> None:
        """And nothing is otherwise afterwards, neither stored nor remembered."""
        self.model.acting = process
        before = self.model.position()
        with pytest.raises(error):
            act(self.model.mdp)
        assert self.model.position() == before
        self.model.check()


def search(system: System, examples: int = EXAMPLES, **options: Any) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    profile = settings(max_examples=examples, stateful_step_count=STEPS, deadline=None, suppress_health_check=checks,
                       report_multiple_bugs=False, **options)  # fmt: skip
    run_state_machine_as_test(lambda: FilterMachine(system), settings=profile)


def test_filter_agrees_with_the_oracle(system: System) -> None:
    search(system, phases=[Phase.reuse, Phase.generate])


def test_new_rules_agree_with_the_oracle_if_they_are_evaluated_as_many(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdv.mdp.evaluate.FEW", 0)
    search(system, phases=[Phase.reuse, Phase.generate])


# -- metamorphic: how things arrive changes nothing


Event: TypeAlias = tuple[str, Said] | RuleText


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[Event], list[list[list[Event]]]]:
    """Documents and rules, and a few ways in which they may arrive: in some order, cut into batches of one kind."""
    documents = {DOCUMENTS[0]: draw(populations()), **{uri: draw(contents()) for uri in DOCUMENTS[1:3]}}
    rules = draw(st.lists(rule_texts(), min_size=2, max_size=4))
    orders = [[*documents.items(), *rules], [*rules, *documents.items()]]
    orders += [draw(st.permutations(orders[0])) for _ in range(2)]
    return orders[0], [_cut(order, size) for order, size in zip(orders, (9, 1, 2, 1), strict=True)]


def _cut(order: Sequence[Event], most: int) -> list[list[Event]]:
    batches: list[list[Event]] = []
    for event in order:
        fits = (
            batches and len(batches[-1]) < most and isinstance(batches[-1][0], RuleText) is isinstance(event, RuleText)
        )
        batches[-1].append(event) if fits else batches.append([event])
    return batches


@settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.reuse, Phase.generate],
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])  # fmt: skip
@given(arriving=arrivals())
def test_order_and_batches_change_no_result(
    system: System, arriving: tuple[list[Event], list[list[list[Event]]]]
) -> None:
    everything, ways = arriving
    results = []
    for way in ways:
        with system() as processes:
            model = Follower(processes)
            for number, batch in enumerate(way):
                model.acting = number % 2
                if isinstance(batch[0], RuleText):
                    model.add([(None, written) for written in batch])
                else:
                    model.put(dict(batch))
            model.check()
            followed = model.followed()
            results.append({known.written.text: followed[rule_id] for rule_id, known in model.rules.items()})
    assert all(result == results[0] for result in results)
    assert set(results[0]) == {event.text for event in everything if isinstance(event, RuleText)}


# -- mutants: each is a mistake that the machine must notice


def _forget_losses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("mdv.mdp.filter.chain", lambda gains, losses: gains)


def _skip_the_old_state(patch: pytest.MonkeyPatch) -> None:
    """3.5 without its first pass: what matches now is new, and nothing is ever lost."""
    nothing = select(filter_data).where(false())
    patch.setattr("mdv.mdp.groups.statements_before", lambda: nothing.subquery())


def _skip_the_new_state(patch: pytest.MonkeyPatch) -> None:
    """3.5 without its second pass: every candidate is taken for lost, though it may still match."""
    patch.setattr(compile_, "without", lambda some, others: select(some))


def _forget_referrers(patch: pytest.MonkeyPatch) -> None:
    """What changed is looked at, and not what refers to it."""
    nothing = select(resources.c.id).where(false())
    patch.setattr(compile_, "_upward", lambda *rest: nothing)


def _forget_what_the_value_was(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("mdv.mdp.groups.statements_either", statements_now)


def _believe_partners(patch: pytest.MonkeyPatch) -> None:
    """A partner is found by one predicate, and the others are not asked."""
    patch.setattr(compile_.Conditions, "tie", lambda self, tie: true())


def _believe_branches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compile_.Conditions, "branch", lambda self, child: true())


def _forget_subproperties(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("mdv.query.names._below", lambda iri, declared, closure: (iri,))


MUTANTS: list[tuple[str, Callable[[pytest.MonkeyPatch], None]]] = [
    ("losses change nothing", _forget_losses),
    ("the old state is not looked at", _skip_the_old_state),
    ("candidates are not looked at again", _skip_the_new_state),
    ("referrers of what changed are forgotten", _forget_referrers),
    ("the value that was leads nowhere", _forget_what_the_value_was),
    ("further predicates between two variables are not asked", _believe_partners),
    ("partners are not verified", _believe_branches),
    ("what is below a class or property does not count", _forget_subproperties),
]
"""A mistake in words, and how it is made."""


@pytest.mark.parametrize(("mistake", "mutate"), MUTANTS, ids=[mistake for mistake, _ in MUTANTS])
def test_machine_notices_when(
    mistake: str, mutate: Callable[[pytest.MonkeyPatch], None], system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        search(system, 200, phases=[Phase.generate], derandomize=True, database=None)
