"""A member of a backbone: it receives messages, and returns messages to be sent.

    change → operation → log             here
    poll → page → hold → apply → log     elsewhere, in causal order, once

A message may be lost, repeated or late. The caller commits the store after each call, before it sends what the call
returned. Two rules keep the members equal:

- An operation is applied once, after everything that it depends on, by all members or by none.
- No member sends an operation whose deps lack something that a member takes as stable. So a member that was restored
  from a backup, or that was away for too long, begins a new life: it takes over the state of a peer that knows
  about the new life, and repeats its own changes on it (`redo.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mdv.backbone.document_state import ReplicatedDocument, make_change, merge_change
from mdv.backbone.local_operation import Signer, no_signature
from mdv.backbone.messages import (
    BackboneMessage,
    ClosePromise,
    ClosePromised,
    Envelope,
    JoinRequest,
    LifeSeen,
    LogPage,
    LogPoll,
    Reports,
    StateAnswer,
    StateNeeded,
    StateRequest,
    TransferredDocument,
)
from mdv.backbone.operation import (
    DOCUMENTS,
    FIRST_CHAIN,
    KNOWN_KINDS,
    LIFE,
    LMR,
    MEMBERS,
    RULES,
    SCHEMA,
    LogRow,
    Operation,
    decode_operation,
    encode_operation,
    next_chain,
)
from mdv.backbone.redo import NewLife, net_changes, redo_change, touched_documents
from mdv.backbone.registers import Register, Registers, later_registers, registers_from_json, registers_to_json
from mdv.backbone.replica_store import MemberStatus, ReplicaStore
from mdv.backbone.replicated_set import ElementState, SetKind
from mdv.backbone.stability import VectorReports
from mdv.backbone.sums import bucket_of, differing_buckets
from mdv.backbone.vector import Dot, Life, Vector, covers, joined
from mdv.errors import Refused
from mdv.model import Statement

PAGE_ROWS = 1000
"""The number of operations in one answer."""

MAX_HELD = 10_000
"""Operations that wait for others. More are dropped, and asked for again."""

MAX_AHEAD = 60_000_000
"""Microseconds by which the hybrid time of an operation may advance our clock."""

RELAY_AFTER = 5_000_000
"""Microseconds without a word of a life after which other members are asked for its operations, by default."""


_DRAFTED = DOCUMENTS, RULES, LMR
"""The kinds of operations that are drafts in a new life, and are repeated there."""


class LocalChange(NamedTuple):
    """Statements to be inserted into a document and deleted from it. `prefixes`: None if they do not change."""

    uri: str
    insert: Collection[Statement]
    delete: Collection[Statement]
    prefixes: Mapping[str, str] | None = None


class HeldOperation(NamedTuple):
    """An operation that waits for others. `sender`: the member that it was pulled from."""

    row: LogRow
    operation: Operation
    sender: str


class _Closing(NamedTuple):
    """Lives that the lead is closing, and what the others have promised."""

    names: frozenset[str]
    lives: frozenset[Life]
    is_removal: bool
    answers: dict[str, ClosePromised]


class BackboneMember:
    """One member. `redone`: the operations that each operation repeats; under the
    number 0 those of which nothing was left to repeat. `new_life` makes identifiers."""

    def __init__(self, store: ReplicaStore, kind: SetKind, new_life: NewLife, page_rows: int = PAGE_ROWS) -> None:
        self.store = store
        self.kind = kind
        self.redone: dict[Dot, tuple[Dot, ...]] = {}
        self._new_life = new_life
        self.verify: Callable[[LogRow, Operation], bool] = lambda row, operation: True
        """True if the origin of an operation has signed it. Others are dropped."""
        self.signer: Signer = no_signature
        self.kinds = KNOWN_KINDS
        """The kinds of operations that are applied. Others wait for a newer version of MDV."""
        self.relay_after = RELAY_AFTER
        self._page_rows = page_rows
        self._reports = VectorReports(store.facts.reports)
        self._held: dict[Life, dict[int, HeldOperation]] = {}
        self._bounds: dict[Life, int] = {}
        """Lives that a held operation closes."""
        self._heard: dict[Life, int] = {}
        self._answered: set[str] = set()
        self._seen_by: dict[str, tuple[Life, Vector]] = {}
        """The members that know our new life, with their lives and their vectors when they first said so."""
        self._closing: _Closing | None = None
        self._now = 0
        self.apply_size: int | None = None
        """How many changed statements one local transaction may have; None: no limit."""
        self.is_cut = False
        """The last call has left operations that can be applied: call `apply_more`."""

    def attach(self, store: ReplicaStore) -> None:
        """Go on with a store that was read again, because other processes also change the database."""
        self.store = store
        self._reports.counted = store.facts.reports

    @property
    def name(self) -> str:
        return self.store.facts.name

    @property
    def is_active(self) -> bool:
        return self.store.facts.status is MemberStatus.ACTIVE

    @property
    def asks_everyone(self) -> bool:
        """True if all members are to be polled, and not only those that operations are pulled from."""
        return not self.is_active or self._closing is not None or bool(self._open_promises())

    @property
    def waiting(self) -> int:
        """The number of operations that wait for others."""
        return sum(map(len, self._held.values()))

    # Local changes

    def register(
        self, uri: str, statements: Collection[Statement], prefixes: Mapping[str, str], now: int
    ) -> Operation | None:
        """Replace a document. An empty one is deleted. Return the operation; None if nothing changes."""
        stored, wanted = set(self.store.statements(uri)), set(statements)
        return self.change([LocalChange(uri, wanted - stored, stored - wanted, prefixes)], now)

    def change(self, changes: Iterable[LocalChange], now: int) -> Operation | None:
        """Change documents. Edits without effect are dropped. Return the operation; None if nothing changes."""
        store, kind = self.store, self.kind
        operation = self._next_operation(DOCUMENTS, now)
        documents = []
        for uri, insert, delete, prefixes in changes:
            states = store.states(uri, [*insert, *delete])
            insert = [statement for statement in insert if not kind.is_visible(states[statement])]
            delete = [statement for statement in delete if kind.is_visible(states[statement])]
            if not insert and not delete:
                continue
            change, applied = make_change(kind, uri, store.document(uri), states, insert, delete, prefixes, operation)
            store.write(uri, applied.document, applied.states)
            documents.append(change)
        if not documents:
            return None
        operation = operation._replace(documents=tuple(documents))
        self._append_or_draft(operation)
        return operation

    def change_rules(self, values: Mapping[str, Any], now: int) -> Operation:
        """Set the values of rules or locks by key; None removes one. The last writer decides."""
        operation = self._next_operation(RULES, now)
        written = {key: Register(operation.at, operation.life, value) for key, value in values.items()}
        operation = operation._replace(data={"registers": registers_to_json(written)})
        self.store.write_registers(later_registers(written, self.store.registers()))
        self._append_or_draft(operation)
        return operation

    def change_lmrs(self, values: Mapping[str, tuple[int | None, Any]], now: int) -> Operation:
        """Set what defines LMRs by key: each value with the number that orders it; None: the time of the operation."""
        operation = self._next_operation(LMR, now)
        written = {
            key: Register(operation.at if order is None else order, operation.life, value)
            for key, (order, value) in values.items()
        }
        operation = operation._replace(data={"registers": registers_to_json(written)})
        self._write_lmrs(written)
        self._append_or_draft(operation)
        return operation

    def _write_lmrs(self, given: Registers) -> None:
        self.store.write_lmrs(later_registers(given, self.store.lmrs(given)))

    def _append_or_draft(self, operation: Operation) -> None:
        facts = self.store.facts
        if facts.status is MemberStatus.RETURNING:
            facts.drafts.append(operation)
        else:
            self._append(operation)

    def _next_operation(self, kind: str, now: int, data: Mapping[str, Any] | None = None) -> Operation:
        facts = self.store.facts
        facts.clock = max(facts.clock + 1, now)
        drafts = sum(draft.life == facts.life for draft in facts.drafts) if kind in _DRAFTED else 0
        deps = {**facts.vector, facts.life: facts.seq + drafts} if drafts else dict(facts.vector)
        return Operation(facts.life, facts.seq + drafts + 1, deps, facts.clock, kind, facts.table.schema, data=data)

    def _append(self, operation: Operation) -> None:
        """Add an own operation to the log."""
        facts, body = self.store.facts, encode_operation(operation)
        chain = next_chain(facts.chain_of(operation.life), body)
        facts.vector[operation.life], facts.chains[operation.life] = operation.seq, chain
        signature = self.signer(operation.life, operation.seq, chain)
        self.store.append(LogRow(operation.life, operation.seq, chain, body, signature))

    def _announce(self, kind: str, data: Mapping[str, Any], now: int) -> None:
        """Make an operation about members or the schema."""
        operation = self._next_operation(kind, now, data)
        self._append(operation)
        self.store.facts.table.apply(operation)

    # Membership

    def found(self, now: int) -> None:
        """Found a backbone with this member alone, as its lead. Its documents
        reach the others by state transfer."""
        facts = self.store.facts
        data = {"term": 1, "number": 1, "lead": facts.name, "id": facts.life,
                "add": {facts.name: facts.life},
                "contacts": {facts.name: {"url": facts.url, "key": facts.key}}}  # fmt: skip
        self._announce(MEMBERS, data, now)

    def invite(self, code: str, expires: int) -> None:
        """Accept one new member with this code."""
        self._lead_number()
        self.store.facts.invitations[code] = expires

    def join(self, code: str, now: int) -> None:
        """Ask the lead for membership. The documents here are registered again when the state was transferred."""
        self.store.facts.code = code
        self.return_in_new_life(now)
        documents = list(self.store.documents())
        self.store.load([uri for uri, _ in documents])
        for uri, document in documents:
            statements = self.store.statements(uri)
            self.store.remove(uri)
            self.change([LocalChange(uri, statements, (), document.prefixes)], now)

    def put_schema(self, schema: str, now: int) -> None:
        """Put a schema in force at all members. Only the lead may."""
        number = self._lead_number()
        term = self.store.facts.table.lead[0]
        self._announce(SCHEMA, {"term": term, "number": number, "schema": schema}, now)

    def hand_over_lead(self, name: str, now: int) -> None:
        """Make another member the lead. Only the lead may."""
        self._lead_number()
        if self._closing is not None or self._open_promises():
            raise Refused("Other lives are being closed. Wait until this is done.")
        self.set_lead(name, now)

    def set_lead(self, name: str, now: int) -> None:
        """Begin the next term with a member as the lead, because the lead is lost. Any member may."""
        facts = self.store.facts
        if not self.is_active or name not in facts.table.active():
            raise Refused(f"The lead must be an active member, and {name} is not, or this member is not.")
        self._announce(MEMBERS, {"term": facts.table.lead[0] + 1, "number": 1, "lead": name}, now)
        self._drop_closing()

    def _drop_closing(self) -> None:
        """Leave the closing of lives to another lead. The promises remain: it learns of them."""
        if self.store.facts.table.lead[2] != self.name:
            self._closing = None

    def _lead_number(self) -> int:
        _, number, lead = self.store.facts.table.lead
        if lead != self.name:
            raise Refused(f"Only the lead can do this. Ask {lead}.")
        return max(number, self.store.facts.table.schema[1]) + 1

    def close(self, names: Iterable[str], is_removal: bool = False) -> list[Envelope]:
        """Close the lives of members that are away, so that stability does not wait for them. Only the lead may, and
        only if the others are a majority, unless the members are removed. The others must all promise first."""
        self._lead_number()
        facts, away = self.store.facts, frozenset(names)
        others = [name for name in facts.table.active() if name not in away]
        if self._closing is not None and self._closing.lives <= facts.table.closed.keys():
            self._closing = None  # another process has finished it
        if self._closing is not None or self._open_promises():
            raise Refused("Other lives are being closed. Wait until this is done.")
        if self.name in away or not (is_removal or facts.table.is_majority(others)):
            raise Refused("The other members are not a majority, so these cannot be closed. Wait, or remove them.")
        lives = frozenset(life for name in away for life in facts.table.members[name].current)
        if is_removal:
            facts.removing |= away
        self._closing = _Closing(away, lives, is_removal, {})
        self._promise(lives)
        requests = [message for name in others for message in self._promise_requests(name)]
        if not requests:
            self._finish_closing()
        return requests

    def _promise(self, lives: Iterable[Life]) -> None:
        facts = self.store.facts
        for life in lives:
            facts.promised.setdefault(life, facts.vector.get(life, 0))

    def _open_promises(self) -> frozenset[Life]:
        facts = self.store.facts
        return frozenset(facts.promised.keys() - facts.table.closed.keys())

    def _resume_closing(self, lives: frozenset[Life]) -> None:
        """Continue to close lives that a member has promised, after the lead was restarted or has changed."""
        table = self.store.facts.table
        open_lives = lives - table.closed.keys()
        if open_lives and self._closing is None and table.lead[2] == self.name:
            names = {table.owner_of(life) for life in open_lives}
            away = frozenset(name for name in names if name is not None and not table.members[name].current - lives)
            removing = self.store.facts.removing
            is_removal = bool(away) and away <= removing
            self._closing = _Closing(away - {self.name}, open_lives, is_removal, {})
            self._promise(open_lives)

    def _promise_requests(self, name: str) -> list[Envelope]:
        closing = self._closing
        if closing is None or name == self.name or name in closing.names or name in closing.answers:
            return []
        return [(name, ClosePromise(self.name, closing.lives))]

    def _finish_closing(self) -> None:
        """Close the lives once every member has promised that we or one of them knows as active."""
        self._drop_closing()
        facts, closing = self.store.facts, self._closing
        if closing is None or facts.status is MemberStatus.CHECKING:
            return
        answers = list(closing.answers.values())
        others = set(facts.table.active()).union(*(answer.active for answer in answers)) - closing.names - {self.name}
        if not others <= closing.answers.keys():
            return
        if not closing.is_removal and not facts.table.is_majority({*others, self.name}):
            return
        close = {
            life: max(facts.promised[life], *(answer.counts[life] for answer in answers))
            if answers else facts.promised[life]
            for life in closing.lives
        }  # fmt: skip
        self._closing = None
        facts.removing -= closing.names
        term, _, lead = facts.table.lead
        data = {"term": term, "number": self._lead_number(), "lead": lead, "close": close,
                "end": {name: sorted(member.current & closing.lives)
                        for name, member in facts.table.members.items() if member.current & closing.lives},
                "remove": sorted(closing.names) if closing.is_removal else []}  # fmt: skip
        self._announce(MEMBERS, data, self._now)

    # Start and return

    def start(self) -> None:
        """Begin after a start of the process: own operations are sent when the peers have confirmed that none is
        missing. A database that was restored from a backup without notice is found so."""
        facts = self.store.facts
        if facts.status is MemberStatus.ACTIVE:
            facts.started_at, facts.status, self._answered = facts.seq, MemberStatus.CHECKING, set()
        self._check_done()

    def stop_checking(self) -> None:
        """Send own operations although some members have not answered."""
        if self.store.facts.status is MemberStatus.CHECKING:
            self.store.facts.status = MemberStatus.ACTIVE

    def _check_done(self) -> None:
        facts = self.store.facts
        if facts.status is MemberStatus.CHECKING and set(facts.table.active()) <= {self.name, *self._answered}:
            facts.status = MemberStatus.ACTIVE

    def return_in_new_life(self, now: int, is_behind: bool = False) -> None:
        """Begin a new life: after a restore, or because the life was closed. Changes that no other member can have are
        kept as drafts, to be repeated. `is_behind`: the database was restored before its last start."""
        facts, store = self.store.facts, self.store
        bounds = {life: seq for life, seq in facts.table.closed.items() if facts.vector.get(life, 0) > seq}
        if facts.status is MemberStatus.RETURNING:
            bounds[facts.life] = 0  # this life never became active
        elif facts.life not in facts.table.closed and (is_behind or facts.status is MemberStatus.CHECKING):
            bounds[facts.life] = facts.started_at
        beyond = [decode_operation(row.body) for row in store.rows_beyond(bounds)]
        facts.drafts = [operation for operation in beyond if operation.kind in _DRAFTED] + facts.drafts
        for life, seq in bounds.items():
            facts.vector[life], facts.chains[life] = seq, store.chain_at(life, seq) or FIRST_CHAIN
            if not seq:
                facts.vector.pop(life, None)
        store.cut(bounds)
        member = facts.table.members.get(facts.name)
        after = sorted(member.begun) if member is not None else []
        facts.status = MemberStatus.RETURNING
        facts.life = self._new_life()
        self._held, self._bounds, self._closing, self._seen_by = {}, {}, None, {}
        operation = Operation(
            facts.life, 1, dict(facts.vector), max(facts.clock + 1, now), LIFE,
            data={"member": facts.name, "life": facts.life, "after": after},
        )  # fmt: skip
        facts.clock = operation.at
        self._append(operation)
        facts.table.apply(operation)

    def assume_active(self) -> None:
        """Go on without a peer, because all members were restored. The operator chooses the one with the latest
        backup; the others take over its state."""
        facts = self.store.facts
        if any(draft.dot != (facts.life, facts.seq + 1 + number) for number, draft in enumerate(facts.drafts)):
            raise Refused("This member has changes to repeat. Choose another member to go first.")
        facts.status, drafts = MemberStatus.ACTIVE, facts.drafts
        facts.drafts = []
        for draft in drafts:
            self._append(draft)

    # Messages

    def poll(self, peer: str, now: int) -> list[Envelope]:
        """Return the messages that ask a peer for what is missing here."""
        facts, self._now = self.store.facts, now
        if peer in facts.paused:
            return []
        self._resume_closing(self._open_promises())
        requests = self._promise_requests(peer)
        if facts.status is MemberStatus.RETURNING:
            requests.append((peer, self._state_request()))
            if facts.code is not None:
                requests.append((peer, JoinRequest(facts.name, facts.life, facts.code, facts.url, facts.key)))
        reports, promised = self._known_reports(), self._open_promises()
        return [
            (peer, LogPoll(self.name, facts.life, self.vector, reports, self.received, promised=promised)),
            *requests,
        ]

    def receive(self, message: BackboneMessage, now: int) -> list[Envelope]:
        """Process a message. Return those to be sent."""
        self._now = now
        if isinstance(message, LogPoll):
            answers = self._on_poll(message)
        elif isinstance(message, LogPage):
            answers = self._on_page(message)
        elif isinstance(message, StateRequest):
            answers = self._on_state_request(message)
        elif isinstance(message, StateAnswer):
            answers = self._on_state_answer(message)
        elif isinstance(message, StateNeeded):
            answers = self._on_state_needed(message)
        elif isinstance(message, LifeSeen):
            answers = self._on_life_seen(message)
        elif isinstance(message, ClosePromise):
            answers = self._on_promise(message)
        elif isinstance(message, ClosePromised):
            answers = self._on_promised(message)
        else:
            answers = self._on_join(message)
        return answers

    @property
    def vector(self) -> dict[Life, int]:
        """The vector that is sent to others: without own operations that are not sent yet."""
        facts = self.store.facts
        if facts.status is MemberStatus.CHECKING and facts.seq > facts.started_at:
            return {**facts.vector, facts.life: facts.started_at}
        return dict(facts.vector)

    @property
    def received(self) -> dict[Life, int]:
        """Our vector with the operations that wait here. Others may be sent these, too."""
        received = self.vector
        for life, held in self._held.items():
            seq = received.get(life, 0)
            while seq + 1 in held:
                seq += 1
            if seq:
                received[life] = seq
        return received

    def _known_reports(self) -> Reports:
        return self._reports.latest()

    def _note(self, life: Life, vector: Vector, reports: Reports) -> None:
        """Note the reports in a message. Return to a new life if others know more of this one than we do."""
        facts, ours = self.store.facts, self.vector
        behind = vector.get(facts.life, 0) > facts.seq
        for other, report in (*reports.items(), (life, vector)):
            if other == facts.life:
                behind = behind or not covers(ours, report)
            else:
                self._reports.add(other, report, ours)
        if behind and facts.status is not MemberStatus.RETURNING:
            self.return_in_new_life(self._now, is_behind=True)

    def _is_closed(self, life: Life, vector: Vector) -> bool:
        """True if a life was closed, or has operations of a closed life that are not valid."""
        closed = self.store.facts.table.closed
        return life in closed or any(vector.get(other, 0) > seq for other, seq in closed.items())

    def _on_poll(self, message: LogPoll) -> list[Envelope]:
        facts = self.store.facts
        self._note(message.life, message.vector, message.reports)
        self._resume_closing(message.promised)
        if self._is_closed(message.life, message.vector):
            return [(message.sender, StateNeeded(self.name, dict(facts.table.closed)))]
        ours, offered = self.vector, self.received
        lives = [message.of] if message.of is not None else sorted({*facts.table.lives_of(self.name), facts.life})
        rows: list[LogRow] = []
        for life in lives:
            after = message.have.get(life, 0)
            wanted = min(offered.get(life, 0) - after, self._page_rows - len(rows))
            if wanted > 0:
                stored = max(0, min(wanted, ours.get(life, 0) - after))
                found = self.store.rows(life, after, stored)
                if found is None:
                    return [(message.sender, StateNeeded(self.name, dict(facts.table.closed)))]
                rows += found
                rows += [self._held[life][seq].row for seq in range(after + stored + 1, after + wanted + 1)]
        page = LogPage(
            self.name, facts.life, ours, self._known_reports(), offered, tuple(rows), message.of, message.life,
            (ours.get(message.life, 0), facts.chain_of(message.life)), facts.table.is_ended(message.life),
        )  # fmt: skip
        return [(message.sender, page)]

    def _on_page(self, message: LogPage) -> list[Envelope]:
        facts = self.store.facts
        if message.sender in facts.paused:
            return []
        self._note(message.life, message.vector, message.reports)
        if message.asked_by == facts.life and facts.status is not MemberStatus.RETURNING:
            seq, chain = message.yours
            ours = facts.chain_of(facts.life) if seq == facts.seq else self.store.chain_at(facts.life, seq)
            if message.is_ended or (ours is not None and ours != chain):
                self.return_in_new_life(self._now, is_behind=True)
                return []
            self._answered.add(message.sender)
            self._check_done()
        before = self.received
        self._hold(message.rows, message.sender)
        self._apply_held()
        self._finish_closing()
        for life in facts.table.lives_of(message.sender):
            self._heard[life] = self._now
        return self._further_polls(message, before)

    def accept(self, rows: Iterable[LogRow], sender: str, now: int) -> None:
        """Process operations of a member that have arrived by another way than an answer to a poll."""
        facts, self._now = self.store.facts, now
        if sender in facts.paused:
            return
        self._hold(rows, sender)
        self._apply_held()
        self._finish_closing()

    def _further_polls(self, page: LogPage, before: Vector) -> list[Envelope]:
        """Ask the peer for the next page, and for what it has of others that we have not heard of for a while.
        `before`: what we had received before the page."""
        facts, received = self.store.facts, self.received
        theirs = {page.of} if page.of is not None else facts.table.lives_of(page.sender) | {page.life}
        more = [life for life in theirs if page.offered.get(life, 0) > received.get(life, 0) > before.get(life, 0)]
        polls = [LogPoll(self.name, facts.life, self.vector, {}, received, page.of)] if more else []
        if page.of is None:
            for life, seq in page.offered.items():
                have = received.get(life, 0)
                is_missing = have < seq and life not in theirs and life not in facts.forked
                if is_missing and self._is_silent(life) and life != facts.life:
                    polls.append(LogPoll(self.name, facts.life, self.vector, {}, self.received, life))
        return [(page.sender, poll) for poll in polls]

    def silent_lives(self, now: int) -> list[Life]:
        """Return the lives of others that were not heard of for a while. Every peer that has more of them is asked."""
        self._now = now
        return [life for life in self.store.facts.table.current_lives()
                if life != self.store.facts.life and self._is_silent(life)]  # fmt: skip

    def _is_silent(self, life: Life) -> bool:
        return self._now - self._heard.get(life, -self.relay_after) >= self.relay_after

    # Applying

    def _limit(self, life: Life, unlimited: int) -> int:
        """Return the last operation of a life that may be accepted."""
        facts = self.store.facts
        for bounds in (facts.table.closed, self._bounds, facts.promised):
            if life in bounds:
                return bounds[life]
        return unlimited

    def _hold(self, rows: Iterable[LogRow], sender: str) -> None:
        """Keep operations that are missing here until they can be applied."""
        facts = self.store.facts
        for row in rows:
            if self._is_applied(row) or row.life == facts.life or row.life in facts.forked:
                continue
            held = self._held.setdefault(row.life, {})
            is_next = row.seq == facts.vector.get(row.life, 0) + 1
            if row.seq in held or (self.waiting >= MAX_HELD and not is_next):
                continue
            operation = decode_operation(row.body)
            if not self.verify(row, operation):
                continue
            held[row.seq] = HeldOperation(row, operation, sender)
            if operation.kind == MEMBERS and operation.data is not None:
                self._bounds.update(operation.data.get("close", {}))

    def _is_applied(self, row: LogRow) -> bool:
        return row.seq <= self.store.facts.vector.get(row.life, 0)

    def _apply_held(self) -> None:
        """Apply all operations whose dependencies are applied, in one local transaction."""
        facts = self.store.facts
        self.is_cut = False
        if not self.is_active or not self._held:
            return  # own operations that are not sent yet are made on the vector that is sent to others
        self._drop_paused()
        self.store.prefetch(change for operation in self._next_held() for change in operation.documents)
        work = _Work(self.store, self.kind)
        progress = True
        while progress:
            progress = False
            for life, held in self._held.items():
                while held and life not in facts.forked and not self.is_cut:
                    seq = facts.vector.get(life, 0) + 1
                    if seq not in held or seq > self._limit(life, seq) or not self._is_ready(held[seq].operation):
                        break
                    row, operation, _ = held.pop(seq)
                    if next_chain(facts.chain_of(life), row.body) != row.chain:
                        facts.forked.add(life)
                        break
                    self._apply(row, operation, work)
                    progress = True
                    self.is_cut = self.apply_size is not None and work.size >= self.apply_size
        work.write()
        self._drop_held()
        self._reports.recount(self.vector)
        if facts.table.is_ended(facts.life):
            self.return_in_new_life(self._now, is_behind=True)
        elif any(life == facts.life or facts.vector.get(life, 0) > seq for life, seq in facts.table.closed.items()):
            self.return_in_new_life(self._now)
        elif self.is_active:
            self._end_other_lives()

    def _drop_paused(self) -> None:
        """Drop the waiting operations that were pulled from members that are paused now."""
        paused = self.store.facts.paused
        if paused:
            for life, held in self._held.items():
                self._held[life] = {seq: one for seq, one in held.items() if one.sender not in paused}

    def apply_more(self, now: int) -> list[Envelope]:
        """Apply operations that the last call has left, in another local transaction."""
        self._now = now
        self._apply_held()
        self._finish_closing()
        return []

    def _next_held(self) -> Iterator[Operation]:
        """Yield the waiting operations that may be applied next, about as many as one local transaction takes."""
        size = 0
        for life, held in self._held.items():
            seq = self.store.facts.vector.get(life, 0) + 1
            while seq in held and (self.apply_size is None or size < self.apply_size):
                operation = held[seq].operation
                size += size_of(operation)
                seq += 1
                yield operation

    def _drop_held(self) -> None:
        """Drop the waiting operations that were applied, and those that never can be."""
        facts = self.store.facts
        for life, held in list(self._held.items()):
            first, last = facts.vector.get(life, 0), facts.table.closed.get(life)
            for seq in [seq for seq in held if seq <= first or (last is not None and seq > last)]:
                del held[seq]
            if not held or life in facts.forked:
                del self._held[life]

    def _is_ready(self, operation: Operation) -> bool:
        facts = self.store.facts
        if operation.kind not in self.kinds:
            return False
        # A removed member may begin a life before it knows: all must apply that, or none. It has no effect.
        if operation.kind == LIFE and (operation.data or {})["member"] not in facts.table.members:
            return False
        return covers(facts.vector, operation.deps)

    def _apply(self, row: LogRow, operation: Operation, work: _Work) -> None:
        facts = self.store.facts
        if operation.kind == DOCUMENTS:
            work.merge(operation)
        elif operation.kind == RULES:
            written = registers_from_json((operation.data or {})["registers"])
            self.store.write_registers(later_registers(written, self.store.registers()))
        elif operation.kind == LMR:
            self._write_lmrs(registers_from_json((operation.data or {})["registers"]))
        else:
            facts.table.apply(operation)
        facts.vector[row.life], facts.chains[row.life] = row.seq, row.chain
        facts.clock = max(facts.clock, min(operation.at, self._now + MAX_AHEAD))
        self.store.append(row)

    def _end_other_lives(self) -> None:
        """End lives of this member that it did not know when it began its present one."""
        facts = self.store.facts
        member = facts.table.members.get(facts.name)
        others = (member.current - {facts.life}) if member is not None else set()
        if others:
            data = {"member": facts.name, "life": facts.life, "after": sorted(others)}
            self._announce(LIFE, data, self._now)

    def settle(self) -> None:
        """Find which operations are stable. Truncate the log, and forget marks that are no longer needed."""
        facts = self.store.facts
        if facts.status is MemberStatus.RETURNING:
            return
        self._reports.recount(self.vector)
        facts.stable = self._reports.stable(facts.table, facts.life, self.vector, facts.stable)
        self.store.truncate(facts.stable)

    # State transfer

    def _state_request(self) -> StateRequest:
        facts = self.store.facts
        sums = self.store.sums() | {bucket_of(uri): -1 for uri in touched_documents(facts.drafts)}
        return StateRequest(self.name, facts.life, self.vector, self._known_reports(), sums)

    def _on_state_needed(self, message: StateNeeded) -> list[Envelope]:
        facts = self.store.facts
        if facts.life in message.closed or any(facts.vector.get(life, 0) > seq for life, seq in message.closed.items()):
            facts.table.closed.update(message.closed)
            self.return_in_new_life(self._now)
            return []
        return [(message.sender, self._state_request())] if self.is_active else []

    def _on_state_request(self, message: StateRequest) -> list[Envelope]:
        """Send the state, once ours includes all that the peer has."""
        facts, store = self.store.facts, self.store
        self._note(message.life, message.vector, message.reports)
        if self._is_closed(message.life, message.vector):
            return [(message.sender, StateNeeded(self.name, dict(facts.table.closed)))]
        if facts.status is MemberStatus.RETURNING:
            facts.required[message.sender] = message.life  # we take over no state without this life
        seen: list[Envelope] = []
        if message.life in facts.vector or message.life in facts.required.values():
            seen = [(message.sender, LifeSeen(self.name, facts.life, message.life, self.vector))]
        if not self.is_active:
            return seen
        missing = [life for life, seq in message.vector.items()
                   if facts.vector.get(life, 0) < min(seq, self._limit(life, seq))]  # fmt: skip
        if missing:
            return [
                (message.sender, LogPoll(self.name, facts.life, self.vector, {}, self.received, life))
                for life in missing
            ]
        if message.life not in set(facts.table.current_lives()):
            return seen
        buckets = differing_buckets(message.sums, store.sums())
        documents = tuple([
            TransferredDocument(uri, document, states) for uri, document, states in store.in_buckets(buckets)
        ])  # fmt: skip
        answer = StateAnswer(
            self.name, facts.life, self.vector, self._known_reports(), dict(facts.chains), facts.table.copy(),
            dict(facts.stable), {**facts.promised, **self._bounds}, buckets, documents, message.life,
            dict(store.registers()), dict(store.lmrs()),
        )  # fmt: skip
        return [*seen, (message.sender, answer)]

    def _on_life_seen(self, message: LifeSeen) -> list[Envelope]:
        known = self._seen_by.get(message.sender)
        if message.life == self.store.facts.life and (known is None or known[0] != message.by):
            self._seen_by[message.sender] = message.by, message.vector
        return []

    def _on_state_answer(self, message: StateAnswer) -> list[Envelope]:
        facts = self.store.facts
        if message.sender in facts.paused or message.asked_by != facts.life or not self._can_take(message):
            return []
        self._note(message.life, message.vector, message.reports)
        if facts.life != message.asked_by:
            return []
        self._take_state(message)
        if facts.status is MemberStatus.RETURNING:
            facts.status, facts.code, facts.required = MemberStatus.ACTIVE, None, {}
            self._redo_drafts()
            self._end_other_lives()
        self._finish_closing()
        return []

    def _can_take(self, message: StateAnswer) -> bool:
        """True if the state of the peer includes ours, and all documents that must be replaced."""
        facts, closed = self.store.facts, message.table.closed
        if facts.status is MemberStatus.CHECKING or facts.life in closed:
            return False
        seen_by = {name: vector for name, (_, vector) in self._seen_by.items() if message.table.is_member(name)}
        if facts.status is MemberStatus.RETURNING and not (
            message.table.is_quorum(facts.name, seen_by)
            and all(covers(message.vector, _without(vector, closed)) for vector in seen_by.values())
            and all(life in message.vector for name, life in facts.required.items() if message.table.is_member(name))
        ):
            return False
        if not facts.table.closed.keys() <= closed.keys():
            return False  # the peer does not know yet that it may be closed itself
        ours = {life: min(seq, closed.get(life, seq)) for life, seq in facts.vector.items()}
        touched = {bucket_of(uri) for uri in touched_documents(facts.drafts)}
        return covers(message.vector, ours) and touched <= message.buckets

    def _take_state(self, message: StateAnswer) -> None:
        facts, store = self.store.facts, self.store
        given = {document.uri for document in message.documents}
        gone = [uri for uri, _ in store.documents() if bucket_of(uri) in message.buckets and uri not in given]
        store.load([*gone, *given])
        for uri in gone:
            store.remove(uri)
        for uri, document, states in message.documents:
            store.remove(uri)
            store.write(uri, document, states)
            store.doubt(uri)
        for life, seq in message.vector.items():
            if seq != facts.vector.get(life, 0):
                facts.vector[life] = seq
                facts.chains[life] = message.chains.get(life, FIRST_CHAIN)
                store.skip_to(life, seq)
        store.write_registers(later_registers(message.registers, store.registers()))
        self._write_lmrs(message.lmrs)
        facts.table = message.table.copy()
        facts.stable = joined(facts.stable, message.stable)
        facts.promised = {**message.promised, **facts.promised}
        self._held = {}
        self._reports.recount(self.vector)

    def take_documents(self, documents: Iterable[TransferredDocument], seen: Mapping[str, int]) -> list[str]:
        """Replace documents that have diverged by those of a peer. Return those that were replaced. `seen`: the
        versions that were compared; documents with others have changed since, and stay. Both members have applied the
        same operations to the documents, so that later ones continue them."""
        facts, store = self.store.facts, self.store
        if not self.is_active:
            raise Refused(f"This member is {facts.status.value}. Documents are repaired when it is active.")
        given = {one.uri: one for one in documents}
        store.load(list(given))
        taken = []
        for uri, one in given.items():
            if store.document(uri).version != seen.get(uri):
                continue
            store.remove(uri)
            if one.document.version:
                store.write(uri, one.document, one.states)
            facts.diverged.discard(uri)
            taken.append(uri)
        return taken

    def _redo_drafts(self) -> None:
        """Repeat the drafts on the state that was transferred."""
        facts = self.store.facts
        drafts, facts.drafts = facts.drafts, []
        changes = [draft for draft in drafts if draft.kind == DOCUMENTS]
        self._note_redone(self._redo_documents(changes), changes)
        changes = [draft for draft in drafts if draft.kind == RULES]
        self._note_redone(self._redo_rules(RULES, changes, self.store.registers()), changes)
        changes = [draft for draft in drafts if draft.kind == LMR]
        self._note_redone(self._redo_rules(LMR, changes, self.store.lmrs()), changes)

    def _note_redone(self, operation: Operation | None, drafts: Sequence[Operation]) -> None:
        if drafts:
            dot = operation.dot if operation is not None else (self.store.facts.life, 0)
            self.redone[dot] = (*self.redone.get(dot, ()), *(draft.dot for draft in drafts))

    def _redo_documents(self, drafts: Sequence[Operation]) -> Operation | None:
        """Repeat changes of documents. They were validated under the schema that the first of them names."""
        if not drafts:
            return None
        store, operation = self.store, self._next_operation(DOCUMENTS, self._now)
        changes = []
        for uri, net in net_changes(drafts).items():
            states = store.states(uri, net.numbers)
            redone = redo_change(self.kind, uri, store.document(uri), states, net, operation)
            if redone is not None:
                store.write(uri, redone[1].document, redone[1].states)
                store.doubt(uri)
                changes.append(redone[0])
        if not changes:
            return None
        operation = operation._replace(documents=tuple(changes), schema=min(draft.schema for draft in drafts))
        self._append(operation)
        return operation

    def _redo_rules(self, kind: str, drafts: Sequence[Operation], stored: Registers) -> Operation | None:
        """Repeat changes of rules or LMRs, with their times, unless later ones have replaced them."""
        written = {
            key: one
            for draft in drafts
            for key, one in registers_from_json((draft.data or {})["registers"]).items()
            if stored.get(key) == one
        }
        if not written:
            return None
        operation = self._next_operation(kind, self._now, {"registers": registers_to_json(written)})
        self._append(operation)
        return operation

    # Membership messages

    def _on_promise(self, message: ClosePromise) -> list[Envelope]:
        facts = self.store.facts
        if facts.status is MemberStatus.CHECKING or facts.life in message.lives:
            return []
        self._promise(message.lives)
        counts = {life: facts.vector.get(life, 0) for life in message.lives}
        return [(message.sender, ClosePromised(self.name, frozenset(facts.table.active()), counts))]

    def _on_promised(self, message: ClosePromised) -> list[Envelope]:
        if self._closing is not None and message.counts.keys() == self._closing.lives:
            self._closing.answers[message.sender] = message
            self._finish_closing()
        return []

    def _on_join(self, message: JoinRequest) -> list[Envelope]:
        """Add a new member, once for each invitation."""
        facts = self.store.facts
        term, _, lead = facts.table.lead
        if message.sender in facts.table.members:
            return []
        expires = facts.invitations.pop(message.code, None) if lead == self.name else None
        if expires is not None and expires > self._now:
            data = {"term": term, "number": self._lead_number(), "lead": lead, "add": {message.sender: message.life},
                    "contacts": {message.sender: {"url": message.url, "key": message.key}}}  # fmt: skip
            self._announce(MEMBERS, data, self._now)
        return []


def size_of(operation: Operation) -> int:
    """Return about how much work an operation is: its statements, and one for each document."""
    return sum(1 + len(change.inserted) + len(change.deleted) for change in operation.documents)


def is_under_another_schema(operation: Operation, store: ReplicaStore) -> bool:
    """True if the documents of an operation were validated by another schema than the one in force."""
    return operation.schema != store.facts.table.schema


class _Work:
    """The documents that one local transaction changes. Each is written once, after all operations."""

    def __init__(self, store: ReplicaStore, kind: SetKind) -> None:
        self._store, self._kind = store, kind
        self._documents: dict[str, ReplicatedDocument] = {}
        self._states: dict[str, dict[Statement, ElementState]] = {}
        self.size = 0

    def merge(self, operation: Operation) -> None:
        self.size += size_of(operation)
        for change in operation.documents:
            uri = change.uri
            document = self._documents.get(uri) or self._store.document(uri)
            states = self._states.setdefault(uri, {})
            statements: Sequence[Statement] = [one for one, _ in (*change.inserted, *change.deleted)]
            missing = [one for one in statements if one not in states]
            if missing:
                states.update(self._store.states(uri, missing))
            if is_under_another_schema(operation, self._store):
                self._store.doubt(uri)
            applied = merge_change(self._kind, document, states, change, operation)
            states.update(applied.states)
            self._documents[uri] = applied.document
            if applied.diverged:
                self._store.facts.note_diverged([uri])

    def write(self) -> None:
        for uri, document in self._documents.items():
            self._store.write(uri, document, self._states[uri])


def _without(vector: Vector, lives: Collection[Life]) -> dict[Life, int]:
    return {life: seq for life, seq in vector.items() if life not in lives}
