"""The filter against a naive oracle, and results that do not depend on the order of arrival."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.filter_machine import FilterMachine, Follower
from tests.support.generated_rules import (
    DOCUMENTS,
    RuleText,
    Said,
    contents,
    populations,
    rule_texts,
)
from tests.support.machines import EXAMPLES, run_machine
from tests.support.two_processes import System

pytestmark = pytest.mark.full


def test_filter_agrees_with_the_oracle(system: System) -> None:
    run_machine(lambda: FilterMachine(system))


def test_new_rules_evaluated_in_bulk_agree_with_the_oracle(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.mdp.evaluate.MAX_RULES_EVALUATED_SINGLY", 0)
    run_machine(lambda: FilterMachine(system), max(1, EXAMPLES // 2))


# -- metamorphic: order and batches change no result


Event: TypeAlias = tuple[str, Said] | RuleText


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[Event], list[list[list[Event]]]]:
    """Documents and rules, and several orders and divisions into batches of one kind."""
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
            model.check(whole=True)
            followed = model.followed()
            results.append({known.written.text: followed[rule_id] for rule_id, known in model.rules.items()})
    assert all(result == results[0] for result in results)
    assert set(results[0]) == {event.text for event in everything if isinstance(event, RuleText)}
