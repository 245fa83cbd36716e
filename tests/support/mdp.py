"""A metadata provider for tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine

from mdv.db.lmrs import Lmr
from mdv.db.vocabulary import Vocabulary
from mdv.errors import MdvError
from mdv.feed import FeedPage
from mdv.mdp.eca.slow_rules import RuleTimedOut
from mdv.mdp.feed import FeedReader
from mdv.mdp.filter import read_match_changes
from mdv.mdp.lmrs import create_lmr
from mdv.mdp.provider import Provider
from mdv.mdp.put_schema import SchemaOutcome, put_schema
from mdv.mdp.register import Preconditions, Prepared, RegistrationOutcome, prepare, register
from mdv.mdp.rule_cache import RuleCache, RuleOverBudget
from mdv.mdp.rules.operations import AddRules, ChangeRule, RemoveRules, Result, RuleOperation, carry_out
from mdv.mdp.rules.planning import AddedRule, RuleDraft
from mdv.mdp.rules.results import results_of
from mdv.mdp.rules.suspend import suspend_over_budget, suspend_rules
from mdv.mdp.schemas import SchemaCache, read_schema_document
from mdv.mdp.subscribe import Subscription, change_subscription, resume_subscription, subscribe, unsubscribe


class Mdp:
    """A metadata provider for tests: documents as Turtle in, answers and stored rows out."""

    PREFIXES = (
        "@prefix : <http://v/> . @prefix mdv: <urn:mdv:schema#> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> ."
        " @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> ."
        " @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
    )

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.provider = Provider(engine)
        self.feeds = FeedReader(engine, self.vocabulary)

    @property
    def schemas(self) -> SchemaCache:
        return self.provider.schemas

    @property
    def vocabulary(self) -> Vocabulary:
        return self.provider.vocabulary

    @property
    def rules(self) -> RuleCache:
        return self.provider.rules

    def put_schema(self, turtle: str, media_type: str = "text/turtle") -> SchemaOutcome:
        document = read_schema_document((self.PREFIXES + turtle).encode(), media_type)
        with self.engine.begin() as connection:
            return put_schema(connection, document, self.provider)

    def prepare(self, uri: str, turtle: str | None, **conditions: Any) -> Prepared:
        with self.engine.connect() as connection:
            schema = self.schemas.now(connection)
        if turtle is None:
            return Prepared(uri, None, schema.version, Preconditions(**conditions))
        return prepare(uri, (self.PREFIXES + turtle).encode(), "text/turtle", schema, Preconditions(**conditions))

    def register_batch(self, batch: Sequence[Prepared]) -> list[RegistrationOutcome | MdvError]:
        """Suspend rules that take too long, as a worker does."""
        while True:
            try:
                with self.engine.begin() as connection:
                    return register(connection, batch, self.provider)
            except RuleOverBudget as error:
                suspend_over_budget(error, self.provider)
            except RuleTimedOut as error:
                self.provider.slow_rules.note(error)

    def put(self, documents: dict[str, str | None]) -> list[RegistrationOutcome | MdvError]:
        """Register (or, None, delete) documents in one transaction."""
        return self.register_batch([self.prepare(uri, turtle) for uri, turtle in documents.items()])

    def put_one(self, uri: str, turtle: str | None, **conditions: Any) -> RegistrationOutcome:
        """Register or delete one document; raise its error."""
        (answer,) = self.register_batch([self.prepare(uri, turtle, **conditions)])
        if isinstance(answer, MdvError):
            raise answer
        return answer

    def add_rules(self, drafts: Sequence[str | tuple[str, str]], owner: int = 1) -> list[AddedRule]:
        """Add rules, given as text or as name and text."""
        named = [(None, draft) if isinstance(draft, str) else draft for draft in drafts]
        with self.engine.begin() as connection:
            ready = [RuleDraft(owner, name, text) for name, text in named]
            return self.carry_out(connection, AddRules(ready))

    def change_rule(self, rule_id: int, text: str) -> AddedRule:
        with self.engine.begin() as connection:
            return self.carry_out(connection, ChangeRule(rule_id, text))

    def remove_rules(self, ids: Sequence[int]) -> int:
        with self.engine.begin() as connection:
            return self.carry_out(connection, RemoveRules(ids))

    def carry_out(self, connection: Connection, change: RuleOperation[Result]) -> Result:
        return carry_out(connection, change, self.provider)

    def suspend(self, ids: Sequence[int], reason: str = "It was too slow.") -> int:
        with self.engine.begin() as connection:
            return suspend_rules(connection, ids, reason, 2.0, self.provider)

    def create_lmr(self, name: str) -> Lmr:
        with self.engine.begin() as connection:
            return create_lmr(connection, name)[0]

    def subscribe(self, lmr: Lmr, *drafts: str | tuple[str, str]) -> list[Subscription]:
        """Subscribe rules, given as text or as name and text."""
        named = [(None, draft) if isinstance(draft, str) else draft for draft in drafts]
        with self.engine.begin() as connection:
            return subscribe(connection, lmr, named, self.provider)

    def change_subscription(self, lmr: Lmr, number: int, text: str) -> Subscription:
        with self.engine.begin() as connection:
            return change_subscription(connection, lmr, number, text, self.provider)

    def unsubscribe(self, lmr: Lmr, *numbers: int) -> int:
        with self.engine.begin() as connection:
            return int(unsubscribe(connection, lmr, numbers, self.provider)["position"])

    def resume(self, lmr: Lmr, number: int) -> Subscription:
        with self.engine.begin() as connection:
            return resume_subscription(connection, lmr, number, self.provider)

    def feed(self, lmr: Lmr, after: str | None = None, limit: int = 1000) -> FeedPage:
        """Return a page of an LMR's feed, as the LMR reads it."""
        return FeedPage.from_dict(json.loads(self.feeds.read(lmr, after, limit).text))

    def changes(self) -> list[tuple[int, str, bool]]:
        """Return the last transaction's changes for rules: end rule, resource, and True if it matches now."""
        with self.engine.connect() as connection:
            return read_match_changes(connection)

    def ends_of(self, rule_id: int) -> set[int]:
        return {end for (end,) in self.rows("select end_id from rule_ends where rule_id = :id", id=rule_id)}

    def results_of(self, rule_id: int) -> set[str]:
        """Return the resources that a rule registers now, by full evaluation."""
        with self.engine.connect() as connection:
            return results_of(connection, rule_id, self.provider)

    def rows(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sqlalchemy.text(sql), values)]

    def one(self, sql: str, **values: Any) -> Any:
        ((value,),) = self.rows(sql, **values)
        return value

    def run(self, sql: str) -> None:
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.text(sql))
