"""`mdv replicate`: pull the changes of the other members, with a thread for each.

    poll → signed request → answer → apply → further requests, until nothing is missing → poll again, and wait there

One process of an MDP does this; another one that is started waits until the first has ended. All calls of the member
are made one at a time.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import structlog
from sqlalchemy import Engine

from mdv.backbone.kinds import SET_KINDS
from mdv.backbone.member import BackboneMember
from mdv.backbone.membership import MemberLives
from mdv.backbone.messages import BackboneMessage, Envelope, LogPage, LogPoll, StateRequest
from mdv.backbone.replica_store import MemberFacts, MemberStatus
from mdv.db.replica.keys import read_private_key
from mdv.db.replica.lock import hold_replication_lock
from mdv.db.replica.transport import InboxRow
from mdv.errors import BadRequest, MdvError
from mdv.mdp.adopt_lmr import follow_definitions
from mdv.mdp.backbone_check_jobs import CheckRunner
from mdv.mdp.lmr_definitions import announce_lmrs
from mdv.mdp.log_transport import LogTransport
from mdv.mdp.provider import Provider
from mdv.mdp.replica import Replica, now_in_microseconds
from mdv.mdp.replicated_rules import RuleArrivals
from mdv.mdp.replicated_schema import store_schema_in_force
from mdv.replication.link_status import LinkStatus, ReplicationStatus
from mdv.replication.member_url import check_member_url
from mdv.replication.peer_client import PeerClient

log = structlog.get_logger()

MAX_WAIT_SECONDS = 20.0
"""How long a poll waits at the peer."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.2, 15.0
"""The pause after a failure. It doubles with each further one."""
IDLE_PAUSE_SECONDS = 0.5
"""The pause after an exchange that brought nothing, although the peer did not wait."""
JOINING_PAUSE_SECONDS = 0.2
SUBSCRIBED_PAUSE_SECONDS = 1.0
"""The pause between two polls of a peer whose operations come by a subscription."""
CHECK_SECONDS = 10.0
"""How long a member that was started waits for the others before it sends changes of its own."""
TEND_SECONDS = 1.0
MAX_ROUNDS = 10_000

Report = Callable[[ReplicationStatus], object]


