"""Update the search index: index the resources that have changed, in small transactions.

A worker calls `update_search_index` every few seconds, and a search calls it first, so that it finds what was
registered before. A long backlog, for example after a batch, is left to the worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from sqlalchemy import Engine

from mdv.db.search_index import collect, index_next, is_current, make_lexemes
from mdv.mdp.schemas import SchemaCache
from mdv.query.offload import Offload, run_inline

RESOURCES_PER_TRANSACTION = 500


def update_search_index(
    engine: Engine,
    schemas: SchemaCache,
    seconds: float,
    is_busy: Callable[[], bool] = lambda: False,
    apart: Offload = run_inline,
) -> bool:
    """Index changed resources for about `seconds`, or in one transaction if `is_busy` returns True. Return True if all
    changes before the call are indexed. `apart` runs the search for words in texts."""
    until = time.monotonic() + seconds
    with engine.connect() as connection:
        labels = schemas.now(connection).schema.label_properties
        current, _ = is_current(connection, labels)
    if current:
        return True
    while True:
        with engine.begin() as connection:
            collect(connection, labels)
            more = index_next(connection, labels, RESOURCES_PER_TRANSACTION, partial(apart, make_lexemes))
        if not more:
            return True
        if time.monotonic() >= until or is_busy():
            return False
