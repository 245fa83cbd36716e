"""Properties and datatypes as small integers: one number per name, for every process and after rollbacks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy
from sqlalchemy import Engine

from mdv.db.engine import make_engine
from mdv.db.vocabulary import Vocabulary
from mdv.mdp.register import register
from mdv.model import RDF_TYPE
from tests.support.mdp import Mdp


def test_a_name_has_the_same_number_for_every_process(engine: Engine) -> None:
    one, two = Vocabulary(engine), Vocabulary(engine)
    first = one.ids(["urn:a", "urn:b"])
    assert two.ids(["urn:b", "urn:c"])["urn:b"] == first["urn:b"]
    assert one.ids(["urn:c"])["urn:c"] == two.ids(["urn:c"])["urn:c"]
    assert len({*two.ids(["urn:a"]).values()}) == 3
    assert RDF_TYPE in one.ids([RDF_TYPE])


def test_very_many_names_get_numbers_in_one_call(engine: Engine) -> None:
    names = [f"urn:{number}" for number in range(70_000)]  # a statement has at most 65,535 parameters
    numbers = Vocabulary(engine).ids(names)
    assert len({numbers[name] for name in names}) == len(names)
    assert Vocabulary(engine).ids(names)[names[-1]] == numbers[names[-1]]


def test_names_used_concurrently_get_one_number(database_url: str) -> None:
    engines = [make_engine(database_url) for _ in range(4)]
    rounds = [[f"urn:{n}:{i}" for i in range(20)] for n in range(15)]

    def use(engine: Engine) -> dict[str, int]:
        vocabulary = Vocabulary(engine)
        for number, names in enumerate(rounds):
            vocabulary.ids(names if number % 2 else list(reversed(names)))
        return dict(vocabulary.ids([]))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(use, engines))
    assert all(ids == found[0] for ids in found)
    assert len(set(found[0].values())) == 300
    for engine in engines:
        engine.dispose()


def test_a_rolled_back_registration_leaves_no_missing_number(mdp: Mdp) -> None:
    mdp.put_schema("<> mdv:world mdv:open .")
    item = mdp.prepare("http://d/1", "<#a> :new '1'^^:type .")
    with mdp.engine.connect() as connection:
        register(connection, [item], mdp.provider)
        connection.rollback()
    mdp.register_batch([item])
    stored = dict(mdp.rows("select uri, id from vocabulary"))
    assert stored["http://v/new"] == mdp.vocabulary.ids(["http://v/new"])["http://v/new"]
    assert mdp.rows("select property, datatype from statement_log") == [("http://v/new", "http://v/type")]


def test_a_number_is_cached_only_after_its_commit(engine: Engine) -> None:
    vocabulary = Vocabulary(engine)

    def fail(connection: object) -> None:
        raise ConnectionError("gone before the commit")

    sqlalchemy.event.listen(Engine, "commit", fail)
    with pytest.raises(ConnectionError):
        vocabulary.ids(["urn:a"])
    sqlalchemy.event.remove(Engine, "commit", fail)
    number = vocabulary.ids(["urn:a"])["urn:a"]
    with engine.connect() as connection:
        found = connection.execute(sqlalchemy.text("select id from vocabulary where uri = 'urn:a'")).scalar_one()
    assert found == number
