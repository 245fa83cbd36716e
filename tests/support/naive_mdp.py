"""A naive MDP for one LMR: a few resources, the closure computed each time, and the resulting feed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mdv.feed import BUCKET_COUNT, CHECKSUM_MODULUS, Event, EventKind, FeedPage, FeedSchema, bucket_of, selection_hash
from mdv.model import MDV, RDF, RDF_TYPE, RDFS, XSD, Statement, Term, is_blank
from mdv.rdf.digest import statement_hash

V = "http://v/"
OWNS, KNOWS, PART, SIZE, LABEL = (V + name for name in ("owns", "knows", "part", "size", "label"))
URIS = [f"http://a/{name}" for name in "abcdefg"] + ["http://a/d#_:1", "http://a/d#_:2"]

Said = frozenset[tuple[str, Term]]
Content = Mapping[str, Said]


def schema(version: int, strong: Collection[str], size: str | None) -> FeedSchema:
    """`part` is a subproperty of `owns`, and as strong; `size` may be a number."""
    said = [Statement(V + "Thing", RDF_TYPE, Term.uri(RDFS + "Class"))]
    said += [Statement(name, RDF_TYPE, Term.uri(RDF + "Property")) for name in (OWNS, KNOWS, PART, SIZE, LABEL)]
    said += [Statement(name, MDV + "setValued", Term.literal("true")) for name in (OWNS, KNOWS, PART, SIZE, LABEL)]
    said += [Statement(name, MDV + "reference", Term.uri(MDV + "strong")) for name in sorted(strong)]
    said.append(Statement(PART, RDFS + "subPropertyOf", Term.uri(OWNS)))
    if size is not None:
        said.append(Statement(SIZE, RDFS + "range", Term.uri(XSD + size)))
    return FeedSchema(version, tuple(said), {"v": V})


class State(NamedTuple):
    """The content that the LMR's cache should have at some position."""

    position: int
    content: Content
    selected: frozenset[str]
    schema: FeedSchema
    suspended: Mapping[int, str]

    def sums(self) -> list[int]:
        """Return the checksum, added up one by one."""
        sums = [0] * BUCKET_COUNT
        for uri, said in self.content.items():
            sums[bucket_of(uri)] += sum(statement_hash(Statement(uri, name, term)) for name, term in said)
            sums[bucket_of(uri)] += selection_hash(uri) if uri in self.selected else 0
        return [number % CHECKSUM_MODULUS for number in sums]


