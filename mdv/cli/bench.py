"""`mdv bench`: what things cost on this machine."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from mdv.cli.frame import AnyFunction, Noun
from mdv.cli.output import on_terminal, write_table

if TYPE_CHECKING:
    from mdv.bench.batch import Found
    from mdv.bench.figures import Run, Spread
    from mdv.bench.load import Target
    from mdv.bench.loaded import Workload
    from mdv.bench.report import Result
    from mdv.bench.soak import Growth
    from mdv.embedded import Postgres

Part = TypeVar("Part")

json_file_option = click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures there."
)
rounds_option = click.option(
    "--rounds", type=click.IntRange(min=1), default=9, show_default=True, help="Rounds of which the median counts."
)

running_option = click.option(
    "--data", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="Load the `mdv up` that runs on that folder, and start none.",
)  # fmt: skip
lmrs_option = click.option(
    "--lmrs", type=click.IntRange(min=1), default=1, show_default=True, help="LMRs that run with the system."
)


def rules_option(default: int) -> Callable[[AnyFunction], AnyFunction]:
    help_ = "Rules of an LMR that nobody runs, of the paper's types."
    return click.option("--rules", type=click.IntRange(min=0), default=default, show_default=True, help=help_)


@click.group(cls=Noun, example="mdv bench quick")
def bench() -> None:
    """Measure MDV on this machine, against a floor measured in the same run."""


@bench.command(example="mdv bench quick --stored 100000 --json figures.json")
@click.option("--stored", default=5_000, show_default=True, help="Documents stored before the second half.")
@rounds_option
@json_file_option
def quick(stored: int, rounds: int, json_file: Path | None) -> None:
    """Registration: text to durable commit, in an empty store and in a filled one.

    The floor is the bare COPY and commit of the same statements, encoded beforehand, into an equally indexed table.
    """
    from mdv.bench.registration import Bench, measure
    from mdv.bench.report import write_json
    from mdv.db.engine import make_engine
    from mdv.db.migrate import migrate

    results = []
    with _postgres() as server:
        engine = make_engine(server.url)
        migrate(engine)
        subject = Bench(engine)
        for name, fill in (("empty store", 0), (f"{stored:,} documents", stored)):
            subject.fill(fill, say)
            for result in measure(subject, name, (1, 10, 100, 1000), rounds):
                _say_result(result)
                results.append(result)
        engine.dispose()
    table(
        ("what", "documents a batch", "µs a document", "floor, µs a document", "ratio"),
        ((r.name, r.batch, f"{r.ours_us:,.0f}", f"{r.floor_us:,.0f}", f"{r.ratio:.1f}") for r in results),
    )
    if json_file is not None:
        write_json(json_file, command(), results)


def _list_of(convert: Callable[[str], Part]) -> Callable[..., tuple[Part, ...]]:
    """The parts of an option's value, which stand between commas."""

    def read(_context: click.Context, parameter: click.Parameter, value: str) -> tuple[Part, ...]:
        try:
            return tuple(dict.fromkeys(convert(part.strip()) for part in value.split(",")))
        except ValueError as error:
            raise click.BadParameter(f"{value!r}: {error}.", param=parameter) from None

    return read


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("whole numbers from 1 on, with commas between them")
    return int(text)


