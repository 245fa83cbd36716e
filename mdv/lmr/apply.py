"""Apply the feed: pages of events in, the cache's next state out, with the cursor, in one transaction.

* Only whole transactions count. What came of one that is not whole is staged, and applied when the rest has come.
* The whole transactions of a page are applied together: of several events about a resource the last one counts.
* What was applied already is known by its offset and passed over, so a page may come again, and cut otherwise.
* A snapshot is staged until it is whole, and then swapped in: what is not in it goes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.db import cache as db
from mdv.db.cache_collect import drop_rows
from mdv.db.cache_tables import GLOBAL
from mdv.errors import MustRefetch
from mdv.feed import FeedSchema, Page
from mdv.lmr.collect import collect, collect_fully, remove
from mdv.lmr.schema import TypedKeys, in_force
from mdv.lmr.store import Cache
from mdv.model import Statement, Term, is_blank
from mdv.rdf.digest import statement_hash

FEW = 20
"""Up to so many statements of a resource are taken away one by one; else all of it is written anew."""
CHUNK = 2000
"""How many events are worked on at once."""

MANY = 50_000
"""If more than that lost a reason to be here, or came without one, a full mark takes less time and memory."""

REMEMBERED = 50_000
"""Typed values: many resources have the same."""

ANY: Any = object()
_UNTYPED: TypedKeys = (None, None, None)

Json = Mapping[str, Any]


class Gap(MustRefetch):
    """Events of the feed were lost: a snapshot is to be taken."""


class Applied(NamedTuple):
    """What became of a page. `moved`: it was for where the cache stood."""

    moved: bool
    position: int
    up_to_date: bool
    events: int


def apply(cache: Cache, page: Page | Json, *, after: str | None = ANY, until: int | None = None) -> Applied:
    """Apply a page, given as a value or as the JSON that told it.

    `after` is the cursor that it was asked with: if the cache stands elsewhere by now, nothing happens. With `until`,
    only what was committed up to that position is applied; the rest will have to be asked for again. `Gap`: events are
    missing, and nothing was changed.
    """
    body = _body(page) if isinstance(page, Page) else page
    with cache.writing() as connection:
        state = db.lock_state(connection)
        if after is not ANY and after != state.next_cursor:
            return Applied(False, state.position, False, 0)
        if body.get("snapshot"):
            return _apply_snapshot(cache, connection, state, body)
        return _apply_changes(cache, connection, state, body, until)


def swap_buckets(cache: Cache, buckets: Collection[int]) -> None:
    """Replace what these buckets hold by what is staged for them."""
    with cache.writing() as connection:
        db.lock_state(connection)
        _swap(cache, connection, db.staged_events(connection, db.REPAIR), buckets)
        db.clear_staged(connection, db.REPAIR)


def _body(page: Page) -> Json:
    return page._asdict() | {"events": [event.as_dict() for event in page.events]}


def _apply_changes(
    cache: Cache, connection: Connection, state: db.CacheState, body: Json, until: int | None
) -> Applied:
    if state.staged_snapshot:
        raise Gap("The snapshot was not continued.")
    fresh = _fresh(body["events"], max(state.applied_offset, state.staged_offset))
    wanted = [event for event in fresh if event["tx"] <= until] if until is not None else fresh
    end = next((number for number in range(len(wanted), 0, -1) if wanted[number - 1].get("last")), 0)
    whole, rest = wanted[:end], wanted[end:]
    is_staged = state.staged_cursor is not None
    if whole:
        run = Run(cache, connection)
        before: Iterable[Sequence[Json]] = db.staged_events(connection, db.FEED) if is_staged else ()
        for events in chain(before, db.in_parts(whole, CHUNK)):
            run.apply(events)
        run.finish()
        if is_staged:
            db.clear_staged(connection, db.FEED)
    offset = whole[-1]["offset"] if whole else state.applied_offset
    reached = body["position"] if until is None else min(body["position"], until)
    position = max(state.position, reached)
    if len(wanted) < len(fresh):
        # The page's cursor is behind what was left out; the next page begins with what is here already.
        consumed = {"cursor": state.staged_cursor, "staged_cursor": None, "staged_offset": 0} if is_staged else {}
        db.write_state(connection, position=position, applied_offset=offset, **(consumed if whole else {}))
        return Applied(True, position, False, len(whole))
    if rest or (is_staged and not whole):
        db.stage(connection, rest, db.FEED)
        position = max(state.position, min(reached, rest[-1]["tx"] - 1)) if rest else state.position
        staged = rest[-1]["offset"] if rest else state.staged_offset
        db.write_state(connection, position=position, applied_offset=offset, staged_cursor=body["cursor"],
                       staged_offset=staged)  # fmt: skip
        return Applied(True, position, False, len(whole))
    db.write_state(connection, position=position, applied_offset=offset, cursor=body["cursor"], staged_cursor=None,
                   staged_offset=0)  # fmt: skip
    return Applied(True, position, bool(body["up_to_date"]), len(whole))


def _fresh(events: Sequence[Json], last: int) -> list[Json]:
    """The events after offset `last`; none may be missing."""
    found = []
    for event in events:
        if event["offset"] > last:
            if (event["prev"] or 0) > last:
                raise Gap(f"The feed goes on after offset {event['prev']}, and here it is at {last}.")
            found.append(event)
            last = event["offset"]
    return found


def _apply_snapshot(cache: Cache, connection: Connection, state: db.CacheState, body: Json) -> Applied:
    events = body["events"]
    begins = bool(events) and events[0]["event"] == "schema"
    if begins:
        db.clear_staged(connection, db.FEED)
    elif not state.staged_snapshot:
        raise Gap("A snapshot came without its beginning.")
    if not (events and events[-1].get("last")):
        db.stage(connection, events, db.FEED)
        db.write_state(connection, staged_cursor=body["cursor"], staged_offset=0, staged_snapshot=True)
        return Applied(True, state.position, False, 0)
    before = () if begins else db.staged_events(connection, db.FEED)
    _swap(cache, connection, chain(before, db.in_parts(events, CHUNK)), None)
    db.clear_staged(connection, db.FEED)
    db.write_state(connection, cursor=body["cursor"], position=body["position"], applied_offset=events[-1]["offset"],
                   staged_cursor=None, staged_offset=0, staged_snapshot=False)  # fmt: skip
    return Applied(True, body["position"], bool(body["up_to_date"]), len(events))


def _swap(
    cache: Cache, connection: Connection, parts: Iterable[Sequence[Json]], buckets: Collection[int] | None
) -> None:
    """Make `parts` all that is here (in these buckets) of the MDP's."""
    run = Run(cache, connection)
    last = run.last
    seen = bytearray(last + 1)
    run.spoken |= db.unselect_all(connection, buckets)
    for events in parts:
        for number in run.apply(events):
            if number <= last:
                seen[number] = True
    unseen = (number for number in db.present_ids(connection, buckets) if number <= last and not seen[number])
    for part in db.in_parts(unseen):
        remove(connection, part, run.spoken)
    collect_fully(connection, run.spoken)
    drop_rows(connection, run.spoken)


