"""Checks of a backbone: compare the documents of this MDP with those of a peer, and repair those that have diverged.

    own rows → digests                    documents whose rows were changed from outside   (deep)
    sums of groups → of buckets → lists   documents that differ; compared until nothing is pending
    → majority → states of a peer → one local transaction

A check changes nothing at the peer: every member repairs itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlalchemy import Connection, Engine

from mdv.backbone.divergence import (
    ABSENT,
    Content,
    Difference,
    DivergenceSearch,
    DocumentList,
    group_sums,
    in_groups,
    majority_content,
)
from mdv.backbone.document_state import NO_DOCUMENT, digest_of
from mdv.backbone.messages import TransferredDocument
from mdv.backbone.replicated_set import SetKind
from mdv.backbone.sums import bucket_of, differing_buckets, document_hash
from mdv.db.engine import use_read_only_snapshot
from mdv.db.replica.checks import iter_rows, list_documents_to_check
from mdv.errors import MdvError
from mdv.mdp.replica import Replica
from mdv.model import Statement
from mdv.rdf.digest import statement_hash

DOCUMENTS_PER_PAGE = 2000
BUCKETS_PER_REQUEST = 500
DOCUMENTS_PER_REPAIR = 500
PENDING_SECONDS = 20.0
"""How long a check waits until operations that are on their way have arrived."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 2.0
MAX_LISTED = 1000

Progress = Callable[[str, int, int], object]
"""Called with the name of a step, how much of it is done, and how much it is in all (0: unknown)."""

Repair = Callable[[Sequence[TransferredDocument], Mapping[str, int], bool], list[str]]
"""Replaces documents; see `Replica.repair`."""


class ComparedPeer(Protocol):
    """The calls of a check to a peer."""

    def sums(self, groups: Iterable[int] | None = None) -> dict[int, int]: ...

    def list_documents(self, buckets: Iterable[int]) -> DocumentList: ...

    def read_documents(self, buckets: Iterable[int]) -> Iterable[TransferredDocument]: ...


@dataclass(slots=True)
class CheckResult:
    """What a check has found. `damaged`: documents whose rows do not give their digest. `diverged`: documents that
    differ from those of a peer. `pending`: documents that were changed all the time. `repaired`: documents that were
    replaced. `undecided`: diverged documents without a majority. `unreachable`: members that did not answer."""

    peers: list[str] = field(default_factory=list)
    compared: int = 0
    damaged: list[str] = field(default_factory=list)
    diverged: dict[str, dict[str, Difference]] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    repaired: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        uris = sorted({*self.damaged, *self.diverged})
        items = [
            {"uri": uri, "damaged": uri in self.damaged,
             "members": {name: _shown(one) for name, one in self.diverged.get(uri, {}).items()}}
            for uri in uris[:MAX_LISTED]
        ]  # fmt: skip
        return {
            "peers": self.peers, "compared": self.compared, "differing": len(uris), "documents": items,
            "pending": len(self.pending), "repaired": sorted(self.repaired)[:MAX_LISTED],
            "repairs": len(self.repaired), "undecided": sorted(self.undecided)[:MAX_LISTED],
            "unreachable": self.unreachable, "seconds": round(self.seconds, 3),
        }  # fmt: skip


def _shown(difference: Difference) -> dict[str, Any]:
    def one(content: Content) -> dict[str, Any]:
        return {"version": content[0], "content": f"{content[1]:016x}"}

    return {"here": one(difference.here), "there": one(difference.there)}


