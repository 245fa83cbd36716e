"""Questions to peers and superpeers. They only read, can be repeated, and are lost with the process: the reaction that
needs the answers asks again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from mdv.federation.conditions import united, without_arcs
from mdv.federation.fragment import CommittedChange, FoundTerm, StepQuestion
from mdv.federation.messages import AskEvent, AskSteps
from mdv.federation.privileges import privilege_on
from mdv.federation.relevance import schema_node
from mdv.federation.routing import Router
from mdv.federation.superpeer_state import SuperpeerState
from mdv.model import Statement, Term
from mdv.rdf.schema import Schema
from mdv.rdftl.cells import MEMBERSHIP
from mdv.rdftl.model import Delta, Event

REPEAT_SECONDS = 5.0
ASK_SECONDS = 30.0
"""After this time, a site that has not answered is left out, like one without the data."""

StepsDone = Callable[[Mapping[StepQuestion, frozenset[FoundTerm]]], None]
EventDone = Callable[[tuple[Delta, ...]], None]


@dataclass
class _Ask:
    """A message that was sent and not answered. `superpeer`: None if it is for a peer."""

    message: AskSteps | AskEvent
    peer: str | None
    superpeer: str | None
    first: float
    last: float
    done: Callable[[tuple[frozenset[FoundTerm], ...] | tuple[Delta, ...]], None]


class OpenQuestions:
    """The questions of a superpeer that are not answered."""

    def __init__(self, state: SuperpeerState, router: Router, schema: Schema) -> None:
        self.state, self.router, self.schema = state, router, schema
        self._asks: dict[str, _Ask] = {}

    @property
    def has_open(self) -> bool:
        """True if a question was not answered."""
        return bool(self._asks)

    # Steps

    def ask_steps(self, questions: Collection[StepQuestion], now: float, everywhere: bool, done: StepsDone) -> None:
        """Ask all sites where the answers may be, and unite them. `everywhere`: also other superpeers."""
        sites: dict[tuple[str | None, str | None], list[StepQuestion]] = defaultdict(list)
        for question in sorted(questions, key=repr):
            for peer in self.peers_for(question):
                sites[peer, None].append(question)
            for other in self.superpeers_for(question) if everywhere else ():
                sites[None, other].append(question)
        found: dict[StepQuestion, list[frozenset[FoundTerm]]] = {question: [] for question in questions}
        left = len(sites)

        def collect(asked: Collection[StepQuestion], answers: Iterable[frozenset[FoundTerm]]) -> None:
            nonlocal left
            for question, answer in zip(asked, answers, strict=False):
                found[question].append(answer)
            left -= 1
            if not left:
                done({question: united(some) for question, some in found.items()})

        if not left:
            done({question: frozenset() for question in questions})
        for (site, superpeer), some in sites.items():
            message = AskSteps(self.state.next_id(), tuple(some))
            self._send(message, site, superpeer, now, lambda given, some=some: collect(some, given))  # type: ignore[misc]

    def peers_for(self, question: StepQuestion) -> list[str]:
        """Return the own peers that may know an answer, by the annotated schema and the resource index."""
        peers = self.state.index.peers_with(node_of(question))
        term = question.term
        if term is None or not term.is_uri:
            return peers
        return [peer for peer in peers if self.state.index.knows(peer, term.value)]

    def superpeers_for(self, question: StepQuestion) -> list[str]:
        """Return the other superpeers that may know an answer, by their presence."""
        node = node_of(question)
        return sorted(
            name
            for name, nodes in self.state.superpeers().items()
            if (node in nodes if node is not None else nodes)
        )  # fmt: skip

    def answer(self, ask: AskSteps, now: float, done: Callable[[tuple[frozenset[FoundTerm], ...]], None]) -> None:
        """Answer a question of another superpeer for the own peer group, except for private parts."""

        def share(answers: Mapping[StepQuestion, frozenset[FoundTerm]]) -> None:
            public = {question: self._public_part(found) for question, found in answers.items()}
            done(tuple(public[question] for question in ask.questions))

        self.ask_steps(set(ask.questions), now, everywhere=False, done=share)

    def _public_part(self, found: frozenset[FoundTerm]) -> frozenset[FoundTerm]:
        """Return the answers that other superpeers may read."""
        return without_arcs([one for one in found if self._is_readable(one)])

    def _is_readable(self, found: FoundTerm) -> bool:
        arc = found.arc or Statement(found.term.value, "", Term.uri(""))
        classes = self.state.index.classes_of(arc.subject)
        return privilege_on(arc, classes, self.state.grants, self.schema).reads

    # Events

    def ask_event(
        self, peer: str, event: Event, strict: bool, change: CommittedChange, now: float, done: EventDone
    ) -> None:
        """Ask the peer where a change happened for the instantiations of `$delta`."""
        message = AskEvent(self.state.next_id(), event, strict, change)
        self._send(message, peer, None, now, done)  # type: ignore[arg-type]

    # Answers

    def _send(
        self,
        message: AskSteps | AskEvent,
        peer: str | None,
        superpeer: str | None,
        now: float,
        done: Callable[[tuple[frozenset[FoundTerm], ...] | tuple[Delta, ...]], None],
    ) -> None:
        self._asks[message.id] = ask = _Ask(message, peer, superpeer, now, now, done)
        self._deliver(ask)

    def _deliver(self, ask: _Ask) -> None:
        if ask.peer is not None:
            self.router.send(ask.peer, ask.message)
        elif ask.superpeer is not None and isinstance(ask.message, AskSteps):
            self.router.route(ask.superpeer, ask.message)

    def answered(self, id_: str, given: tuple[frozenset[FoundTerm], ...] | tuple[Delta, ...]) -> None:
        """Take an answer. One that came before, or to a question of before the last start, is ignored."""
        ask = self._asks.pop(id_, None)
        if ask is not None:
            ask.done(given)

    def without_site(self, name: str) -> None:
        """Wait no longer for a site that has left."""
        for id_, ask in list(self._asks.items()):
            if name in (ask.peer, ask.superpeer):
                self.answered(id_, ())

    def expire(self, now: float) -> None:
        """Repeat old questions. Leave out the sites that have not answered in time."""
        for id_, ask in list(self._asks.items()):
            if now - ask.first >= ASK_SECONDS:
                self.answered(id_, ())
            elif now - ask.last >= REPEAT_SECONDS:
                ask.last = now
                self._deliver(ask)


def node_of(question: StepQuestion) -> str | None:
    """Return the schema node that a site must have data of to know an answer; None for any."""
    if question.axis == "element":
        return MEMBERSHIP
    return schema_node(question.property) if question.property is not None else None