class Replicator:
    """Keeps an MDP up to date with its backbone. `report` is called about once a second with the state of the links."""

    def __init__(
        self,
        provider: Provider,
        published: Callable[[], object],
        report: Report,
        relay_seconds: float,
        allows_plain: bool,
        databases: Mapping[str, str] | None = None,
        check_seconds: float = 0,
    ) -> None:
        self._provider = provider
        self._engine: Engine = provider.engine
        self._replica = Replica(provider, published)
        self._replica.relay_after = int(relay_seconds * 1_000_000)
        self._rules = RuleArrivals(provider)
        self._wait = min(MAX_WAIT_SECONDS, 0.8 * relay_seconds)
        self._report = report
        self._allows_plain = allows_plain
        self._check_seconds = check_seconds
        self._checks: CheckRunner | None = None
        self._turn = threading.Lock()
        self._transport = LogTransport(self._engine, databases or {}, self._accept)
        self._links: dict[str, LinkStatus] = {}
        self._behind_since: dict[str, float] = {}
        self._followers: dict[str, _Follower] = {}
        self._stop = threading.Event()
        self._settled_at: object = None
        self._published = published
        self._changed_lmrs: set[str] | None = set()

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        """Replicate until `stop` is called."""
        while not self._stop.is_set():
            try:
                with hold_replication_lock(self._engine, self._stop) as check_lock:
                    if check_lock is not None:
                        self._run(check_lock)
            except Exception as error:  # the database is away, and with it the lock
                log.warning("replication is interrupted", reason=_reason(error))
                self._stop.wait(TEND_SECONDS)
            finally:
                self._transport.stop()
                self._end_followers()
                self._end_checks()

    def _run(self, check_lock: Callable[[], object]) -> None:
        checking_until: float | None = None
        is_started = False
        while not self._stop.is_set():
            check_lock()
            facts = self._facts()
            if facts is not None and facts.table.members:
                if not is_started:
                    self._call(lambda member: member.start())
                    checking_until, is_started = time.monotonic() + CHECK_SECONDS, True
                elif checking_until is not None and time.monotonic() > checking_until:
                    self._call(lambda member: member.stop_checking())
                    checking_until = None
                self._tend(facts)
                self._transport.tend(facts)
                self._begin_checks()
            else:
                is_started = False
                self._end_followers()
                self._end_checks()
                if facts is None:
                    self._transport.tend(None)
                    with self._turn:
                        self._replica.reset()
            self._stop.wait(TEND_SECONDS)

    def _begin_checks(self) -> None:
        if self._checks is None or not self._checks.is_alive:
            self._checks = CheckRunner(self._engine, self._replica, self._turn, self._check_seconds, self._allows_plain)

    def _end_checks(self) -> None:
        if self._checks is not None:
            self._checks.stop()
            self._checks = None

    def _end_followers(self) -> None:
        for follower in self._followers.values():
            follower.end()
        self._followers.clear()
        self._links.clear()

    def _tend(self, facts: MemberFacts) -> None:
        """Follow new members, no longer follow removed ones, forget what all members have, and report."""
        peers = {name: member.url for name, member in facts.table.members.items()
                 if name != facts.name and not member.is_removed and member.url}  # fmt: skip
        for name, follower in list(self._followers.items()):
            if peers.get(name) != follower.url or not follower.thread.is_alive():
                follower.end()
                del self._followers[name]
                self._links.pop(name, None)
        for name, url in peers.items():
            if name not in self._followers:
                self._followers[name] = _Follower(self, name, url)
        with self._turn:
            store_schema_in_force(self._replica, self._provider)
            self._rules.carry_out()
        self._follow_lmrs(facts)
        if self._may_settle(facts):
            with self._turn:
                self._replica.settle()
        self._report(self._status(facts))

    def _follow_lmrs(self, facts: MemberFacts) -> None:
        """Announce the LMRs of this MDP, and make all LMRs as they are defined."""
        if announce_lmrs(self._provider):
            self._published()
        new, old = self._replica.take_new_lmrs(), self._changed_lmrs
        self._changed_lmrs = None if new is None or old is None else old | new
        if self._changed_lmrs is None or self._changed_lmrs:
            self._changed_lmrs = follow_definitions(self._provider, facts.name, self._changed_lmrs)
            self._published()

    def _may_settle(self, facts: MemberFacts) -> bool:
        """True if other operations may be stable than last time."""
        known = facts.vector, facts.reports
        is_new, self._settled_at = known != self._settled_at, known
        return is_new

    def _status(self, facts: MemberFacts) -> ReplicationStatus:
        status = ReplicationStatus(time.time(), dict(self._links), self._replica.waiting)
        known = status.known_vector()
        late = {life for life, seq in known.items() if seq > facts.vector.get(life, 0)}
        self._behind_since = {life: self._behind_since.get(life, status.at) for life in late}
        check = self._checks.progress if self._checks is not None else None
        return replace(status, behind_since=dict(self._behind_since), check=check)

    # What the followers use

    def _facts(self) -> MemberFacts | None:
        with self._engine.connect() as connection:
            return self._replica.facts(connection)

    def own_key(self) -> tuple[str, bytes, str]:
        """Return the name of this member, its private key and the kind of its set."""
        with self._engine.connect() as connection:
            facts, key = self._replica.facts(connection), read_private_key(connection)
            mode = self._replica.mode(connection)
        assert facts is not None and key is not None and mode is not None
        return facts.name, key, mode

    def _call(self, step: Callable[[BackboneMember], object]) -> None:
        with self._turn, self._replica.member() as member:
            step(member)

    def poll(self, peer: str) -> tuple[list[BackboneMessage], list[str], MemberStatus]:
        """Return what to send to a peer, the lives that others are asked for, and the status of this member."""
        with self._turn, self._replica.member() as member:
            now = now_in_microseconds()
            envelopes = member.poll(peer, now)
            return [message for _, message in envelopes], member.silent_lives(now), member.store.facts.status

    def receive(self, peer: str, message: BackboneMessage) -> list[BackboneMessage]:
        """Process an answer of a peer. Return what to send to it next."""
        with self._turn:
            answers: list[Envelope] = self._replica.receive(message, now_in_microseconds())
            if self._replica.has_new_schema:
                store_schema_in_force(self._replica, self._provider)
        return [answer for to, answer in answers if to == peer]

    def _accept(self, arrived: list[tuple[str, InboxRow]]) -> None:
        """Process operations that subscriptions have brought."""
        for sender, rows in groupby(arrived, key=itemgetter(0)):
            with self._turn:
                try:
                    self._replica.accept([one.row for _, one in rows], sender)
                except BadRequest as error:  # malformed: they are dropped, as an answer by HTTP is
                    log.warning("operations are malformed", member=sender, reason=error.detail)
                if self._replica.has_new_schema:
                    store_schema_in_force(self._replica, self._provider)
        for follower in list(self._followers.values()):
            follower.wake.set()  # report to the peers what is here now

    def is_subscribed(self, peer: str) -> bool:
        return self._transport.subscribed(peer)

    def meet(self, contacts: Mapping[str, tuple[str, str]]) -> None:
        """Note members that this one does not know yet, because it joins: half of all must know it before it begins."""

        def add(member: BackboneMember) -> None:
            facts = member.store.facts
            for name in contacts.keys() - facts.table.members.keys() - {facts.name}:
                facts.table.members[name] = MemberLives(url=contacts[name][0], key=contacts[name][1])

        facts = self._facts()
        if facts is not None and contacts.keys() - facts.table.members.keys() - {facts.name}:
            self._call(add)

    def note(self, peer: str, **changes: object) -> None:
        self._links[peer] = replace(self._links.get(peer, LinkStatus()), **changes)  # type: ignore[arg-type]

    def link(self, peer: str) -> LinkStatus:
        return self._links.get(peer, LinkStatus())

    @property
    def wait(self) -> float:
        return self._wait

    @property
    def allows_plain(self) -> bool:
        return self._allows_plain

    @property
    def stopping(self) -> threading.Event:
        return self._stop