class BackboneCheck:
    """One check of this MDP. `peers`: the members to be compared with."""

    def __init__(
        self, replica: Replica, engine: Engine, peers: Mapping[str, ComparedPeer], progress: Progress, repair: Repair
    ) -> None:
        self._replica, self._engine, self._progress, self._repair = replica, engine, progress, repair
        self._peers = peers
        self.result = CheckResult(sorted(peers))
        self._began = time.monotonic()

    def run(self, deep: bool, only: Collection[str] | None = None) -> CheckResult:
        """Compare this MDP with the peers. Nothing is changed. `only`: other documents are not mentioned."""
        if deep:
            self.result.damaged = self._find_damaged()
        for name, peer in self._peers.items():
            try:
                self._compare(name, peer)
            except MdvError as error:
                self.result.unreachable[name] = error.detail
        if only is not None:
            self.result.damaged = [uri for uri in self.result.damaged if uri in only]
            self.result.diverged = {uri: one for uri, one in self.result.diverged.items() if uri in only}
        self.result.seconds = time.monotonic() - self._began
        return self.result

    # Own rows

    def _find_damaged(self) -> list[str]:
        """Return the documents whose rows do not give the digests that are stored."""
        found: list[str] = []
        after = done = 0
        while True:
            with self._snapshot() as connection:
                page = list_documents_to_check(connection, after, DOCUMENTS_PER_PAGE)
                if not page:
                    return sorted(found)
                totals: dict[int, int] = dict.fromkeys((one.id for one in page), 0)
                wrong: set[int] = set()
                for row in iter_rows(connection, list(totals)):
                    digest = statement_hash(row.statement)
                    totals[row.document] += digest
                    if digest != row.hash:
                        wrong.add(row.document)
            self.result.compared += len(page)
            found += [one.uri for one in page if one.id in wrong or totals[one.id] % 2**64 != one.digest]
            after, done = page[-1].id, done + len(page)
            self._progress("rows", done, 0)

    # Peers

    def _compare(self, name: str, peer: ComparedPeer) -> None:
        """Find the documents that have diverged from those of a peer."""
        self._progress(f"sums of {name}", 0, 0)
        with self._snapshot() as connection:
            sums = self._replica.sums(connection)
        groups = differing_buckets(group_sums(sums), peer.sums())
        if not groups:
            return
        buckets = sorted(differing_buckets(in_groups(sums, groups), peer.sums(groups)))
        deadline = time.monotonic() + PENDING_SECONDS
        for done, part in enumerate(_parts(buckets, BUCKETS_PER_REQUEST)):
            self._progress(f"documents of {name}", done * BUCKETS_PER_REQUEST, len(buckets))
            search = self._search(peer, part, deadline)
            for uri, difference in search.certain.items():
                self.result.diverged.setdefault(uri, {})[name] = difference
            self.result.pending.update(search.pending)

    def _search(self, peer: ComparedPeer, buckets: Sequence[int], deadline: float) -> DivergenceSearch:
        search, pause = DivergenceSearch(), FIRST_PAUSE_SECONDS
        while buckets:
            search.compare(self._list(buckets), peer.list_documents(buckets))
            if not search.pending or time.monotonic() > deadline:
                break
            buckets = sorted({bucket_of(uri) for uri in search.pending})
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)
        return search

    def _list(self, buckets: Collection[int]) -> DocumentList:
        with self._snapshot() as connection:
            return self._replica.documents_of_buckets(connection, buckets)

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            use_read_only_snapshot(connection)
            yield connection

    # Repair

    def mend(self, kind: SetKind, members: int) -> None:
        """Repair the documents of this MDP that are damaged or in the minority. `members`: how many members there
        are."""
        result = self.result
        ours = self._contents({*result.damaged, *result.diverged})
        wanted: dict[str, dict[str, Content]] = {}
        for uri in ours:
            content = self._right_content(uri, ours[uri], members)
            if content == ours[uri] and uri not in result.damaged:
                continue  # the others repair theirs
            holders = [] if content is None else self._holders(uri, content, ours[uri])
            if content is None or not holders:
                result.undecided.append(uri)
            else:
                wanted.setdefault(holders[0], {})[uri] = content
        for name, contents in wanted.items():
            taken = self._take(name, kind, contents, ours)
            result.undecided += sorted(contents.keys() - set(taken))
        result.seconds = time.monotonic() - self._began

    def take_all(self, name: str, kind: SetKind) -> None:
        """Replace all documents that are damaged or have diverged by those of a peer."""
        result = self.result
        ours = self._contents({*result.damaged, *result.diverged})
        wanted = {uri: self._content_at(name, uri, ours[uri]) for uri in ours}
        taken = self._take(name, kind, wanted, ours)
        result.undecided += sorted(wanted.keys() - set(taken))
        result.seconds = time.monotonic() - self._began

    def _right_content(self, uri: str, ours: Content, members: int) -> Content | None:
        """Return the content that a document should have; None if that is not clear."""
        known = {name: self._content_at(name, uri, ours) for name in self._answering}
        found = majority_content(known | {"": ours}, members)
        if found is None and uri in self.result.damaged:
            # Without our vote: our rows are not what was registered.
            found = ours if ours in known.values() else majority_content(known, len(known))
        return found

    def _holders(self, uri: str, content: Content, ours: Content) -> list[str]:
        return [name for name in self._answering if self._content_at(name, uri, ours) == content]

    @property
    def _answering(self) -> list[str]:
        return [name for name in self._peers if name not in self.result.unreachable]

    def _content_at(self, name: str, uri: str, ours: Content) -> Content:
        difference = self.result.diverged.get(uri, {}).get(name)
        return difference.there if difference is not None else ours

    def _take(self, name: str, kind: SetKind, wanted: Mapping[str, Content], ours: Mapping[str, Content]) -> list[str]:
        """Replace documents by those of a peer, if it has these contents, and sound ones. Return those replaced."""
        taken: list[str] = []
        damaged, peer = set(self.result.damaged), self._peers[name]
        for part in _parts(sorted(wanted), DOCUMENTS_PER_REPAIR):
            self._progress(f"repair from {name}", len(taken), len(wanted))
            found = {one.uri: one for one in peer.read_documents({bucket_of(uri) for uri in part}) if one.uri in part}
            sound = [one for one in found.values()
                     if is_sound(one, kind) and content_of(one, kind) == wanted[one.uri]]  # fmt: skip
            sound += [TransferredDocument(uri, NO_DOCUMENT, {}) for uri in part
                      if uri not in found and wanted[uri] == ABSENT]  # fmt: skip
            # Where only rows were changed from outside, rules and feeds still know the content of the peer.
            restored = [one for one in sound if one.uri in damaged and wanted[one.uri] == ours[one.uri]]
            replaced = [one for one in sound if one not in restored]
            for chosen, is_restoration in ((restored, True), (replaced, False)):
                if chosen:
                    seen = {one.uri: ours[one.uri][0] for one in chosen}
                    taken += self._repair(chosen, seen, is_restoration)
        self.result.repaired += taken
        return taken

    def _contents(self, uris: Collection[str]) -> dict[str, Content]:
        """Return the contents of documents of this MDP, as their digests say."""
        found = self._list({bucket_of(uri) for uri in uris})
        return {uri: found.content(uri) for uri in uris}


def content_of(one: TransferredDocument, kind: SetKind) -> Content:
    """Return the content of a document as checks compare it: in a cset, with its counters."""
    counts = ((statement, kind.count(state)) for statement, state in one.states.items() if not kind.is_causal)
    more = sum(document_hash("", statement_hash(one), count) for one, count in counts if count not in (0, 1))
    return one.document.version, (one.document.digest + more) % 2**64


def is_sound(one: TransferredDocument, kind: SetKind) -> bool:
    """True if the statements of a document give its digest and their number."""
    visible: list[Statement] = [statement for statement, state in one.states.items() if kind.is_visible(state)]
    return digest_of(visible) == one.document.digest and len(visible) == one.document.statements


def _parts(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield the items in lists of at most this size."""
    every = list(items)
    for first in range(0, len(every), size):
        yield every[first : first + size]
