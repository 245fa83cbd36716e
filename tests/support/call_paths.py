"""Count the files, functions and package crossings of one registration, one rule and one page.

Run `python -m tests.support.call_paths` from the root of the checkout. A crossing is a call from a function of one
package to a function of another. The second run of each operation counts, when caches are warm.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from mdv.config import Config
from mdv.db.engine import make_engine
from mdv.db.migrate import migrate
from mdv.embedded import start_postgres
from tests.support.mdp import Mdp
from web.app import create_app

ROOT = Path(__file__).parents[2]
TOKEN = "call-paths-token-of-32-characters"
NO_REDIS = "redis://127.0.0.1:1"
SCHEMA = """
:CycleProvider a rdfs:Class . :ServerInformation a rdfs:Class .
:serverHost rdfs:domain :CycleProvider ; rdfs:range xsd:string .
:serverInformation rdfs:domain :CycleProvider ; rdfs:range :ServerInformation ; mdv:reference mdv:strong .
:memory rdfs:domain :ServerInformation ; rdfs:range xsd:integer .
"""
RULE = "search CycleProvider c register c where c.serverHost contains 'passau.{}' and c.serverInformation.memory > {}"


def package_of(filename: str) -> str | None:
    """Return the package of a source file; None if it is not part of the product."""
    try:
        parts = Path(filename).relative_to(ROOT).parts
    except ValueError:
        return None
    if parts[0] in ("web", "workers"):
        return parts[0]
    return ".".join(parts[:2]).removesuffix(".py") if parts[0] == "mdv" else None


class CallCounter:
    """Counts calls inside the block."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.functions: set[CodeType] = set()
        self.calls = 0
        self.crossings = 0

    def __enter__(self) -> CallCounter:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        here = package_of(frame.f_code.co_filename)
        if here is None:
            return
        self.calls += 1
        self.files.add(frame.f_code.co_filename)
        self.functions.add(frame.f_code)
        caller = frame.f_back
        while caller is not None and package_of(caller.f_code.co_filename) is None:
            caller = caller.f_back
        if caller is not None and package_of(caller.f_code.co_filename) != here:
            self.crossings += 1


def count_calls(run: Callable[[int], object]) -> CallCounter:
    """Run an operation twice and count the second run."""
    run(1)
    with CallCounter() as counter:
        run(2)
    return counter


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        postgres = start_postgres(Path(folder) / "postgres")
        try:
            engine = make_engine(postgres.url)
            migrate(engine)
            mdp = Mdp(engine)
            mdp.put_schema(SCHEMA)
            lmr = mdp.create_lmr("reader")
            mdp.subscribe(lmr, RULE.format(0, 1))

            def register(number: int) -> None:
                document = f"http://d/{number}"
                mdp.put_one(
                    document,
                    f"<{document}#c> a :CycleProvider ; :serverHost 'passau.0' ; :serverInformation <{document}#i> ."
                    f" <{document}#i> a :ServerInformation ; :memory 92 .",
                )

            web = create_app(
                Config.from_environment(
                    {
                        "MDV_DATABASE_URL": postgres.url,
                        "MDV_ADMIN_TOKEN": TOKEN,
                        "MDV_REDIS_URL": NO_REDIS,
                        "MDV_LOG_LEVEL": "error",
                    }
                )
            ).test_client()
            assert web.post("/sign-in", data={"secret": TOKEN}).status_code == 303
            operations: dict[str, Callable[[int], object]] = {
                "one registration": register,
                "one rule": lambda number: mdp.subscribe(lmr, RULE.format(number, number)),
                "one page": lambda number: web.get("/documents"),
            }
            print(f"{'':18}{'files':>8}{'functions':>11}{'calls':>8}{'crossings':>11}")
            for name, run in operations.items():
                found = count_calls(run)
                sizes = (len(found.files), len(found.functions), found.calls, found.crossings)
                print(
                    f"{name:18}"
                    + "".join(f"{size:>{width}}" for size, width in zip(sizes, (8, 11, 8, 11), strict=True))
                )
            engine.dispose()
        finally:
            postgres.stop()


if __name__ == "__main__":
    main()
