"""A run: read, decompose and stage in Spark; promote in the driver, while Spark goes on.

    inputs → listing (which documents there are, and several for which URIs) → decompose, in executors → staging
           → promotion

Of several documents with one URI the last counts that is not refused, as if they had been registered one by one.

Whatever is killed, the same command goes on where it was: texts that are registered already are recognised, and not
even parsed.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import structlog
from sqlalchemy import Engine

from mdv.batch.decompose import Work, decompose, patiently
from mdv.batch.match import Constants, read_constants
from mdv.batch.packages import last_words
from mdv.batch.promote import Promotion, taken_for_dead
from mdv.batch.rejects import Refusals, check_folder
from mdv.batch.shape import REJECTS
from mdv.db.batch import (
    Progress,
    begin_run,
    drop_run,
    end_run,
    expect_documents,
    hear,
    read_examples,
    read_run,
)
from mdv.db.schemas import read_schema_version
from mdv.db.state import read_state
from mdv.errors import BadCommand, Unavailable
from mdv.figures import stage_seconds
from mdv.garbage import look_rarely

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

MOST_EXAMPLES = 20
MOST_SEVERAL = 1_000_000
"""URIs of which a run may have several documents: every executor knows them all."""
PAUSE = 0.1
HEARD_EVERY = 30.0

log = structlog.get_logger()


class Incoming(Protocol):
    """Documents to register."""

    def listing(self) -> DataFrame | None:
        """Which there are, in the columns of `LISTING`; None where no two have the same URI."""

    def documents(self) -> DataFrame:
        """The documents, in the columns of `DOCUMENTS`."""

    def count(self) -> int:
        """How many there are, where that is not known from the listing; roughly will do."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a run is to do. `rejects`: the folder for what is refused, if any, beside what is there or instead of it."""

    what: str
    max_bytes: int
    rejects: str | None = None
    dry_run: bool = False
    match_in_spark: bool = False
    add_rejects: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run came to, in documents. `stages`: the seconds of each kind of work, of all executors together."""

    documents: int
    registered: int
    changed: int
    unchanged: int
    refused: int
    duplicates: int
    statements: int
    bytes: int
    transactions: int
    seconds: float
    dry_run: bool
    rejects: str | None
    stages: Mapping[str, float]
    examples: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        rates = {
            "documents_per_second": round(self.documents / self.seconds, 1),
            "statements_per_second": round(self.statements / self.seconds, 1),
        }
        return asdict(self) | rates


Watch = Callable[[Progress | None], object]
"""Hears how far a run has come; nothing yet, while it looks at what is there."""


def run_batch(
    spark: SparkSession, engine: Engine, database_url: str, incoming: Incoming, order: Order, watch: Watch
) -> Summary:
    """Carry out a run."""
    look_rarely()
    if order.rejects is not None:
        check_folder(spark, order.rejects)
    run = patiently(engine, lambda connection: begin_run(connection, order.what, order.dry_run))
    state = "failed"
    try:
        with tempfile.TemporaryDirectory(prefix="mdv-batch-") as folder:
            summary = Run(spark, engine, database_url, run, order, watch).carry_out(incoming, Path(folder))
        state = "done"
        return summary
    finally:
        # Nothing is kept of a dry run; what another has left in staging is of no use to anybody.
        end = drop_run if order.dry_run else partial(end_run, state=state)
        patiently(engine, lambda connection: end(connection, run), patience=10)


class Run:
    """One run."""

    def __init__(
        self, spark: SparkSession, engine: Engine, database_url: str, run: UUID, order: Order, watch: Watch
    ) -> None:
        self._spark = spark
        self._engine = engine
        self._database_url = database_url
        self._run = run
        self._order = order
        self._watch = watch
        self._heard_at = time.monotonic()

    def carry_out(self, incoming: Incoming, folder: Path) -> Summary:
        began, before = time.monotonic(), stage_seconds()
        self._watch(None)
        there, several = self._look_through(incoming)
        looked = time.monotonic() - began
        documents = incoming.documents() if several is None else together(incoming.documents(), several)
        refusals = Refusals(folder / f"part-promotion-{self._run}.parquet", MOST_EXAMPLES)
        work = self._spark.sparkContext.broadcast(self._work())
        executors = Executors(self._spark, documents, work, self._order)
        try:
            self._promote(executors, refusals, work.value.constants)
        finally:
            executors.end()
            work.destroy()
            refusals.close()
        if self._order.rejects is not None:
            refusals.put_into(self._spark, self._order.rejects)
        stages = {name: seconds - before.get(name, 0.0) for name, seconds in stage_seconds().items()}
        return self._summary(there, time.monotonic() - began, stages | {"look": looked}, refusals.examples)

    # What is there

    def _look_through(self, incoming: Incoming) -> tuple[int | None, DataFrame | None]:
        """How many documents there are, where that is known exactly, and the URIs that several of them have, if any."""
        listing = incoming.listing()
        if listing is None:
            self._expect(incoming.count())
            return None, None
        from pyspark.sql import functions as f

        by_uri = listing.groupBy("uri").agg(f.count("*").alias("times"))
        several = (f.col("times") > 1) & f.col("uri").isNotNull()
        there, uris, more = by_uri.agg(
            f.coalesce(f.sum("times"), f.lit(0)),
            f.count(f.when(several, f.col("uri"))),
            f.coalesce(f.sum(f.when(several, f.col("times") - 1)), f.lit(0)),
        ).collect()[0]
        if uris > MOST_SEVERAL:
            raise BadCommand(f"{uris:,} URIs have several documents: register them in several runs.")
        self._expect(there - more)
        if not uris:
            return there, None
        found = [(row["uri"],) for row in by_uri.where(several).select("uri").toLocalIterator()]
        return there, self._spark.createDataFrame(found, "uri string")

    def _expect(self, documents: int) -> None:
        patiently(self._engine, lambda connection: expect_documents(connection, self._run, documents))

    def _work(self) -> Work:
        with self._engine.begin() as connection:
            state = read_state(connection)
            statements, prefixes = read_schema_version(connection, state.schema_version)
            constants = read_constants(connection, state) if self._order.match_in_spark else None
        if self._order.match_in_spark and constants is None:
            log.warning("rules have too many constants to be matched in Spark: the filter does it alone")
        return Work(
            self._database_url, self._run, state.schema_version, tuple(statements), prefixes,
            self._order.max_bytes, self._order.dry_run, constants,
        )  # fmt: skip

    # Carrying it out

    def _promote(self, executors: Executors, refusals: Refusals, constants: Constants | None) -> None:
        """Promote what comes, until executors have ended and nothing is left."""
        promotion = Promotion(self._engine, self._run, refusals, constants)
        while True:
            is_last = executors.ended
            promoted = 0 if self._order.dry_run else promotion.step()
            self._tell()
            if promoted == 0:
                if is_last:
                    break
                executors.wait(PAUSE)
        executors.check()

    def _tell(self) -> None:
        self._watch(self._read())
        if time.monotonic() - self._heard_at > HEARD_EVERY:
            self._heard_at = time.monotonic()
            if not patiently(self._engine, lambda connection: hear(connection, self._run)):
                raise taken_for_dead()

    def _read(self) -> Progress:
        return patiently(self._engine, lambda connection: read_run(connection, self._run))

    def _summary(
        self, there: int | None, seconds: float, stages: dict[str, float], examples: list[dict[str, Any]]
    ) -> Summary:
        found = self._read()
        some = patiently(self._engine, lambda connection: read_examples(connection, self._run, MOST_EXAMPLES))
        is_dry = self._order.dry_run
        of_executors = {"prepare": found.preparing, "stage": found.staging, "wait": found.waiting}
        documents = (found.prepared if is_dry else found.promoted) + found.skipped + found.rejected
        return Summary(
            documents=documents,
            registered=found.fresh if is_dry else found.registered,
            changed=found.prepared - found.fresh - found.same if is_dry else found.changed,
            unchanged=found.skipped + (found.same if is_dry else found.unchanged),
            refused=found.rejected + found.refused,
            duplicates=max(0, there - documents) if there is not None else 0,
            statements=found.statements if is_dry else found.promoted_statements,
            bytes=found.bytes,
            transactions=found.transactions,
            seconds=round(seconds, 3),
            dry_run=is_dry,
            rejects=self._order.rejects,
            stages={name: round(spent, 3) for name, spent in {**of_executors, **stages}.items() if spent},
            examples=(some + examples)[:MOST_EXAMPLES],
        )


def together(documents: DataFrame, several: DataFrame) -> DataFrame:
    """The documents, and of those with a URI among `several` all in one partition, the last first."""
    from pyspark.sql import functions as f

    uris = f.broadcast(several)
    alone = documents.join(uris, "uri", "left_anti").select(documents.columns)
    theirs = documents.join(uris, "uri", "left_semi").select(documents.columns)
    return alone.unionAll(theirs.repartition("uri").sortWithinPartitions("uri", f.desc("rank")))


class Executors:
    """Spark's part of a run, beside the driver's."""

    def __init__(self, spark: SparkSession, documents: DataFrame, work: Broadcast[Work], order: Order) -> None:
        from pyspark import InheritableThread

        self._spark = spark
        self._group = f"mdv batch {work.value.run}"
        self._error: Exception | None = None
        self._over = threading.Event()
        refused = documents.mapInArrow(partial(decompose, work), REJECTS)
        if order.rejects is None:
            self._act = refused.write.mode("overwrite").format("noop").save
        else:
            mode = "append" if order.add_rejects else "overwrite"
            self._act = partial(refused.write.mode(mode).parquet, order.rejects)
        InheritableThread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._spark.sparkContext.setJobGroup(self._group, self._group, interruptOnCancel=True)
            self._act()
        except Exception as error:
            self._error = error
        finally:
            self._over.set()

    @property
    def ended(self) -> bool:
        return self._over.is_set()

    def wait(self, seconds: float) -> None:
        self._over.wait(seconds)

    def check(self) -> None:
        """Raise what ended them, if it was an error."""
        if self._error is not None:
            raise Unavailable(f"Spark gave up: {last_words(self._error)}.") from self._error

    def end(self) -> None:
        """Let them end before their time."""
        if not self._over.is_set():
            self._spark.sparkContext.cancelJobGroup(self._group)
            self._over.wait(30)