class Run:
    """One transaction of the cache, made of any number of parts."""

    def __init__(self, cache: Cache, connection: Connection) -> None:
        self._cache = cache
        self._connection = connection
        self._schema = cache.schema(connection)
        self._properties: dict[str, tuple[int, bool, bool]] = {}
        self._typed: dict[tuple[str, str], TypedKeys] = {}
        self.last = db.last_resource(connection)
        self._lost: set[int] = set()
        self.spoken: set[int] = set()
        """Resources that may have been spoken of for the last time."""

    def apply(self, events: Iterable[Json]) -> Collection[int]:
        """Make events true; the resources that were put."""
        contents: dict[str, list[Any] | None] = {}
        marks: dict[str, bool] = {}
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
            elif kind == "schema":
                schema = event["schema"]
        if schema is not None:
            self._change_schema(schema)
        return self._write(contents, marks)

    def finish(self) -> None:
        """Nothing more will come: what has no reason to be here goes."""
        if len(self._lost) > MANY:
            collect_fully(self._connection, self.spoken)
        else:
            collect(self._connection, self._lost, self.spoken)
        drop_rows(self._connection, self.spoken)

    # -- statements

    def _write(self, contents: Mapping[str, list[Any] | None], marks: Mapping[str, bool]) -> Collection[int]:
        connection = self._connection
        puts = {uri: said for uri, said in contents.items() if said is not None}
        uris, properties, datatypes = _named(puts)
        known = db.find_resources(connection, uris | contents.keys() | marks.keys())
        self._delete(known[uri] for uri, said in contents.items() if said is None and uri in known)
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
        db.add_referrers(connection, changes)
        db.set_present(connection, [k.id for u in puts if (k := known.get(u)) is not None and not k.present], True)
        self._mark(known, marks)
        # What comes may come without a reason, which only the end of the transaction can tell.
        self._lost.update(ids[uri] for uri in puts if uri not in known or not known[uri].present)
        return [ids[uri] for uri in puts]

    def _delete(self, gone: Iterable[db.Known]) -> None:
        ids = [found.id for found in gone]
        self.spoken.update(ids)
        self._lost |= remove(self._connection, ids, self.spoken)

    def _mark(self, known: Mapping[str, db.Known], marks: Mapping[str, bool]) -> None:
        changed = {uri: mark for uri, mark in marks.items() if uri in known and known[uri].selected is not mark}
        for wanted in (True, False):
            ids = [known[uri].id for uri, mark in changed.items() if mark is wanted]
            db.set_selected(self._connection, ids, wanted)
        unmarked = {known[uri].id for uri, mark in changed.items() if not mark}
        self._lost |= unmarked
        self.spoken |= {known[uri].id for uri, mark in changed.items() if not mark and not known[uri].present}

    def _replace(
        self,
        puts: Mapping[str, list[Any]],
        known: Mapping[str, db.Known],
        ids: Mapping[str, int],
        numbers: Mapping[str, int],
        properties: Iterable[str],
    ) -> dict[int, int]:
        """Write what changed of these resources; how many strong references came, less those that went, by target."""
        connection = self._connection
        self._decide(properties, numbers)
        stored = db.stored_statements(connection, [k.id for uri in puts if (k := known.get(uri)) and k.present])
        rows: list[db.Row] = []
        whole: list[int] = []
        single: list[tuple[int, int]] = []
        changes: dict[int, int] = defaultdict(int)
        for uri, said in puts.items():
            number = ids[uri]
            keys = self._keys(said, ids, numbers)
            before = stored.get(number)
            if before:
                if before.keys() == keys.keys():
                    continue
                removed = {key: was for key, was in before.items() if key not in keys}
                hashes = {was.hash for was in removed.values()}
                for key, was in removed.items():
                    if key[1] is not None:
                        self.spoken.add(key[1])
                        if was.strong:
                            changes[key[1]] -= 1
                            self._lost.add(key[1])
                if len(removed) <= FEW and not any(was.hash in hashes for key, was in before.items() if key in keys):
                    single += [(number, was.hash) for was in removed.values()]
                    keys = {key: told for key, told in keys.items() if key not in before}
                else:
                    whole.append(number)
                    for key, was in before.items():
                        if was.strong and key in keys and key[1] is not None:
                            changes[key[1]] -= 1
            self._encode(uri, number, keys, rows, changes)
        db.delete_statements_of(connection, whole)
        db.delete_statements(connection, single)
        db.insert_statements(connection, rows)
        return changes

    def _decide(self, properties: Iterable[str], numbers: Mapping[str, int]) -> None:
        for name in properties:
            if name not in self._properties:
                typed = bool(self._schema.typed_ranges(name))
                self._properties[name] = (numbers[name], self._schema.is_strong(name), typed)

    def _keys(self, said: Iterable[Any], ids: Mapping[str, int], numbers: Mapping[str, int]) -> dict[db.Key, Any]:
        keys: dict[db.Key, Any] = {}
        for told in said:
            name, term = told
            value = term["value"]
            if term["type"] == "uri":
                keys[(numbers[name], ids[value], None, None, None)] = told
            else:
                datatype = term.get("datatype")
                kind = numbers[datatype] if datatype is not None else None
                keys[(numbers[name], None, kind, value, term.get("lang"))] = told
        return keys

    def _encode(
        self, uri: str, number: int, keys: Mapping[db.Key, Any], rows: list[db.Row], changes: dict[int, int]
    ) -> None:
        """Rows of statements that are new."""
        for (property_id, target, datatype, value, lang), (name, term) in keys.items():
            _, strong, typed = self._properties[name]
            object_ = Term(term["type"], term["value"], lang, term.get("datatype"))
            hash_ = statement_hash(Statement(uri, name, object_))
            if target is not None:
                strong = strong or is_blank(object_.value)
                if strong:
                    changes[target] += 1
                rows.append(
                    (GLOBAL, number, target, hash_, property_id, None, int(strong), None, None, None, None, None)
                )
            else:
                keyed = self._typed_keys(name, object_) if typed else _UNTYPED
                rows.append((GLOBAL, number, None, hash_, property_id, datatype, 0, value, lang, *keyed))

    def _typed_keys(self, name: str, term: Term) -> TypedKeys:
        known = self._typed.get((name, term.value))
        if known is None:
            if len(self._typed) >= REMEMBERED:
                self._typed.clear()
            known = self._typed[name, term.value] = self._schema.typed_keys(name, term)
        return known

    # -- schema

    def _change_schema(self, body: Json) -> None:
        """Let another schema hold: of what is stored, global or local, that changes which it says otherwise."""
        connection, old = self._connection, self._schema
        told = FeedSchema.from_dict(body)
        new = in_force(told, old.edition + 1)
        if (new.version, new.statements, new.schema.prefixes) == (old.version, old.statements, old.schema.prefixes):
            return
        for name, number in db.all_names(connection).items():
            strong = new.is_strong(name)
            if strong != old.is_strong(name):
                counts = db.change_strength(connection, number, strong)
                db.add_referrers(connection, {t: count if strong else -count for t, count in counts.items()})
                self._lost |= set() if strong else counts.keys()
            if new.typed_ranges(name) != old.typed_ranges(name):
                for values in db.values_of(connection, number):
                    typed = {value: new.typed_keys(name, Term.literal(value)) for value in values}
                    db.retype(connection, number, typed)
        db.write_state(connection, schema=told.as_dict(), schema_version=new.version, schema_edition=new.edition)
        self._schema = self._cache.schema(connection)
        self._properties, self._typed = {}, {}


def _named(puts: Mapping[str, list[Any]]) -> tuple[set[str], set[str], set[str]]:
    """The resources, properties and datatypes that puts name."""
    uris, properties, datatypes = set(puts), set(), set()
    for said in puts.values():
        for name, term in said:
            properties.add(name)
            if term["type"] == "uri":
                uris.add(term["value"])
            elif "datatype" in term:
                datatypes.add(term["datatype"])
    return uris, properties, datatypes
