"""The demo: the paper's schema, documents and rule, loaded into a new system, once."""

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
LOADED = "demo.loaded"


def load_demo(folder: Path, system: System, mdp: Client, lmr: Client, tell: Callable[[str], None]) -> None:
    """Load the demo, unless it was loaded before or anything else is there, and subscribe the LMR to the paper's rule.
    A failure is told and stops nothing."""
    if (folder / LOADED).exists() or not _is_new(system):
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
        (folder / LOADED).touch()
        tell(f"The demo is loaded: the paper's schema, {len(DOCUMENTS)} documents below {BASE}, and its rule.")
    except MdvError as error:
        tell(f"The demo was not loaded: {error.detail}")


def _add_rule(system: System) -> None:
    """The rule of the paper's section 3.3.1, as one of the provider's own."""
    from mdv.db.engine import make_engine
    from mdv.db.vocabulary import Vocabulary
    from mdv.mdp.rules import OWN, RuleDraft, Rules, add_rules
    from mdv.mdp.schemas import Schemas

    engine = make_engine(system.database_url)
    try:
        with engine.begin() as connection:
            add_rules(connection, [RuleDraft(OWN, "paper", _rule())], Schemas(), Vocabulary(engine), Rules())
    finally:
        engine.dispose()


def _rule() -> str:
    return files("mdv").joinpath("demo", RULE).read_text("utf-8")


def _is_new(system: System) -> bool:
    """Whether nothing was ever registered, no schema and no document."""
    from mdv.db.engine import make_engine
    from mdv.db.state import read_state

    engine = make_engine(system.database_url)
    try:
        with engine.connect() as connection:
            return read_state(connection).position == 0
    finally:
        engine.dispose()
