"""Join the pieces of large resources.

An MDP sends a resource with very many statements as several `put` events with one offset. `from` is the number of
statements in the previous pieces, and all but the last piece have `more`. Pieces may arrive again, also with other
boundaries. If the last piece never arrives, the resource was changed while it was sent (the feed was compacted), and
later events contain its new state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mdv.errors import MustRefetch

Json = Mapping[str, Any]


class FeedGap(MustRefetch):
    """Events of the feed are missing: take a snapshot."""


def join_pieces(parts: Iterable[Sequence[Json]]) -> Iterator[list[Json]]:
    """Yield the same events, with the pieces of each large resource joined into one put.

    >>> first = {"event": "put", "offset": 7, "tx": 3, "from": 0, "more": True, "statements": ["a", "b"]}
    >>> second = {"event": "put", "offset": 7, "tx": 3, "from": 2, "statements": ["c"], "last": True}
    >>> [[event["statements"] for event in events] for events in join_pieces([[first], [second]])]
    [[], [['a', 'b', 'c']]]
    """
    pending: dict[str, Any] | None = None
    for events in parts:
        joined: list[Json] = []
        for event in events:
            start = event.get("from")
            if start is None:
                pending = None
                joined.append(event)
                continue
            if pending is None or (pending["offset"], pending["tx"]) != (event["offset"], event["tx"]):
                pending = {**event, "statements": []}
            statements: list[Any] = pending["statements"]
            if start > len(statements):
                raise FeedGap(
                    f"Statements {len(statements)} to {start} of {event['resource']} are missing in the feed."
                )
            statements.extend(event["statements"][len(statements) - start :])
            if not event.get("more"):
                joined.append({**event, "statements": statements})
                pending = None
        yield joined
