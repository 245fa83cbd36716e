"""Programs on Postgres: cursors, random programs compared with the reference, and reads while the store changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from sqlalchemy import Engine

from mdv.db.engine import driver
from mdv.db.real.statement_reader import StatementReader
from mdv.db.real.view import PostgresView
from mdv.model import RDF_TYPE, XSD, Statement, Term
from mdv.rdf.digest import statement_hash
from mdv.rdf.schema import EMPTY_SCHEMA, Schema
from mdv.real.checkpoint import read_checkpoint, write_checkpoint
from mdv.real.compile_code import compile_program
from mdv.real.events import ProgramEnded, ProgramFailed, SolutionFound, StepsUsed
from mdv.real.machine import Machine
from mdv.real.memory import MemoryStore
from mdv.real.resolve import read_program
from mdv.real.store import ReadPattern
from mdv.real.terms import number_term
from tests.support.mdp import Mdp
from tests.support.real_programs import (
    ACTION_TEXTS,
    ACTIONS_DOCUMENT,
    DIRECTED,
    DOCUMENTS,
    LAWS,
    NAMES,
    NAMESPACE,
    PROPERTIES,
    Content,
    Outcome,
    RandomText,
    TooLong,
    action_content,
    random_content,
    random_expressions,
)
from tests.support.real_reference import run_reference

OPEN = "<> mdv:world mdv:open ."


@contextmanager
def reading(engine: Engine, view: PostgresView) -> Iterator[PostgresView]:
    """Give a view a connection for a while."""
    with engine.connect() as connection:
        view.use(StatementReader(driver(connection), 10))
        yield view
        view.use(None)


def position_of(engine: Engine) -> int:
    with engine.connect() as connection:
        return StatementReader(driver(connection), 10).position()[0]


def new_view(engine: Engine, schema: Schema = EMPTY_SCHEMA) -> PostgresView:
    return PostgresView(position_of(engine), schema)


# --- random programs, compared with the reference ---


def ordered_namespace() -> str:
    """Return a namespace whose statements have hashes in the order of their objects: the order of a cursor is then the
    order of statements, as in the reference."""
    for number in range(10**7):
        space = f"urn:t{number}:"
        if all(
            hashes == sorted(hashes)
            for subject in NAMES
            for name in PROPERTIES
            if (
                hashes := [
                    statement_hash(Statement(space + subject, space + name, Term.uri(space + one))) for one in NAMES
                ]
            )
        ):
            return space
    raise AssertionError


SPACE = ordered_namespace()


def moved(content: Content) -> Content:
    def new(name: str) -> str:
        return SPACE + name.removeprefix(NAMESPACE) if name.startswith(NAMESPACE) else name

    return {
        (new(document), Statement(new(s), new(p), Term.uri(new(o.value)) if o.is_uri else o))
        for document, (s, p, o) in content
    }


PREFIXES = {"": SPACE}
ACTIONS = {
    SPACE + name: (inputs, outputs, read_program(text, PREFIXES))
    for name, (inputs, outputs, text) in ACTION_TEXTS.items()
}


def turtle(statements: set[Statement]) -> str:
    lines = [f"<{s}> <{p}> {f'<{o.value}>' if o.is_uri else json.dumps(o.value)} ." for s, p, o in sorted(statements)]
    return f"@prefix : <{SPACE}> .\n" + "\n".join(lines)


class StoredPrograms:
    """An MDP whose resources and properties have IDs in the order of their names."""

    def __init__(self, mdp: Mdp) -> None:
        self.mdp = mdp
        mdp.put_schema(OPEN)
        names = {Statement(SPACE + one, SPACE + PROPERTIES[0], Term.uri(SPACE + one)) for one in NAMES}
        for one in sorted(names):
            self.put("urn:names", {one})
            self.put("urn:names", {Statement(one.subject, SPACE + PROPERTIES[1], one.object)})
        mdp.put_one("urn:names", None)
        self.put(ACTIONS_DOCUMENT, {statement for _, statement in moved(action_content())})

    def put(self, document: str, statements: set[Statement]) -> None:
        self.mdp.put_one(document, turtle(statements))

    def set(self, content: Content) -> None:
        documents = sorted(moved({(document, Statement("", "", Term.uri(""))) for document in DOCUMENTS}))
        by_document = {document: {one for where, one in content if where == document} for document, _ in documents}
        self.mdp.put({document: turtle(found) if found else None for document, found in by_document.items()})

    def run(self, text: str, content: Content, chunk: int, between: list[str] | None = None) -> Outcome:
        """Run a program with a checkpoint, another connection and another view of the same position after each `chunk`
        steps. `between`: documents that are registered and deleted meanwhile."""
        engine = self.mdp.engine
        position = position_of(engine)
        machine = Machine(compile_program(read_program(text, PREFIXES), text))
        solutions: list[tuple[tuple[str, Term], ...]] = []
        is_error = False
        while len(solutions) < 200:
            with reading(engine, PostgresView(position, EMPTY_SCHEMA)) as view:
                event = machine.run(view, chunk)
            match event:
                case SolutionFound(binding):
                    solutions.append(tuple(sorted(binding.items())))
                case StepsUsed():
                    if machine.steps > 3000:
                        raise TooLong(text)
                    machine = read_checkpoint(
                        json.loads(json.dumps(write_checkpoint(machine))), machine.code, machine.settings
                    )
                case ProgramEnded():
                    break
                case ProgramFailed():
                    is_error = True
                    break
                case _:
                    raise AssertionError(event)
            if between:
                self.mdp.put_one(between.pop(), None)
        found = set(content)
        for document, statement, is_added in machine.root.all_changes():
            (found.add if is_added else found.discard)((document, statement))
        return solutions, found, is_error


def case(number: int) -> tuple[str, Content]:
    random = Random(number)
    content = moved(random_content(random))
    text = (
        DIRECTED[number // 3 % len(DIRECTED)] if number % 3 == 0 else RandomText(random, with_contexts=True).program()
    )
    return text.replace(NAMESPACE, SPACE), content


def test_programs_on_postgres_do_what_the_reference_does(mdp: Mdp) -> None:
    stored = StoredPrograms(mdp)
    compared = 0
    for number in range(7000, 7080):
        text, content = case(number)
        stored.set(content)
        try:
            found = stored.run(text, content, 1000 if number % 2 else 7)
        except TooLong:
            continue
        expected = run_reference(read_program(text, PREFIXES), content, ACTIONS)
        assert found == expected, (number, text, content)
        compared += 1
    assert compared > 65


def test_a_program_sees_its_position_while_documents_change(mdp: Mdp) -> None:
    stored = StoredPrograms(mdp)
    for number in range(7200, 7215):
        text, content = case(number)
        stored.set(content)
        gone = sorted({document for document, _ in content})
        try:
            found = stored.run(text, content, 2, gone)
        except TooLong:
            continue
        assert found == run_reference(read_program(text, PREFIXES), content, ACTIONS), (number, text, content)


def test_laws_on_postgres(mdp: Mdp) -> None:
    stored = StoredPrograms(mdp)
    found = 0
    for number, (left, right) in enumerate(LAWS * 2):
        random = Random(9000 + number)
        content = moved(random_content(random))
        a, b, c = (text.replace(NAMESPACE, SPACE) for text in random_expressions(random, 3))
        stored.set(content)
        try:
            one, other = (stored.run(law.format(a=a, b=b, c=c), content, 50) for law in (left, right))
        except TooLong:
            continue
        assert one == other, (left, right, a, b, c)
        alone = stored.run(f"{{{a}}} UNION [{a} AND FALSE]", content, 50)
        assert alone[1] == content
        found += len(one[0])
    assert found > 10


# --- cursors, compared with the store in memory ---

INTEGER = XSD + "integer"
SCHEMA = """<> mdv:world mdv:open . :n a rdf:Property ; rdfs:range xsd:integer ; mdv:setValued true .
:b a rdf:Property ; rdfs:range xsd:boolean . :t a rdf:Property ; rdfs:range xsd:string ; mdv:setValued true ."""
DOCUMENT = """
:a{0} a :Work, :Thing ; :n "0{0}", 7 ; :b {1} ; :t "one", "{0}" ; :free "one"@en, "one"@de, {0}, {0}.0, "x"^^xsd:byte ;
    :of :a0 .
