"""The rules of a superpeer: spread to all, stored where e-relevant, annotated with peers, pulled after growth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mdv.federation.messages import FederatedRule, GrownAnswer, GrownQuery, LateRules, RuleEnded, RuleMessage
from mdv.federation.relevance import RuleNodes, nodes_of_rule
from mdv.federation.routing import Router
from mdv.federation.superpeer_state import RulePull, SuperpeerState
from mdv.rdf.schema import Schema
from mdv.rdftl.model import EcaRule

PULL_SECONDS = 30.0
"""How long a growth waits for rules of superpeers that do not answer. They are stored when they arrive."""


class FederatedRules:
    """The rule base of a superpeer."""

    def __init__(self, state: SuperpeerState, router: Router, schema: Schema) -> None:
        self.state, self.router, self.schema = state, router, schema
        self._nodes: dict[str, RuleNodes] = {}

    def nodes_of(self, rule: FederatedRule) -> RuleNodes:
        found = self._nodes.get(rule.id)
        if found is None:
            found = self._nodes[rule.id] = nodes_of_rule(rule.rule, self.schema)
        return found

    # Registration

    def register(self, rule: EcaRule, now: float) -> FederatedRule:
        """Store a new rule, and send it to all superpeers."""
        state = self.state
        state.rule_count += 1
        added = FederatedRule(state.name, state.rule_count, rule, now, state.life)
        state.rules[added.id] = added
        self._annotate([added])
        self.router.flood(RuleMessage(added))
        return added

    def end(self, rule_id: str) -> None:
        """End a rule here and everywhere."""
        self.forget(rule_id)
        self.router.flood(RuleEnded(rule_id))

    def offer(self, rules: Iterable[FederatedRule]) -> None:
        """Store the rules of other superpeers that are e-relevant here."""
        state = self.state
        present = state.index.present()
        for rule in rules:
            if rule.id in state.ended or rule.id in state.rules or rule.origin == state.name:
                continue
            if rule.life < state.life_of(rule.origin):
                continue  # its superpeer was restored from a backup without it
            entry = state.presence.get(rule.origin)
            if (entry is None or entry.nodes is not None) and self.nodes_of(rule).is_e_relevant(present):
                state.rules[rule.id] = rule
                self._annotate([rule])

    def forget(self, rule_id: str) -> None:
        """Remove a rule that has ended. It does not come back with a late message."""
        self.state.ended.add(rule_id)
        self._remove(rule_id)

    def forget_origin(self, superpeer: str) -> None:
        """Remove the rules of a superpeer that has left."""
        for rule in [rule for rule in self.state.rules.values() if rule.origin == superpeer]:
            self._remove(rule.id)

    def origin_restored(self, superpeer: str) -> None:
        """Remove the rules of a superpeer that was restored: it sends again those that it has now."""
        self.forget_origin(superpeer)
        self.state.ended = {id_ for id_ in self.state.ended if id_.rpartition(".")[0] != superpeer}

    def restored(self) -> None:
        """Send all own rules again, and drop those of others, after this superpeer was restored."""
        state = self.state
        for rule in list(state.rules.values()):
            if rule.origin != state.name:
                self._remove(rule.id)
                continue
            state.rules[rule.id] = renewed = replace(rule, life=state.life)
            self.router.flood(RuleMessage(renewed))
        state.pulls.clear()

    def _remove(self, rule_id: str) -> None:
        self.state.rules.pop(rule_id, None)
        self.state.annotations.pop(rule_id, None)
        self._nodes.pop(rule_id, None)

    # Annotations

    def _annotate(self, rules: Iterable[FederatedRule]) -> None:
        for rule in rules:
            self.state.annotations[rule.id] = self.state.index.annotate(self.nodes_of(rule))

    def index_changed(self, nodes: frozenset[str], resources: frozenset[str]) -> None:
        """Renew the annotations after a change of these schema nodes and resources. Drop the rules of others that are
        no longer relevant."""
        state = self.state
        present = state.index.present() if nodes else frozenset[str]()
        for rule in list(state.rules.values()):
            found = self.nodes_of(rule)
            if nodes and rule.origin != state.name and not found.is_e_relevant(present):
                self._remove(rule.id)
            elif nodes or resources & (found.event_resources | found.action_resources):
                self._annotate([rule])

    def renew(self) -> None:
        """Renew all annotations."""
        nodes = frozenset(node for rule in self.state.rules.values() for node in self.nodes_of(rule).event)
        self.index_changed(nodes or frozenset(("",)), frozenset())

    # Growth

    def pull(self, nodes: frozenset[str], now: float) -> str | None:
        """Ask all superpeers for the rules that may be relevant now. Return the id of the query; None without
        neighbours."""
        state = self.state
        if not state.neighbours or not nodes:
            return None
        id_ = state.next_id()
        state.pulls[id_] = RulePull(None, set(state.neighbours), now + PULL_SECONDS)
        for neighbour in sorted(state.neighbours):
            self.router.send(neighbour, GrownQuery(id_, nodes))
        return id_

    def answer_query(self, query: GrownQuery, sender: str, now: float) -> None:
        """Answer a query with the rules of this superpeer and of those behind it. A second query is answered at once,
        so that rings end."""
        state = self.state
        if query.id in state.seen_queries or _asked_by(query.id) == state.name:
            self.router.send(sender, GrownAnswer(query.id, ()))
            return
        state.seen_queries.add(query.id)
        rules = {rule.id: rule for rule in state.rules.values() if self._may_matter(rule, query.nodes)}
        others = state.neighbours - {sender}
        state.pulls[query.id] = RulePull(sender, set(others), now + PULL_SECONDS, rules)
        for neighbour in sorted(others):
            self.router.send(neighbour, query)
        self._finish_if_answered(query.id)

    def _may_matter(self, rule: FederatedRule, nodes: frozenset[str]) -> bool:
        return self.nodes_of(rule).may_become_e_relevant(nodes)

    def take_answer(self, answer: GrownAnswer, sender: str) -> None:
        """Take over the rules of an answer, or collect them for the superpeer that asked."""
        pull = self.state.pulls.get(answer.id)
        if _asked_by(answer.id) == self.state.name:
            self.offer(answer.rules)
        elif pull is None and answer.rules:
            self.router.route(_asked_by(answer.id), LateRules(answer.rules))
        if pull is not None:
            pull.rules.update({rule.id: rule for rule in answer.rules})
            pull.waiting.discard(sender)
            self._finish_if_answered(answer.id)

    def _finish_if_answered(self, id_: str) -> None:
        pull = self.state.pulls[id_]
        if not pull.waiting:
            del self.state.pulls[id_]
            if pull.parent is not None:
                self.router.send(pull.parent, GrownAnswer(id_, tuple(pull.rules.values())))

    def without_neighbour(self, neighbour: str) -> None:
        """Wait no longer for a neighbour that has left."""
        for id_, pull in list(self.state.pulls.items()):
            pull.waiting.discard(neighbour)
            self._finish_if_answered(id_)

    def expire(self, now: float) -> None:
        """Wait no longer for neighbours that have not answered in time."""
        for id_, pull in list(self.state.pulls.items()):
            if pull.deadline <= now:
                pull.waiting.clear()
                self._finish_if_answered(id_)


def _asked_by(query_id: str) -> str:
    """Return the superpeer that made a query."""
    return query_id.rpartition(":")[0]
