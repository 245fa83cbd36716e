"""A state machine of event-condition-action rules against the naive oracle.

Random registrations, deletions, batches, updates and compensations, under rules of all coupling modes and abort
dependencies that are added and removed, by two processes on one database. After each step these agree: documents, which
rules are quarantined, how many runs are stored, and the cache of an LMR.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from mdv.db.eca.rules import list_eca_rules
from mdv.errors import InvalidRule, MdvError, Refused
from mdv.mdp.eca.change_rules import EcaDraft, add_rules, remove_rule
from mdv.mdp.eca.compensate import CompensationRequest, compensate_run
from mdv.mdp.eca.refusals import record_refusal
from mdv.mdp.eca.run import RunLimits
from mdv.mdp.provider import Provider
from mdv.mdp.register import Prepared, prepared, register
from mdv.model import Document, Statement
from mdv.rdftl.model import Action, Coupling, EcaRule
from mdv.rdftl.write import write_update
from mdv.rules.parse import parse
from tests.support import rdftl_oracle as oracle
from tests.support import rdftl_worlds as worlds
from tests.support.eca_comparison import normal, read_documents, reread_update
from tests.support.eca_history import NaiveProvider
from tests.support.eca_system import UPDATES, submit, work
from tests.support.feed_follower import new_copy
from tests.support.mdp import Mdp
from tests.support.rdftl_calls import ACTION_STATEMENTS, ACTIONS_DOCUMENT, with_calls
from tests.support.rule_oracle import World
from tests.support.two_processes import System

LIMITS = RunLimits(60, 40, 60, 60)
MOST_RULES = 6
SUBSCRIPTIONS = (
    "search Book b register b",
    "search Agent a register a where a.name = 'a'",
    "search rdfs:Resource r register r where r.rating? > 1",
)
Batch = dict[str, frozenset[Statement] | None]


class EcaModel:
    """Two processes of a provider, the naive provider, and an LMR."""

    def __init__(self, processes: list[Mdp]) -> None:
        self.processes, self.acting = processes, 0
        self.mdp.put_schema(worlds.SCHEMA_TEXT)
        for process in processes:
            process.provider = Provider(process.engine, run_limits=LIMITS)
        with self.mdp.engine.connect() as connection:
            self.schema = self.mdp.schemas.now(connection).schema
        self.naive = NaiveProvider(self.schema, oracle.Limits(LIMITS.steps, LIMITS.depth))
        self.lmr = self.mdp.create_lmr("near")
        self.mdp.subscribe(self.lmr, *SUBSCRIPTIONS)
        self.copy = new_copy()
        self.put({ACTIONS_DOCUMENT: ACTION_STATEMENTS})

    @property
    def mdp(self) -> Mdp:
        return self.processes[self.acting]

    def add(self, one: EcaRule) -> None:
        try:
            ((again, text),) = normal({0: one}, self.schema).values()
        except InvalidRule:
            return
        with self.mdp.engine.begin() as connection:
            (added,) = add_rules(connection, EcaDraft(text), self.mdp.provider)
        self.naive.rules[added.id] = again

    def remove(self, number: int) -> None:
        with self.mdp.engine.begin() as connection:
            remove_rule(connection, str(number), self.mdp.provider)
        del self.naive.rules[number]

    def put(self, batch: Batch) -> None:
        """Register and delete documents, as one batch. Then run what was queued."""
        changed = {uri: said for uri, said in batch.items() if said != self.naive.documents.get(uri)}
        results = self._register([self._prepared(uri, said) for uri, said in changed.items()])
        for (uri, said), result in zip(changed.items(), results, strict=True):
            done = self.naive._run(oracle.Registration(uri, said), None)
            assert done is not isinstance(result, MdvError), (uri, result)
        work(self.mdp)
        self.naive.drain()

    def _register(self, items: Sequence[Prepared]) -> list[object]:
        with self.mdp.engine.begin() as connection:
            savepoint = connection.begin_nested()
            try:
                found: list[object] = [*register(connection, items, self.mdp.provider)]
                savepoint.commit()
            except Refused as error:
                savepoint.rollback()
                assert len(items) == 1
                found = [record_refusal(connection, error, self.mdp.provider)]
        return found

    def _prepared(self, uri: str, said: frozenset[Statement] | None) -> Prepared:
        with self.mdp.engine.connect() as connection:
            schema = self.mdp.schemas.now(connection)
        return (
            Prepared(uri, None, schema.version)
            if said is None
            else prepared(Document(uri, tuple(sorted(said))), schema)
        )

    def update(self, actions: Sequence[Action]) -> None:
        try:
            again = reread_update(actions, self.schema)
        except InvalidRule:
            return
        submit(self.mdp, "update", UPDATES, write_update(again, self.schema))
        work(self.mdp)
        self.naive.transact(again)

    def compensate(self, index: int) -> None:
        ids = self.run_ids()
        with self.mdp.engine.begin() as connection:
            compensate_run(connection, CompensationRequest(ids[index]), self.mdp.provider)
        work(self.mdp)
        self.naive.compensate(self.naive.kept[index])

    def run_ids(self) -> list[int]:
        """Return the runs of transactions that were not refused, in order."""
        sql = "select id from eca_runs where outcome <> 'refused' and cause <> 'compensation' order by id"
        return [number for (number,) in self.mdp.rows(sql)]

    def check(self) -> None:
        other = self.processes[1 - self.acting]
        with other.engine.connect() as connection:
            documents = read_documents(connection)
            states = {one.id: one.state for one in list_eca_rules(connection)}
        assert documents == self.naive.documents
        stopped = self.naive.quarantined
        assert states == {n: "quarantined" if n in stopped else "active" for n in self.naive.rules}
        assert len(self.run_ids()) == len(self.naive.kept)
        assert other.rows("select id from jobs where state = 'queued'") == []
        self._check_cache()

    def _check_cache(self) -> None:
        is_complete = False
        while not is_complete:
            page = json.loads(self.mdp.feeds.read(self.lmr, self.copy.cursor).text)
            self.copy.apply(page)
            is_complete = page["up_to_date"]
        every = frozenset().union(*self.naive.documents.values())
        world = World(self.schema, every, {})
        selected = set().union(*(world.registered(parse(text)) for text in SUBSCRIPTIONS))
        assert self.copy.selected == selected
        for uri in selected:
            held = {(name, *sorted(value.items())) for name, value in self.copy.resources[uri]}
            assert held == {
                (one.property, *sorted(one.object.as_dict().items())) for one in every if one.subject == uri
            }


@st.composite
def coupled_rules(draw: st.DrawFn) -> EcaRule:
    """A rule of any coupling mode, without a name, that may call an action of ReAL."""
    detached = draw(st.integers(0, 2)) == 0
    made = replace(draw(worlds.rules(strict=True)), name=None, precedes=())
    if not detached and draw(st.booleans()):
        made = replace(made, actions=draw(with_calls(made.actions, delta=True)))
    return replace(made, coupling=Coupling.DETACHED) if detached else made


@st.composite
def updates(draw: st.DrawFn) -> tuple[Action, ...]:
    """The actions of an update, with a call now and then."""
    actions = draw(worlds.schedules())
    return draw(with_calls(actions, delta=False)) if draw(st.integers(0, 3)) == 0 else actions


PROCESS = st.sampled_from([0, 1])


class EcaMachine(RuleBasedStateMachine):
    def __init__(self, system: System) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.model = EcaModel(self.stack.enter_context(system()))

    def teardown(self) -> None:
        with self.stack:
            self.model.check()

    @rule(process=PROCESS, uri=st.sampled_from(worlds.DOCUMENTS), said=worlds.contents() | st.none())
    def register_or_delete(self, process: int, uri: str, said: frozenset[Statement] | None) -> None:
        self.put(process, {uri: said})

    @rule(process=PROCESS, first=worlds.contents() | st.none(), second=worlds.contents())
    def register_a_batch(self, process: int, first: frozenset[Statement] | None, second: frozenset[Statement]) -> None:
        self.put(process, dict(zip(worlds.DOCUMENTS, (first, second), strict=True)))

    def put(self, process: int, batch: Batch) -> None:
        self.model.acting = process
        there = self.model.naive.documents
        if batch := {uri: said for uri, said in batch.items() if said is not None or uri in there}:
            self.model.put(batch)
            self.model.check()

    @rule(
        process=PROCESS, actions=worlds.schedules() | worlds.schedules().flatmap(lambda some: with_calls(some, False))
    )
    def update(self, process: int, actions: tuple[Action, ...]) -> None:
        self.model.acting = process
        self.model.update(actions)
        self.model.check()

    @precondition(lambda self: len(self.model.naive.rules) < MOST_RULES)
    @rule(process=PROCESS, one=coupled_rules(), other=coupled_rules())
    def add_rules(self, process: int, one: EcaRule, other: EcaRule) -> None:
        self.model.acting = process
        self.model.add(one)
        self.model.add(other)

    @precondition(lambda self: self.model.naive.rules)
    @rule(process=PROCESS, data=st.data())
    def remove_a_rule(self, process: int, data: st.DataObject) -> None:
        self.model.acting = process
        self.model.remove(data.draw(st.sampled_from(sorted(self.model.naive.rules))))

    @precondition(lambda self: self.model.naive.kept)
    @rule(process=PROCESS, data=st.data())
    def compensate(self, process: int, data: st.DataObject) -> None:
        self.model.acting = process
        self.model.compensate(data.draw(st.integers(0, len(self.model.naive.kept) - 1)))
        self.model.check()
