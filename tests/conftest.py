"""Real servers for tests: one Postgres per test process, one copy of a migrated template database per test."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
import sqlalchemy
from hypothesis import HealthCheck, settings
from sqlalchemy import Connection, Engine

from mdv.db.engine import make_engine
from mdv.db.migrate import migrate
from mdv.embedded import Postgres, Valkey, start_postgres, start_valkey
from mdv.gc_tuning import tune_gc
from tests.support.mdp import Mdp
from tests.support.tiers import QUICK_VARIABLE

collect_ignore_glob = ["conftest.py", "**/conftest.py"]
"""They contain fixtures, and no doctests."""

UNSAFE_AND_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "shared_buffers": "128MB"}

MEMORY = Path("/dev/shm")
MIN_MEMORY_BYTES = 6 << 30
"""Free space from which the temporary files of the tests are kept in memory. A copy of the template database then takes
about 17 ms instead of 85 ms or more."""


def _keep_temporary_files_in_memory() -> None:
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MIN_MEMORY_BYTES:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


def _cache_bytecode() -> None:
    """Let this process and those that it starts write `__pycache__`, even where the environment forbids it. Compiling
    the tests and the libraries in every process takes longer than many tests."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def _let_children_receive_signals() -> None:
    """Let programs that the tests start end by SIGINT and SIGHUP. Under `nohup`, or in the background of a script,
    these signals are ignored, and children would inherit that. A handler is not inherited."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_IGN:
                signal.signal(number, lambda *_: None)


def _generate_without_time_limits() -> None:
    """On a busy machine, a slow example or a slow generator is not an error."""
    settings.register_profile("mdv", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
    settings.load_profile("mdv")


_keep_temporary_files_in_memory()
_cache_bytecode()
_let_children_receive_signals()
_generate_without_time_limits()

_numbers = itertools.count(1)


LONG_FILES = (
    "test_gutenberg.py",
    "test_cli_backup.py",
    "test_rules.py",
    "test_eca_exactness.py",
    "test_replicas.py",
    "test_pages.py",
    "test_edit_machine.py",
    "test_batch_cluster.py",
    "test_faults.py",
    "test_publish_machine.py",
    "test_filter_machine.py",
    "test_batch_command.py",
    "test_filter_mutants.py",
    "test_real_kills.py",
    "test_real_comparison.py",
    "test_lmr_server.py",
    "test_cli_up.py",
    "test_bench_load.py",
    "test_batch_faults.py",
    "test_bench_scale.py",
    "test_store_machine.py",
    "test_docker.py",
    "test_web_queue.py",
    "test_bench_batch.py",
    "test_backup.py",
    "test_bench_peers.py",
    "test_documentation.py",
    "test_trace_oracle.py",
    "test_bench_quick.py",
    "test_rule_laws.py",
    "test_batch_session.py",
)
"""The files that take longest, in the order in which they are started. Those with Spark are apart from each other."""
FULL_FOLDERS = {"acceptance", "bench", "browser", "docker", "faults"}
"""Folders whose tests are not quick."""
PROCESS_FIXTURES = {"cluster", "new_up", "open_server", "own", "paper", "public", "running", "spark", "worker"}
"""Fixtures that start other programs than Postgres and Valkey. Tests that use them are not quick."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out browsers, Spark, servers and long tests")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("quick"):
        os.environ[QUICK_VARIABLE] = "1"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start long files first, so that no process works alone at the end. The order is otherwise random. With `--quick`,
    leave out the tests that are marked `full` or that use a fixture which starts a process."""
    ranks = {name: rank for rank, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))
    if config.getoption("quick"):
        full = [item for item in items if _is_full(item)]
        config.hook.pytest_deselected(items=full)
        items[:] = [item for item in items if not _is_full(item)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the seed of the order even with `-q`, and with `--durations=N` the N slowest files."""
    if count := config.getoption("durations"):
        seconds: Counter[str] = Counter()
        for reports in terminalreporter.stats.values():
            for report in reports:
                if isinstance(report, pytest.TestReport):
                    seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]
        terminalreporter.section(f"slowest {count} files")
        for name, spent in seconds.most_common(count):
            terminalreporter.write_line(f"{spent:.1f}s {name}")
    if (seed := config.getoption("randomly_seed", None)) is not None:
        terminalreporter.write_line(f"Repeat this order with --randomly-seed={seed}.")


def _is_full(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    in_full_folder = item.path.parent.parent == Path(__file__).parent and item.path.parent.name in FULL_FOLDERS
    return item.get_closest_marker("full") is not None or in_full_folder or bool(fixtures & PROCESS_FIXTURES)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests are collected. Garbage collections during that time, and over them later, find nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        tune_gc()
        gc.enable()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with start_postgres(tmp_path_factory.mktemp("pg") / "data", UNSAFE_AND_FAST) as running:
        yield running


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with start_valkey(tmp_path_factory.mktemp("valkey")) as running:
        yield running


@pytest.fixture(scope="session")
def new_queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Makes URLs of empty Redis databases. A server has 16 of them; more servers are started when they run out."""
    with ExitStack() as stack:

        def urls() -> Iterator[str]:
            while True:
                server = stack.enter_context(start_valkey(tmp_path_factory.mktemp("queues")))
                yield from (server.url.removesuffix("/0") + f"/{number}" for number in range(16))

        yield urls().__next__


@pytest.fixture(scope="session")
def template(postgres: Postgres) -> str:
    """The name of a database with all migrations, to copy from."""
    url = sqlalchemy.make_url(postgres.url).set(database="template_mdv")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("create database template_mdv")
    engine = make_engine(url.render_as_string(hide_password=False))
    migrate(engine)
    engine.dispose()
    return "template_mdv"


@pytest.fixture
def database_url(postgres: Postgres, template: str) -> Iterator[str]:
    """A database for this test."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"create database {name} template {template} strategy file_copy")
        yield sqlalchemy.make_url(postgres.url).set(database=name).render_as_string(hide_password=False)
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = make_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection:
        yield connection


@pytest.fixture
def mdp(engine: Engine) -> Mdp:
    return Mdp(engine)
