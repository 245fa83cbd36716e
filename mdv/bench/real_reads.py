"""The cost of reads by programs: streams and joins, relative to bare cursors, to SQL joins and to pyoxigraph."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from pyoxigraph import Literal as OxigraphLiteral
from pyoxigraph import NamedNode, Quad, QuerySolutions, Store
from sqlalchemy import Engine

from mdv.bench.registration import RegistrationBench
from mdv.bench.report import BenchResult
from mdv.bench.sql.copy_floor import vacuum_analyze
from mdv.bench.sql.real import join_by_cursor, read_by_cursor
from mdv.bench.workload import NAMESPACE
from mdv.db.engine import driver
from mdv.db.real.statement_reader import StatementReader
from mdv.db.real.view import PostgresView
from mdv.model import Term
from mdv.real.compile_code import compile_program
from mdv.real.events import ProgramEnded, SolutionFound, StepsUsed
from mdv.real.machine import Machine
from mdv.real.resolve import read_program

STREAM, STREAM_BEST, STREAM_NDJSON, JOIN = (
    "streamed read / cursor, same plan", "streamed read / cursor, its best plan", "streamed read to NDJSON / cursor",
    "AND of two / SQL join by cursor",
)  # fmt: skip
OXIGRAPH = "pyoxigraph"
WARM_UP_ROUNDS = 1
STEPS = 10_000

PREFIX = f"PREFIX : <{NAMESPACE}>\n"
READ = PREFIX + ":memory(?x, ?memory)"
AND = PREFIX + ":serverInformation(?x, ?info) AND :memory(?info, ?memory)"


class ProgramReads:
    """A store with documents of the paper's workload, read by programs in this process."""

    def __init__(self, engine: Engine, documents: int, print_progress: Callable[[str], None]) -> None:
        self.engine, self.documents = engine, documents
        self.bench = RegistrationBench(engine)
        self.bench.fill(documents, print_progress)
        self._schema = self.bench.schema()

    def run(self, code: str, take: Callable[[Mapping[str, Term]], object]) -> float:
        """Run a program to its end, and return the seconds."""
        program = compile_program(read_program(code), code)
        with self.engine.connect() as connection:
            session = driver(connection)
            began = time.perf_counter()
            reader = StatementReader(session, 600)
            position, _ = reader.position()
            view = PostgresView(position, self._schema.schema)
            view.use(reader)
            machine = Machine(program)
            while not isinstance(event := machine.run(view, STEPS), ProgramEnded):
                if isinstance(event, SolutionFound):
                    take(event.binding)
                elif not isinstance(event, StepsUsed):
                    raise AssertionError(f"the program stopped with {event}")
            seconds = time.perf_counter() - began
            session.rollback()
        return seconds

    def count(self, code: str) -> float:
        """Run a program, and check that it has a solution for each document."""
        found: list[Mapping[str, Term]] = []
        seconds = self.run(code, found.append)
        self.check(len(found))
        return seconds

    def to_ndjson(self, code: str) -> float:
        """Run a program, and write its solutions as POST /real does."""
        lines: list[bytes] = []

        def write(binding: Mapping[str, Term]) -> None:
            terms = {name: term.as_dict() for name, term in binding.items()}
            event = {"type": "solution", "n": len(lines) + 1, "binding": terms}
            lines.append(json.dumps(event, separators=(",", ":")).encode() + b"\n")

        seconds = self.run(code, write)
        self.check(len(lines))
        return seconds

    def check(self, found: int) -> None:
        if found != self.documents:
            raise AssertionError(f"{found:,} solutions for {self.documents:,} documents")


class OxigraphJoin:
    """The same statements in memory, and the join as a SPARQL query."""

    def __init__(self, documents: int) -> None:
        self.store = Store()
        info, memory = NamedNode(NAMESPACE + "serverInformation"), NamedNode(NAMESPACE + "memory")
        for number in range(documents):
            host, at = (NamedNode(f"http://mdv.example/bench/{number}.rdf#{name}") for name in ("host", "info"))
            self.store.extend([Quad(host, info, at), Quad(at, memory, OxigraphLiteral(str(number)))])

    def run(self) -> tuple[int, float]:
        """Return the number of solutions and the seconds."""
        query = "SELECT ?x ?info ?memory WHERE { ?x :serverInformation ?info . ?info :memory ?memory }"
        began = time.perf_counter()
        found = self.store.query(query, prefixes={"": NAMESPACE})
        assert isinstance(found, QuerySolutions)
        rows = [(solution["x"], solution["info"], solution["memory"]) for solution in found]
        return len(rows), time.perf_counter() - began


def measure_reads(
    engine: Engine, documents: int, rounds: int, print_progress: Callable[[str], None]
) -> Iterator[BenchResult]:
    """Measure reads round by round with their peers. Costs are per solution."""
    reads = ProgramReads(engine, documents, print_progress)
    vacuum_analyze(engine)
    oxigraph = OxigraphJoin(documents)
    seconds: dict[str, list[float]] = {}

    def note(name: str, found: float | tuple[int, float]) -> None:
        if isinstance(found, tuple):
            reads.check(found[0])
            found = found[1]
        seconds.setdefault(name, []).append(found)

    memory, info = NAMESPACE + "memory", NAMESPACE + "serverInformation"
    print_progress(f"reads of {documents:,} statements")
    for _ in range(rounds + WARM_UP_ROUNDS):
        note("read", reads.count(READ))
        note("same plan", read_by_cursor(engine, memory, is_same_plan=True))
        note("best plan", read_by_cursor(engine, memory, is_same_plan=False))
        note("ndjson", reads.to_ndjson(READ))
        note("and", reads.count(AND))
        note("join", join_by_cursor(engine, info, memory))
        note("oxigraph", oxigraph.run())
    cost = {name: 1e6 / documents * _median(found) for name, found in seconds.items()}
    yield BenchResult(STREAM, 0, documents, cost["read"], cost["same plan"])
    yield BenchResult(STREAM_BEST, 0, documents, cost["read"], cost["best plan"])
    yield BenchResult(STREAM_NDJSON, 0, documents, cost["ndjson"], cost["best plan"])
    yield BenchResult(JOIN, 0, documents, cost["and"], cost["join"], {OXIGRAPH: cost["oxigraph"]})


def _median(found: Sequence[float]) -> float:
    return median(found[WARM_UP_ROUNDS:])