class _Follower:
    """The thread that pulls from one peer."""

    def __init__(self, replicator: Replicator, peer: str, url: str) -> None:
        self.url = url
        self.ended, self.wake = threading.Event(), threading.Event()
        self._replicator, self._peer = replicator, peer
        self.thread = threading.Thread(target=self._run, name=f"peer {peer}", daemon=True)
        self.thread.start()

    def end(self) -> None:
        self.ended.set()
        self.wake.set()

    @property
    def _is_over(self) -> bool:
        return self.ended.is_set() or self._replicator.stopping.is_set()

    def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        client: PeerClient | None = None
        while not self._is_over:
            try:
                if client is None:
                    name, key, mode = self._replicator.own_key()
                    url = check_member_url(self.url, self._replicator.allows_plain)
                    client = PeerClient(url, name, key, SET_KINDS[mode])
                self._sleep(self._exchange(client))
                pause = FIRST_PAUSE_SECONDS
            except Exception as error:  # a peer that is away or misbehaves must not end the thread
                self._note_failure(error)
                self._sleep(pause * random.uniform(0.7, 1.3))
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
        if client is not None:
            client.close()

    def _note_failure(self, error: Exception) -> None:
        link, reason = self._replicator.link(self._peer), _reason(error)
        if link.error != reason:
            log.warning("pulling from a member failed", member=self._peer, reason=reason)
        self._replicator.note(self._peer, error=reason, since=link.since or time.time())

    def _exchange(self, client: PeerClient) -> float:
        """Poll the peer once, and all that follows from it. Return the seconds until the next poll."""
        replicator, begun = self._replicator, time.monotonic()
        messages, silent, status = replicator.poll(self._peer)
        if not messages:  # it is paused
            replicator.note(self._peer, error="", since=0.0)
            return IDLE_PAUSE_SECONDS
        polls = [message for message in messages if isinstance(message, LogPoll)]
        is_plain = status is MemberStatus.ACTIVE and len(polls) == len(messages)
        is_subscribed = replicator.is_subscribed(self._peer)
        wait = replicator.wait if is_plain and not is_subscribed else 0
        answers = client.exchange(messages, wait, silent if wait else ())
        if status is MemberStatus.RETURNING:
            replicator.meet(client.contacts)
        has_rows, rounds = False, 0
        while answers and not self._is_over and rounds < MAX_ROUNDS:
            rounds += 1
            replies: list[BackboneMessage] = []
            for answer in answers:
                if isinstance(answer, LogPage):
                    has_rows = has_rows or bool(answer.rows)
                    replicator.note(
                        self._peer, contact=time.time(), offered=dict(answer.offered), error="", since=0.0,
                        clock_skew=client.clock_skew, transport="postgres" if is_subscribed else "http",
                        version=client.version,
                    )  # fmt: skip
                replies += replicator.receive(self._peer, answer)
            if any(isinstance(reply, StateRequest) for reply in replies) and rounds > 3:
                break  # the peer must learn something from others first
            answers = client.exchange(replies) if replies and not self._is_over else []
        if not is_plain:
            return JOINING_PAUSE_SECONDS
        if is_subscribed:
            return SUBSCRIBED_PAUSE_SECONDS
        return 0.0 if has_rows or time.monotonic() - begun > 0.5 * replicator.wait else IDLE_PAUSE_SECONDS / 10

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._is_over and (left := deadline - time.monotonic()) > 0:
            if self.wake.wait(min(left, 0.5)):
                self.wake.clear()
                return


def _reason(error: Exception) -> str:
    text = error.detail if isinstance(error, MdvError) else f"{type(error).__name__}: {error}"
    return text.splitlines()[0][:300] if text else type(error).__name__
