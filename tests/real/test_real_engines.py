"""Inference engines: `engine:schema`, `engine:owlrl`, and others by entry point, with their limits."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdv.db.engine import driver
from mdv.db.real.statement_reader import StatementReader
from mdv.db.real.view import PostgresView
from mdv.engines import owl_rl
from mdv.engines import run_engine as running
from mdv.engines.registry import engine_names
from mdv.engines.run_engine import EngineFailed, run_engine
from mdv.model import OWL, RDF, RDF_TYPE, RDFS, Statement, Term
from mdv.rdf.schema import read_schema
from mdv.real.compile_code import compile_program
from mdv.real.engines import infer_by_schema
from mdv.real.events import ProgramEnded, ProgramFailed, SolutionFound
from mdv.real.machine import Machine
from mdv.real.resolve import read_program
from mdv.real.store import ReadPattern
from tests.support.mdp import Mdp

OPEN = "<> mdv:world mdv:open . :Book a rdfs:Class . :Novel rdfs:subClassOf :Book . :Crime rdfs:subClassOf :Novel ."


def solve(mdp: Mdp, code: str) -> list[dict[str, str]] | str:
    """Return the solutions of a program, or the message of its error."""
    with mdp.engine.connect() as connection:
        schema = mdp.schemas.now(connection)
        reader = StatementReader(driver(connection), 10)
        view = PostgresView(reader.position()[0], schema.schema, schema.statements)
        view.use(reader)
        program = read_program(code, {**schema.schema.prefixes, "owl": OWL})
        machine, found = Machine(compile_program(program, code)), []
        while True:
            match machine.run(view, 10_000):
                case SolutionFound(binding):
                    found.append({name: term.value.rpartition("/")[2] for name, term in binding.items()})
                case ProgramEnded():
                    return sorted(found, key=repr)
                case ProgramFailed(message):
                    return message


@pytest.fixture
def store(mdp: Mdp) -> Mdp:
    mdp.put_schema(OPEN)
    mdp.put(
        {
            "http://d/1": f":near a <{OWL}SymmetricProperty>, <{OWL}TransitiveProperty> ."
            " <http://r/a> :near <http://r/b> . <http://r/b> :near <http://r/c> . <http://r/a> a :Crime .",
            "http://d/2": "<http://r/c> :near <http://r/d> .",
        }
    )
    return mdp


def test_the_owl_engine_finds_what_follows_from_the_facts(store: Mdp) -> None:
    assert solve(store, "engine:owlrl ! :near(<http://r/d>, ?x)") == [{"x": one} for one in "abcd"]
    assert solve(store, "rdf:type(?x, :Crime) AND engine:owlrl ! rdf:type(?x, :Book)") == [{"x": "a"}]
    assert solve(store, ":near(<http://r/d>, ?x)") == []


def test_the_owl_engine_sees_the_contexts_and_the_changes_of_the_program(store: Mdp) -> None:
    assert solve(store, "IN <http://d/1> { engine:owlrl ! :near(<http://r/c>, ?x) }") == [{"x": one} for one in "abc"]
    assert solve(store, "IN <http://d/2> { engine:owlrl ! :near(<http://r/d>, ?x) }") == []
    changed = "{ +:near(<http://r/d>, <http://r/e>) AND engine:owlrl ! :near(<http://r/e>, ?x) }"
    assert solve(store, changed) == [{"x": one} for one in "abcde"]


def test_the_schema_engine_knows_the_statements_of_the_schema(store: Mdp) -> None:
    assert solve(store, "! rdfs:subClassOf(:Crime, ?c)") == [{"c": "Book"}, {"c": "Novel"}]
    assert solve(store, "! rdfs:subClassOf(?c, :Book)") == [{"c": "Crime"}, {"c": "Novel"}]
    assert solve(store, "! rdf:type(:Book, ?c)") == [{"c": "rdf-schema#Class"}]
    assert solve(store, "rdf:type(?x, :Crime) AND engine:schema ! rdf:type(?x, ?c)") == [
        {"c": one, "x": "a"} for one in ("Book", "Crime", "Novel")
    ]  # fmt: skip
    assert solve(store, "IN <http://d/2> { ! rdf:type(<http://r/a>, ?c) }") == []


def test_an_unknown_engine_is_an_error(store: Mdp) -> None:
    assert solve(store, "engine:magic ! :near(?x, ?y)") == "there is no inference engine <urn:mdv:real:engine#magic>"
    assert "there is no inference engine" in solve(store, "<http://a/b> ! :near(?x, ?y)")


ENGINES = """
import time

