"""The structure of the code base: imports between packages, and the promises of the documents."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]

FLOORS = [
    {"web", "mdv.submit"},
    {"workers", "mdv.cli"},
    {"mdv.batch", "mdv.bench"},
    {"mdv.inspect", "mdv.accounts", "mdv.backup"},
    {"mdv.mdp", "mdv.lmr"},
    {"mdv.db", "mdv.query"},
    {"mdv.federation"},
    {"mdv.rdftl", "mdv.real", "mdv.replication"},
    {"mdv.rules", "mdv.backbone", "mdv.engines"},
    {"mdv.rdf"},
    {"mdv.client", "mdv.feed", "mdv.webhooks"},
    {"mdv.system", "mdv.embedded", "mdv.http_client"},
    {"mdv.supervise", "mdv.logs", "mdv.free_port", "mdv.mdp_places"},
    {
        "mdv.cause",
        "mdv.model",
        "mdv.errors",
        "mdv.config",
        "mdv.private_file",
        "mdv.failpoints",
        "mdv.static_files",
        "mdv.metrics",
        "mdv.gc_tuning",
        "mdv.uris",
    },
]
"""From top to bottom. A package imports only from packages on lower layers."""

MDP_FLOORS = [
    {"worker", "real.program_worker", "replicate", "backbone_members", "leave_backbone", "federation.runner"},
    {"backbone_check_jobs"},
    {"backbone_checks"},
    {"subscribe", "real.slice_commit", "replicated_schema", "replicated_rules", "log_transport"}
    | {"eca.rule_jobs", "federation.stored_site"},
    {"adopt_lmr"},
    {"rules.operations", "lmr_definitions"},
    {"rules.chunked_publish", "rules.remove", "edit_document", "backbone_conflicts"},
    {"replica"},
    {"replica_store"},
    {"federation.global_rules"},
    {"register", "put_schema", "rules.add", "rules.change", "rules.suspend", "rules.results"}
    | {"federation.fragment", "federation.members"},
    {"rules.planning", "eca.change_rules", "eca.update", "eca.refusals", "eca.run_detached", "eca.compensate"}
    | {"eca.reread"},
    {"transaction"},
    {"eca.detached", "eca.readers", "federation.capture"},
    {"eca.templates", "eca.abort_graph"},
    {"provider", "eca.trace"},
    {"eca.run", "backbone_signer"},
    {"eca.undo", "eca.evaluation", "eca.comparisons", "eca.call_action"},
    {"eca.actions", "eca.rule_set", "eca.changes", "eca.slow_rules"},
    {"real.activity", "federation.event_search", "federation.grants", "federation.stored_state"}
    | {"federation.exchange", "federation.neighbours"},
    {"edit", "real.start"},
    {"rule_cache"},
    {"selection_counts"},
    {"replica_changes"},
    {"publish", "driving_predicate", "precompute", "evaluate"},
    {"merge", "filter", "webhook_sender", "feed_progress", "search_index", "real.service_call"},
    {"real.program_text", "real.refusals", "real.quotas", "real.wake", "real.reading"}
    | {"real.write_locks", "real.service_sender", "database_outage"},
    {"batch_size", "groups", "schemas", "feed", "plan", "webhooks", "retention", "worker_heartbeats"}
    | {"admission", "jobs", "lmrs", "saved_queries", "write_limits"},
]
"""The same between the modules of mdv/mdp."""


def room_of(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] in ("web", "workers"):
        return parts[0]
    return ".".join(parts[:2]) if parts[0] == "mdv" and len(parts) > 1 else None


def floor_of(room: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names if node.module == "mdv"}
    return found


def named_by_imports(path: Path) -> set[str]:
    """Return all names that a file imports, each with its module: `from a.b import c` gives a.b.c."""
    tree = ast.parse(path.read_text("utf-8"))
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [node for node in froms if node.level], f"{path} has relative imports"
    return {
        *(alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names),
        *(f"{node.module}.{alias.name}" for node in froms for alias in node.names),
    }


def is_below(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


SOURCES = [path for folder in ("mdv", "web", "workers") for path in sorted((ROOT / folder).rglob("*.py"))]
WEB_SOURCES = [path for path in SOURCES if path.is_relative_to(ROOT / "web")]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_imports_only_from_lower_layers(path: Path) -> None:
    room = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
    if room is None or room == "mdv.__init__":
        return
    for module in imports_of(path):
        other = room_of(module)
        if other is not None and other != room:
            assert floor_of(other) > floor_of(room), f"{room} imports {other}, which is not below it"


def test_modules_of_mdp_import_only_from_lower_layers() -> None:
    floors = {module: number for number, modules in enumerate(MDP_FLOORS) for module in modules}
    folder = ROOT / "mdv" / "mdp"
    paths = {
        ".".join(path.relative_to(folder).with_suffix("").parts): path
        for path in sorted(folder.rglob("*.py"))
        if path.stem != "__init__"
    }
    assert paths.keys() == floors.keys()
    for name, path in paths.items():
        for module in imports_of(path):
            if module.startswith("mdv.mdp."):
                other = module.removeprefix("mdv.mdp.")
                assert floors[other] > floors[name], f"mdp.{name} imports mdp.{other}, which is not below it"


STEPS_OF_A_TRANSACTION = {
    "mdv.db.state.queue_state_lock",
    "mdv.db.schemas.store_schema_version",
    "mdv.db.publish.Publication",
    "mdv.db.statement_store.StatementStore",
    "mdv.mdp.filter.filter_changes",
    "mdv.mdp.publish.publish_changes",
}
"""Functions that lock, store, filter, publish, or advance the position."""


def test_only_the_transaction_stores_filters_and_publishes() -> None:
    users = {path.stem for path in SOURCES if named_by_imports(path) & STEPS_OF_A_TRANSACTION}
    assert users == {"transaction", "publish"}, "mdp/publish.py makes the publication of changed documents"
    advancing = {
        path.stem for path in SOURCES if re.search(r"graph\.advance\(|advance_rules\"", path.read_text("utf-8"))
    }
    assert advancing <= {"transaction", "rule_graph"}


def test_web_reads_and_writes_through_other_packages_than_the_database() -> None:
    for path in WEB_SOURCES:
        named = {name for name in named_by_imports(path) if is_below(name, "mdv.db")}
        assert named <= {"mdv.db.engine.make_engine"}, path


def test_pages_and_api_do_not_import_each_other() -> None:
    folders = {"web.pages": ROOT / "web" / "pages", "web.api": ROOT / "web" / "api"}
    for other, folder in zip(reversed(folders), folders.values(), strict=True):
        for path in folder.rglob("*.py"):
            assert not [name for name in named_by_imports(path) if is_below(name, other)], path


def test_the_server_of_an_lmr_loads_nothing_of_an_mdp() -> None:
    ask = "import sys, web.lmr.app, web.lmr.worker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "web.lmr.app" in loaded.split()
    of_mdp = ("mdv.mdp", "mdv.accounts", "web.api", "web.pages", "web.services", "workers")
    assert [name for name in loaded.split() if is_below(name, *of_mdp)] == []


def test_use_cases_import_neither_pages_nor_api() -> None:
    for path in (ROOT / "web" / "use_cases").rglob("*.py"):
        assert not [name for name in named_by_imports(path) if is_below(name, "web.pages", "web.api", "web.lmr")], path


def test_only_the_bench_commands_import_the_benchmarks() -> None:
    for path in SOURCES:
        parts = path.relative_to(ROOT).parts
        if parts[:2] != ("mdv", "bench") and parts[:3] != ("mdv", "cli", "bench"):
            assert not [module for module in imports_of(path) if module.startswith("mdv.bench")], path


def test_a_public_class_name_is_used_once() -> None:
    found: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_in_the_documents_point_to_existing_files(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", path.read_text("utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_source_files_named_in_the_documents_exist(path: Path) -> None:
    folders = [ROOT, ROOT / "mdv", *(ROOT / "mdv").glob("*/")]
    for name in re.findall(r"`([\w/.]+\.(?:py|sql|lark))`", path.read_text("utf-8")):
        assert any((folder / name).exists() for folder in folders), name


def test_pure_packages_perform_no_input_or_output() -> None:
    forbidden = {"sqlalchemy", "psycopg", "redis", "celery", "flask", "httpx2", "socket", "subprocess"}
    for path in SOURCES:
        if path.relative_to(ROOT).parts[:2] in [
            ("mdv", name) for name in ("rdf", "rules", "rdftl", "real", "backbone", "federation")
        ]:
            assert not {module.split(".")[0] for module in imports_of(path)} & forbidden, path


def test_sql_is_written_only_in_its_package() -> None:
    statement = re.compile(r"\b(select\s.+\sfrom|insert into|update \w+ set|delete from)\b", re.IGNORECASE)
    for path in SOURCES:
        parts = path.relative_to(ROOT).parts
        if parts[:2] in (("mdv", "db"), ("mdv", "embedded.py")) or parts[2:3] == ("sql",):
            continue  # embedded.py creates the database
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not statement.search(node.value), f"{path}:{node.lineno} holds SQL"


UNUSUAL_WORDS = re.compile(
    r"(?<![`*\"])\b(whoever|anew|so many|somebody|everybody|anybody|nobody|(is|are|was|were) (said|told))\b",
    re.IGNORECASE,
)
WRITTEN = [
    *DOCUMENTS,
    ROOT / "CHANGELOG.md",
    ROOT / "Makefile",
    *SOURCES,
    *(path for path in sorted((ROOT / "web" / "templates").rglob("*.html"))),
    *(path for folder in ("mdv", "docs") for path in sorted((ROOT / folder).rglob("*.sql"))),
]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_texts_avoid_unusual_words(path: Path) -> None:
    """Name the person or thing instead: "the user", "an administrator", "every member"."""
    lines = path.read_text("utf-8").splitlines()
    assert [f"{number}: {line}" for number, line in enumerate(lines, 1) if UNUSUAL_WORDS.search(line)] == []


CONSTRAINTS = ("constraints.txt", "constraints-peers.txt")


def constraints() -> list[str]:
    return [line for name in CONSTRAINTS for line in (ROOT / name).read_text("utf-8").splitlines()]


def test_constraints_pin_by_name_and_version_only() -> None:
    for line in constraints():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), line


def wanted() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(text) for text in (*project["dependencies"], *(text for extra in extras for text in extra))]


def test_every_dependency_is_pinned_to_an_allowed_version() -> None:
    pinned: dict[str, set[str]] = {}
    for line in constraints():
        if not line.startswith("#"):
            name, version = line.split("==")
            pinned.setdefault(name.lower(), set()).add(version)
    for requirement in wanted():
        assert any(version in requirement.specifier for version in pinned.get(requirement.name, ())), requirement
        assert {">="} <= {part.operator for part in requirement.specifier}, f"{requirement} has no lower bound"


def test_packages_whose_private_api_is_used_have_an_upper_bound() -> None:
    bounds = {requirement.name: {part.operator for part in requirement.specifier} for requirement in wanted()}
    assert all("<" in bounds[name] for name in ("psycopg", "kombu", "gunicorn"))


def test_every_imported_package_is_a_dependency() -> None:
    own = {"mdv", "web", "workers", "migrations"}
    sources = [path for path in (*SOURCES, *(ROOT / "migrations").rglob("*.py")) if path.name != "backend.py"]
    imported = {module.split(".")[0] for path in sources for module in imports_of(path)} - own
    known = packages_distributions()
    packages = {known.get(name, [name])[0].lower().replace("_", "-") for name in imported - sys.stdlib_module_names}
    of_pyspark = {"py4j"}  # which pins it
    assert packages - {requirement.name for requirement in wanted()} - of_pyspark == set()


def test_npm_packages_are_pinned_by_version_and_hash_without_a_host() -> None:
    import json

    assets = ROOT / "web" / "assets"
    wanted = json.loads((assets / "package.json").read_text("utf-8"))
    locked = json.loads((assets / "package-lock.json").read_text("utf-8"))["packages"]
    for name, version in (wanted["dependencies"] | wanted["devDependencies"]).items():
        assert locked[f"node_modules/{name}"]["version"] == version
    assert "swagger-ui-dist" in wanted["dependencies"]
    for name, package in locked.items():
        assert not name or (package["integrity"].startswith("sha512-") and "resolved" not in package), name
    for path in (*assets.glob("*.json"), assets / ".npmrc", ROOT / "pyproject.toml", ROOT / "MANIFEST.in"):
        assert "://" not in path.read_text("utf-8"), path
    # Install scripts of packages are not run: one of them would report to another host.
    assert "ignore-scripts=true" in (assets / ".npmrc").read_text("utf-8").splitlines()


def test_the_makefile_has_the_targets_of_the_readme() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"`make (\w+)", (ROOT / "README.md").read_text("utf-8")):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"the README names make {target}"


def test_make_help_lists_the_targets() -> None:
    text = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {"make up", "make test", "make check", "make install", "make bench"} <= set(re.findall(r"make \w+", text))


def test_each_migration_follows_the_one_before() -> None:
    """Two with the same number would be two heads, and no database could be migrated."""
    texts = [path.read_text() for path in (ROOT / "migrations" / "versions").glob("0*.py")]
    revisions = [re.findall(r'^revision = "(\w+)"', text, re.MULTILINE)[0] for text in texts]
    before = [found for text in texts for found in re.findall(r'^down_revision = "(\w+)"', text, re.MULTILINE)]
    assert len(set(revisions)) == len(revisions), "two migrations have the same number"
    assert len(set(before)) == len(before) == len(revisions) - 1, "two migrations follow the same one"