@dataclass
class NaiveMdp:
    """The registered resources, the selection of the LMR's rules, and the feed so far."""

    store: dict[str, Said] = field(default_factory=dict)
    chosen: set[str] = field(default_factory=set)
    suspended: dict[int, str] = field(default_factory=dict)
    """By rule, the reason of its suspension."""
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
        in_force = schema(self.version, self.strong, self.size)
        return State(self.position, content, selected, in_force, dict(self.suspended))

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
        """Make a transaction of the changes; puts are sent for `extra`, too, although they are not needed."""
        before = self.states[-1]
        self.position += 1
        if schema(before.schema.version, self.strong, self.size) != before.schema:
            self.version += 1
        now = self.state()
        events: list[tuple[EventKind, str]] = []
        if now.schema != before.schema:
            events.append((EventKind.SCHEMA, ""))
        events += [(EventKind.DELETE, uri) for uri in sorted(before.content) if uri not in self.store]
        puts = {uri for uri, said in now.content.items() if before.content.get(uri) != said}
        events += [(EventKind.PUT, uri) for uri in sorted(puts | {uri for uri in extra if uri in self.store})]
        events += [(EventKind.UNMATCH, uri) for uri in sorted(before.selected - now.selected) if uri in self.store]
        events += [(EventKind.MATCH, uri) for uri in sorted(now.selected - before.selected)]
        rules = {**before.suspended, **now.suspended}
        changed = [rule for rule in sorted(rules) if before.suspended.get(rule) != now.suspended.get(rule)]
        notices = [(EventKind.SUSPENDED if rule in now.suspended else EventKind.RESUMED, rule) for rule in changed]
        for number, (kind, about) in enumerate([*events, *notices], 1):
            last = number == len(events) + len(notices)
            self.log.append(self._event(kind, about, len(self.log) + 1, len(self.log), last))
        self.states.append(now)

    def _event(self, kind: EventKind, about: str | int, offset: int, prev: int, last: bool) -> Event:
        if isinstance(about, int):
            reason = self.suspended.get(about, "It was evaluated again.")
            return Event(kind, offset, prev, self.position, last=last, rule=about, reason=reason)
        uri = about
        said: tuple[Statement, ...] = ()
        if kind is EventKind.PUT:
            said = tuple(Statement(uri, name, term) for name, term in sorted(self.store[uri], key=repr))
        told = schema(self.version, self.strong, self.size) if kind is EventKind.SCHEMA else None
        return Event(kind, offset, prev, self.position, uri, (), said, told, last)

    def state_at(self, offset: int) -> State:
        """Return what an LMR with the feed up to `offset` should hold: only complete transactions count."""
        whole = max((event.tx for event in self.log[:offset] if event.last), default=0)
        return next(state for state in reversed(self.states) if state.position <= max(whole, 1))

    def page(self, after: int, number: int) -> FeedPage:
        """Return `number` events after an offset, wherever that cuts."""
        end = min(after + number, len(self.log))
        position = self.position if end == len(self.log) else self.log[end].tx - 1
        return FeedPage(tuple(self.log[after:end]), str(end), position, end == len(self.log))

    def snapshot(self, buckets: Collection[int] | None = None, size: int = 10**9) -> Iterator[FeedPage]:
        """Return the present state, in pages of `size`."""
        now = self.states[-1]
        offset = len(self.log)
        content = sorted(uri for uri in now.content if buckets is None or bucket_of(uri) in buckets)
        events: list[tuple[EventKind, str | int]] = [(EventKind.SCHEMA, "")]
        events += [(EventKind.PUT, uri) for uri in content]
        events += [(EventKind.MATCH, uri) for uri in content if uri in now.selected]
        if buckets is None:
            events += [(EventKind.SUSPENDED, rule) for rule in sorted(now.suspended)]
        made = [self._event(kind, uri, offset, offset, n == len(events)) for n, (kind, uri) in enumerate(events, 1)]
        for start in range(0, len(made), size):
            end = start + size >= len(made)
            cursor = str(offset) if end else f"snapshot-{start + size}"
            yield FeedPage(tuple(made[start : start + size]), cursor, self.position, end, snapshot=True)


class Asked:
    """The naive MDP, called synchronously; changes may happen there between two calls."""

    def __init__(self, mdp: NaiveMdp, between: Callable[[], None] = lambda: None, size: int = 2) -> None:
        self.mdp, self.between, self.size = mdp, between, size
        self.buckets: list[Sequence[int]] = []
        self._pages: dict[str, FeedPage] = {}

    def feed(self, after: str | None, *, wait: float = 0, buckets: Sequence[int] | None = None) -> dict[str, Any]:
        self.between()
        if buckets is not None:
            self.buckets.append(tuple(buckets))
        if after is None:
            first, *rest = self.mdp.snapshot(buckets, self.size)
            for before, page in zip([first, *rest], rest, strict=False):
                self._pages[before.cursor] = page
            return told(first)
        return told(self._pages[after] if after in self._pages else self.mdp.page(int(after), self.size))

    def checksum(self) -> dict[str, Any]:
        state = self.mdp.states[-1]
        answer = {"position": state.position, "buckets": [str(number) for number in state.sums()]}
        self.between()
        return answer


def told(page: FeedPage) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(json.dumps(page._asdict() | {"events": [e.as_dict() for e in page.events]}))
    return body
