"""Event-condition-action rules in the database of a running system."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mdv.db.eca.rules import list_eca_rules
from mdv.db.engine import make_engine
from mdv.mdp.eca.change_rules import EcaDraft, add_rules, remove_rule
from mdv.mdp.provider import Provider


@contextmanager
def adding_eca_rules(database_url: str) -> Iterator[Callable[[str], list[int]]]:
    """Give a function that adds rules and returns their IDs. All rules are removed at the end."""
    engine = make_engine(database_url)
    provider = Provider(engine)

    def add(text: str) -> list[int]:
        with engine.begin() as connection:
            return [one.id for one in add_rules(connection, EcaDraft(text), provider)]

    yield add
    with engine.begin() as connection:
        numbers = [rule.id for rule in list_eca_rules(connection)]
    for number in numbers:
        with engine.begin() as connection:
            remove_rule(connection, str(number), provider)
    engine.dispose()
