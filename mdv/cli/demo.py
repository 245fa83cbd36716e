"""The demo, loaded into a new system once: the example of the paper, a small catalogue of books, event rules that turn
changes of learning objects into messages, and works of art for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

from mdv.errors import MdvError
from mdv.private_file import write_private_file
from mdv.rdf.syntax import syntax_of_name
from mdv.system import System

if TYPE_CHECKING:
    from mdv.client import Client

BASE = "http://mdv.example/"
SCHEMAS = ("schema.ttl", "library/schema.ttl", "learning/schema.ttl", "art/schema.ttl")
PAPER_DOCUMENTS = ("doc.rdf", "orion.ttl", "atlas.ttl")
PAPER_RULE = "paper"
LOCAL_RULES = {PAPER_RULE: "paper.rule", "english": "library/english.rule"}
SCHOOL = "school"
SCHOOL_RULES = {"children": "library/children.rule", "sea": "library/sea.rule"}
ART_DOCUMENTS = ("art/works.ttl", "art/studio.ttl")
STUDIO_PROGRAM = (
    "PREFIX art: <http://mdv.example/art#>"
    " CALL art:open(<http://mdv.example/art/studio.ttl#studio> >> ?describing, ?checking)"
)
FIRST_WORK = (
    "PREFIX art: <http://mdv.example/art#>"
    " +art:toDescribe(<http://mdv.example/art/studio.ttl#studio>, <http://mdv.example/art/works.ttl#the-crossing>)"
)
EVENT_RULES = "learning/messages.rdftl"
LEARNER, LEARNING_OBJECT, OTHER_LEARNER = "learning/anna.ttl", "learning/sql-course.ttl", "learning/ben.ttl"
NEW_DESCRIPTION = ("Twelve lessons with exercises.", "Twelve lessons with exercises and solutions.")
LOADED_MARKER = "demo.loaded"


def load_demo(folder: Path, system: System, mdp: Client, lmr: Client, report: Callable[[str], None]) -> None:
    """Load the demo into an empty system: documents, and the rules of the LMRs `local` and `school`.

    The rules of the two LMRs overlap. No server runs for `school`: its feed is read once, and its token is stored in
    the folder. Nothing is done if the demo was loaded before or the system has other data. A failure is only reported.
    """
    if (folder / LOADED_MARKER).exists() or not _is_new(system):
        return
    try:
        mdp.put_schema("\n".join(map(_text, SCHEMAS)).encode(), syntax_of_name(SCHEMAS[0]).media_type)
        documents = (*PAPER_DOCUMENTS, *library_documents(), *ART_DOCUMENTS)
        for name in documents:
            _register(mdp, name, _text(name))
        _add_paper_rule(system)
        for rule in _rules(LOCAL_RULES):
            lmr.change("POST", "/subscriptions", rule)
        _create_school(folder, system, mdp)
        _load_learning(mdp)
        _open_studio(mdp)
        (folder / LOADED_MARKER).touch()
        count = len(documents) + len((LEARNER, LEARNING_OBJECT, OTHER_LEARNER))
        report(f"The demo is loaded: {count} documents below {BASE}, the example of the paper, books, e-learning, art.")
    except MdvError as error:
        report(f"The demo was not loaded: {error.detail}")


def _load_learning(mdp: Client) -> None:
    """Add event rules, and make a change that each of them reacts to: a new learning object, a new user, and a new
    description of the learning object."""
    _register(mdp, LEARNER, _text(LEARNER))
    mdp.change("POST", "/eca/rules", {"text": _text(EVENT_RULES), "set": "learning"})
    _register(mdp, LEARNING_OBJECT, _text(LEARNING_OBJECT))
    _register(mdp, OTHER_LEARNER, _text(OTHER_LEARNER))
    _register(mdp, LEARNING_OBJECT, _text(LEARNING_OBJECT).replace(*NEW_DESCRIPTION))


def _open_studio(mdp: Client) -> None:
    """Start two processes that hand each other work, and give them a first work."""
    for code in (STUDIO_PROGRAM, FIRST_WORK):
        mdp.change("POST", "/real", {"code": code, "mode": "run", "into": BASE + "art/notes"})


def _register(mdp: Client, name: str, text: str) -> None:
    mdp.register(BASE + name, text.encode(), syntax_of_name(name).media_type)


def _create_school(folder: Path, system: System, mdp: Client) -> None:
    """Create the LMR `school`, and read its feed once, so that it is not behind until its books change."""
    from mdv.client import Client

    token = str(mdp.change("POST", "/lmrs", {"name": SCHOOL})["token"])
    write_private_file(folder / f"{SCHOOL}.token", token + "\n")
    mdp.change("POST", f"/lmrs/{SCHOOL}/subscriptions", list(_rules(SCHOOL_RULES)))
    with Client(replace(system, token=token)) as school:
        page = school.get("/lmrs/self/feed")
        while not page["up_to_date"] or page.get("snapshot"):
            page = school.get("/lmrs/self/feed", after=page["cursor"])


def library_documents() -> list[str]:
    """Return the names of the documents of the catalogue, relative to the folder of the demo."""
    names = (f"library/{file.name}" for file in _file("library").iterdir() if file.name.endswith(".ttl"))
    return sorted(name for name in names if name not in SCHEMAS)


def _add_paper_rule(system: System) -> None:
    """Add the rule of section 3.3.1 of the paper as a rule of the provider."""
    from mdv.db.engine import make_engine
    from mdv.mdp.provider import Provider
    from mdv.mdp.rules.add import add_rules
    from mdv.mdp.rules.planning import PROVIDER_OWNER, RuleDraft

    draft = RuleDraft(PROVIDER_OWNER, PAPER_RULE, _text(LOCAL_RULES[PAPER_RULE]), "demo")
    engine = make_engine(system.database_url)
    try:
        with engine.begin() as connection:
            add_rules(connection, [draft], Provider(engine))
    finally:
        engine.dispose()


def _rules(names: dict[str, str]) -> Iterable[dict[str, str]]:
    return ({"rule": _text(file), "name": name} for name, file in names.items())


def _text(name: str) -> str:
    return _file(name).read_text("utf-8")


def _file(name: str) -> Traversable:
    return files("mdv").joinpath("demo", *name.split("/"))


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
