"""The cache of an LMR: opened by its URL, read by many, written by one at a time.

    with Cache.open("sqlite:///lmr.db") as cache:
        with cache.reading() as connection:
            ...

Readers see one state throughout, and never wait for the writer nor the writer for them.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

import sqlalchemy
from sqlalchemy import Connection, Engine

from mdv.db import cache as db
from mdv.db.cache_tables import FORMAT
from mdv.errors import NotStarted
from mdv.feed import FeedSchema
from mdv.lmr.schema import SchemaInForce, in_force


class Cache:
    """An open cache. May be used by several threads at once."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = db.writer(engine)
        self._reader = db.reader(engine)
        self._lock = threading.RLock()
        self._names: dict[str, int] = {}
        self._schema: SchemaInForce | None = None

    @classmethod
    def open(cls, url: str) -> Cache:
        """The cache at `sqlite:///path` or `postgresql://…`, made if there is none."""
        try:
            name = sqlalchemy.make_url(url)
        except sqlalchemy.exc.ArgumentError:
            raise NotStarted(f"{url!r} is no address of a cache: sqlite:///path or postgresql://… is.") from None
        if name.get_backend_name() not in ("sqlite", "postgresql") or name.database in (None, "", ":memory:"):
            raise NotStarted(f"A cache is kept in a file, sqlite:///path, or at postgresql://…, not at {url!r}.")
        engine = db.make_cache_engine(url)
        try:
            with db.writer(engine).begin() as connection:
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
        """A transaction that sees one state."""
        with self._reader.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """The one transaction that writes; what it remembered is forgotten with it if it fails."""
        with self._lock:
            try:
                with self._writer.begin() as connection:
                    yield connection
            except BaseException:
                self._names, self._schema = {}, None
                raise

    def state(self) -> db.CacheState:
        with self.reading() as connection:
            return db.read_state(connection)

    def refetch(self) -> None:
        """The feed cannot go on from where it is: the next page asked for is a snapshot. What is here stays."""
        with self.writing() as connection:
            db.lock_state(connection)
            db.clear_staged(connection, db.FEED)
            db.write_state(connection, cursor=None, staged_cursor=None, staged_offset=0, staged_snapshot=False)

    def schema(self, connection: Connection) -> SchemaInForce:
        """The schema that holds in the state that `connection` sees, read again only when it has changed."""
        edition = db.read_state(connection).schema_edition
        known = self._schema  # other threads may replace it meanwhile
        if known is None or known.edition != edition:
            body = db.read_schema_body(connection)
            known = self._schema = in_force(FeedSchema.from_dict(body) if body else None, edition)
        return known

    def names(self, connection: Connection, names: Collection[str]) -> Mapping[str, int]:
        """The numbers of properties and datatypes, remembered. `connection` must write."""
        missing = [name for name in names if name not in self._names]
        if missing:
            self._names |= db.find_names(connection, missing)
        return self._names


def _make_or_check(connection: Connection, url: str) -> None:
    """A cache of another format is made anew from the feed; what is nowhere else is not thrown away."""
    tables = db.found_tables(connection)
    if not tables:
        db.make_tables(connection)
        return
    if "lmr_state" not in tables:
        raise NotStarted(f"The database {url} is no cache of an LMR: it holds {', '.join(sorted(tables))} of another.")
    found = db.found_format(connection)
    if found == FORMAT:
        return
    if "local_documents" in tables and (local := db.count_local_documents(connection)):
        raise NotStarted(
            f"The cache {url} has format {found} and not {FORMAT}, and holds {local:,} local documents, which are "
            "nowhere else: take them out with the version that wrote them, or name another cache."
        )
    db.drop_tables(connection)
    db.make_tables(connection)
