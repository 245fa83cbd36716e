"""Webhooks: what is told when, what becomes of messages, and what two workers at once may not do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from receiver import Handler, Receiver, receiving, saying
from standardwebhooks.webhooks import Webhook as Verifier

from mdv.db import webhooks as db
from mdv.db.lmrs import Lmr
from mdv.db.webhooks import Delivery, Message, Webhook
from mdv.errors import Conflict, NotFound
from mdv.mdp import webhooks
from mdv.mdp.deliver import LOST, MOST_OF_ONE_LMR, Deliveries
from mdv.mdp.subscribe import delete_lmr
from mdv.mdp.webhooks import KEPT, KEPT_MESSAGES, MOST_DEAD, MOST_WEBHOOKS, WAITS, settle
from mdv.webhooks.send import Answer

if TYPE_CHECKING:
    from conftest import Mdp

SCHEMA = "<> mdv:world mdv:open . :Host a rdfs:Class . :memory rdfs:range xsd:integer ."
BIG = "search Host h register h where h.memory > 64"
ATTEMPTS = len(WAITS) + 1
LONGEST = timedelta(seconds=WAITS[-1])


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, time: timedelta) -> None:
        self.now += time


class Post:
    """One LMR with a webhook, a receiver, and somebody who delivers."""

    def __init__(self, mdp: Mdp, receiver: Receiver) -> None:
        self.mdp, self.receiver, self.engine, self.clock = mdp, receiver, mdp.engine, Clock()
        mdp.put_schema(SCHEMA)
        self.lmr = mdp.create_lmr("library")
        mdp.subscribe(self.lmr, BIG)
        self.hook = self.add(self.lmr)
        self.states: list[str] = []
        self.deliveries = self.deliverer()

    def deliverer(self, private: bool = True) -> Deliveries:
        return Deliveries(
            self.engine, private, clock=self.clock, chance=lambda: 0.5, told=lambda state: self.states.append(state)
        )

    def add(self, lmr: Lmr) -> Webhook:
        with self.engine.begin() as connection:
            return webhooks.add_webhook(connection, lmr, self.receiver.url, self.clock())

    def change(self, number: int = 1, memory: int = 92) -> int:
        """Let a document come or change; the last offset of the feed then."""
        self.mdp.put_one(f"http://d/{number}", f"<#host> a :Host ; :memory {memory} .")
        return self.newest

    @property
    def newest(self) -> int:
        return int(self.mdp.one('select max("offset") from feed where lmr_id = :lmr', lmr=self.lmr.id))

    def work(self, times: int = 1) -> None:
        """Send what is due; then so often again when the next attempt is."""
        self.deliveries.work()
        for _ in range(times - 1):
            self.clock.pass_(LONGEST)
            self.deliveries.work()

    def run(self, act: Callable[..., Any], *more: object) -> Any:
        with self.engine.begin() as connection:
            return act(connection, self.lmr, self.hook.id, *more)

    @property
    def now(self) -> Webhook:
        with self.engine.connect() as connection:
            return webhooks.get_webhook(connection, self.lmr, self.hook.id)

    def sent(self, state: str | None = None) -> list[Delivery]:
        """The messages, the newest first."""
        with self.engine.connect() as connection:
            return db.list_deliveries(connection, self.hook.id, None, 1000, state)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
def post(mdp: Mdp, receiver: Receiver) -> Post:
    return Post(mdp, receiver)


# What is told


def test_a_registration_leads_to_one_signed_message_and_the_feed_has_the_event_up_to_there(post: Post) -> None:
    cursor = post.mdp.feed(post.lmr).cursor
    offset = post.change()
    post.work()
    (got,) = post.receiver.got
    said = Verifier(post.hook.secret).verify(got.body, got.headers)
    assert said["type"] == "feed.advanced" and datetime.fromisoformat(said["timestamp"]) == post.clock()
    page = post.mdp.feed(post.lmr, cursor)
    assert said["data"] == {"lmr": "library", "offset": offset, "position": page.position}
    told = [event for event in page.events if event.offset <= said["data"]["offset"]]
    assert {event.resource for event in told} == {"http://d/1#host"} and told[-1].last
    assert post.now.told == offset and post.states == ["delivered"]


def test_a_new_webhook_is_told_of_nothing_that_was_before(post: Post) -> None:
    post.change()
    later = post.add(post.lmr)
    post.work()
    assert {delivery.state for delivery in post.sent()} == {"delivered"}
    with post.engine.connect() as connection:
        assert db.list_deliveries(connection, later.id, None, 10) == []
    assert later.told == post.newest


def test_what_does_not_concern_the_lmr_makes_no_message(post: Post) -> None:
    post.mdp.put_one("http://d/1", "<#host> a :Host ; :memory 3 .")
    post.work()
    assert post.receiver.got == []


def test_a_new_schema_is_told(post: Post) -> None:
    post.mdp.put_schema(SCHEMA + " :cpu rdfs:range xsd:integer .")
    post.work()
    assert post.receiver.offsets() == [post.newest]


def test_many_changes_are_told_with_one_message(post: Post) -> None:
    for number in range(5):
        last = post.change(number)
    post.work()
    assert post.receiver.offsets() == [last]


def test_while_a_message_is_tried_again_what_comes_makes_no_second_one(post: Post) -> None:
    post.receiver.answers = [500, 500]
    first = post.change(1)
    post.work()
    post.change(2)
    post.work(2)
    last = post.change(3)
    assert [delivery.state for delivery in post.sent()] == ["waiting"]
    post.work(2)
    # When it has arrived, the next one tells the newest offset, and nothing of those between.
    assert post.receiver.offsets() == [first, first, first, last]
    assert post.now.told == last


def test_a_message_is_tried_again_with_the_same_id_and_body_signed_anew(post: Post) -> None:
    post.receiver.answers = [500, 502]
    post.change()
    post.work(3)
    assert len({(got.id, got.body) for got in post.receiver.got}) == 1 and len(post.receiver.got) == 3
    assert len({got.headers["webhook-signature"] for got in post.receiver.got}) == 3
    assert post.states == ["waiting", "waiting", "delivered"]
    assert (post.now.failures, post.now.failing_since) == (0, None)


def test_the_waits_between_attempts_grow_and_vary(post: Post) -> None:
    post.receiver.answers = [500] * ATTEMPTS
    post.change()
    for wait in WAITS:
        post.work()
        (waiting,) = post.sent()
        assert waiting.not_before - post.clock() == timedelta(seconds=wait)
        post.clock.pass_(timedelta(seconds=wait) - timedelta(milliseconds=1))
        before = len(post.receiver.got)
        post.work()
        assert len(post.receiver.got) == before  # not before its time
        post.clock.pass_(timedelta(milliseconds=1))
    assert webhooks.wait_after(1, None, lambda: 0.0) == 4
    assert webhooks.wait_after(1, None, lambda: 1.0) == pytest.approx(6)


@pytest.mark.parametrize(("asked", "seconds"), [("90", 90), ("999999", WAITS[-1]), ("0", WAITS[0]), ("x", WAITS[0])])
def test_a_receiver_may_ask_for_time_but_not_for_ever(post: Post, asked: str, seconds: float) -> None:
    post.receiver.answers = [saying(503, "later", Retry_After=asked)]
    post.change()
    post.work()
    (waiting,) = post.sent()
    assert waiting.not_before - post.clock() == timedelta(seconds=seconds)
    assert (waiting.status, waiting.reason) == (503, "It answered 503: later")


def test_a_redirect_is_a_failure(post: Post) -> None:
    post.receiver.answers = [saying(302, Location="http://elsewhere.example/")]
    post.change()
    post.work()
    (waiting,) = post.sent()
    assert (waiting.state, waiting.status) == ("waiting", 302) and "not followed" in str(waiting.reason)


def test_an_address_that_has_become_private_is_not_sent_to(post: Post) -> None:
    post.change()
    post.deliverer(private=False).work()
    (waiting,) = post.sent()
    assert waiting.state == "waiting" and "not on the public internet" in str(waiting.reason)
    assert post.receiver.got == []


# When it fails for long


def test_a_message_that_failed_to_the_last_is_dead_and_can_be_sent_again_under_its_id(post: Post) -> None:
    post.receiver.answers = [500] * ATTEMPTS
    offset = post.change()
    post.work(ATTEMPTS + 2)
    (dead,) = post.sent("dead")
    assert (dead.attempts, dead.status, dead.ended_at is not None) == (ATTEMPTS, 500, True)
    assert len(post.receiver.got) == ATTEMPTS and post.now.told < offset and post.now.failures == ATTEMPTS
    again = post.run(webhooks.replay, dead.id, post.clock())
    assert (again.id, again.state, again.attempts) == (dead.id, "waiting", 0)
    post.work()
    assert len({(got.id, got.body) for got in post.receiver.got}) == 1 and post.now.told == offset
    with pytest.raises(Conflict, match="was delivered"):
        post.run(webhooks.replay, dead.id, post.clock())


def test_after_a_dead_message_the_next_tells_of_all_that_has_come(post: Post) -> None:
    post.receiver.answers = [500] * ATTEMPTS
    first = post.change(1)
    post.work(ATTEMPTS - 1)
    last = post.change(2)
    post.work(2)
    assert post.receiver.offsets() == [first] * ATTEMPTS + [last]
    assert [delivery.state for delivery in post.sent()] == ["delivered", "dead"]
    assert (post.now.told, post.now.dead) == (last, 0)


def test_a_dead_message_is_not_sent_again_while_a_newer_one_waits(post: Post) -> None:
    post.receiver.answers = [500] * (ATTEMPTS + 1)
    post.change(1)
    post.work(ATTEMPTS)
    post.change(2)
    post.work()
    (dead,), (waiting,) = post.sent("dead"), post.sent("waiting")
    with pytest.raises(Conflict, match=f"{waiting.id} waits to be sent, and tells all that {dead.id} does"):
        post.run(webhooks.replay, dead.id, post.clock())
    with pytest.raises(Conflict, match="waits for its next attempt"):
        post.run(webhooks.replay, waiting.id, post.clock())


def test_after_some_dead_messages_in_a_row_a_webhook_is_paused_until_it_is_resumed(post: Post) -> None:
    post.receiver.answers = [saying(500, "broken")] * (ATTEMPTS * MOST_DEAD)
    began = post.clock()
    for number in range(MOST_DEAD):
        post.change(number)
        post.work(ATTEMPTS)
        post.clock.pass_(LONGEST)
    paused = post.now
    assert (paused.state, paused.failures, paused.failing_since) == ("paused", ATTEMPTS * MOST_DEAD, began)
    assert paused.reason == f"{MOST_DEAD} messages died in a row, the last so: It answered 500: broken"
    last = post.change(99)
    post.work(3)
    assert len(post.receiver.got) == ATTEMPTS * MOST_DEAD  # nothing more is sent
    resumed = post.run(webhooks.resume, post.clock())
    assert (resumed.state, resumed.reason, resumed.failures) == ("active", None, 0)
    post.work()
    assert post.receiver.offsets()[-1] == last and post.now.told == last


def test_resuming_tells_what_only_a_dead_message_told(post: Post) -> None:
    post.receiver.answers = [410]
    offset = post.change()
    post.work(3)
    assert len(post.receiver.got) == 1
    post.run(webhooks.resume, post.clock())
    post.work()
    assert post.receiver.offsets() == [offset, offset] and len({got.id for got in post.receiver.got}) == 2


def test_a_quiet_week_between_dead_messages_does_not_pause_a_webhook(post: Post) -> None:
    post.receiver.answers = [500] * (ATTEMPTS + 1)
    post.change(1)
    post.work(ATTEMPTS)
    post.clock.pass_(timedelta(days=7))
    post.change(2)
    post.work()
    assert post.now.state == "active"


def test_gone_pauses_at_once(post: Post) -> None:
    post.receiver.answers = [410]
    post.change()
    post.work(2)
    assert (post.now.state, post.now.reason) == ("paused", "The receiver answered 410: it is gone for good.")
    (dead,) = post.sent()
    assert (dead.state, dead.attempts, dead.status) == ("dead", 1, 410)


def test_a_paused_webhook_keeps_its_message_and_sends_it_when_resumed(post: Post) -> None:
    post.receiver.answers = [500]
    offset = post.change()
    post.work()
    post.run(webhooks.pause, "Somebody has paused it.")
    post.work()
    assert len(post.receiver.got) == 1
    with pytest.raises(Conflict, match=r"paused \(Somebody has paused it\.\): resume it first"):
        post.run(webhooks.tell_now, post.clock())
    post.run(webhooks.resume, post.clock())
    post.work()
    assert post.receiver.offsets() == [offset, offset] and len({got.id for got in post.receiver.got}) == 1


def test_a_message_of_now_can_be_sent_though_all_was_told(post: Post) -> None:
    offset = post.change()
    post.work()
    made = post.run(webhooks.tell_now, post.clock())
    assert post.run(webhooks.tell_now, post.clock()).id == made.id  # one at a time
    post.work()
    assert post.receiver.offsets() == [offset, offset] and post.receiver.got[1].id == str(made.id)


# Secrets


def test_for_a_day_after_a_rotation_both_secrets_sign(post: Post) -> None:
    new = post.run(webhooks.rotate, post.clock())
    assert new.secret != post.hook.secret
    post.change(1)
    post.work()
    (got,) = post.receiver.got
    Verifier(new.secret).verify(got.body, got.headers)
    Verifier(post.hook.secret).verify(got.body, got.headers)
    post.clock.pass_(timedelta(hours=24))
    post.change(2)
    post.work()
    assert [len(got.headers["webhook-signature"].split(" ")) for got in post.receiver.got] == [2, 1]


def test_secrets_are_in_no_text_of_a_webhook(post: Post) -> None:
    assert post.hook.secret not in repr(post.run(webhooks.rotate, post.clock()))


# Several workers


def test_two_workers_at_once_send_each_message_once(post: Post) -> None:
    lmrs = [post.mdp.create_lmr(f"lmr {number}") for number in range(4)]
    for lmr in lmrs:
        post.mdp.subscribe(lmr, BIG)
        for _ in range(MOST_WEBHOOKS):
            post.add(lmr)
    expected = 1 + len(lmrs) * MOST_WEBHOOKS
    for round_ in range(3):
        post.change(round_)
        workers = [post.deliverer() for _ in range(3)]
        threads = [threading.Thread(target=worker.work) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(post.receiver.got) == len({got.id for got in post.receiver.got}) == 3 * expected
    assert post.mdp.one("select count(*) from webhook_deliveries where state = 'delivered'") == 3 * expected


def test_a_message_that_a_worker_died_with_is_sent_by_another_and_a_late_word_of_it_does_not_count(post: Post) -> None:
    offset = post.change()
    with post.engine.begin() as connection:
        db.make_messages(connection, post.clock())
        taken = db.claim(connection, post.clock(), post.clock() + LOST, [])
    assert taken is not None
    post.work()
    assert post.receiver.got == []  # it is somebody's
    post.clock.pass_(LOST)
    post.receiver.answers = [500]
    post.work()
    assert post.receiver.offsets() == [offset]
    with post.engine.begin() as connection:
        assert settle(connection, taken, Answer(200), post.clock(), lambda: 0.5) is None
    (waiting,) = post.sent()
    assert (waiting.state, waiting.attempts, waiting.status) == ("waiting", 2, 500)


def test_of_two_workers_that_took_a_message_only_the_last_may_say_what_came_of_it(post: Post) -> None:
    post.change()

    def take() -> Message:
        with post.engine.begin() as connection:
            db.make_messages(connection, post.clock())
            taken = db.claim(connection, post.clock(), post.clock(), [])
        assert taken is not None
        return taken

    def says(message: Message) -> str | None:
        with post.engine.begin() as connection:
            return settle(connection, message, Answer(500), post.clock(), lambda: 0.5)

    first, second = take(), take()  # at the same moment, by clocks that differ
    assert says(first) is None
    post.run(webhooks.tell_now, post.clock())  # it begins to count anew
    post.clock.pass_(LOST)
    third = take()
    assert (third.id, third.attempts) == (first.id, first.attempts)
    assert (says(first), says(second), says(third)) == (None, None, "waiting")


def test_a_message_with_which_every_worker_dies_is_dead_in_the_end(post: Post) -> None:
    post.change()
    with post.engine.begin() as connection:
        db.make_messages(connection, post.clock())
    for _ in range(ATTEMPTS):
        with post.engine.begin() as connection:
            assert db.claim(connection, post.clock(), post.clock() + LOST, []) is not None
        post.clock.pass_(LOST)
    post.work(2)
    (dead,) = post.sent()
    assert dead.state == "dead" and "ended without telling" in str(dead.reason) and post.receiver.got == []


def test_no_transaction_is_open_while_a_receiver_is_waited_for(post: Post) -> None:
    open_: list[int] = []

    def look(handler: Handler) -> None:
        counted = "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in %'"
        open_.append(post.mdp.one(counted))
        handler.send_response(200)
        handler.end_headers()

    post.receiver.answers = [look]
    post.change()
    post.work()
    assert open_ == [0]


def test_slow_receivers_of_one_lmr_hold_up_nobody_else(post: Post) -> None:
    slow = post.mdp.create_lmr("slow")
    post.mdp.subscribe(slow, BIG)
    released = threading.Event()

    def sleep(handler: Handler) -> None:
        released.wait(10)
        handler.send_response(200)
        handler.end_headers()

    with receiving() as sleepy:
        sleepy.answers = [sleep] * MOST_WEBHOOKS
        with post.engine.begin() as connection:
            for _ in range(MOST_WEBHOOKS):
                webhooks.add_webhook(connection, slow, sleepy.url, post.clock())
        offset = post.change()
        post.deliveries.wake()
        eventually(lambda: post.now.told == offset)
        eventually(lambda: len(sleepy.got) == MOST_OF_ONE_LMR)
        post.change(2)
        post.deliveries.wake()
        eventually(lambda: len(post.receiver.got) == 2)
        assert len(sleepy.got) == MOST_OF_ONE_LMR
        released.set()
        # In the end all of them hear of both.
        latest = int(post.mdp.one('select max("offset") from feed where lmr_id = :lmr', lmr=slow.id))
        eventually(lambda: sleepy.offsets().count(latest) == MOST_WEBHOOKS)


def test_what_breaks_inside_is_an_attempt_that_failed(post: Post) -> None:
    def broken(url: str, body: bytes, headers: dict[str, str]) -> Answer:
        raise ZeroDivisionError

    post.change()
    Deliveries(post.engine, True, post=broken, clock=post.clock).work()
    (waiting,) = post.sent()
    assert (waiting.state, waiting.reason) == ("waiting", "MDV itself failed: ZeroDivisionError.")


def test_whether_anybody_is_to_be_told_is_looked_at(post: Post) -> None:
    assert post.deliverer().are_wanted()
    post.run(webhooks.pause, "So.")
    assert not post.deliverer().are_wanted()


# What goes


def test_an_lmr_that_is_deleted_leaves_no_webhook_and_no_message(post: Post) -> None:
    post.receiver.answers = [500]
    post.change()
    post.work()
    with post.engine.begin() as connection:
        delete_lmr(connection, post.lmr, post.mdp.schemas, post.mdp.vocabulary, post.mdp.rules)
    left = "select (select count(*) from webhooks) + (select count(*) from webhook_deliveries)"
    assert post.mdp.one(left) == 0


def test_a_webhook_that_is_deleted_while_it_is_told_is_gone(post: Post) -> None:
    def vanish(handler: Handler) -> None:
        post.run(webhooks.delete_webhook)
        handler.send_response(200)
        handler.end_headers()

    post.receiver.answers = [vanish]
    post.change()
    post.work()
    assert post.states == [] and post.mdp.one("select count(*) from webhook_deliveries") == 0
    with pytest.raises(NotFound, match=f"has no webhook {post.hook.id}"):
        post.run(webhooks.delete_webhook)


def test_only_the_last_messages_are_kept_and_those_only_for_some_days(post: Post) -> None:
    for _ in range(3):
        post.run(webhooks.tell_now, post.clock())
        post.work()
    post.mdp.run(
        'insert into webhook_deliveries (webhook_id, "offset", position, state, not_before, created_at, ended_at)'
        f" select {post.hook.id}, 1, 1, 'dead', now(), now(), now() from generate_series(1, {2 * KEPT_MESSAGES})"
    )
    post.run(webhooks.tell_now, post.clock())
    post.work()
    assert len(post.sent()) == KEPT_MESSAGES
    post.clock.pass_(KEPT + timedelta(seconds=10))
    post.change()
    post.deliverer().work()
    assert [delivery.state for delivery in post.sent()] == ["delivered"]


def test_an_lmr_has_no_more_webhooks_than_allowed(post: Post) -> None:
    for _ in range(MOST_WEBHOOKS - 1):
        post.add(post.lmr)
    with pytest.raises(Conflict, match=f"has {MOST_WEBHOOKS} webhooks, and may have no more"):
        post.add(post.lmr)


def eventually(holds: Callable[[], object], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, holds
        time.sleep(0.02)
