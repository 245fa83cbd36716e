"""The cache of an LMR, opened by its URL. There are many concurrent readers and one writer.

    with Cache.open("sqlite:///lmr.db") as cache:
        with cache.reading() as connection:
            ...

A reader sees one consistent state. Readers and the writer do not block each other.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

import sqlalchemy
from sqlalchemy import Connection, Engine

from mdv.db import cache as db
from mdv.db.cache_tables import CACHE_FORMAT, UPGRADABLE_FORMATS
from mdv.errors import NotStarted
from mdv.feed import FeedSchema
from mdv.lmr.schema import CacheSchema, make_cache_schema


class Cache:
    """An open cache. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = db.writing_engine(engine)
        self._reader = db.snapshot_engine(engine)
        self._lock = threading.RLock()
        self._names: dict[str, int] = {}
        self._schema: CacheSchema | None = None

    @classmethod
    def open(cls, url: str) -> Cache:
        """Open the cache at `sqlite:///path` or `postgresql://…`. It is created if it does not exist."""
        try:
            name = sqlalchemy.make_url(url)
        except sqlalchemy.exc.ArgumentError:
            raise NotStarted(f"{url!r} is not the URL of a cache: use sqlite:///path or postgresql://….") from None
        if name.get_backend_name() not in ("sqlite", "postgresql") or name.database in (None, "", ":memory:"):
            raise NotStarted(f"{url!r} cannot be used for a cache: use sqlite:///path or postgresql://….")
        engine = db.make_cache_engine(url)
        try:
            with db.writing_engine(engine).begin() as connection:
                _make_or_check(connection, name.render_as_string())
        except sqlalchemy.exc.DBAPIError as error:
            engine.dispose()
            raise NotStarted(f"The cache {name.render_as_string()} cannot be opened: {error.orig}") from error
        except BaseException:
            engine.dispose()
            raise
        return cls(engine)

    def close(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read transaction, which sees one consistent state."""
        with self._reader.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open the write transaction. If it fails, values cached in memory are discarded."""
        with self._lock:
            try:
                with self._writer.begin() as connection:
                    yield connection
            except BaseException:
                self._names, self._schema = {}, None
                raise

    @contextmanager
    def writing_within(self, seconds: float) -> Iterator[Connection | None]:
        """Open the write transaction if no other one takes longer than `seconds`. Gives None otherwise."""
        if not self._lock.acquire(timeout=max(seconds, 0)):
            yield None
            return
        try:
            with self.writing() as connection:
                yield connection
        finally:
            self._lock.release()

    def state(self) -> db.CacheState:
        with self.reading() as connection:
            return db.read_state(connection)

    def home(self) -> db.CacheHome:
        with self.reading() as connection:
            return db.read_home(connection)

    def next_term(self) -> int:
        """Return the number of the next attempt to get another home. It is stored first, so that none is used twice."""
        with self.writing() as connection:
            home = db.read_home(connection)
            db.write_home(connection, home._replace(term=home.term + 1))
        return home.term + 1

    def refetch(self) -> None:
        """Reset the cursor, so that the next request gets a snapshot. The content is kept until then."""
        with self.writing() as connection:
            db.lock_state(connection)
            db.clear_staged(connection, db.LANE_FEED)
            db.write_state(connection, cursor=None, staged_cursor=None, staged_offset=0, staged_snapshot=False)

    def schema(self, connection: Connection) -> CacheSchema:
        """Return the schema of the state that `connection` sees. It is read again only when it has changed."""
        edition = db.read_state(connection).schema_edition
        known = self._schema  # other threads may replace it meanwhile
        if known is None or known.edition != edition:
            body = db.read_schema_body(connection)
            known = self._schema = make_cache_schema(FeedSchema.from_dict(body) if body else None, edition)
        return known

    def names(self, connection: Connection, names: Collection[str]) -> Mapping[str, int]:
        """Return the ids of properties and datatypes, cached in memory. `connection` must be a write transaction."""
        missing = [name for name in names if name not in self._names]
        if missing:
            self._names |= db.get_or_create_names(connection, missing)
        return self._names


def _make_or_check(connection: Connection, url: str) -> None:
    """Create the tables, or check their format.

    A cache of another format is recreated and filled from the feed, unless it contains local documents, which are
    stored nowhere else.
    """
    tables = db.existing_tables(connection)
    if not tables:
        db.create_tables(connection)
        return
    if "lmr_state" not in tables:
        raise NotStarted(
            f"The database {url} is not the cache of an LMR: it contains other tables, {', '.join(sorted(tables))}."
        )
    found = db.stored_format(connection)
    if found == CACHE_FORMAT:
        return
    if found in UPGRADABLE_FORMATS:
        db.upgrade_tables(connection)
        return
    if "local_documents" in tables and (local := db.count_local_documents(connection)):
        raise NotStarted(
            f"The cache {url} has format {found} instead of {CACHE_FORMAT}, and contains {local:,} local documents, "
            "which are stored nowhere else: export them with the version that wrote them, or use another cache."
        )
    db.drop_tables(connection)
    db.create_tables(connection)
