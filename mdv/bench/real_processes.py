"""The cost of processes: slices with effects, waits and wake-ups, and work that is handed over through statements.

A process that runs here runs as in a worker, but in this process: no Redis and no HTTP are measured. Every round checks
what the programs did.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from statistics import median

from sqlalchemy import Engine

from mdv.bench.registration import RegistrationBench
from mdv.bench.report import BenchResult
from mdv.bench.sql.bench_store import BenchDatabases
from mdv.bench.sql.copy_floor import vacuum_analyze
from mdv.bench.sql.real import (
    commit_one_row,
    copy_statements,
    count_done,
    count_values,
    fill_queue,
    floor_rows,
    process_problems,
    process_states,
    take_tasks,
)
from mdv.bench.workload import NAMESPACE, SCHEMA
from mdv.db.state import read_state
from mdv.failpoints import CHANGED_SLICE
from mdv.mdp.lmrs import create_lmr
from mdv.mdp.real.program_worker import ProgramWorker
from mdv.mdp.real.quotas import ProcessQuotas
from mdv.mdp.real.start import ProgramStart, start_program
from mdv.mdp.register import prepare, register
from mdv.mdp.rules.add import add_rules
from mdv.mdp.rules.planning import RuleDraft
from mdv.model import Term
from mdv.real.terms import number_term

EFFECTS, EFFECTS_WITH_RULES, ONE_EFFECT, WOKEN, RELAY = (
    "effects in one slice / COPY and commit", "effects with filter and LMRs / COPY and commit",
    "one effect alone / COPY and commit of one row", "woken slice / durable commit",
    "processes woken one by one, each",
)  # fmt: skip
ELSEWHERE, ON_WATCHED = "registration elsewhere / without waits", "registration on watched properties / without waits"
LINDA, KILLED = "Linda: a task / SKIP LOCKED queue", "slice after a killed worker / slice"
WARM_UP_ROUNDS = 2

DOCUMENT = "http://mdv.example/bench/programs"
PROGRAM_SCHEMA = (
    SCHEMA
    + b"\n".join(
        f":{name} a rdf:Property ; mdv:setValued true .".encode()
        for name in ("note", "go", "turn", "task", "result", "other")
    )
    + b"\n"
)
PREFIXES = {"": NAMESPACE}
QUOTAS = ProcessQuotas(processes=1_000_000, family=1_000_000)
MANY_EFFECTS = "REPEAT (:memory(?x, ?) AND +:note(?x, ?v))"
WORKER_ACTION = f"""
@prefix lrm: <http://xrce.xerox.com/LRM#> . @prefix real: <http://xrce.xerox.com/ReAL#> . @prefix : <{NAMESPACE}> .
:work a lrm:Action ; lrm:body <#body> .
<#body> real:code "WAIT -:task(:bag, ?n) AND CALL primitive:inc(?n >> ?m) AND +:result(:bag, ?m) AND CALL :work()" .
""".encode()


class ProgramStore:
    """A store, and a worker that runs processes in this process."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.bench = RegistrationBench(engine, turtle=PROGRAM_SCHEMA)
        self.worker = self.new_worker()
        self._numbers = iter(range(1, 10**9))

    def new_worker(self) -> ProgramWorker:
        return ProgramWorker(self.engine, self.bench.provider, QUOTAS)

    def start(self, code: str, binding: Mapping[str, Term] | None = None) -> str:
        """Start a program. Return the IRI of its process."""
        with self.engine.begin() as connection:
            schema, position = self.bench.provider.schemas.now(connection), read_state(connection).position
            begun = ProgramStart(code, "bench", DOCUMENT, binding=binding or {}, prefixes=PREFIXES)
            return start_program(connection, begun, schema, position, QUOTAS).iri

    def run(self) -> tuple[int, float]:
        """Run slices until no process is ready. Return their number and the seconds."""
        began, slices = time.perf_counter(), 0
        while self.worker.run_slice() is not None:
            slices += 1
        return slices, time.perf_counter() - began

    def run_slice(self) -> float:
        began = time.perf_counter()
        if self.worker.run_slice() is None:
            raise AssertionError("no process is ready")
        return time.perf_counter() - began

    def number(self) -> Term:
        """Return a number that was not used before."""
        return number_term(str(next(self._numbers)))

    def register(self, uri: str, turtle: bytes) -> float:
        """Register a document. Return the seconds with the commit."""
        ready = prepare(uri, turtle, "text/turtle", self.bench.schema())
        began = time.perf_counter()
        with self.engine.begin() as connection:
            (answer,) = register(connection, [ready], self.bench.provider)
        if isinstance(answer, Exception):
            raise AssertionError(f"a registration was refused: {answer}") from answer
        return time.perf_counter() - began

    def add_statement(self, name: str, subject: str, value: str) -> None:
        """Register a document with one statement."""
        number = next(self._numbers)
        text = f"<{NAMESPACE}{subject}> <{NAMESPACE}{name}> {value} ."
        self.register(f"http://mdv.example/bench/one/{number}", text.encode())

    def check(self, states: Mapping[str, int]) -> None:
        """Check how many processes are in each state."""
        found = process_states(self.engine)
        if found != {state: count for state, count in states.items() if count}:
            raise AssertionError(f"processes are {found}, not {states}: {process_problems(self.engine)}")

    def check_values(self, name: str, expected: int) -> None:
        found = count_values(self.engine, NAMESPACE + name)
        if found != expected:
            raise AssertionError(f"there are {found:,} statements of :{name}, not {expected:,}")