def _sizes(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    return _list_of(_count)(context, parameter, value) if value else ()


def _percent(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number <= 100:
        raise ValueError("percentages, above 0 and up to 100, with commas between them")
    return number


@bench.command(example="mdv bench paper --rules 10000,100000 --types oid,path,join --json figures.json")
@click.option("--rules", default="10000,100000", show_default=True, callback=_list_of(_count), help="Rule bases.")
@click.option("--batches", default="1,10,100,1000", show_default=True, callback=_list_of(_count),
              help="Documents in a batch.")  # fmt: skip
@click.option("--types", "kinds", default="oid,path,join,comp,contains,ne,update,rules", show_default=True,
              callback=_list_of(str), help="What to measure.")  # fmt: skip
@click.option("--matched", default="10", show_default=True, callback=_list_of(_percent),
              help="The percentages of COMP rules that match each document.")  # fmt: skip
@click.option("--bulk", type=click.IntRange(min=1), default=100_000, show_default=True,
              help="Rules that are registered in one call.")  # fmt: skip
@rounds_option
@json_file_option
def paper(
    rules: tuple[int, ...],
    batches: tuple[int, ...],
    kinds: tuple[str, ...],
    matched: tuple[float, ...],
    bulk: int,
    rounds: int,
    json_file: Path | None,
) -> None:
    """The paper's experiments: the filter on rule bases of one type at a time, and the goals.

    oid, path, join and comp are the rule types of the paper's Figure 10; contains and ne (!=) come beside them. update:
    documents registered again, against their insertion. rules: rules registered one by one and in bulk. The floor is
    the bare COPY and commit of the same statements. Every round checks what the filter found.
    """
    from mdv.bench.goals import goals, growth
    from mdv.bench.paper import KINDS, Paper, run_paper
    from mdv.bench.report import write_json
    from mdv.db.bench import Databases

    if unknown := set(kinds) - set(KINDS):
        raise click.UsageError(f"--types: {', '.join(sorted(unknown))} is none of {', '.join(KINDS)}.")
    if max(batches) > min(rules):
        raise click.UsageError(
            f"A batch of {max(batches):,} documents, each matched by a rule of its own, needs as many rules:"
            f" --rules has {min(rules):,}."
        )
    results = []
    with _postgres() as server:
        for result in run_paper(Databases(server.url), Paper(rules, batches, kinds, rounds, matched, bulk), say):
            _say_result(result)
            results.append(result)
    reached, grown = goals(results), growth(results)
    table(
        ("what", "rules", "batch", "µs each", "floor, µs each", "ratio", "beside it, µs each"),
        ((r.name, f"{r.rules:,}", f"{r.batch:,}", f"{r.ours_us:,.1f}", f"{r.floor_us:,.1f}", f"{r.ratio:.2f}",
          ", ".join(f"{peer} {us:,.0f}" for peer, us in r.peers.items())) for r in results),
    )  # fmt: skip
    click.echo()
    table(
        ("growth of", "batch", "from rules", "to rules", "ratio"),
        ((g.name, f"{g.batch:,}", f"{g.from_rules:,}", f"{g.to_rules:,}", f"{g.ratio:.2f}") for g in grown),
    )
    click.echo()
    table(("what", "goal", "stretch", "measured", "at", "met"), (goal.as_row() for goal in reached))
    if json_file is not None:
        more = {"growth": [asdict(g) for g in grown], "goals": [goal.as_dict() for goal in reached]}
        write_json(json_file, command(), results, **more)


@bench.command(example="mdv bench load --clients 1,8,64 --seconds 20 --rules 10000 --json figures.json")
@click.option("--clients", default="1,8,64", show_default=True, callback=_list_of(_count),
              help="Clients at once; each waits for the answer before it sends the next.")  # fmt: skip
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N",
              help="Instead: so many documents a second, whatever the answers.")  # fmt: skip
@click.option(
    "--queued", is_flag=True, help="Clients do not wait for the end of jobs, and send as fast as they are let."
)
@click.option("--seconds", type=click.FloatRange(min=1), default=20.0, show_default=True, help="Of each run.")
@click.option("--warm-up", type=click.FloatRange(min=0), default=3.0, show_default=True,
              help="Seconds before those that count.")  # fmt: skip
@click.option("--documents", "shape", type=click.Choice(["paper", "large"]), default="paper", show_default=True,
              help="Documents of two resources, as in the paper, or of a hundred.")  # fmt: skip
@click.option("--updates", type=click.FloatRange(0, 1), default=0.0, show_default=True,
              help="The share of documents that were registered before.")  # fmt: skip
@rules_option(10_000)
@lmrs_option
@running_option
@json_file_option
def load(
    clients: tuple[int, ...],
    rate: float | None,
    queued: bool,
    seconds: float,
    warm_up: float,
    shape: str,
    updates: float,
    rules: int,
    lmrs: int,
    data: Path | None,
    json_file: Path | None,
) -> None:
    """A whole system under load: documents over HTTP, through worker and filter, to a local repository.

    It is started for this and stopped afterwards; with --data or MDV_URL, one that runs is loaded and left as it was.
    Beside it stands what the same documents cost in one process, without web, queue and worker. In the end every
    document that was acknowledged must be there once, and each LMR must have what its rules select.
    """
    from mdv.bench.alone import Alone
    from mdv.bench.ground import lay_ground
    from mdv.bench.load import Pattern, run_load
    from mdv.bench.loaded import PAIRS, Documents
    from mdv.bench.report import write_json
    from mdv.db.bench import Databases

    if rate is not None and queued:
        raise click.UsageError("--rate and --queued are two ways to send: choose one.")
    patterns = [
        Pattern(number, rate, queued, updates, seconds, warm_up) for number in (clients if rate is None else (1,))
    ]
    workload = _workload(rules, PAIRS[shape])
    runs, documents = [], Documents(workload)
    with _target(lmrs, data) as (target, is_own), lay_ground(target, workload, is_own, say) as ground:
        for pattern in patterns:
            before = ground.position
            run = run_load(target, documents, pattern, say)
            runs.append(replace(run, batch=ground.mean_batch(before)) if queued else run)
        say("Checking what is there.")
        problems = ground.problems(documents)
    say("The same documents without web, queue and worker.")
    with _postgres() as server, Databases(server.url).new() as engine:
        alone = Alone(engine, workload, len(target.lmrs), updates)
        beside = {size: alone.measure(size, ALONE_ROUNDS) for size in sorted({_batch_of(run) for run in runs})}
    _show_runs(runs, beside)
    for problem in problems:
        click.echo(problem, err=True)
    if json_file is not None:
        shown = [run.as_dict() | {"in_process": beside[_batch_of(run)].as_dict()} for run in runs]
        write_json(json_file, command(), list(beside.values()), runs=shown, problems=problems, documents=shape,
                   rules=rules, lmrs=len(target.lmrs), updates=updates)  # fmt: skip
    if problems or any(run.errors for run in runs):
        raise click.exceptions.Exit(1)


ALONE_ROUNDS = 15


def _batch_of(run: Run) -> int:
    """The size of batches to compare a run with."""
    return max(1, round(run.batch or 1))


def _show_runs(runs: Sequence[Run], beside: Mapping[int, Result]) -> None:
    def row(run: Run) -> Iterator[str]:
        alone = beside[_batch_of(run)]
        yield from (run.name, f"{run.per_second:,.0f}", *_times(run.answer), *_times(run.visible))
        yield "" if run.batch is None else f"{run.batch:.1f}"
        yield from (f"{run.most_waiting:,}", f"{1e6 / alone.ours_us:,.0f}", f"{1e6 / alone.floor_us:,.0f}")
        yield f"{run.per_second * alone.ours_us / 1e6:.2f}"
        yield ", ".join(f"{count:,} {outcome}" for outcome, count in run.outcomes.items())

    times = ("p50", "p90", "p99", "most")
    table(
        ("run", "documents/s", *(f"answer {t}, ms" for t in times), *(f"at the LMR {t}, ms" for t in times),
         "documents a batch", "most jobs waiting", "in one process, documents/s", "floor, documents/s", "ratio",
         "answers"),
        map(row, runs),
    )  # fmt: skip
    click.echo()
    table(
        ("run", "part", "cores", "MiB at first", "MiB at last", "MiB at most"),
        ((run.name, part.part, f"{part.cores:.2f}", *(f"{mib:,.0f}" for mib in (part.first_mib, part.last_mib,
          part.most_mib))) for run in runs for part in run.parts),
    )  # fmt: skip


def _times(spread: Spread | None) -> Sequence[str]:
    if spread is None:
        return ("",) * 4
    return [f"{ms:,.1f}" for ms in (spread.p50, spread.p90, spread.p99, spread.most)]


@bench.command(
    example="mdv bench batch --sizes 10000,100000 --interactive 5 --json figures.json\n"
    "mdv bench batch --archive 2014.tar.xz --uri 'http://books.example/{1}.rdf' --schema books.ttl --rule …"
)
@click.option("--documents", type=click.IntRange(min=1), default=10_000, show_default=True,
              help="Documents of the catalogue, about 50 statements each.")  # fmt: skip
@click.option("--sizes", metavar="N,N", default=None, callback=_sizes,
              help="Instead: catalogues of several sizes, each in a system of its own.")  # fmt: skip
@click.option("--rules", type=click.IntRange(min=0), default=1_000, show_default=True,
              help="Rules of an LMR that nobody runs, of four kinds.")  # fmt: skip
@lmrs_option
@click.option("--http", type=click.IntRange(min=2), default=300, show_default=True,
              help="Documents to register over HTTP for comparison, by one client and by eight.")  # fmt: skip
@click.option("--interactive", type=click.FloatRange(min=0, min_open=True), metavar="RATE",
              help="Registrations a second over HTTP beside the batch, and before it.")  # fmt: skip
@click.option("--folder", "folders", type=click.Path(exists=True, file_okay=False, path_type=Path), multiple=True,
              help="Instead: a catalogue of yours. Of several each is a batch, one after the other.")  # fmt: skip
@click.option("--archive", "archives", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True,
              help="The same, in a .tar, packed or not.")  # fmt: skip
@click.option("--uri", metavar="PATTERN", help="URIs of that catalogue, as for `mdv batch`.")
@click.option("--schema", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Its schema, in Turtle.")
@click.option("--rule", "followed", metavar="RULE", multiple=True, help="What LMRs that run follow of it.")
@json_file_option
def batch(
    documents: int,
    sizes: tuple[int, ...],
    rules: int,
    lmrs: int,
    http: int,
    interactive: float | None,
    folders: tuple[Path, ...],
    archives: tuple[Path, ...],
    uri: str | None,
    schema: Path | None,
    followed: tuple[str, ...],
    json_file: Path | None,
) -> None:
    """Very many documents, through `mdv batch`: how fast, with how much memory, and what others wait meanwhile.

    In the same run stand HTTP, one by one and by eight clients, and the bare COPY of as many statements into an equally
    indexed table. In the end every document must be there, the same batch again must find nothing to do, and each LMR
    must have what its rules select.
    """
    from mdv.bench.batch import Plan, measure
    from mdv.bench.catalogue import generate, given
    from mdv.bench.report import write_json
    from mdv.cli.own_system import own_system

    paths = (*folders, *archives)
    if paths and (uri is None or schema is None or not followed):
        raise click.UsageError("A catalogue of yours needs --uri, --schema, and a --rule that LMRs follow.")
    found = []
    for size in sizes or (documents,):
        with tempfile.TemporaryDirectory(prefix="mdv-bench-") as name:
            folder = Path(name)
            if uri is not None and schema is not None and paths:
                catalogue = given(paths, uri, schema.read_bytes(), followed)
            else:
                catalogue = generate(size, rules, folder, say)
            say("Starting a system.")
            with own_system(lmrs) as target:
                found.append(measure(target, catalogue, Plan(http, interactive), folder, say))
        _show_batches(found[-1])
    if len(found) > 1:
        table(
            ("documents", "seconds", "seconds for 1,000", "against the first"),
            ((f"{f.documents:,}", f"{f.seconds:,.1f}", f"{f.for_a_thousand:.2f}",
              f"{f.for_a_thousand / found[0].for_a_thousand:.2f}") for f in found),
        )  # fmt: skip
    if json_file is not None:
        results = [result for f in found for result in f.results()]
        write_json(json_file, command(), results, runs=[f.as_dict() for f in found], lmrs=lmrs, interactive=interactive)
    problems = [problem for f in found for problem in f.problems]
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        raise click.exceptions.Exit(1)


def _show_batches(found: Found) -> None:
    from mdv.bench.used import USED_BY

    one_by_one, copied = found.one_by_one, found.copied
    table(
        ("way", "documents/s", "statements/s", "documents", "seconds", "HTTP one by one = 1", "time, COPY = 1"),
        ((way.name, f"{way.documents_per_second:,.1f}", f"{way.statements_per_second:,.0f}", f"{way.documents:,}",
          f"{way.seconds:,.2f}", f"{way.documents_per_second / one_by_one.documents_per_second:.2f}",
          f"{way.us / copied.us:.2f}") for way in found.ways),
    )  # fmt: skip
    click.echo()
    headings = [f"batch {number}" for number in range(1, len(found.batches) + 1)]
    shares = [
        {name: f"{spent:,.2f} s, {100 * spent / batch.seconds_itself:.0f} %" for name, spent in batch.stages.items()}
        for batch in found.batches
    ]
    table(("stage", *headings), ((name, *(share[name] for share in shares)) for name in shares[0]))
    click.echo()
    for title, uses in (
        ("MiB at most", [batch.memory for batch in found.batches]),
        ("s of processor", [batch.processor for batch in found.batches]),
    ):
        table((title, *headings), ((part, *(f"{use.get(part, 0.0):,.0f}" for use in uses)) for part in USED_BY))
        click.echo()
    waited = (("without a batch", found.quiet), *zip(headings, (batch.beside for batch in found.batches), strict=True))
    table(
        ("registered beside", "number", "p50, ms", "p90, ms", "p99, ms", "most, ms"),
        ((name, spread.count, *_times(spread)) for name, spread in waited if spread is not None),
    )
    click.echo()


@bench.command(example="mdv bench soak --minutes 30 --samples soak.jsonl")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), default=20.0, show_default=True,
              help="Changes of documents a second.")  # fmt: skip
