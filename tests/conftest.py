"""Real servers for tests: one Postgres a test process, a copy of a migrated template database a test."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import Connection, Engine

from mdv.db.engine import make_engine
from mdv.db.lmrs import Lmr
from mdv.db.migrate import migrate
from mdv.db.vocabulary import Vocabulary
from mdv.embedded import Postgres, Valkey, start_postgres, start_valkey
from mdv.errors import MdvError
from mdv.feed import Page
from mdv.garbage import look_rarely
from mdv.mdp.feed import Feeds
from mdv.mdp.filter import read_changes
from mdv.mdp.put_schema import SchemaOutcome, put_schema
from mdv.mdp.register import Conditions, Outcome, Prepared, prepare, register
from mdv.mdp.rules import AddedRule, RuleDraft, Rules, add_rules, change_rule, remove_rules, results_of
from mdv.mdp.schemas import Schemas, read_schema_document
from mdv.mdp.subscribe import Subscription, change_subscription, create_lmr, subscribe, unsubscribe

collect_ignore_glob = ["conftest.py", "**/conftest.py"]
"""They hold fixtures, and no examples to be run."""

UNSAFE_AND_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "shared_buffers": "128MB"}

GUTENBERG = Path(__file__).parents[2] / "shared" / "data" / "gutenberg"
_numbers = itertools.count(1)


def pytest_collection_finish() -> None:
    """Thousands of tests are collected: looking through them for garbage again and again takes time."""
    look_rarely()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with start_postgres(tmp_path_factory.mktemp("pg") / "data", UNSAFE_AND_FAST) as running:
        yield running


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with start_valkey(tmp_path_factory.mktemp("valkey")) as running:
        yield running


@pytest.fixture(scope="session")
def template(postgres: Postgres) -> str:
    """The name of a database with all migrations, to copy from."""
    url = sqlalchemy.make_url(postgres.url).set(database="template_mdv")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("create database template_mdv")
    engine = make_engine(url.render_as_string(hide_password=False))
    migrate(engine)
    engine.dispose()
    return "template_mdv"


@pytest.fixture
def database_url(postgres: Postgres, template: str) -> Iterator[str]:
    """A database of the test's own."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"create database {name} template {template} strategy file_copy")
        yield sqlalchemy.make_url(postgres.url).set(database=name).render_as_string(hide_password=False)
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = make_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection:
        yield connection


class Mdp:
    """A metadata provider for tests: documents as Turtle in, answers and stored rows out."""

    PREFIXES = (
        "@prefix : <http://v/> . @prefix mdv: <urn:mdv:schema#> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> ."
        " @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> ."
        " @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
    )

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.schemas = Schemas()
        self.vocabulary = Vocabulary(engine)
        self.rules = Rules()
        self.feeds = Feeds(engine, self.vocabulary)

    def put_schema(self, turtle: str, media_type: str = "text/turtle") -> SchemaOutcome:
        document = read_schema_document((self.PREFIXES + turtle).encode(), media_type)
        with self.engine.begin() as connection:
            return put_schema(connection, document, self.schemas, self.vocabulary, self.rules)

    def prepare(self, uri: str, turtle: str | None, **conditions: Any) -> Prepared:
        with self.engine.connect() as connection:
            schema = self.schemas.now(connection)
        if turtle is None:
            return Prepared(uri, None, schema.version, Conditions(**conditions))
        return prepare(uri, (self.PREFIXES + turtle).encode(), "text/turtle", schema, Conditions(**conditions))

    def register_batch(self, batch: Sequence[Prepared]) -> list[Outcome | MdvError]:
        with self.engine.begin() as connection:
            return register(connection, batch, self.schemas, self.vocabulary, self.rules)

    def put(self, documents: dict[str, str | None]) -> list[Outcome | MdvError]:
        """Register (or, None, delete) documents in one transaction."""
        return self.register_batch([self.prepare(uri, turtle) for uri, turtle in documents.items()])

    def put_one(self, uri: str, turtle: str | None, **conditions: Any) -> Outcome:
        """Register or delete one document; an error is raised."""
        (answer,) = self.register_batch([self.prepare(uri, turtle, **conditions)])
        if isinstance(answer, MdvError):
            raise answer
        return answer

    def add_rules(self, drafts: Sequence[str | tuple[str, str]], owner: int = 1) -> list[AddedRule]:
        """Add rules, given as text or as name and text."""
        named = [(None, draft) if isinstance(draft, str) else draft for draft in drafts]
        with self.engine.begin() as connection:
            ready = [RuleDraft(owner, name, text) for name, text in named]
            return add_rules(connection, ready, self.schemas, self.vocabulary, self.rules)

    def change_rule(self, rule_id: int, text: str) -> AddedRule:
        with self.engine.begin() as connection:
            return change_rule(connection, rule_id, text, self.schemas, self.vocabulary, self.rules)

    def remove_rules(self, ids: Sequence[int]) -> int:
        with self.engine.begin() as connection:
            return remove_rules(connection, ids, self.schemas, self.vocabulary, self.rules)

    def create_lmr(self, name: str) -> Lmr:
        with self.engine.begin() as connection:
            return create_lmr(connection, name)[0]

    def subscribe(self, lmr: Lmr, *drafts: str | tuple[str, str]) -> list[Subscription]:
        """Subscribe rules, given as text or as name and text."""
        named = [(None, draft) if isinstance(draft, str) else draft for draft in drafts]
        with self.engine.begin() as connection:
            return subscribe(connection, lmr, named, self.schemas, self.vocabulary, self.rules)

    def change_subscription(self, lmr: Lmr, number: int, text: str) -> Subscription:
        with self.engine.begin() as connection:
            return change_subscription(connection, lmr, number, text, self.schemas, self.vocabulary, self.rules)

    def unsubscribe(self, lmr: Lmr, *numbers: int) -> int:
        with self.engine.begin() as connection:
            return unsubscribe(connection, lmr, numbers, self.schemas, self.vocabulary, self.rules)

    def feed(self, lmr: Lmr, after: str | None = None, limit: int = 1000) -> Page:
        """A page of an LMR's feed, as it would read it."""
        return Page.from_dict(json.loads(self.feeds.read(lmr, after, limit).text))

    def changes(self) -> list[tuple[int, str, bool]]:
        """What the last transaction changed for rules: end rule, resource, and whether it matches now."""
        with self.engine.connect() as connection:
            return read_changes(connection)

    def ends_of(self, rule_id: int) -> set[int]:
        return {end for (end,) in self.rows("select end_id from rule_ends where rule_id = :id", id=rule_id)}

    def results_of(self, rule_id: int) -> set[str]:
        """What a rule registers now, by full evaluation."""
        with self.engine.connect() as connection:
            return results_of(connection, rule_id, self.rules, self.schemas, self.vocabulary)

    def rows(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sqlalchemy.text(sql), values)]

    def one(self, sql: str, **values: Any) -> Any:
        ((value,),) = self.rows(sql, **values)
        return value

    def run(self, sql: str) -> None:
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.text(sql))


@pytest.fixture
def mdp(engine: Engine) -> Mdp:
    return Mdp(engine)
