"""The image and the compose file: checked by linters, and their commands run as in a container."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import psycopg
import pytest
import sqlalchemy
import yaml

from mdv.cli import cli
from mdv.config import SETTINGS
from mdv.embedded import Postgres
from mdv.free_port import free_port
from mdv.static_files import missing_static_files
from mdv.supervise import start_child, stop_process
from tests.support.eventually import eventually

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "docker" / "Dockerfile"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OWN = [name for name, service in SERVICES.items() if "build" in service]
TEST_TOKEN = "of-the-docker-tests-0123456789"
FAREWELL = ((signal.SIGTERM, 30.0),)
OF_COMPOSE_ALONE = {"MDV_BIND", "MDV_PORT", "MDV_LMR_PORT"}


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, each on one line."""
    lines = [line for line in DOCKERFILE.read_text("utf-8").splitlines() if line.strip() and not line.startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in whole.splitlines()]


def said(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


# Linters


def test_the_dockerfile_passes_its_linter() -> None:
    program = Path(sys.executable).with_name("hadolint")
    ran = subprocess.run([program, "--format", "json", DOCKERFILE], capture_output=True, text=True)
    assert (ran.returncode, json.loads(ran.stdout)) == (0, []), ran.stdout


def test_the_linter_detects_an_error(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text(DOCKERFILE.read_text("utf-8").replace("FROM python:3.12-slim\n", "FROM python\n"))
    program = Path(sys.executable).with_name("hadolint")
    assert subprocess.run([program, bad], capture_output=True).returncode != 0


def test_the_compose_file_conforms_to_the_compose_schema() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    ran = subprocess.run([*check, ROOT / "docker" / "compose.yaml"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout


# Rules of this project


def test_the_image_does_not_run_as_root_and_installs_pinned_packages() -> None:
    assert said("USER") == ["10001:10001"]
    installs = [part for run in said("RUN") for part in run.split("&&") if "pip install" in part]
    assert installs and all("--constraint constraints.txt" in part or "--no-deps" in part for part in installs)
    stages = said("FROM")
    assert len(stages) == 2 and all(re.match(r"python:3\.\d+-slim\b", stage) for stage in stages)
    assert said("STOPSIGNAL") == ["SIGTERM"]


def test_the_build_context_contains_exactly_the_copied_files() -> None:
    copied = {word for rest in said("COPY") if "--from" not in rest for word in rest.split()[:-1]}
    copied -= {"web/assets"}  # copied before the rest of web, so that a change of that does not rebuild it
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_bounded_logs_a_restart_policy_and_a_pinned_version(name: str) -> None:
    service = SERVICES[name]
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert service["image"] == "mdv" or re.search(r":\d+$", service["image"])
    assert "restart" in service
    assert "healthcheck" in service or name in ("web", "backup")  # the image has one for the web server
    if name in OWN:
        assert service["init"] and service["read_only"] and service["tmpfs"] == ["/tmp"]
        assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]


def test_only_web_and_lmr_are_published_and_only_on_the_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.keys() == {"web", "lmr"}
    assert all(port.startswith("${MDV_BIND:-127.0.0.1}:") for ports in published.values() for port in ports)
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert all(SERVICES[name]["networks"] == ["inside"] for name in ("postgres", "valkey", "backup", "migrate"))


def test_migrations_run_once_before_web_and_worker() -> None:
    assert (SERVICES["migrate"]["command"], SERVICES["migrate"]["restart"]) == (["migrate"], "no")
    for name in ("web", "worker"):
        assert SERVICES[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


def test_the_compose_file_names_only_existing_settings() -> None:
    known = {setting.variable for setting in SETTINGS.values()}
    for name in OWN:
        assert SERVICES[name]["environment"].keys() <= known
    text = (ROOT / "docker" / "compose.yaml").read_text("utf-8")
    named = {variable.removesuffix("_FILE") for variable in re.findall(r"MDV_[A-Z_]+", text)}
    assert named <= known | OF_COMPOSE_ALONE
    assert not re.search(r"(PASSWORD|TOKEN)\S*: [^$\n]", text), "the file contains a secret"


@pytest.mark.parametrize("name", OWN)
def test_the_command_of_a_service_is_accepted_by_the_cli(name: str) -> None:
    words = list(SERVICES[name]["command"])
    if words[0] == "sh":
        assert (SERVICES[name]["entrypoint"], words[1]) == ([], "-ec")
        words = re.findall(r"^mdv (.*)$", words[2], re.MULTILINE)[0].split(maxsplit=1)
    assert resolve(words).params is not None
    assert json.loads(said("ENTRYPOINT")[0]) == ["mdv"]  # a list, so that no shell intercepts signals
    assert resolve(json.loads(said("CMD")[0])).info_name == "serve"


def resolve(words: list[str]) -> click.Context:
    """Parse the arguments of a command without running it; return its context."""
    context = cli.make_context("mdv", list(words))
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        _, command, left = context.command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(rest[0], left, parent=context)
    return context


# The image's own installation


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of /opt/mdv in the image: installed by the Dockerfile's commands, not from this checkout."""
    place = tmp_path_factory.mktemp("image")
    source, opt = place / "src", place / "opt"
    source.mkdir()
    for instruction, rest in instructions():
        if instruction == "COPY" and "--from" not in rest:
            for name in rest.split()[:-1]:
                copy(ROOT / name, source / name)
        if instruction == "RUN" and "/opt/mdv/bin" in rest:
            # Packages that other tests downloaded are reused.
            command = (
                rest.replace("/opt/node", str(place / "node"))
                .replace("/opt/mdv", str(opt))
                .replace("--no-cache-dir", "")
                .replace("--no-cache", "")
            )
            command = command.replace("python -m venv", f"{sys.executable} -m venv")
            ran = subprocess.run(["sh", "-ec", command], cwd=source, capture_output=True, text=True, env=bare())
            assert ran.returncode == 0, ran.stdout + ran.stderr
    shutil.rmtree(source)
    return opt


def test_the_image_holds_the_pages_with_their_scripts(image: Path) -> None:
    (web,) = image.glob("lib/python*/site-packages/web")
    assert missing_static_files(web) == []
    assert {file.name for file in (web / "static" / "built").glob("*.js")} > {"page.js", "editor.js"}
    assert (web / "templates" / "pages" / "overview.html").is_file() and not (web / "assets").exists()


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        left_out = shutil.ignore_patterns("__pycache__", "node_modules", "built")
        shutil.copytree(source, target, ignore=left_out, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


def bare(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("MDV_", "PYTHON"))} | more


@pytest.fixture(scope="module")
def environment(image: Path, postgres: Postgres, new_queue: Callable[[], str]) -> dict[str, str]:
    """The environment of compose's x-mdv, with the addresses of local servers."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("create database image")
    database = sqlalchemy.make_url(postgres.url).set(database="image").render_as_string(hide_password=False)
    given = {
        "MDV_DATABASE_URL": database,
        "MDV_REDIS_URL": new_queue(),
        "MDV_ADMIN_TOKEN": TEST_TOKEN,
        "MDV_LOG_LEVEL": "info",
        "MDV_BACKBONE_PLAIN": "false",
    }
    assert given.keys() == SERVICES["web"]["environment"].keys()
    return {"PATH": f"{image / 'bin'}:{os.environ['PATH']}", "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"} | given


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Start the command of a service in an empty folder, as a container would."""
    started: list[subprocess.Popen[bytes]] = []

    def run(service: str, *, port: int | None = None, **more: str) -> subprocess.Popen[bytes]:
        words = at_port(SERVICES[service]["command"], port)
        own = tmp_path / service
        own.mkdir()
        child = start_child(["mdv", *words], env=environment | more, cwd=own, log=tmp_path / f"{service}.log")
        started.append(child)
        return child

    yield run
    for child in started:
        stop_process(child, FAREWELL)


def at_port(words: list[str], port: int | None) -> list[str]:
    return [word if word not in ("8080", "8081") else str(port) for word in words]


def is_well(test: list[str], environment: dict[str, str], port: int | None = None) -> bool:
    """Return the output of a health check, run as in the container."""
    words = [re.sub(r":808[01]/", f":{port}/", word) for word in test]
    return subprocess.run(words, env=environment, cwd="/", capture_output=True, timeout=60).returncode == 0


def test_the_image_runs_a_whole_system_and_its_health_checks_are_correct(
    start: Start, environment: dict[str, str], tmp_path: Path
) -> None:
    web_check = json.loads(said("HEALTHCHECK")[0].split("CMD", 1)[1])
    worker_check = SERVICES["worker"]["healthcheck"]["test"][1:]
    lmr_check = SERVICES["lmr"]["healthcheck"]["test"][1:]
    port, lmr_port = free_port(), free_port()
    assert not is_well(web_check, environment, port)
    assert not is_well(worker_check, environment)

    assert start("migrate").wait(60) == 0, (tmp_path / "migrate.log").read_text()
    web, worker = start("web", port=port), start("worker")
    eventually(lambda: is_well(web_check, environment, port))
    eventually(lambda: is_well(worker_check, environment))

    commands = environment | {"MDV_URL": f"http://127.0.0.1:{port}", "MDV_TOKEN": TEST_TOKEN}
    made = subprocess.run(
        ["mdv", "lmr", "create", "library"], env=commands, cwd=tmp_path, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    own = {name: value for name, value in environment.items() if not name.startswith("MDV_")}
    given = {"MDV_URL": commands["MDV_URL"], "MDV_LMR_TOKEN": made.stdout.strip()}
    given["MDV_LMR_STORE"] = f"sqlite:///{tmp_path / 'cache.db'}"
    assert given.keys() | {"MDV_LOG_LEVEL"} == SERVICES["lmr"]["environment"].keys()
    words = ["mdv", *at_port(SERVICES["lmr"]["command"], lmr_port)]
    lmr = start_child(words, env=own | given, cwd=tmp_path, log=tmp_path / "lmr.log")
    try:
        eventually(lambda: is_well(lmr_check, environment, lmr_port))
    finally:
        stop_process(lmr, FAREWELL)
    assert not is_well(lmr_check, environment, lmr_port)

    worker.send_signal(signal.SIGTERM)
    web.send_signal(signal.SIGTERM)
    assert (worker.wait(60), web.wait(60)) == (0, 0)
    assert not is_well(web_check, environment, port)
    eventually(lambda: not is_well(worker_check, environment))


def test_the_image_imports_nothing_from_this_checkout(image: Path) -> None:
    script = "import mdv, web, workers, migrations; print(*(m.__file__ for m in (mdv, web, workers, migrations)))"
    ran = subprocess.run([image / "bin" / "python", "-c", script], env=bare(), cwd="/", capture_output=True, text=True)
    assert ran.stdout and all(name.startswith(str(image)) for name in ran.stdout.split()), ran.stderr


def test_the_backup_service_writes_a_backup_and_deletes_old_ones(
    image: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    words = [word.replace("$$", "$").replace("/backups", str(tmp_path)) for word in SERVICES["backup"]["command"]]
    for name in ("mdv-old", "other"):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, 0))
    own = bare() | environment | {"PATH": f"{image / 'bin'}:{os.environ['PATH']}"}
    subprocess.run([image / "bin" / "mdv", "migrate"], env=own, cwd="/", check=True)
    subprocess.run(words, env=own, cwd="/", check=True)
    (made,) = (path for path in tmp_path.iterdir() if path.name != "other")
    assert re.fullmatch(r"mdv-\d{8}T\d{6}Z", made.name)
    assert (made / "manifest.json").exists()