@click.option("--kept", type=click.IntRange(min=1), default=2_000, show_default=True,
              help="Documents that are there at a time, when the store is full.")  # fmt: skip
@click.option("--every", type=click.FloatRange(min=0.1), default=15.0, show_default=True,
              help="Seconds from sample to sample.")  # fmt: skip
@click.option("--growth", type=click.FloatRange(min=0), default=30.0, show_default=True,
              help="MiB an hour that a process may grow after the first third.")  # fmt: skip
@click.option(
    "--samples", type=click.Path(dir_okay=False, path_type=Path), help="Write every sample there, a line each."
)
@rules_option(1_000)
@lmrs_option
@running_option
@json_file_option
def soak(
    minutes: float,
    rate: float,
    kept: int,
    every: float,
    growth: float,
    samples: Path | None,
    rules: int,
    lmrs: int,
    data: Path | None,
    json_file: Path | None,
) -> None:
    """A moderate load for a long time: does any process grow, does any queue?

    Documents come, change and go, so that the store does not only grow; queries are asked at the MDP and at the LMR,
    and a feed is followed by somebody who is cut off now and then. Fails when a process grows beyond --growth, when
    anything is answered with an error, or when something is missing in the end.

    Ends with 0 when all is well and every process is flat, with 1 when it fails, and with 2 when nothing is wrong but
    the time was too short to tell what grows: that takes eight samples after the first third, three minutes as it is.
    """
    from mdv.bench.ground import lay_ground
    from mdv.bench.loaded import Documents
    from mdv.bench.report import write_json
    from mdv.bench.soak import Plan, run_soak

    plan = Plan(minutes * 60, rate, kept, every, growth)
    workload = _workload(rules, 1)
    with _target(lmrs, data) as (target, is_own), lay_ground(target, workload, is_own, say) as ground:
        with _lines(samples) as write:
            found = run_soak(ground, Documents(workload), plan, click.echo, write)
        problems = [*found.problems, *ground.problems(found.documents)]
    answers = ", ".join(f"{count:,} {outcome}" for outcome, count in found.outcomes.items())
    click.echo(f"Changes of documents: {answers or 'none'}. Queries: {found.queries:,}. Samples: {found.samples:,}.\n")
    table(
        ("process", "MiB after the first third", "MiB at last", "MiB an hour", "±, MiB an hour", "flat"),
        ((g.process, f"{g.first:,.0f}", f"{g.last:,.0f}", *_slope(g)) for g in found.growth),
    )
    for problem in problems:
        click.echo(problem, err=True)
    if json_file is not None:
        write_json(json_file, command(), [], soak=found.as_dict() | {"problems": problems})
    if problems:
        raise click.exceptions.Exit(1)
    if found.is_too_short:
        click.echo(f"Too short to tell whether anything grows: try --minutes {plan.least_minutes:g} or more.", err=True)
        raise click.exceptions.Exit(TOO_SHORT)


