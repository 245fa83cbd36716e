"""The demo: the schema, documents and rule of the paper, loaded into a new system once."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from mdv.errors import MdvError
from mdv.rdf.syntax import syntax_of_name
from mdv.system import System

if TYPE_CHECKING:
    from mdv.client import Client

BASE = "http://mdv.example/"
SCHEMA = "schema.ttl"
DOCUMENTS = ("doc.rdf", "orion.ttl", "atlas.ttl")
RULE = "paper.rule"
LOADED_MARKER = "demo.loaded"


def load_demo(folder: Path, system: System, mdp: Client, lmr: Client, report: Callable[[str], None]) -> None:
    """Load the demo into an empty system, and subscribe the LMR to the rule of the paper.

    Nothing is done if the demo was loaded before or the system has other data. A failure is only reported.
    """
    if (folder / LOADED_MARKER).exists() or not _is_new(system):
        return
    try:
        for name in (SCHEMA, *DOCUMENTS):
            body = files("mdv").joinpath("demo", name).read_bytes()
            media_type = syntax_of_name(name).media_type
            if name == SCHEMA:
                mdp.put_schema(body, media_type)
            else:
                mdp.register(BASE + name, body, media_type)
        _add_rule(system)
        lmr.change("POST", "/subscriptions", {"rule": _rule(), "name": "paper"})
        (folder / LOADED_MARKER).touch()
        report(f"The demo is loaded: the schema of the paper, {len(DOCUMENTS)} documents below {BASE}, and its rule.")
    except MdvError as error:
        report(f"The demo was not loaded: {error.detail}")


def _add_rule(system: System) -> None:
    """Add the rule of section 3.3.1 of the paper as a rule of the provider."""
    from mdv.db.engine import make_engine
    from mdv.mdp.provider import Provider
    from mdv.mdp.rules.add import add_rules
    from mdv.mdp.rules.planning import PROVIDER_OWNER, RuleDraft

    engine = make_engine(system.database_url)
    try:
        with engine.begin() as connection:
            add_rules(connection, [RuleDraft(PROVIDER_OWNER, "paper", _rule(), "demo")], Provider(engine))
    finally:
        engine.dispose()


def _rule() -> str:
    return files("mdv").joinpath("demo", RULE).read_text("utf-8")


def _is_new(system: System) -> bool:
    """True if no schema and no document was ever registered."""
    from mdv.db.engine import make_engine
    from mdv.db.state import read_state

    engine = make_engine(system.database_url)
    try:
        with engine.connect() as connection:
            return read_state(connection).position == 0
    finally:
        engine.dispose()
