"""Messages between members as JSON: nothing is lost, and nothing malformed is accepted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mdv.backbone.messages import BackboneMessage, ClosePromise, ClosePromised, LifeSeen, StateAnswer, StateNeeded
from mdv.errors import BadRequest
from mdv.replication.wire import decode_messages, encode_messages
from tests.support.backbone_simulation import KINDS, Schedule


def messages_of(mode: str) -> list[BackboneMessage]:
    """Return messages of some simulated schedules, of every kind."""
    found: list[BackboneMessage] = [
        LifeSeen("m1", "a", "b", {"a": 1}),
        StateNeeded("m1", {"a": 7}),
        ClosePromise("m1", frozenset({"a", "b"})),
        ClosePromised("m2", frozenset({"m1", "m2"}), {"a": 3}),
    ]
    for seed in range(8):
        schedule = Schedule(seed, mode)

        def note(envelopes: Any, schedule: Schedule = schedule) -> None:
            found.extend(message for _, message in envelopes)

        schedule.run()
        first, *others = schedule.members.values()
        for other in others:
            request = first.poll(other.name, schedule.now)
            note(request)
            for _, message in request:
                note(other.receive(message, schedule.now))
            whole = first._state_request()._replace(sums={})  # as one that has nothing yet
            found.append(whole)
            note(other.receive(whole, schedule.now))
    return found


@pytest.mark.parametrize("mode", KINDS)
def test_messages_survive_the_wire(mode: str) -> None:
    kind = KINDS[mode]
    messages = messages_of(mode)
    kinds = {type(message).__name__ for message in messages}
    assert {"LogPoll", "LogPage", "StateRequest", "StateAnswer", "StateNeeded"} <= kinds
    assert any(isinstance(message, StateAnswer) and message.documents for message in messages)
    assert decode_messages(encode_messages(messages, kind), kind) == messages


def mutilations(body: bytes) -> list[Any]:
    """Return the message with each of its fields removed, and with each replaced by another type."""
    whole = json.loads(body)["messages"][0]
    found = []
    for name in whole:
        found.append({key: value for key, value in whole.items() if key != name})
        if name not in ("of", "is_ended"):
            found.append(whole | {name: 17.5})
    return found


@pytest.mark.parametrize("mode", KINDS)
def test_malformed_messages_are_refused(mode: str) -> None:
    kind = KINDS[mode]
    by_type = {type(message): message for message in messages_of(mode)}
    for message in by_type.values():
        for mutilated in mutilations(encode_messages([message], kind)):
            with pytest.raises(BadRequest):
                decode_messages(json.dumps({"messages": [mutilated]}).encode(), kind)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b'{"messages": 3}', b'{"messages": [{"type": "x"}]}', b"\xff",
                                  b"[" * 100_000])  # fmt: skip
def test_a_body_that_is_no_messages_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        decode_messages(body, KINDS["orset"])


@pytest.mark.parametrize("cut", [1, 10, 100])
def test_a_truncated_body_is_refused(cut: int) -> None:
    body = encode_messages(messages_of("orset")[:50], KINDS["orset"])
    with pytest.raises(BadRequest):
        decode_messages(body[:-cut], KINDS["orset"])
