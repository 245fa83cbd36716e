"""The member of this MDP in a backbone: the core over Postgres, one database transaction at a time.

    message → lock → core → store, filter, publish, log, facts → commit → messages to be sent

The core decides; `replica_store.py` collects what it writes, and the transaction of the MDP stores it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from typing import NamedTuple
from uuid import uuid4

from sqlalchemy import Connection

from mdv.backbone.conflicts import MERGED, BackboneConflict, ConflictRules, find_conflicts
from mdv.backbone.cset import CSet
from mdv.backbone.divergence import DocumentList
from mdv.backbone.kinds import SET_KINDS
from mdv.backbone.local_operation import LocalFacts
from mdv.backbone.member import RELAY_AFTER, BackboneMember
from mdv.backbone.messages import BackboneMessage, Envelope, TransferredDocument
from mdv.backbone.operation import LogRow
from mdv.backbone.replica_store import MemberFacts
from mdv.backbone.replicated_set import ElementState
from mdv.backbone.sums import bucket_of, document_hash, document_sums
from mdv.backbone.vector import Life
from mdv.db.replica.checks import iter_counters
from mdv.db.replica.documents import ReplicatedRow, find_replicated, iter_sums, list_merged, read_rows
from mdv.db.replica.facts import StoredFacts, create_facts, forget_backbone, read_facts, read_local_facts
from mdv.db.replica.jobs import has_interactive_jobs
from mdv.db.replica.keys import read_private_key
from mdv.db.replica.log import list_operations, measure_log
from mdv.db.replica.marks import count_marks, find_document_marks
from mdv.db.state import LockPurpose
from mdv.errors import Conflict, InvalidDocument, NotFound
from mdv.failpoints import COMMITTED_OPERATIONS, hit_failpoint
from mdv.mdp.provider import Provider
from mdv.mdp.replica_store import PostgresReplicaStore
from mdv.mdp.rule_cache import RuleOverBudget
from mdv.mdp.rules.suspend import suspend_over_budget
from mdv.mdp.transaction import Transaction
from mdv.model import Document, Statement
from mdv.rdf.schema import Schema
from mdv.rdf.validate import validate
from mdv.replication.signed_operations import is_signed_by_origin

TARGET_SECONDS = 0.3
"""The target duration of a local transaction that applies operations."""
TARGET_SECONDS_BESIDE_JOBS = 0.05
"""The same while interactive jobs wait."""
FIRST_SIZE = 2000
MIN_SIZE = 100
MAX_SIZE = 200_000
"""Changed statements, and documents, of one local transaction."""
MAX_COUNTED = 1000


class BackboneSizes(NamedTuple):
    """The vector, the bytes of the log, the number of marks, of open conflicts and of documents that were ever found
    diverged."""

    vector: dict[Life, int]
    log_bytes: int
    marks: int
    conflicts: int
    diverged: int


class Replica:
    """The member of this MDP. One object for a process: it keeps operations that wait for others in memory.

    `published`: called after a commit that may have added events to feeds.
    """

    def __init__(self, provider: Provider, published: Callable[[], object] = lambda: None) -> None:
        self._provider = provider
        self._autocommit = provider.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._published = published
        self._member: BackboneMember | None = None
        self.relay_after = RELAY_AFTER
        self._new_lmrs: set[str] | None = None
        self._size = FIRST_SIZE

    # The member

    def facts(self, connection: Connection) -> MemberFacts | None:
        """Return what this member knows, without the lock; None if this MDP is in no backbone."""
        stored = read_facts(connection)
        return stored.facts if stored is not None else None

    def private_key(self, connection: Connection) -> bytes:
        """Return the key that signs what this member sends."""
        key = read_private_key(connection)
        if key is None:
            raise in_no_backbone()
        return key

    def progress(self, connection: Connection) -> LocalFacts | None:
        """Return the life and the vector of this member, without the lock; None if this MDP is in no backbone. It costs
        less than `facts`: waiting requests read it after every commit."""
        return read_local_facts(connection)

    def create(self, name: str, url: str, mode: str) -> None:
        """Make this MDP a member without a backbone. Call `found` or `join` of the member next."""
        if mode not in SET_KINDS:
            raise NotFound(f"There is no set {mode}. Choose one of {', '.join(SET_KINDS)}.")
        with self._provider.engine.begin() as connection:
            tx = Transaction(self._provider, connection)
            tx.lock()
            if tx.state.replica is not None:
                raise Conflict("This MDP is a member of a backbone already. Let it leave that one first.")
            create_facts(connection, name, url, mode, str(tx.state.epoch))

    def discard(
        self, before: Callable[[Connection, MemberFacts], object] = lambda connection, facts: None
    ) -> MemberFacts:
        """Forget the backbone. The documents remain. `before`: called with the lock; it may raise an error. Return what
        this member knew."""
        with self._provider.engine.begin() as connection:
            Transaction(self._provider, connection).lock()
            facts = self.facts(connection)
            if facts is None:
                raise in_no_backbone()
            before(connection, facts)
            forget_backbone(connection)
        self.reset()
        return facts

    def reset(self) -> None:
        """Forget the operations that wait in memory, because this MDP is in no backbone, or in another one."""
        self._member = None

    def mode(self, connection: Connection) -> str | None:
        """Return the kind of the replicated set; None if this MDP is in no backbone."""
        stored = read_facts(connection)
        return stored.mode if stored is not None else None

    @contextmanager
    def member(self, connection: Connection | None = None) -> Iterator[BackboneMember]:
        """Yield the member in a transaction with the lock. What it changes is committed at the end of the block.
        `connection`: the transaction, which the caller commits."""
        begun = self._provider.engine.begin() if connection is None else nullcontext(connection)
        with begun as connection:
            tx = Transaction(self._provider, connection)
            with tx.locking(LockPurpose.DOCUMENTS):
                """The lock pins plans."""
            stored = read_facts(connection)
            if stored is None:
                raise in_no_backbone()
            store = PostgresReplicaStore(tx, stored, SET_KINDS[stored.mode])
            member = self._attach(store)
            try:
                self._notice_restore(member, stored)
                yield member
                done = store.finish()
            except BaseException:
                self._member = None  # what it knew of this transaction is wrong
                raise
        if self._new_lmrs is not None:
            self._new_lmrs |= store.new_lmrs
        if done is not None:
            self._published()

    def _attach(self, store: PostgresReplicaStore) -> BackboneMember:
        if self._member is None or self._member.kind is not store.kind:
            self._member = member = BackboneMember(store, store.kind, lambda: str(uuid4()))
            member.relay_after, member.signer = self.relay_after, self._provider.signer
        self._member.attach(store)
        if store.facts.key:
            self._member.verify = lambda row, operation: is_signed_by_origin(store.facts.table, row, operation)
        return self._member

    def _notice_restore(self, member: BackboneMember, stored: StoredFacts) -> None:
        """Begin another life if the database was restored from a backup: it has another epoch then."""
        if stored.epoch != stored.local.epoch:
            member.return_in_new_life(now_in_microseconds(), is_behind=False)

    def receive(self, message: BackboneMessage, now: int | None = None) -> list[Envelope]:
        """Process a message. Return those to be sent. All operations that can be applied are applied, in local
        transactions of limited duration."""
        answers = self._apply(lambda member: member.receive(message, now or now_in_microseconds()))
        while self.is_cut:
            answers += self._apply(lambda member: member.apply_more(now or now_in_microseconds()))
        return answers

    def accept(self, rows: Sequence[LogRow], sender: str) -> None:
        """Process operations that were not pulled. Malformed ones are dropped."""

        def step(member: BackboneMember) -> list[Envelope]:
            member.accept(rows, sender, now_in_microseconds())
            return []

        self._apply(step)
        while self.is_cut:
            self._apply(lambda member: member.apply_more(now_in_microseconds()))

    def _apply(self, step: Callable[[BackboneMember], list[Envelope]]) -> list[Envelope]:
        """Take a step of the member. Suspend rules that take too long, as a worker does."""
        while True:
            try:
                with self._applying() as member:
                    answers = step(member)
                hit_failpoint(COMMITTED_OPERATIONS)
                return answers
            except RuleOverBudget as error:
                suspend_over_budget(error, self._provider)

    @property
    def waiting(self) -> int:
        """The number of operations that wait for others, in this process."""
        return self._member.waiting if self._member is not None else 0

    @property
    def has_new_schema(self) -> bool:
        """True if the schema of the backbone is not stored here, as far as this process knows."""
        return self._member is not None and self._member.store.facts.has_new_schema

    def take_new_lmrs(self) -> set[str] | None:
        """Return the lasting IDs of LMRs whose definitions have changed here since the last call; None for all."""
        found, self._new_lmrs = self._new_lmrs, set()
        return found

    @property
    def is_cut(self) -> bool:
        """True if there are operations that can be applied at once."""
        return self._member is not None and self._member.is_cut

    @contextmanager
    def _applying(self) -> Iterator[BackboneMember]:
        """Yield the member. The number of operations that it applies is limited, and adapts to their cost."""
        begun = time.monotonic()
        with self._autocommit.connect() as connection:
            target = TARGET_SECONDS_BESIDE_JOBS if has_interactive_jobs(connection) else TARGET_SECONDS
        with self.member() as member:
            member.apply_size = max(MIN_SIZE, int(self._size * target / TARGET_SECONDS))
            yield member
            limit, was_cut = member.apply_size, member.is_cut
            member.apply_size = None
        seconds = time.monotonic() - begun
        if was_cut or seconds > target:
            self._size = int(
                min(max(self._size * (0.5 + 0.5 * target / max(seconds, 0.001)), MIN_SIZE), MAX_SIZE, 4 * limit)
            )

    def report_commit(self) -> None:
        """Report a commit that may have added events to feeds."""
        self._published()

    def settle(self) -> None:
        """Find out which operations every member has, and forget them."""
        with self.member() as member:
            member.settle()

    def repair(
        self, documents: Collection[TransferredDocument], seen: Mapping[str, int], is_restoration: bool
    ) -> list[str]:
        """Replace documents by those of a peer, in one transaction. Return those that were replaced. `seen`: their
        versions when they were compared. `is_restoration`: the rows were changed from outside, and rules and feeds
        still know what the peer has."""
        with self.member() as member:
            store = member.store
            assert isinstance(store, PostgresReplicaStore)
            store.is_restoration = is_restoration
            store.mend_rows([one.uri for one in documents])
            return member.take_documents(documents, seen)

    # Reading

    def measure(self, connection: Connection) -> BackboneSizes | None:
        """Return the sizes of what the backbone needs; None if this MDP is in no backbone. At most `MAX_COUNTED`
        documents with conflicts are looked at."""
        facts = self.facts(connection)
        if facts is None:
            return None
        rows = list_merged(connection, "", MAX_COUNTED)
        conflicts = sum(conflict.kind != MERGED for conflict in self._conflicts_of(connection, rows))
        return BackboneSizes(
            dict(facts.vector), measure_log(connection)[1], count_marks(connection), conflicts, facts.divergences
        )

    def log_bytes(self, connection: Connection) -> int:
        """Return the size of the log."""
        return measure_log(connection)[1]

    def read_rows(self, connection: Connection, life: Life, after: int, limit: int) -> list[LogRow] | None:
        """Return operations of a life from the log; None if some of them are no longer kept."""
        stored = read_facts(connection)
        if stored is None or after < stored.bases.get(life, (0, b""))[0]:
            return None
        return list_operations(connection, life, after, limit)

    def sums(self, connection: Connection) -> dict[int, int]:
        """Return the sums of all documents by bucket."""
        return document_sums(self._documents_to_compare(connection))

    def _documents_to_compare(self, connection: Connection) -> Iterator[tuple[str, int, int]]:
        """Yield the URI, the version and the digest of every document; in a cset, with its counters."""
        counters: dict[str, int] = {}
        if self.mode(connection) == CSet.name and count_marks(connection):
            for uri, digest, count in iter_counters(connection):
                counters[uri] = counters.get(uri, 0) + document_hash("", digest, count)
        for uri, version, digest in iter_sums(connection):
            yield uri, version, (digest + counters.get(uri, 0)) % 2**64

    def documents_of_buckets(self, connection: Connection, buckets: Collection[int]) -> DocumentList:
        """Return the documents of some buckets, also deleted ones, with our vector. `connection`: a snapshot."""
        facts, wanted = self.facts(connection), set(buckets)
        found = {
            uri: (version, digest)
            for uri, version, digest in self._documents_to_compare(connection)
            if bucket_of(uri) in wanted
        }
        return DocumentList(dict(facts.vector) if facts is not None else {}, found)

    def marks(self, connection: Connection, uri: str, every: bool = False) -> list[tuple[Statement, int]]:
        """Return the counters of the statements of a document, or the numbers of their dots: those that are not 0 or 1,
        or all with `every`."""
        stored = read_facts(connection)
        row = find_replicated(connection, [uri]).get(uri)
        if stored is None or row is None:
            raise NotFound(f"There is no document {uri} in a backbone.")
        kind, number = SET_KINDS[stored.mode], row.stored.id
        states: dict[Statement, ElementState] = {
            one: kind.state_of_row(dot) for one, dot in read_rows(connection, [number])[number].items()
        }
        states |= {one: state for (_, one), state in find_document_marks(connection, kind, [number]).items()}
        counted = [(one, kind.count(state)) for one, state in states.items()]
        return sorted((one, count) for one, count in counted if every or count not in (0, 1))

    def conflicts(self, connection: Connection, after: str = "", limit: int = 100) -> list[BackboneConflict]:
        """Return the open conflicts of the next documents after a URI that were changed at several members at once."""
        return self._conflicts_of(connection, list_merged(connection, after, limit))

    def conflict_page(
        self, connection: Connection, after: str, limit: int, uri: str | None = None
    ) -> tuple[list[BackboneConflict], str | None]:
        """Return the open conflicts of some documents after the URI `after`, or of one document, and where the next
        page begins. A page has all conflicts of its documents."""
        if uri is not None:
            return self._conflicts_of(connection, list(find_replicated(connection, [uri]).values())), None
        found: list[BackboneConflict] = []
        while len(found) < limit:
            rows = list_merged(connection, after, limit)
            found += self._conflicts_of(connection, rows)
            if len(rows) < limit:
                return found, None
            after = rows[-1].stored.uri
        return found, after

    def _conflicts_of(self, connection: Connection, rows: Sequence[ReplicatedRow]) -> list[BackboneConflict]:
        schema = self._provider.schemas.now(connection).schema
        rules, now = conflict_rules(schema), now_in_microseconds()
        stored = read_rows(connection, [row.stored.id for row in rows])
        found: list[BackboneConflict] = []
        for row in rows:
            found += find_conflicts(row.stored.uri, row.document, stored[row.stored.id], rules, now)
        return found

    def state_page(
        self, connection: Connection, after: str, limit: int, buckets: Collection[int] | None
    ) -> list[TransferredDocument]:
        """Return the next documents after a URI with the states of their statements: all, or those of some buckets."""
        kind = SET_KINDS[self.mode(connection) or "orset"]
        uris = sorted(uri for uri, _, _ in iter_sums(connection)
                      if uri > after and (buckets is None or bucket_of(uri) in buckets))[:limit]  # fmt: skip
        rows = find_replicated(connection, uris)
        numbers = [row.stored.id for row in rows.values()]
        dots, marks = read_rows(connection, numbers), find_document_marks(connection, kind, numbers)
        found = []
        for uri in uris:
            number = rows[uri].stored.id
            states: dict[Statement, ElementState] = {one: kind.state_of_row(dot) for one, dot in dots[number].items()}
            states |= {one: state for (marked, one), state in marks.items() if marked == number}
            found.append(TransferredDocument(uri, rows[uri].document, states))
        return found


def in_no_backbone() -> NotFound:
    return NotFound("This MDP is in no backbone. Found one with `mdv peer found`, or join one with `mdv peer join`.")


def conflict_rules(schema: Schema) -> ConflictRules:
    """Return what a schema says about conflicts."""

    def singles(name: str) -> list[str]:
        declared = schema.property_of(name)
        above = [schema.property_of(iri) for iri in declared.superproperties] if declared is not None else []
        return [one.iri for one in above if one is not None and not one.set_valued]

    def refuses(statement: Statement) -> bool:
        with suppress(InvalidDocument):
            validate(Document(statement.subject, (statement,)), schema)
            return False
        return True

    return ConflictRules(lru_cache(maxsize=None)(singles), refuses)


def now_in_microseconds() -> int:
    return time.time_ns() // 1000