def measure_effects(
    databases: BenchDatabases, effects: int, rounds: int, print_progress: Callable[[str], None]
) -> Iterator[BenchResult]:
    """Measure slices with effects, in a store without rules and in one with rules and an LMR."""
    print_progress(f"slices of {effects:,} effects")
    with ExitStack() as stack:
        plain, filtered = (ProgramStore(stack.enter_context(databases.new())) for _ in range(2))
        for store in (plain, filtered):
            store.bench.fill(effects, print_progress)
            vacuum_analyze(store.engine)
        _subscribe(filtered)
        seconds: dict[str, list[float]] = {name: [] for name in ("plain", "filtered", "copy", "one", "row")}
        for number in range(rounds + WARM_UP_ROUNDS):
            for name, store in (("plain", plain), ("filtered", filtered)):
                store.start(MANY_EFFECTS, {"v": store.number()})
                seconds[name].append(store.run()[1])
                store.check_values("note", effects * (number + 1))
            seconds["copy"].append(copy_statements(plain.engine, floor_rows(number * effects, effects)))
            plain.start("+:other(:a, ?v)", {"v": plain.number()})
            seconds["one"].append(plain.run_slice())
            seconds["row"].append(commit_one_row(plain.engine, 10**8 + number))
        plain.check({"done": 2 * (rounds + WARM_UP_ROUNDS)})
        plain.check_values("other", rounds + WARM_UP_ROUNDS)
    per = 1e6 / effects
    cost = {name: 1e6 * _median(found) for name, found in seconds.items()}
    yield BenchResult(EFFECTS, 0, effects, cost["plain"] / effects, per * _median(seconds["copy"]))
    yield BenchResult(EFFECTS_WITH_RULES, 0, effects, cost["filtered"] / effects, per * _median(seconds["copy"]))
    yield BenchResult(ONE_EFFECT, 0, 1, cost["one"], cost["row"])


def _subscribe(store: ProgramStore) -> None:
    """Add an LMR with a rule that selects all documents, and rules that select none."""
    with store.engine.begin() as connection:
        lmr, _ = create_lmr(connection, "bench")
    texts = ["search CycleProvider c register c where c.serverPort = 5874"]
    texts += [f"search ServerInformation i register i where i.note? = 'none {number}'" for number in range(100)]
    with store.engine.begin() as connection:
        add_rules(connection, [RuleDraft(lmr.id, None, text) for text in texts], store.bench.provider)


