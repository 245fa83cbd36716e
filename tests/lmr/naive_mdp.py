"""A naive MDP for one LMR: a few resources, the closure computed anew each time, and the feed that follows from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mdv.feed import BUCKETS, MODULUS, Event, FeedSchema, Kind, Page, bucket_of, mark_hash
from mdv.model import MDV, RDF, RDF_TYPE, RDFS, XSD, Statement, Term, is_blank
from mdv.rdf.digest import statement_hash

V = "http://v/"
OWNS, KNOWS, PART, SIZE, LABEL = (V + name for name in ("owns", "knows", "part", "size", "label"))
URIS = [f"http://a/{name}" for name in "abcdefg"] + ["http://a/d#_:1", "http://a/d#_:2"]

Said = frozenset[tuple[str, Term]]
Content = Mapping[str, Said]


def schema(version: int, strong: Collection[str], size: str | None) -> FeedSchema:
    """`part` is below `owns`, and as strong; `size` may be a number."""
    said = [Statement(V + "Thing", RDF_TYPE, Term.uri(RDFS + "Class"))]
    said += [Statement(name, RDF_TYPE, Term.uri(RDF + "Property")) for name in (OWNS, KNOWS, PART, SIZE, LABEL)]
    said += [Statement(name, MDV + "setValued", Term.literal("true")) for name in (OWNS, KNOWS, PART, SIZE, LABEL)]
    said += [Statement(name, MDV + "reference", Term.uri(MDV + "strong")) for name in sorted(strong)]
    said.append(Statement(PART, RDFS + "subPropertyOf", Term.uri(OWNS)))
    if size is not None:
        said.append(Statement(SIZE, RDFS + "range", Term.uri(XSD + size)))
    return FeedSchema(version, tuple(said), {"v": V})


class State(NamedTuple):
    """What the LMR's cache should hold at some position."""

    position: int
    content: Content
    selected: frozenset[str]
    schema: FeedSchema

    def sums(self) -> list[int]:
        """The checksum, added up one by one."""
        sums = [0] * BUCKETS
        for uri, said in self.content.items():
            sums[bucket_of(uri)] += sum(statement_hash(Statement(uri, name, term)) for name, term in said)
            sums[bucket_of(uri)] += mark_hash(uri) if uri in self.selected else 0
        return [number % MODULUS for number in sums]


@dataclass
class NaiveMdp:
    """What is registered, what the rules of the LMR select, and the feed so far."""

    store: dict[str, Said] = field(default_factory=dict)
    chosen: set[str] = field(default_factory=set)
    strong: frozenset[str] = frozenset((OWNS,))
    size: str | None = "integer"
    version: int = 1
    position: int = 1
    log: list[Event] = field(default_factory=list)
    states: list[State] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.states.append(self.state())

    def state(self) -> State:
        selected = frozenset(self.chosen & self.store.keys())
        content = {uri: self.store[uri] for uri in self._reached(selected)}
        return State(self.position, content, selected, schema(self.version, self.strong, self.size))

    def _reached(self, selected: Iterable[str]) -> set[str]:
        strong = self.strong | ({PART} if OWNS in self.strong else set())
        reached: set[str] = set()
        stack = list(selected)
        while stack:
            uri = stack.pop()
            if uri not in reached:
                reached.add(uri)
                stack += [
                    term.value
                    for name, term in self.store[uri]
                    if term.is_uri and term.value in self.store and (name in strong or is_blank(term.value))
                ]
        return reached

    def commit(self, extra: Collection[str] = ()) -> None:
        """What was changed becomes a transaction; puts are sent for `extra`, too, though nobody asked for them."""
        before = self.states[-1]
        self.position += 1
        if schema(before.schema.version, self.strong, self.size) != before.schema:
            self.version += 1
        now = self.state()
        events: list[tuple[Kind, str]] = []
        if now.schema != before.schema:
            events.append((Kind.SCHEMA, ""))
        events += [(Kind.DELETE, uri) for uri in sorted(before.content) if uri not in self.store]
        puts = {uri for uri, said in now.content.items() if before.content.get(uri) != said}
        events += [(Kind.PUT, uri) for uri in sorted(puts | {uri for uri in extra if uri in self.store})]
        events += [(Kind.UNMATCH, uri) for uri in sorted(before.selected - now.selected) if uri in self.store]
        events += [(Kind.MATCH, uri) for uri in sorted(now.selected - before.selected)]
        for number, (kind, uri) in enumerate(events, 1):
            self.log.append(self._event(kind, uri, len(self.log) + 1, len(self.log), number == len(events)))
        self.states.append(now)

    def _event(self, kind: Kind, uri: str, offset: int, prev: int, last: bool) -> Event:
        said: tuple[Statement, ...] = ()
        if kind is Kind.PUT:
            said = tuple(Statement(uri, name, term) for name, term in sorted(self.store[uri]))
        told = schema(self.version, self.strong, self.size) if kind is Kind.SCHEMA else None
        return Event(kind, offset, prev, self.position, uri, (), said, told, last)

    def state_at(self, offset: int) -> State:
        """What an LMR should hold that has the feed up to `offset`: whole transactions alone count."""
        whole = max((event.tx for event in self.log[:offset] if event.last), default=0)
        return next(state for state in reversed(self.states) if state.position <= max(whole, 1))

    def page(self, after: int, number: int) -> Page:
        """`number` events after an offset, wherever that cuts."""
        end = min(after + number, len(self.log))
        position = self.position if end == len(self.log) else self.log[end].tx - 1
        return Page(tuple(self.log[after:end]), str(end), position, end == len(self.log))

    def snapshot(self, buckets: Collection[int] | None = None, size: int = 10**9) -> Iterator[Page]:
        """The present state, in pages of `size`."""
        now = self.states[-1]
        offset = len(self.log)
        content = sorted(uri for uri in now.content if buckets is None or bucket_of(uri) in buckets)
        events = [(Kind.SCHEMA, "")] + [(Kind.PUT, uri) for uri in content]
        events += [(Kind.MATCH, uri) for uri in content if uri in now.selected]
        made = [self._event(kind, uri, offset, offset, n == len(events)) for n, (kind, uri) in enumerate(events, 1)]
        for start in range(0, len(made), size):
            end = start + size >= len(made)
            cursor = str(offset) if end else f"snapshot-{start + size}"
            yield Page(tuple(made[start : start + size]), cursor, self.position, end, snapshot=True)
