"""The statement store: one run replaces what a batch of documents says, by difference.

The difference is made here, in memory, from what the documents say now and said before; the database is asked only
what it alone knows (numbers of URIs, stored statements, whether other documents say the same) and is given rows by
COPY, those of the first documents while the next are compared. So a new document costs little more than the bare COPY
of its statements.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import Connection

from mdv.db.copy import NULL, any_field, copy_lines, copy_rows, text_field
from mdv.db.engine import driver
from mdv.db.exchange import Exchange, Row
from mdv.db.state import State, state_of
from mdv.db.statements import statements
from mdv.model import BLANK_MARK, Statement

TypedValue = tuple[Decimal | None, Decimal | None, bool | None]
"""A value as a number, an instant, a truth: whichever the schema makes of it."""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """What is known of a document without its statements."""

    id: int
    uri: str
    version: int
    present: bool
    content: bytes


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a document says from now on; nothing, if it is deleted."""

    uri: str
    stored: StoredDocument | None
    content: bytes
    statements: tuple[Statement, ...]
    hashes: tuple[int, ...]
    typed: tuple[TypedValue, ...]
    prefixes: Mapping[str, str]

    @property
    def present(self) -> bool:
        return bool(self.statements)


class Counts(NamedTuple):
    """What a replacement did, in resources whose visible statements changed (or, unchanged, did not)."""

    version: int
    inserted: int
    updated: int
    deleted: int
    unchanged: int


class Encoded(NamedTuple):
    """A statement in numbers: what two documents that say the same have in common."""

    resource: int
    property: int
    target: int | None
    value: str | None
    lang: str | None
    datatype: int | None
    hash: int


class StoredRow(NamedTuple):
    """Where a stored statement stands, and since when."""

    row: str
    position: int
    shows: bool
    blank: bool
    typed: TypedValue


@dataclass(slots=True)
class Difference:
    """What one document says now that it did not, no longer says, and (described) says in any case."""

    document: int
    version: int
    item: Replacement
    added: dict[Encoded, TypedValue] = field(default_factory=dict)
    removed: dict[Encoded, StoredRow] = field(default_factory=dict)
    described: set[int] = field(default_factory=set)


class Change(NamedTuple):
    """What became visible and what ceased to be, with the last number that was given out before."""

    position: int
    known: int
    gains: Collection[Encoded]
    losses: Collection[Encoded]
    described: Mapping[str, Collection[int]]
    """By document, the resources that it speaks of."""
    gone: Collection[int]
    """The resources of which nothing is said any more."""
    blank: Set[int]
    """Of the objects of gains and losses, those that are blank nodes."""


class Opened(NamedTuple):
    """What a run finds when its turn has come: where the MDP stands, the documents of these names that are, or once
    were, registered, and the numbers of URIs."""

    state: State
    documents: dict[str, StoredDocument]
    numbers: dict[str, int]


def open_run(connection: Connection, documents: Collection[str], resources: Collection[str]) -> Opened:
    """Wait for the turn of this transaction, and ask what it needs to know. Plans are pinned from here on."""
    sql = statements("register")
    with Exchange(connection) as exchange:
        state = exchange.ask_named(sql["open_run"])
        found = exchange.ask_named(sql["find_documents"], uris=_as_json(documents))
        numbers = exchange.ask_named(sql["find_resources"], uris=_as_json(resources))
    there = [_stored_document(row) for row in found.rows()]
    return Opened(
        state_of(state.rows()[0]),
        {document.uri: document for document in there},
        {uri or "": int(number or 0) for uri, number in numbers.rows()},
    )


def _stored_document(row: Row) -> StoredDocument:
    number, uri, version, present, content = (text or "" for text in row)
    return StoredDocument(int(number), uri, int(version), present == "t", bytes.fromhex(content[2:]))


SMALL = 200
"""Up to so many new statements go to the database with the other statements of the run, in one message; more go by
COPY, which needs a message of its own but costs far less a row."""