TOO_SHORT = 2


def _slope(line: Growth) -> tuple[str, str, object]:
    if line.flat is None:
        return "", "", "too short to tell"
    return f"{line.an_hour:+,.1f}", f"{line.within:,.1f}", line.flat


@contextmanager
def _lines(path: Path | None) -> Iterator[Callable[[str], object]]:
    """Where samples go, a line each, at once."""
    if path is None:
        yield lambda line: None
        return
    with path.open("w", buffering=1, encoding="utf-8") as file:
        yield lambda line: file.write(line + "\n")


def _workload(rules: int, pairs: int) -> Workload:
    import secrets

    from mdv.bench.loaded import Workload

    return Workload(secrets.token_hex(4), rules, pairs)


@contextmanager
def _target(lmrs: int, data: Path | None) -> Iterator[tuple[Target, bool]]:
    """The system to load, and whether it was started for that."""
    import os

    from mdv.bench.load import Target
    from mdv.cli.own_system import own_system
    from mdv.errors import NotFound
    from mdv.system import find_lmr, find_system

    if data is None and not os.environ.get("MDV_URL", "").strip():
        say("Starting a system.")
        with own_system(lmrs) as target:
            yield target, True
        return
    system = find_system(data)
    running = []
    with suppress(NotFound):  # no LMR is known there: then how long a document takes to one is not measured
        running.append(find_lmr(data))
    yield Target(system, tuple(running), (system.pid,) if system.pid else ()), False


@contextmanager
def _postgres() -> Iterator[Postgres]:
    """A Postgres of the benchmark's own, with durable commits."""
    from mdv.embedded import start_postgres

    with (
        tempfile.TemporaryDirectory(prefix="mdv-bench-") as folder,
        start_postgres(Path(folder) / "postgres") as server,
    ):
        yield server


def table(headings: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """A table of figures, which mean nothing without their units: it has its headings in a file, too."""
    if not on_terminal():
        click.echo("\t".join(headings))
    write_table(headings, rows)


def say(words: str) -> None:
    """Progress, for whoever watches."""
    if sys.stderr.isatty():
        click.echo(words, err=True)


def _say_result(result: Result) -> None:
    say(f"  {result.name}, batches of {result.batch}: {result.ours_us:,.0f} µs each")


def command() -> str:
    return " ".join(["mdv", *sys.argv[1:]])
