"""Alternatives to event-condition-action rules of MDV: CLIPS in memory, and one Postgres trigger for each rule."""

from __future__ import annotations

import time

from sqlalchemy import Engine

from mdv.bench.eca_workload import NAMESPACE, document_uri, subject_of
from mdv.bench.sql.eca import TRIGGER_ROW, count_inbox, create_trigger_table, create_triggers


class ClipsLearning:
    """CLIPS with a fact for each rule. A rule that fires asserts a fact, as the action of ours inserts a statement."""

    def __init__(self, rules: int) -> None:
        import clips

        self._environment = clips.Environment()
        for template in (
            "(deftemplate learning-object (slot uri) (slot title) (slot subject) (slot level))",
            "(deftemplate watch (slot subject) (slot user))",
            "(deftemplate inbox (slot user) (slot uri))",
        ):
            self._environment.build(template)
        self._environment.build(
            "(defrule notify (learning-object (uri ?u) (subject ?s)) (watch (subject ?s) (user ?n))"
            " => (assert (inbox (user ?n) (uri ?u))))"
        )
        watch = self._environment.find_template("watch")
        for number in range(rules):
            watch.assert_fact(subject=subject_of(number), user=f"{NAMESPACE}user{number}")
        self._object = self._environment.find_template("learning-object")
        self._rules = rules
        self._inbox = 0

    def insert(self, first: int, size: int) -> float:
        """Assert learning objects, each of which fires one rule. Return the seconds."""
        numbers = range(first, first + size)
        rows = [
            {
                "uri": f"{document_uri(n)}#lo0",
                "title": f"Unit {n}",
                "subject": subject_of(n % self._rules),
                "level": n % 9,
            }
            for n in numbers
        ]
        began = time.perf_counter()
        for row in rows:
            self._object.assert_fact(**row)
        fired = self._environment.run()
        seconds = time.perf_counter() - began
        if fired != size:
            raise AssertionError(f"CLIPS fired {fired} rules for {size} learning objects")
        return seconds


class TriggerTable:
    """A table of statements with one statement-level trigger for each rule."""

    def __init__(self, engine: Engine, rules: int) -> None:
        self._engine, self._rules = engine, rules
        with engine.begin() as connection:
            create_trigger_table(connection)
            create_triggers(connection, [subject_of(number) for number in range(rules)])

    def insert(self, number: int) -> float:
        """Insert the statements of one learning object that fires one rule. Return the seconds with the commit."""
        began = time.perf_counter()
        with self._engine.begin() as connection:
            connection.execute(TRIGGER_ROW, {"uri": f"{document_uri(number)}#lo0", "subject": subject_of(number)})
        seconds = time.perf_counter() - began
        with self._engine.begin() as connection:
            found = count_inbox(connection)
        if found != number + 1:
            raise AssertionError(f"{found} triggers fired, expected {number + 1}")
        return seconds