def slow(statements):
    time.sleep(60)

def busy(statements):
    while True:
        pass

def large(statements):
    from mdv.model import Statement, Term
    number = 0
    while True:
        number += 1
        yield Statement("http://r/x", "http://v/p", Term.literal(str(number)))

def failing(statements):
    raise ValueError("no idea")

def leaving(statements):
    import os
    os._exit(1)

def hungry(statements):
    return [b"x" * (1 << 31)]
"""


@pytest.fixture
def own_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install engines of another package."""
    names = ("slow", "busy", "large", "failing", "leaving", "hungry")
    (tmp_path / "own_engines.py").write_text(dedent(ENGINES))
    info = tmp_path / "own_engines-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-engines\nVersion: 1\n")
    lines = [f"{name} = own_engines:{name}" for name in (*names,)]
    (info / "entry_points.txt").write_text("\n".join(["[mdv.real.engines]", *lines, "missing = nowhere:infer"]))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    engine_names.cache_clear()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("slow", "it took longer than 1 s"),
        ("busy", "it took longer than 1 s"),
        ("large", "it infers more than 100 statements"),
        ("failing", "ValueError: no idea"),
        ("leaving", "ended without an answer"),
        ("hungry", "needs too much memory"),
        ("missing", "not installed"),
    ],
)
def test_an_engine_of_another_package_has_limits(
    own_engines: None, name: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "MAX_STATEMENTS", 100)

    with pytest.raises(EngineFailed, match=reason):
        run_engine(name, [], 30 if "1 s" not in reason else 1)

    engine_names.cache_clear()


def test_an_engine_reads_a_limited_number_of_facts(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MAX_STATEMENTS", 5)
    monkeypatch.setattr("mdv.db.real.view.MAX_STATEMENTS", 5)

    assert "engine:owlrl: it would read more than 5 statements" in solve(store, "engine:owlrl ! :near(?x, ?y)")


CLASSES = [f"http://v/{one}" for one in "ABCD"]
PROPERTIES = [f"http://v/{one}" for one in "pqr"]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Statement], list[Statement]]:
    """Return a schema and facts."""
    pairs = [(a, b) for a in range(4) for b in range(4)]
    below = [(a, b) for a, b in draw(st.lists(st.sampled_from(pairs), max_size=4)) if a < b]
    schema = [Statement(one, RDF_TYPE, Term.uri(RDFS + "Class")) for one in CLASSES]
    schema += [Statement(one, RDF_TYPE, Term.uri(RDF + "Property")) for one in PROPERTIES]
    schema += [Statement(CLASSES[a], RDFS + "subClassOf", Term.uri(CLASSES[b])) for a, b in below]
    schema += [
        Statement(PROPERTIES[a], RDFS + "subPropertyOf", Term.uri(PROPERTIES[b]))
        for a, b in draw(st.lists(st.sampled_from([(0, 1), (1, 2), (0, 2)]), max_size=2))
    ]
    types = [Statement(f"http://r/{n}", RDF_TYPE, Term.uri(one)) for n in range(2) for one in CLASSES]
    arcs = [Statement("http://r/0", one, Term.uri("http://r/1")) for one in PROPERTIES]
    return schema, draw(st.lists(st.sampled_from(types + arcs), max_size=5, unique=True))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds())
def test_what_the_schema_engine_infers_the_owl_engine_infers_too(
    world: tuple[list[Statement], list[Statement]],
) -> None:
    schema, facts = world
    every = {*schema, *facts}

    def matching(pattern: ReadPattern) -> list[Statement]:
        return [
            one for one in facts
            if all(wanted in (None, found) for wanted, found in zip(pattern[:3], one, strict=True))
        ]  # fmt: skip

    found = set(infer_by_schema(read_schema(schema, {}), schema, ReadPattern(), matching))

    owl = {*owl_rl.infer(every), *every}
    assert {one for one in found if one.subject.startswith(("http://v/", "http://r/"))} <= owl
    about = [one for one in owl if one.object.value in CLASSES and one.subject.startswith("http://r/")]
    assert {one for one in about if one.property == RDF_TYPE} <= found