class Run:
    """One run: replaces what the documents of `batch` say, in the transaction after `state`.

    Every document of the batch differs from its stored version, and is in the batch once. If the run `is_small`, it is
    compared at once, and `write` only asks for what is to be sent with the rest. Otherwise `write` compares document
    after document while the database takes the rows of those before. What came of it can be asked for after `write`.
    """

    def __init__(
        self, connection: Connection, batch: Sequence[Replacement], opened: Opened, property_ids: Mapping[str, int]
    ) -> None:
        self._session = driver(connection)
        self._sql = statements("register")
        self._batch = batch
        self._position = opened.state.position + 1
        self._known_resources = opened.state.last_resource
        self._last_resource = opened.state.last_resource
        self._last_document = opened.state.last_document
        self._property_ids = property_ids
        self._resources = opened.numbers
        self._fresh: list[tuple[int, str]] = []
        self._blank: set[int] = set()
        self._differences: list[Difference] = []
        self._gains: dict[Encoded, Difference] = {}
        self._losses: dict[Encoded, Difference] = {}
        self._doubtful: list[tuple[Difference, dict[Encoded, TypedValue]]] = []
        """What documents say of resources that were known before: others may say the same."""
        self._stored = self._read_stored()
        written = sum(len(item.statements) for item in batch) + sum(map(len, self._stored.values()))
        self.is_small = written <= SMALL
        if self.is_small:
            for item in batch:
                self._compare(item)
            self._settle()

    @property
    def counts(self) -> dict[str, Counts]:
        """What becomes of each document."""
        return {d.item.uri: counted for d, counted in zip(self._differences, self._counts, strict=True)}

    @property
    def change(self) -> Change:
        described = {difference.item.uri: difference.described for difference in self._differences}
        gone = self._was - self._is_now
        return Change(self._position, self._known_resources, self._gains.keys(), self._losses.keys(), described, gone,
                      self._blank)  # fmt: skip

    def write(self, exchange: Exchange) -> None:
        if self.is_small:
            self._insert(exchange, "insert_statements", _FILTER_DATA, self._inserted_rows())
            self._insert(exchange, "insert_resources", ("id", "uri"), self._fresh)
            self._insert(exchange, "insert_history", _HISTORY, self._removed_rows())
        else:
            copy_lines(self._session, f"filter_data ({', '.join(_FILTER_DATA)})", self._compared_lines())
            self._settle()
            copy_lines(self._session, f"filter_data ({', '.join(_FILTER_DATA)})", self._doubtful_lines())
            copy_rows(self._session, "resources (id, uri)", self._fresh)
            copy_rows(self._session, f"filter_data_history ({', '.join(_HISTORY)})", self._removed_rows())
        self._keep_documents(exchange)
        exchange.send_unless(self.is_small)

    def _insert(self, exchange: Exchange, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        items = [dict(zip(columns, row, strict=True)) for row in rows]
        if items:
            exchange.ask_named(self._sql[name], rows=json.dumps(items, ensure_ascii=False, default=str))

    def _read_stored(self) -> dict[int, dict[Encoded, StoredRow]]:
        """What the documents said until now."""
        stored: dict[int, dict[Encoded, StoredRow]] = defaultdict(dict)
        there = [item.stored.id for item in self._batch if item.stored is not None and item.stored.present]
        rows = self._execute("find_statements", documents=there) if there else ()
        for row, document, *encoded, position, shows, blank, number, instant, truth in rows:
            stored[document][Encoded(*encoded)] = StoredRow(row, position, shows, blank, (number, instant, truth))
        return stored

    # Compared

    def _compare(self, item: Replacement) -> tuple[Difference, dict[Encoded, TypedValue]]:
        """What a document says otherwise than before, and what of it nobody else can have said: all that it says of
        resources that are new with this run. Of several documents with one such statement, the first shows it."""
        difference = self._difference(item)
        self._differences.append(difference)
        known, certain = self._known_resources, difference.added
        if any(resource <= known for resource in difference.described):
            certain = {key: typed for key, typed in difference.added.items() if key[0] > known}
            self._doubtful.append((difference, {k: typed for k, typed in difference.added.items() if k[0] <= known}))
        gains = self._gains
        for key in certain:
            if key not in gains:
                gains[key] = difference
        return difference, certain

    def _difference(self, item: Replacement) -> Difference:
        if item.stored is None:
            self._last_document += 1
            difference = Difference(self._last_document, 1, item)
        else:
            difference = Difference(item.stored.id, item.stored.version + 1, item)
        before = dict(self._stored.get(difference.document, {}))
        ids, added, described, new = self._property_ids, difference.added, difference.described, tuple.__new__
        numbers = self._resources
        for (subject, name, (kind, value, lang, datatype)), digest, typed in zip(
            item.statements, item.hashes, item.typed, strict=True
        ):
            resource = numbers.get(subject) or self._number(subject)
            described.add(resource)
            kind_of = ids[datatype] if datatype else None
            # Made as its base, which is several times faster: there are as many of these as there are statements.
            if kind == "uri":
                target = numbers.get(value) or self._number(value)
                if BLANK_MARK in value:
                    self._blank.add(target)
                key = new(Encoded, (resource, ids[name], target, None, lang, kind_of, digest))
            else:
                key = new(Encoded, (resource, ids[name], None, value, lang, kind_of, digest))
            if not before or before.pop(key, None) is None:
                added[key] = typed
        difference.removed = before
        self._blank.update(key[2] for key, row in before.items() if row.blank and key[2] is not None)
        return difference

    def _number(self, uri: str) -> int:
        """Give a number to a URI that has none: they follow one another as the documents name them."""
        self._last_resource += 1
        self._resources[uri] = self._last_resource
        self._fresh.append((self._last_resource, uri))
        return self._last_resource

    def _settle(self) -> None:
        """Find out what of the rest anybody can see: not what other documents say too. Of several documents with one
        change, the first carries it. After that it is known what becomes of each document."""
        gains = {key: d for d, added in reversed(self._doubtful) for key in added}
        losses = {key: d for d in reversed(self._differences) for key in d.removed}
        drop_moved(gains, losses)
        kept = self._drop_said_by_others(gains, losses)
        self._gains |= gains
        self._losses = losses
        self._was, self._is_now = described_before_and_after(self._differences, kept)
        self._counts = self._count()

    def _drop_said_by_others(self, gains: dict[Encoded, Difference], losses: dict[Encoded, Difference]) -> set[int]:
        """Only what nobody else says stays; of the resources concerned, those that something is said of before and
        after."""
        asked = [*gains, *losses]
        rows = [stored.row for d in self._differences for stored in d.removed.values()]
        if not rows and not asked:
            return set()
        touched = {key.resource for key in asked}
        with self._session.pipeline():
            if rows:
                self._execute("remove_statements", rows=rows)
            others = self._execute("find_others", **_columns(asked)) if asked else None
            described = self._execute("find_described", resources=list(touched)) if touched else None
        for (number,) in others or ():
            gains.pop(asked[number - 1], None)
            losses.pop(asked[number - 1], None)
        return {resource for (resource,) in described or ()}

    def _count(self) -> list[Counts]:
        changed: dict[int, set[int]] = defaultdict(set)
        for changes in (self._gains, self._losses):
            for key, difference in changes.items():
                changed[difference.document].add(key[0])
        was, is_now = self._was, self._is_now
        counts = []
        for difference in self._differences:
            mine = changed[difference.document]
            counts.append(
                Counts(
                    difference.version,
                    inserted=len(mine - was),
                    updated=len(mine & was & is_now),
                    deleted=len(mine - is_now),
                    unchanged=len(difference.described - mine),
                )
            )
        return counts

    # Written

    def _compared_lines(self) -> Iterator[str]:
        """The rows of each document as soon as it is compared."""
        for item in self._batch:
            difference, certain = self._compare(item)
            yield from self._lines(difference, certain)

    def _doubtful_lines(self) -> Iterator[str]:
        for difference, added in self._doubtful:
            yield from self._lines(difference, added)

    def _lines(self, difference: Difference, added: Mapping[Encoded, TypedValue]) -> Iterator[str]:
        # Written out, since these are by far the most rows of all.
        position, gains, blank, document = self._position, self._gains, self._blank, difference.document
        for key, (number, instant, truth) in added.items():
            resource, name, target, value, lang, datatype, digest = key
            yield (
                f"{document}\t{resource}\t{name}\t{NULL if target is None else target}"
                f"\t{NULL if value is None else text_field(value)}\t{lang or NULL}\t{datatype or NULL}\t{digest}"
                f"\t{position}\t{'t' if gains.get(key) is difference else 'f'}\t{'t' if target in blank else 'f'}"
                f"\t{NULL if number is None else number}\t{NULL if instant is None else instant}"
                f"\t{any_field(truth)}\n"
            )

    def _inserted_rows(self) -> Iterable[tuple[object, ...]]:
        for difference in self._differences:
            for key, typed in difference.added.items():
                shows = self._gains.get(key) is difference
                yield (difference.document, *key, self._position, shows, key.target in self._blank, *typed)

    def _removed_rows(self) -> Iterable[tuple[object, ...]]:
        for difference in self._differences:
            for key, stored in difference.removed.items():
                hides = self._losses.get(key) is difference
                kept = (stored.position, stored.shows, stored.blank, *stored.typed)
                yield (difference.document, *key, *kept, self._position, hides)

    def _keep_documents(self, exchange: Exchange) -> None:
        kept = list(zip(self._differences, self._counts, strict=True))
        if not self.is_small:
            fresh = [(d, counted) for d, counted in kept if d.item.stored is None]
            kept = [(d, counted) for d, counted in kept if d.item.stored is not None]
            self._copy_documents(fresh)
        items = [
            {
                "id": difference.document,
                "uri": difference.item.uri,
                "present": difference.item.present,
                "content": difference.item.content.hex(),
                "prefixes": dict(difference.item.prefixes),
                **counted._asdict(),
            }
            for difference, counted in kept
        ]
        exchange.ask_named(
            self._sql["keep_documents"],
            position=self._position,
            documents=json.dumps(items, ensure_ascii=False),
            last_resource=self._last_resource,
            last_document=self._last_document,
        )

    def _copy_documents(self, fresh: Sequence[tuple[Difference, Counts]]) -> None:
        """Documents that are new, with their first versions."""
        position = self._position
        documents, versions = [], []
        prefixes: dict[str, str] = {}  # most documents have the same
        for difference, counted in fresh:
            item, number = difference.item, difference.document
            written = repr(item.prefixes)
            names = prefixes.get(written)
            if names is None:
                names = prefixes[written] = text_field(json.dumps(dict(item.prefixes), ensure_ascii=False))
            documents.append(
                f"{number}\t{text_field(item.uri)}\t1\tt\t\\\\x{item.content.hex()}\t{names}\t{position}\n"
            )
            versions.append(
                f"{number}\t1\t{position}\tt\t{names}\t{counted.inserted}\t{counted.updated}\t{counted.deleted}"
                f"\t{counted.unchanged}\n"
            )
        copy_lines(self._session, "documents (id, uri, version, present, content, prefixes, position)", documents)
        columns = "document_id, version, position, present, prefixes, inserted, updated, deleted, unchanged"
        copy_lines(self._session, f"document_versions ({columns})", versions)

    def _execute(self, name: str, **values: object) -> psycopg.Cursor[Any]:
        return self._session.execute(self._sql[name], values, prepare=True)


def drop_moved(gains: dict[Encoded, Difference], losses: dict[Encoded, Difference]) -> None:
    """What one document drops and another takes up is no change."""
    for moved in gains.keys() & losses.keys() if losses else ():
        del gains[moved], losses[moved]


def described_before_and_after(differences: Iterable[Difference], kept: Set[int]) -> tuple[set[int], set[int]]:
    """The resources of which something was said before the run, and is said after it. `kept`: of those known before,
    the ones that something else is said of."""
    was, is_now = set(kept), set(kept)
    for difference in differences:
        was.update(key[0] for key in difference.removed)
        is_now.update(key[0] for key in difference.added)
    return was, is_now


_KEY = ("document_id", "resource_id", "property_id", "target_id", "value", "lang", "datatype_id", "hash")
_FILTER_DATA = (*_KEY, "position", "shows", "blank", "number", "instant", "truth")
_HISTORY = (*_FILTER_DATA, "until_position", "hides")


def _columns(keys: Sequence[Encoded]) -> dict[str, list[Any]]:
    names = ("resources", "properties", "targets", "values", "langs", "datatypes", "hashes")
    return dict(zip(names, (list(column) for column in zip(*keys, strict=True)), strict=True))


def _as_json(texts: Iterable[str]) -> str:
    return json.dumps(list(texts), ensure_ascii=False)
