"""Webhooks: which messages are sent, how they are retried, and concurrency of two workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from mdv.db import webhooks as db
from mdv.db.lmrs import Lmr
from mdv.db.webhooks import Delivery, Message, Webhook
from mdv.errors import Conflict, NotFound
from mdv.mdp import webhooks
from mdv.mdp.subscribe import delete_lmr
from mdv.mdp.webhook_sender import CLAIM_TIMEOUT, MAX_CONCURRENT_SENDS_PER_LMR, WebhookSender
from mdv.mdp.webhooks import (
    MAX_DEAD_MESSAGES_IN_A_ROW,
    MAX_KEPT_MESSAGES,
    MAX_WEBHOOKS_PER_LMR,
    MESSAGE_RETENTION,
    RETRY_DELAYS_SECONDS,
    record_attempt,
)
from mdv.webhooks.send import WebhookResponse
from tests.support.eventually import eventually
from tests.support.mdp import Mdp
from tests.support.webhook_receiver import Handler, Receiver, receiving, saying

SCHEMA = "<> mdv:world mdv:open . :Host a rdfs:Class . :memory rdfs:range xsd:integer ."
BIG = "search Host h register h where h.memory > 64"
ATTEMPTS = len(RETRY_DELAYS_SECONDS) + 1
LONGEST = timedelta(seconds=RETRY_DELAYS_SECONDS[-1])


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, time: timedelta) -> None:
        self.now += time


class Post:
    """One LMR with a webhook, a receiver and a sender."""

    def __init__(self, mdp: Mdp, receiver: Receiver) -> None:
        self.mdp, self.receiver, self.engine, self.clock = mdp, receiver, mdp.engine, Clock()
        mdp.put_schema(SCHEMA)
        self.lmr = mdp.create_lmr("library")
        mdp.subscribe(self.lmr, BIG)
        self.hook = self.add(self.lmr)
        self.states: list[str] = []
        self.deliveries = self.deliverer()

    def deliverer(self, private: bool = True) -> WebhookSender:
        return WebhookSender(
            self.engine,
            private,
            clock=self.clock,
            chance=lambda: 0.5,
            on_attempt=lambda state: self.states.append(state),
        )

    def add(self, lmr: Lmr) -> Webhook:
        with self.engine.begin() as connection:
            return webhooks.add_webhook(connection, lmr, self.receiver.url, self.clock())

    def change(self, number: int = 1, memory: int = 92) -> int:
        """Register or change a document; return the last offset of the feed."""
        self.mdp.put_one(f"http://d/{number}", f"<#host> a :Host ; :memory {memory} .")
        return self.newest

    @property
    def newest(self) -> int:
        return int(self.mdp.one('select max("offset") from feed where lmr_id = :lmr', lmr=self.lmr.id))

    def work(self, times: int = 1) -> None:
        """Send due messages; then advance the clock to the next attempt and repeat, `again` times."""
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
        """Return the messages, newest first."""
        with self.engine.connect() as connection:
            return db.list_deliveries(connection, self.hook.id, None, 1000, state)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
def post(mdp: Mdp, receiver: Receiver) -> Post:
    return Post(mdp, receiver)


# Messages


def test_a_registration_sends_one_signed_message_with_the_offset_of_the_feed(post: Post) -> None:
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
    assert post.now.delivered == offset and post.states == ["delivered"]


def test_a_new_webhook_is_not_notified_of_earlier_events(post: Post) -> None:
    post.change()
    later = post.add(post.lmr)
    post.work()
    assert {delivery.state for delivery in post.sent()} == {"delivered"}
    with post.engine.connect() as connection:
        assert db.list_deliveries(connection, later.id, None, 10) == []
    assert later.delivered == post.newest


def test_a_change_that_does_not_concern_the_lmr_sends_no_message(post: Post) -> None:
    post.mdp.put_one("http://d/1", "<#host> a :Host ; :memory 3 .")
    post.work()
    assert post.receiver.got == []


def test_a_schema_change_sends_a_message(post: Post) -> None:
    post.mdp.put_schema(SCHEMA + " :cpu rdfs:range xsd:integer .")
    post.work()
    assert post.receiver.offsets() == [post.newest]


def test_many_changes_are_sent_as_one_message(post: Post) -> None:
    for number in range(5):
        last = post.change(number)
    post.work()
    assert post.receiver.offsets() == [last]


def test_changes_during_a_retry_create_no_second_message(post: Post) -> None:
    post.receiver.answers = [500, 500]
    first = post.change(1)
    post.work()
    post.change(2)
    post.work(2)
    last = post.change(3)
    assert [delivery.state for delivery in post.sent()] == ["waiting"]
    post.work(2)
    # After delivery, the next message has the newest offset, and there is none for those between.
    assert post.receiver.offsets() == [first, first, first, last]
    assert post.now.delivered == last


def test_a_retry_has_the_same_id_and_body_and_a_new_signature(post: Post) -> None:
    post.receiver.answers = [500, 502]
    post.change()
    post.work(3)
    assert len({(got.id, got.body) for got in post.receiver.got}) == 1 and len(post.receiver.got) == 3
    assert len({got.headers["webhook-signature"] for got in post.receiver.got}) == 3
    assert post.states == ["waiting", "waiting", "delivered"]
    assert (post.now.failures, post.now.failing_since) == (0, None)


def test_the_delays_between_attempts_grow_with_jitter(post: Post) -> None:
    post.receiver.answers = [500] * ATTEMPTS
    post.change()
    for wait in RETRY_DELAYS_SECONDS:
        post.work()
        (waiting,) = post.sent()
        assert waiting.not_before - post.clock() == timedelta(seconds=wait)
        post.clock.pass_(timedelta(seconds=wait) - timedelta(milliseconds=1))
        before = len(post.receiver.got)
        post.work()
        assert len(post.receiver.got) == before  # not before its time
        post.clock.pass_(timedelta(milliseconds=1))
    assert webhooks.retry_delay(1, None, lambda: 0.0) == 4
    assert webhooks.retry_delay(1, None, lambda: 1.0) == pytest.approx(6)


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [("90", 90), ("999999", RETRY_DELAYS_SECONDS[-1]), ("0", RETRY_DELAYS_SECONDS[0]), ("x", RETRY_DELAYS_SECONDS[0])],
)
def test_a_receiver_may_request_a_delay_up_to_a_limit(post: Post, asked: str, seconds: float) -> None:
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


def test_an_address_that_has_become_private_gets_no_message(post: Post) -> None:
    post.change()
    post.deliverer(private=False).work()
    (waiting,) = post.sent()
    assert waiting.state == "waiting" and "not on the public internet" in str(waiting.reason)
    assert post.receiver.got == []


# Repeated failures


def test_a_message_is_dead_after_its_last_attempt_and_can_be_sent_again_under_its_id(post: Post) -> None:
    post.receiver.answers = [500] * ATTEMPTS
    offset = post.change()
    post.work(ATTEMPTS + 2)
    (dead,) = post.sent("dead")
    assert (dead.attempts, dead.status, dead.ended_at is not None) == (ATTEMPTS, 500, True)
    assert len(post.receiver.got) == ATTEMPTS and post.now.delivered < offset and post.now.failures == ATTEMPTS
    again = post.run(webhooks.retry_dead_message, dead.id, post.clock())
    assert (again.id, again.state, again.attempts) == (dead.id, "waiting", 0)
    post.work()
    assert len({(got.id, got.body) for got in post.receiver.got}) == 1 and post.now.delivered == offset
    with pytest.raises(Conflict, match="was delivered"):
        post.run(webhooks.retry_dead_message, dead.id, post.clock())


def test_the_message_after_a_dead_one_covers_all_changes(post: Post) -> None:
    post.receiver.answers = [500] * ATTEMPTS
    first = post.change(1)
    post.work(ATTEMPTS - 1)
    last = post.change(2)
    post.work(2)
    assert post.receiver.offsets() == [first] * ATTEMPTS + [last]
    assert [delivery.state for delivery in post.sent()] == ["delivered", "dead"]
    assert (post.now.delivered, post.now.dead) == (last, 0)


def test_a_dead_message_is_not_sent_again_while_a_newer_one_waits(post: Post) -> None:
    post.receiver.answers = [500] * (ATTEMPTS + 1)
    post.change(1)
    post.work(ATTEMPTS)
    post.change(2)
    post.work()
    (dead,), (waiting,) = post.sent("dead"), post.sent("waiting")
    with pytest.raises(Conflict, match=f"{waiting.id} is waiting to be sent and replaces {dead.id}"):
        post.run(webhooks.retry_dead_message, dead.id, post.clock())
    with pytest.raises(Conflict, match="waits for its next attempt"):
        post.run(webhooks.retry_dead_message, waiting.id, post.clock())


def test_repeated_dead_messages_pause_a_webhook_until_it_is_resumed(post: Post) -> None:
    post.receiver.answers = [saying(500, "broken")] * (ATTEMPTS * MAX_DEAD_MESSAGES_IN_A_ROW)
    began = post.clock()
    for number in range(MAX_DEAD_MESSAGES_IN_A_ROW):
        post.change(number)
        post.work(ATTEMPTS)
        post.clock.pass_(LONGEST)
    paused = post.now
    assert (paused.state, paused.failures, paused.failing_since) == (
        "paused",
        ATTEMPTS * MAX_DEAD_MESSAGES_IN_A_ROW,
        began,
    )
    failed = f"{MAX_DEAD_MESSAGES_IN_A_ROW} messages in a row could not be delivered."
    assert paused.reason == f"{failed} The last error: It answered 500: broken"
    last = post.change(99)
    post.work(3)
    assert len(post.receiver.got) == ATTEMPTS * MAX_DEAD_MESSAGES_IN_A_ROW  # no further message is sent
    resumed = post.run(webhooks.resume_webhook, post.clock())
    assert (resumed.state, resumed.reason, resumed.failures) == ("active", None, 0)
    post.work()
    assert post.receiver.offsets()[-1] == last and post.now.delivered == last


def test_resuming_sends_the_offset_of_a_dead_message_again(post: Post) -> None:
    post.receiver.answers = [410]
    offset = post.change()
    post.work(3)
    assert len(post.receiver.got) == 1
    post.run(webhooks.resume_webhook, post.clock())
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


def test_status_410_pauses_a_webhook_immediately(post: Post) -> None:
    post.receiver.answers = [410]
    post.change()
    post.work(2)
    assert (post.now.state, post.now.reason) == ("paused", "The receiver responded with 410 (gone).")
    (dead,) = post.sent()
    assert (dead.state, dead.attempts, dead.status) == ("dead", 1, 410)


def test_a_paused_webhook_keeps_its_message_and_sends_it_when_resumed(post: Post) -> None:
    post.receiver.answers = [500]
    offset = post.change()
    post.work()
    post.run(webhooks.pause_webhook, "Somebody has paused it.")
    post.work()
    assert len(post.receiver.got) == 1
    with pytest.raises(Conflict, match=r"paused \(Somebody has paused it\.\)\. Resume it first"):
        post.run(webhooks.send_now, post.clock())
    post.run(webhooks.resume_webhook, post.clock())
    post.work()
    assert post.receiver.offsets() == [offset, offset] and len({got.id for got in post.receiver.got}) == 1


def test_a_message_can_be_sent_on_request_without_new_events(post: Post) -> None:
    offset = post.change()
    post.work()
    made = post.run(webhooks.send_now, post.clock())
    assert post.run(webhooks.send_now, post.clock()).id == made.id  # one at a time
    post.work()
    assert post.receiver.offsets() == [offset, offset] and post.receiver.got[1].id == str(made.id)


# Secrets


def test_both_secrets_sign_for_a_day_after_a_rotation(post: Post) -> None:
    new = post.run(webhooks.rotate_secret, post.clock())
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


def test_secrets_are_not_in_the_repr_of_a_webhook(post: Post) -> None:
    assert post.hook.secret not in repr(post.run(webhooks.rotate_secret, post.clock()))


# Several workers


def test_two_concurrent_workers_send_each_message_once(post: Post) -> None:
    lmrs = [post.mdp.create_lmr(f"lmr {number}") for number in range(4)]
    for lmr in lmrs:
        post.mdp.subscribe(lmr, BIG)
        for _ in range(MAX_WEBHOOKS_PER_LMR):
            post.add(lmr)
    expected = 1 + len(lmrs) * MAX_WEBHOOKS_PER_LMR
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


def test_a_message_of_a_dead_worker_is_sent_by_another_and_a_late_result_is_ignored(post: Post) -> None:
    offset = post.change()
    with post.engine.begin() as connection:
        db.create_messages(connection, post.clock())
        taken = db.claim_message(connection, post.clock(), post.clock() + CLAIM_TIMEOUT, [])
    assert taken is not None
    post.work()
    assert post.receiver.got == []  # another worker has claimed it
    post.clock.pass_(CLAIM_TIMEOUT)
    post.receiver.answers = [500]
    post.work()
    assert post.receiver.offsets() == [offset]
    with post.engine.begin() as connection:
        assert record_attempt(connection, taken, WebhookResponse(200), post.clock(), lambda: 0.5) is None
    (waiting,) = post.sent()
    assert (waiting.state, waiting.attempts, waiting.status) == ("waiting", 2, 500)


def test_of_two_workers_with_one_message_only_the_last_claim_may_record_the_result(post: Post) -> None:
    post.change()

    def take() -> Message:
        with post.engine.begin() as connection:
            db.create_messages(connection, post.clock())
            taken = db.claim_message(connection, post.clock(), post.clock(), [])
        assert taken is not None
        return taken

    def says(message: Message) -> str | None:
        with post.engine.begin() as connection:
            return record_attempt(connection, message, WebhookResponse(500), post.clock(), lambda: 0.5)

    first, second = take(), take()  # at the same moment, by clocks that differ
    assert says(first) is None
    post.run(webhooks.send_now, post.clock())  # its count restarts
    post.clock.pass_(CLAIM_TIMEOUT)
    third = take()
    assert (third.id, third.attempts) == (first.id, first.attempts)
    assert (says(first), says(second), says(third)) == (None, None, "waiting")


def test_a_message_that_kills_every_worker_becomes_a_dead_letter(post: Post) -> None:
    post.change()
    with post.engine.begin() as connection:
        db.create_messages(connection, post.clock())
    for _ in range(ATTEMPTS):
        with post.engine.begin() as connection:
            assert db.claim_message(connection, post.clock(), post.clock() + CLAIM_TIMEOUT, []) is not None
        post.clock.pass_(CLAIM_TIMEOUT)
    post.work(2)
    (dead,) = post.sent()
    assert dead.state == "dead" and "The worker died" in str(dead.reason) and post.receiver.got == []


def test_no_transaction_is_open_while_waiting_for_a_receiver(post: Post) -> None:
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


def test_slow_receivers_of_one_lmr_do_not_block_others(post: Post) -> None:
    slow = post.mdp.create_lmr("slow")
    post.mdp.subscribe(slow, BIG)
    released = threading.Event()

    def sleep(handler: Handler) -> None:
        released.wait(60)
        handler.send_response(200)
        handler.end_headers()

    with receiving() as sleepy:
        sleepy.answers = [sleep] * MAX_WEBHOOKS_PER_LMR
        with post.engine.begin() as connection:
            for _ in range(MAX_WEBHOOKS_PER_LMR):
                webhooks.add_webhook(connection, slow, sleepy.url, post.clock())
        offset = post.change()
        post.deliveries.wake()
        eventually(lambda: post.now.delivered == offset)
        eventually(lambda: len(sleepy.got) == MAX_CONCURRENT_SENDS_PER_LMR)
        post.change(2)
        post.deliveries.wake()
        eventually(lambda: len(post.receiver.got) == 2)
        assert len(sleepy.got) == MAX_CONCURRENT_SENDS_PER_LMR
        released.set()
        # In the end all of them receive both.
        latest = int(post.mdp.one('select max("offset") from feed where lmr_id = :lmr', lmr=slow.id))
        eventually(lambda: sleepy.offsets().count(latest) == MAX_WEBHOOKS_PER_LMR)


def test_an_internal_error_counts_as_a_failed_attempt(post: Post) -> None:
    def broken(url: str, body: bytes, headers: dict[str, str]) -> WebhookResponse:
        raise ZeroDivisionError

    post.change()
    WebhookSender(post.engine, True, post=broken, clock=post.clock).work()
    (waiting,) = post.sent()
    assert (waiting.state, waiting.reason) == ("waiting", "Internal error in MDV: ZeroDivisionError.")


def test_any_active_webhook_ignores_paused_webhooks(post: Post) -> None:
    assert post.deliverer().any_active_webhook()
    post.run(webhooks.pause_webhook, "So.")
    assert not post.deliverer().any_active_webhook()


# Deletion


def test_an_lmr_that_is_deleted_leaves_no_webhook_and_no_message(post: Post) -> None:
    post.receiver.answers = [500]
    post.change()
    post.work()
    with post.engine.begin() as connection:
        delete_lmr(connection, post.lmr, post.mdp.provider)
    left = "select (select count(*) from webhooks) + (select count(*) from webhook_deliveries)"
    assert post.mdp.one(left) == 0


def test_a_webhook_can_be_deleted_while_a_message_is_sent(post: Post) -> None:
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


def test_only_the_latest_messages_are_kept_and_only_for_some_days(post: Post) -> None:
    for _ in range(3):
        post.run(webhooks.send_now, post.clock())
        post.work()
    post.mdp.run(
        'insert into webhook_deliveries (webhook_id, "offset", position, state, not_before, created_at, ended_at)'
        f" select {post.hook.id}, 1, 1, 'dead', now(), now(), now() from generate_series(1, {2 * MAX_KEPT_MESSAGES})"
    )
    post.run(webhooks.send_now, post.clock())
    post.work()
    assert len(post.sent()) == MAX_KEPT_MESSAGES
    post.clock.pass_(MESSAGE_RETENTION + timedelta(seconds=10))
    post.change()
    post.deliverer().work()
    assert [delivery.state for delivery in post.sent()] == ["delivered"]


def test_the_number_of_webhooks_per_lmr_is_limited(post: Post) -> None:
    for _ in range(MAX_WEBHOOKS_PER_LMR - 1):
        post.add(post.lmr)
    with pytest.raises(Conflict, match=f"has {MAX_WEBHOOKS_PER_LMR} webhooks, which is the maximum"):
        post.add(post.lmr)