:a0 :t "one" ; :n 7 .
"""


@pytest.fixture
def many(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    mdp.put({f"http://d/{n}": DOCUMENT.format(n, "true" if n % 2 else "false") for n in range(12)})
    return mdp


def in_memory(mdp: Mdp) -> MemoryStore:
    with mdp.engine.connect() as connection:
        schema = mdp.schemas.now(connection).schema
    rows = mdp.rows(
        "select d.uri, s.uri, p.uri, t.uri, f.value, f.lang, y.uri from filter_data f"
        " join documents d on d.id = f.document_id join resources s on s.id = f.resource_id"
        " join vocabulary p on p.id = f.property_id left join resources t on t.id = f.target_id"
        " left join vocabulary y on y.id = f.datatype_id"
    )
    return MemoryStore(
        (
            (d, Statement(s, p, Term.uri(t) if t is not None else Term.literal(value, lang, datatype)))
            for d, s, p, t, value, lang, datatype in rows
        ),
        schema,
    )


def patterns() -> list[ReadPattern]:
    objects: list[tuple[Term | None, bool]] = [
        (None, False),
        (Term.uri("http://v/a0"), False),
        (Term.uri("http://v/Work"), False),
        (Term.uri("http://v/nobody"), False),
        (Term.literal("one"), False),
        (Term.literal("one", lang="en"), False),
        (Term.literal("7", datatype=INTEGER), False),
        (number_term("7"), True),
        (number_term("3.0"), True),
        (number_term("1"), True),
        (Term.literal("true", datatype=XSD + "boolean"), True),
    ]
    subjects = (None, "http://v/a3", "http://v/nobody")
    names = (None, RDF_TYPE, *(f"http://v/{one}" for one in ("n", "b", "t", "free", "of", "none")))
    return [ReadPattern(s, p, o, typed) for s in subjects for p in names for o, typed in objects]


SCOPES = (None, ("http://d/3",), ("http://d/2", "http://d/3", "http://d/none"))


def read_all(view: PostgresView, pattern: ReadPattern, scope: tuple[str, ...] | None, limit: int) -> list[Statement]:
    found: list[Statement] = []
    while True:
        chunk = view.read(pattern, scope, view.position, found[-1] if found else None, limit)
        found += chunk
        if len(chunk) < limit:
            return found


def test_cursors_read_what_matches_as_of_their_position(many: Mdp) -> None:
    store = in_memory(many)
    with many.engine.connect() as connection:
        schema = many.schemas.now(connection).schema
    view = new_view(many.engine, schema)
    many.put({"http://d/3": None, "http://d/4": DOCUMENT.format(4, "true"), "http://d/99": DOCUMENT.format(99, "true")})
    filled = 0
    with reading(many.engine, view):
        for pattern in patterns():
            for scope in SCOPES:
                expected = list(store.view().read(pattern, scope, store.position, None, 10**6))
                found = read_all(view, pattern, scope, 1000)
                assert sorted(found) == expected, (pattern, scope)
                assert len(expected) > 60 or read_all(view, pattern, scope, 3) == found, (pattern, scope)
                filled += bool(expected)
        assert filled > 120
        for statement in store.view().read(ReadPattern(), None, store.position, None, 100):
            assert view.documents_with(statement) == store.view().documents_with(statement)


def test_inner_reads_are_fetched_in_blocks(many: Mdp) -> None:
    store = in_memory(many)
    wanted = [ReadPattern(f"http://v/a{n}", "http://v/t") for n in range(12)]
    ground = [ReadPattern(f"http://v/a{n}", "http://v/of", Term.uri("http://v/a0")) for n in range(12)]
    plain, ahead = new_view(many.engine), new_view(many.engine)
    ahead.prefetch(wanted, None)
    ahead.prefetch(ground, None)
    with reading(many.engine, plain), many.engine.connect() as connection:
        reader = CountingReader(driver(connection), 10)
        ahead.use(reader)
        for pattern in wanted:
            expected = plain.read(pattern, None, plain.position, None, 100)
            assert ahead.read(pattern, None, ahead.position, None, 100) == expected and expected
        for pattern in ground:
            statement = Statement(*pattern[:3])  # type: ignore[arg-type]
            assert ahead.documents_with(statement) == store.view().documents_with(statement)
    assert reader.statements == 2


class CountingReader(StatementReader):
    """Counts the statements that it sends."""

    statements = 0

    def _rows(self, sql: str, values: dict[str, object]) -> list[tuple[object, ...]]:
        self.statements += 1
        return super()._rows(sql, values)


def test_a_resource_with_more_values_than_a_first_chunk_is_read_once(mdp: Mdp) -> None:
    mdp.put_schema(OPEN)
    values = [f"'v{number}'" for number in range(150)]
    mdp.put({f"http://d/{number}": f":a :p {', '.join(values)} . :b :p 'w' ." for number in range(2)})
    statements = []
    view = new_view(mdp.engine)
    with reading(mdp.engine, view):
        machine = Machine(compile_program(read_program("?q(?x, 'w') AND ?q(?y, ?v)", {"": "http://v/"})))
        while not isinstance(event := machine.run(view, 1000), ProgramEnded):
            if isinstance(event, SolutionFound):
                statements.append((event.binding["y"].value, event.binding["v"].value))
        pattern = ReadPattern(statements[0][0])
        first = view.read(pattern, None, view.position, None, 100)
        rest = view.read(pattern, None, view.position, first[-1], 100)
    assert len(statements) == len(set(statements)) == 151
    assert len(first) == 100 and len(set(first) | set(rest)) == 150
    assert len(mdp.rows("select 1 from filter_data where value like 'v%'")) == 300
