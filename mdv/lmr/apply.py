"""Apply pages of the feed to the cache. The events and the cursor are written in one transaction.

* Only complete transactions are applied. The events of an incomplete one are staged until the rest arrives.
* The complete transactions of a page are applied together: of several events about a resource, the last one counts.
* Events with an offset that is already applied are skipped. So a page may arrive again, also with other boundaries.
* A snapshot is staged until it is complete, and then swapped in: resources that are not in it are removed.
* A large resource arrives as several puts with one offset (`mdv.lmr.pieces`). They are staged until the last arrives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.db import cache as db
from mdv.db.cache_gc import delete_unused_rows
from mdv.db.cache_tables import GLOBAL_DOCUMENT
from mdv.feed import FeedPage, FeedSchema
from mdv.lmr.cache import Cache
from mdv.lmr.garbage_collector import collect, collect_by_full_mark, remove_resources
from mdv.lmr.pieces import FeedGap, join_pieces
from mdv.lmr.schema import TypedKeys, make_cache_schema
from mdv.model import Statement, Term, is_blank
from mdv.rdf.digest import statement_hash

MAX_SINGLE_DELETES = 20
"""If more statements of a resource are removed, all its statements are rewritten instead of deleted one by one."""
EVENTS_PER_CHUNK = 2000
"""How many events are processed together."""

FULL_MARK_THRESHOLD = 50_000
"""If more resources than this may be garbage, a full mark takes less time and memory than reference counts."""

MAX_TYPED_VALUES = 50_000
"""Size of the cache of typed values: many resources have the same values."""

ANY_CURSOR: Any = object()
_UNTYPED: TypedKeys = (None, None, None)

Json = Mapping[str, Any]


class Applied(NamedTuple):
    """The result of a page. `moved` is False if the page did not start at the cursor of the cache."""

    moved: bool
    position: int
    up_to_date: bool
    events: int


def apply(cache: Cache, page: FeedPage | Json, *, after: str | None = ANY_CURSOR, until: int | None = None) -> Applied:
    """Apply a page, given as a value or as JSON.

    `after` is the cursor of the request. If the cursor of the cache is another one by now, nothing is changed. With
    `until`, only transactions up to that position are applied; the rest must be requested again. Raises `FeedGap` if
    events are missing; then nothing is changed.
    """
    body = _body(page) if isinstance(page, FeedPage) else page
    with cache.writing() as connection:
        state = db.lock_state(connection)
        if after is not ANY_CURSOR and after != state.next_cursor:
            return Applied(False, state.position, False, 0)
        _note_seen(connection, body)
        if body.get("snapshot"):
            return _apply_snapshot(cache, connection, state, body)
        return _apply_changes(cache, connection, state, body, until)


def swap_buckets(cache: Cache, buckets: Collection[int]) -> None:
    """Replace the content of these buckets with the events that are staged for them."""
    with cache.writing() as connection:
        db.lock_state(connection)
        _swap(cache, connection, join_pieces(db.iter_staged_events(connection, db.LANE_REPAIR)), buckets)
        db.clear_staged(connection, db.LANE_REPAIR)


def _body(page: FeedPage) -> Json:
    return page._asdict() | {"events": [event.as_dict() for event in page.events]}


def _apply_changes(
    cache: Cache, connection: Connection, state: db.CacheState, body: Json, until: int | None
) -> Applied:
    if state.staged_snapshot:
        raise FeedGap("The staged snapshot is not continued by this page.")
    is_staged = state.staged_cursor is not None
    last_staged = db.last_staged_event(connection, db.LANE_FEED) if is_staged else None
    continued_offset = last_staged["offset"] if last_staged is not None and last_staged.get("more") else None
    new = _new_events(body["events"], max(state.applied_offset, state.staged_offset), continued_offset)
    wanted = [event for event in new if event["tx"] <= until] if until is not None else new
    end = next((number for number in range(len(wanted), 0, -1) if wanted[number - 1].get("last")), 0)
    complete, rest = wanted[:end], wanted[end:]
    if complete:
        update = CacheUpdate(cache, connection)
        before: Iterable[Sequence[Json]] = db.iter_staged_events(connection, db.LANE_FEED) if is_staged else ()
        for events in join_pieces(chain(before, db.chunked(complete, EVENTS_PER_CHUNK))):
            update.apply(events)
        update.finish()
        if is_staged:
            db.clear_staged(connection, db.LANE_FEED)
    offset = complete[-1]["offset"] if complete else state.applied_offset
    reached = body["position"] if until is None else min(body["position"], until)
    position = max(state.position, reached)
    if len(wanted) < len(new):
        # The cursor of the page is after the events that were left out. So it is not stored, and the next page starts
        # with events that are already applied.
        consumed = {"cursor": state.staged_cursor, "staged_cursor": None, "staged_offset": 0} if is_staged else {}
        db.write_state(connection, position=position, applied_offset=offset, **(consumed if complete else {}))
        return Applied(True, position, False, len(complete))
    if rest or (is_staged and not complete):
        db.stage_events(connection, rest, db.LANE_FEED)
        position = max(state.position, min(reached, rest[-1]["tx"] - 1)) if rest else state.position
        staged = rest[-1]["offset"] if rest else state.staged_offset
        db.write_state(connection, position=position, applied_offset=offset, staged_cursor=body["cursor"],
                       staged_offset=staged)  # fmt: skip
        return Applied(True, position, False, len(complete))
    db.write_state(connection, position=position, applied_offset=offset, cursor=body["cursor"], staged_cursor=None,
                   staged_offset=0)  # fmt: skip
    _note_vector(connection, body)
    return Applied(True, position, bool(body["up_to_date"]), len(complete))


def _new_events(events: Sequence[Json], last: int, continued_offset: int | None) -> list[Json]:
    """Return the events after offset `last`, and the pieces of the event at offset `continued_offset`.

    Raises `FeedGap` if an event is missing.
    """
    found: list[Json] = []
    for event in events:
        if event["offset"] == continued_offset:
            found.append(event)
        elif event["offset"] > last:
            if (event["prev"] or 0) > last:
                raise FeedGap(f"The feed continues after offset {event['prev']}, but the cache is at {last}.")
            found.append(event)
            last = event["offset"]
            continued_offset = last if event.get("more") else None
    return found


def _apply_snapshot(cache: Cache, connection: Connection, state: db.CacheState, body: Json) -> Applied:
    events = body["events"]
    is_first_page = bool(events) and events[0]["event"] == "schema"
    if is_first_page:
        db.clear_staged(connection, db.LANE_FEED)
    elif not state.staged_snapshot:
        raise FeedGap("The beginning of the snapshot is missing.")
    if not (events and events[-1].get("last")):
        db.stage_events(connection, events, db.LANE_FEED)
        db.write_state(connection, staged_cursor=body["cursor"], staged_offset=0, staged_snapshot=True)
        return Applied(True, state.position, False, 0)
    before = () if is_first_page else db.iter_staged_events(connection, db.LANE_FEED)
    _swap(cache, connection, join_pieces(chain(before, db.chunked(events, EVENTS_PER_CHUNK))), None)
    db.clear_staged(connection, db.LANE_FEED)
    db.write_state(connection, cursor=body["cursor"], position=body["position"], applied_offset=events[-1]["offset"],
                   staged_cursor=None, staged_offset=0, staged_snapshot=False)  # fmt: skip
    _note_vector(connection, body)
    return Applied(True, body["position"], bool(body["up_to_date"]), len(events))


def swap_home(
    cache: Cache, last_page: Json, buckets: Collection[int], home: Callable[[db.CacheHome], db.CacheHome]
) -> None:
    """Replace the content of these buckets with the events that are staged for them, and continue after their last page
    with the feed of another MDP. `home` returns the new home."""
    with cache.writing() as connection:
        db.lock_state(connection)
        _swap(cache, connection, join_pieces(db.iter_staged_events(connection, db.LANE_REPAIR)), buckets, True)
        for lane in (db.LANE_FEED, db.LANE_REPAIR):
            db.clear_staged(connection, lane)
        db.write_state(connection, cursor=last_page["cursor"], position=last_page["position"],
                       applied_offset=last_page["events"][-1]["offset"], staged_cursor=None, staged_offset=0,
                       staged_snapshot=False)  # fmt: skip
        db.write_home(connection, home(db.read_home(connection)))


def _note_seen(connection: Connection, body: Json) -> None:
    """Note the vector of a page: the changes that the cache may have with it."""
    vector = body.get("vector")
    if vector is not None and db.read_home(connection).seen != vector:
        db.write_home(connection, db.read_home(connection)._replace(seen=vector))


def _note_vector(connection: Connection, body: Json) -> None:
    """Note the vector of a page after which nothing is missing: the changes that the cache has now."""
    vector = body.get("vector")
    if vector is not None and body["up_to_date"] and db.read_home(connection).vector != vector:
        db.write_home(connection, db.read_home(connection)._replace(vector=vector))


def _swap(
    cache: Cache,
    connection: Connection,
    parts: Iterable[Sequence[Json]],
    buckets: Collection[int] | None,
    has_rules: bool = False,
) -> None:
    """Make `parts` the whole global content of the cache, or of these buckets. `has_rules`: they contain all suspended
    rules, as those of the whole content do."""
    update = CacheUpdate(cache, connection)
    last = update.last
    seen = bytearray(last + 1)
    update.unmentioned |= db.clear_selected(connection, buckets)
    if buckets is None or has_rules:
        db.clear_suspended(connection)
    for events in parts:
        for number in update.apply(events):
            if number <= last:
                seen[number] = True
    unseen = (number for number in db.iter_present_ids(connection, buckets) if number <= last and not seen[number])
    for part in db.chunked(unseen):
        remove_resources(connection, part, update.unmentioned)
    collect_by_full_mark(connection, update.unmentioned)
    delete_unused_rows(connection, update.unmentioned)


class CacheUpdate:
    """One transaction of the cache, which applies any number of parts."""

    def __init__(self, cache: Cache, connection: Connection) -> None:
        self._cache = cache
        self._connection = connection
        self._schema = cache.schema(connection)
        self._properties: dict[str, tuple[int, bool, bool]] = {}
        self._typed: dict[tuple[str, str], TypedKeys] = {}
        self.last = db.last_resource_id(connection)
        self._lost: set[int] = set()
        self.unmentioned: set[int] = set()
        """Resources that may not be mentioned any more, so that their rows can be dropped."""

    def apply(self, events: Iterable[Json]) -> Collection[int]:
        """Apply events. Return the ids of the resources that were put."""
        contents: dict[str, list[Any] | None] = {}
        marks: dict[str, bool] = {}
        suspended: dict[int, str | None] = {}
        schema: Json | None = None
        for event in events:
            kind = event["event"]
            if kind == "put":
                contents[event["resource"]] = event["statements"]
            elif kind == "match":
                marks[event["resource"]] = True
            elif kind == "unmatch":
                marks[event["resource"]] = False
            elif kind == "delete":
                contents[event["resource"]] = None
                marks[event["resource"]] = False
            elif kind == "suspended":
                suspended[event["rule"]] = event["reason"]
            elif kind == "resumed":
                suspended[event["rule"]] = None
            elif kind == "schema":
                schema = event["schema"]
        if schema is not None:
            self._change_schema(schema)
        if suspended:
            db.update_suspended(self._connection, suspended)
        return self._write(contents, marks)

    def finish(self) -> None:
        """Collect garbage after the last part."""
        if len(self._lost) > FULL_MARK_THRESHOLD:
            collect_by_full_mark(self._connection, self.unmentioned)
        else:
            collect(self._connection, self._lost, self.unmentioned)
        delete_unused_rows(self._connection, self.unmentioned)

    # -- statements

    def _write(self, contents: Mapping[str, list[Any] | None], marks: Mapping[str, bool]) -> Collection[int]:
        connection = self._connection
        puts = {uri: statements for uri, statements in contents.items() if statements is not None}
        uris, properties, datatypes = _named(puts)
        known = db.find_resources(connection, uris | contents.keys() | marks.keys())
        self._delete(known[uri] for uri, statements in contents.items() if statements is None and uri in known)
        ids = {uri: found.id for uri, found in known.items()}
        new = [uri for uri in chain(uris, (uri for uri, mark in marks.items() if mark)) if uri not in ids]
        new = list(dict.fromkeys(new))
        ids.update(zip(new, range(self.last + 1, self.last + 1 + len(new)), strict=True))
        self.last += len(new)
        numbers = self._cache.names(connection, properties | datatypes)
        changes = self._replace(puts, known, ids, numbers, properties)
        db.insert_resources(
            connection, ((ids[uri], uri, uri in puts, marks.get(uri, False), changes.pop(ids[uri], 0)) for uri in new)
        )
        db.update_referrers(connection, changes)
        db.set_present(connection, [k.id for u in puts if (k := known.get(u)) is not None and not k.present], True)
        self._mark(known, marks)
        # A new resource may be garbage. That is decided at the end of the transaction.
        self._lost.update(ids[uri] for uri in puts if uri not in known or not known[uri].present)
        return [ids[uri] for uri in puts]

    def _delete(self, gone: Iterable[db.KnownResource]) -> None:
        ids = [found.id for found in gone]
        self.unmentioned.update(ids)
        self._lost |= remove_resources(self._connection, ids, self.unmentioned)

    def _mark(self, known: Mapping[str, db.KnownResource], marks: Mapping[str, bool]) -> None:
        changed = {uri: mark for uri, mark in marks.items() if uri in known and known[uri].selected is not mark}
        for wanted in (True, False):
            ids = [known[uri].id for uri, mark in changed.items() if mark is wanted]
            db.set_selected(self._connection, ids, wanted)
        unmarked = {known[uri].id for uri, mark in changed.items() if not mark}
        self._lost |= unmarked
        self.unmentioned |= {known[uri].id for uri, mark in changed.items() if not mark and not known[uri].present}

    def _replace(
        self,
        puts: Mapping[str, list[Any]],
        known: Mapping[str, db.KnownResource],
        ids: Mapping[str, int],
        numbers: Mapping[str, int],
        properties: Iterable[str],
    ) -> dict[int, int]:
        """Write the changed statements of these resources. Return the change of the number of strong references for
        each target."""
        connection = self._connection
        self._decide(properties, numbers)
        stored = db.read_statements(connection, [k.id for uri in puts if (k := known.get(uri)) and k.present])
        rows: list[db.CacheRow] = []
        rewritten: list[int] = []
        single: list[tuple[int, int]] = []
        changes: dict[int, int] = defaultdict(int)
        for uri, statements in puts.items():
            number = ids[uri]
            keys = self._keys(statements, ids, numbers)
            before = stored.get(number)
            if before:
                if before.keys() == keys.keys():
                    continue
                removed = {key: old for key, old in before.items() if key not in keys}
                hashes = {old.hash for old in removed.values()}
                for key, old in removed.items():
                    if key[1] is not None:
                        self.unmentioned.add(key[1])
                        if old.strong:
                            changes[key[1]] -= 1
                            self._lost.add(key[1])
                if len(removed) <= MAX_SINGLE_DELETES and not any(
                    old.hash in hashes for key, old in before.items() if key in keys
                ):
                    single += [(number, old.hash) for old in removed.values()]
                    keys = {key: statement for key, statement in keys.items() if key not in before}
                else:
                    rewritten.append(number)
                    for key, old in before.items():
                        if old.strong and key in keys and key[1] is not None:
                            changes[key[1]] -= 1
            self._encode(uri, number, keys, rows, changes)
        db.delete_statements_of(connection, rewritten)
        db.delete_statements(connection, single)
        db.insert_statements(connection, rows)
        return changes

    def _decide(self, properties: Iterable[str], numbers: Mapping[str, int]) -> None:
        for name in properties:
            if name not in self._properties:
                typed = bool(self._schema.typed_ranges(name))
                self._properties[name] = (numbers[name], self._schema.is_strong(name), typed)

    def _keys(
        self, statements: Iterable[Any], ids: Mapping[str, int], numbers: Mapping[str, int]
    ) -> dict[db.StatementKey, Any]:
        keys: dict[db.StatementKey, Any] = {}
        for statement in statements:
            name, term = statement
            value = term["value"]
            if term["type"] == "uri":
                keys[(numbers[name], ids[value], None, None, None)] = statement
            else:
                datatype = term.get("datatype")
                kind = numbers[datatype] if datatype is not None else None
                keys[(numbers[name], None, kind, value, term.get("lang"))] = statement
        return keys

    def _encode(
        self,
        uri: str,
        number: int,
        keys: Mapping[db.StatementKey, Any],
        rows: list[db.CacheRow],
        changes: dict[int, int],
    ) -> None:
        """Append the rows of new statements to `rows`, and count their strong references in `changes`."""
        for (property_id, target, datatype, value, lang), (name, term) in keys.items():
            _, strong, typed = self._properties[name]
            object_ = Term(term["type"], term["value"], lang, term.get("datatype"))
            hash_ = statement_hash(Statement(uri, name, object_))
            if target is not None:
                strong = strong or is_blank(object_.value)
                if strong:
                    changes[target] += 1
                rows.append(
                    (
                        GLOBAL_DOCUMENT,
                        number,
                        target,
                        hash_,
                        property_id,
                        None,
                        int(strong),
                        None,
                        None,
                        None,
                        None,
                        None,
                    )
                )
            else:
                keyed = self._typed_keys(name, object_) if typed else _UNTYPED
                rows.append((GLOBAL_DOCUMENT, number, None, hash_, property_id, datatype, 0, value, lang, *keyed))

    def _typed_keys(self, name: str, term: Term) -> TypedKeys:
        known = self._typed.get((name, term.value))
        if known is None:
            if len(self._typed) >= MAX_TYPED_VALUES:
                self._typed.clear()
            known = self._typed[name, term.value] = self._schema.typed_keys(name, term)
        return known

    # -- schema

    def _change_schema(self, body: Json) -> None:
        """Put a new schema into effect, and update the stored statements, global and local, whose typed values or
        reference strength it changes."""
        connection, old = self._connection, self._schema
        received = FeedSchema.from_dict(body)
        new = make_cache_schema(received, old.edition + 1)
        if (new.version, new.statements, new.schema.prefixes) == (old.version, old.statements, old.schema.prefixes):
            return
        for name, number in db.read_vocabulary(connection).items():
            strong = new.is_strong(name)
            if strong != old.is_strong(name):
                counts = db.set_property_strength(connection, number, strong)
                db.update_referrers(connection, {t: count if strong else -count for t, count in counts.items()})
                self._lost |= set() if strong else counts.keys()
            if new.typed_ranges(name) != old.typed_ranges(name):
                for values in db.iter_values(connection, number):
                    typed = {value: new.typed_keys(name, Term.literal(value)) for value in values}
                    db.update_typed_values(connection, number, typed)
        db.write_state(connection, schema=received.as_dict(), schema_version=new.version, schema_edition=new.edition)
        self._schema = self._cache.schema(connection)
        self._properties, self._typed = {}, {}


def _named(puts: Mapping[str, list[Any]]) -> tuple[set[str], set[str], set[str]]:
    """Return the resources, properties and datatypes in puts."""
    uris, properties, datatypes = set(puts), set(), set()
    for statements in puts.values():
        for name, term in statements:
            properties.add(name)
            if term["type"] == "uri":
                uris.add(term["value"])
            elif "datatype" in term:
                datatypes.add(term["datatype"])
    return uris, properties, datatypes