def measure_waits(
    databases: BenchDatabases, waiting: int, rounds: int, print_progress: Callable[[str], None]
) -> Iterator[BenchResult]:
    """Measure wake-ups with few and with many waiting processes, and registrations beside them."""
    with ExitStack() as stack:
        without, few, many = (ProgramStore(stack.enter_context(databases.new())) for _ in range(3))
        for store, count in ((few, max(1, waiting // 100)), (many, waiting)):
            print_progress(f"{count:,} waiting processes")
            _start_waiting(store, count)
        seconds: dict[str, list[float]] = {}
        for number in range(rounds + WARM_UP_ROUNDS):
            for name, store in (("few", few), ("many", many)):
                store.add_statement("go", "k0", str(number))
                seconds.setdefault(name, []).append(store.run_slice())
                _start_waiting(store, 1)
            seconds.setdefault("commit", []).append(commit_one_row(many.engine, number))
            for name in ("other", "go"):
                for where, store in (("without", without), ("many", many)):
                    text = f"<#a> <{NAMESPACE}{name}> {number} , {number + 1} , {number + 2} ."
                    uri = f"http://mdv.example/bench/beside/{name}/{number}"
                    seconds.setdefault(f"{name} {where}", []).append(store.register(uri, text.encode()))
        for store, count in ((few, max(1, waiting // 100)), (many, waiting)):
            store.check({"waiting": count, "done": rounds + WARM_UP_ROUNDS})
    cost = {name: 1e6 * _median(found) for name, found in seconds.items()}
    for name, count in (("few", max(1, waiting // 100)), ("many", waiting)):
        yield BenchResult(WOKEN, count, 1, cost[name], cost["commit"])
    for result, name in ((ELSEWHERE, "other"), (ON_WATCHED, "go")):
        ratios = [ours / plain for ours, plain in zip(seconds[f"{name} many"], seconds[f"{name} without"], strict=True)]
        ours = cost[f"{name} many"]
        yield BenchResult(result, waiting, 1, ours, ours / _median(ratios))


def _start_waiting(store: ProgramStore, count: int) -> None:
    """Start processes that wait, each for a key of its own."""
    for number in range(count):
        store.start("WAIT -:go(?k, ?v)", {"k": Term.uri(f"{NAMESPACE}k{number}")})
    slices, _ = store.run()
    if slices != count:
        raise AssertionError(f"{slices} slices for {count} processes that wait")


def measure_relay(databases: BenchDatabases, waiting: int, print_progress: Callable[[str], None]) -> BenchResult:
    """Measure waiting processes that are woken one by one: each takes a statement, and adds that of the next."""
    print_progress(f"{waiting:,} processes woken one by one")
    with databases.new() as engine:
        store = ProgramStore(engine)
        for number in range(waiting):
            store.start(
                "WAIT -:turn(:ring, ?i) AND +:turn(:ring, ?j)",
                {"i": number_term(str(number)), "j": number_term(str(number + 1))},
            )
        store.run()
        store.check({"waiting": waiting})
        vacuum_analyze(engine)
        store.add_statement("turn", "ring", "0")
        slices, seconds = store.run()
        store.check({"done": waiting})
        store.check_values("turn", 1)
        if slices != waiting:
            raise AssertionError(f"{slices} slices for {waiting} processes")
        commits = [commit_one_row(engine, number) for number in range(min(waiting, 200))]
    return BenchResult(RELAY, waiting, 1, 1e6 * seconds / waiting, 1e6 * median(commits))


def measure_linda(
    databases: BenchDatabases, tasks: int, workers: int, rounds: int, print_progress: Callable[[str], None]
) -> BenchResult:
    """Measure tasks that worker processes take and answer through statements, beside a queue with SKIP LOCKED. Two
    threads run the processes; the queue has one for each worker."""
    print_progress(f"{tasks:,} tasks for {workers} workers")
    ours, queue = [], []
    for _ in range(max(1, rounds // 3)):
        with databases.new() as engine:
            store = ProgramStore(engine)
            store.register("http://mdv.example/bench/work", WORKER_ACTION)
            for _ in range(workers):
                store.start("CALL :work()")
            store.run()
            store.check({"waiting": workers})
            tasks_text = ", ".join(map(str, range(1, tasks + 1)))
            store.register(
                "http://mdv.example/bench/bag", f"<{NAMESPACE}bag> <{NAMESPACE}task> {tasks_text} .".encode()
            )
            began = time.perf_counter()
            _in_threads([store.worker, store.new_worker()])
            ours.append(time.perf_counter() - began)
            store.check({"waiting": workers})
            store.check_values("task", 0)
            store.check_values("result", tasks)
            fill_queue(engine, tasks)
            began = time.perf_counter()
            taken = _take_in_threads(engine, workers)
            queue.append(time.perf_counter() - began)
            if taken != tasks or count_done(engine) != tasks:
                raise AssertionError(f"the queue answered {taken:,} of {tasks:,} tasks")
    return BenchResult(LINDA, workers, tasks, 1e6 * median(ours) / tasks, 1e6 * median(queue) / tasks)


def _in_threads(workers: Sequence[ProgramWorker]) -> None:
    """Run slices in threads until no process is ready in any of them."""
    failures: list[BaseException] = []

    def work(worker: ProgramWorker) -> None:
        try:
            while worker.run_slice() is not None:
                pass
        except BaseException as error:  # reported by the main thread
            failures.append(error)

    for _ in range(2):  # a worker ends when the other holds the last ready process
        threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def _take_in_threads(engine: Engine, workers: int) -> int:
    taken: list[int] = []
    threads = [threading.Thread(target=lambda: taken.append(take_tasks(engine))) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(taken)


def measure_killed_worker(
    databases: BenchDatabases, effects: int, rounds: int, print_progress: Callable[[str], None]
) -> BenchResult:
    """Measure a slice whose first worker was killed before its commit: from the kill to the commit by another one."""
    print_progress("killed workers")
    with databases.new() as engine:
        store = ProgramStore(engine)
        store.bench.fill(effects, print_progress)
        plain, after = [], []
        count = max(2, rounds // 3)
        for number in range(count):
            store.start(MANY_EFFECTS, {"v": store.number()})
            plain.append(store.run()[1])
            store.start(MANY_EFFECTS, {"v": store.number()})
            _run_until_killed(engine)
            began = time.perf_counter()
            while not store.run()[0]:
                if time.perf_counter() - began > 60:
                    raise AssertionError("no worker could take over the process of a killed one")
            after.append(time.perf_counter() - began)
            store.check_values("note", effects * 2 * (number + 1))
        store.check({"done": 2 * count})
    return BenchResult(KILLED, 0, effects, 1e6 * median(after), 1e6 * median(plain))


def _run_until_killed(engine: Engine) -> None:
    """Run a slice in another process, which kills itself after the slice has changed documents, before its commit."""
    url = engine.url.render_as_string(hide_password=False)
    environment = {**os.environ, "MDV_DIE_AT": f"{CHANGED_SLICE}:1"}
    ran = subprocess.run([sys.executable, "-m", "mdv.bench.real_processes", url], env=environment, check=False)
    if ran.returncode != -signal.SIGKILL:
        raise AssertionError(f"the worker ended with {ran.returncode} instead of being killed")


def _median(found: Sequence[float]) -> float:
    return median(found[WARM_UP_ROUNDS:])


def _run_one_slice(url: str) -> None:
    from mdv.db.engine import make_engine
    from mdv.mdp.provider import Provider

    engine = make_engine(url)
    ProgramWorker(engine, Provider(engine), QUOTAS).run_slice()


if __name__ == "__main__":
    _run_one_slice(sys.argv[1])
