"""What programs do: the examples of the paper, the laws of the language, actions, lists, primitives and limits."""

from __future__ import annotations

import json
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdv.model import RDF, RDF_TYPE, RDFS, XSD, Statement, Term
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.gate import gate
from mdv.rdf.parse import parse
from mdv.rdf.schema import EMPTY_SCHEMA, Schema, read_schema
from mdv.rdf.syntax import TURTLE
from mdv.real.checkpoint import read_checkpoint, read_settings, write_checkpoint, write_settings
from mdv.real.compile_code import compile_program
from mdv.real.events import (
    MachineEvent,
    MachineSettings,
    ProgramEnded,
    ProgramFailed,
    ProgramLimits,
    ServiceCalled,
    SolutionFound,
    StepsUsed,
    WaitingFor,
)
from mdv.real.machine import Machine
from mdv.real.memory import MemoryStore, MemoryView
from mdv.real.resolve import read_program
from mdv.real.store import StatementChange, WriteRefusal
from mdv.real.terms import number_term
from mdv.real.vocabulary import LRM, SCHEMA_CONTEXT
from tests.support.real_programs import (
    LAWS,
    PREFIXES,
    TooLong,
    action_content,
    iri,
    memory_store,
    random_content,
    random_expressions,
    run_machine,
    through_json,
)
from tests.support.real_reference import run_reference
from tests.support.real_texts import FIGURE_1, PAPER

EX = {"ex": "urn:ex:", "test": "urn:test:"}
INTO = "urn:mdv:real:anonymous"


class Run:
    """A program that ran over a store: its solutions as `name=value`, and what it changed."""

    def __init__(
        self,
        text: str,
        facts: Iterable[str] = (),
        *,
        prefixes: dict[str, str] = PREFIXES,
        actions: dict[str, tuple] | None = None,
        schema: Schema = EMPTY_SCHEMA,
        store: MemoryStore | None = None,
        settings: MachineSettings | None = None,
        binding: dict[str, Term] | None = None,
        most: int = 100,
    ) -> None:
        if store is None:
            content = {("urn:t:d", statement(fact, prefixes)) for fact in facts}
            store = memory_store(content, action_content(actions or {}))
            store.schema = schema
        self.store = store
        self.machine = Machine(compile_program(read_program(text, prefixes), text), settings, binding)
        self.solutions: list[str] = []
        self.event: MachineEvent = StepsUsed()
        self.go_on(most)

    def go_on(self, most: int = 100) -> None:
        for _ in range(most):
            self.event = self.machine.run(self.store.view(), 100_000)
            if not isinstance(self.event, SolutionFound):
                break
            found = sorted(self.event.binding.items())
            self.solutions.append(" ".join(f"{name}={short(term.value)}" for name, term in found))

    @property
    def changes(self) -> set[str]:
        return {
            f"{'+' if is_added else '-'} {short(one.subject)} {short(one.property)} {short(one.object.value)}"
            for _, one, is_added in self.machine.root.all_changes()
        }

    def commit(self) -> None:
        self.store.commit(StatementChange(*change) for change in self.machine.root.all_changes())
        self.machine.end_slice()


def short(text: str) -> str:
    for start in ("urn:t:", "urn:ex:", "urn:test:", LRM, RDF, RDFS, INTO):
        text = text.removeprefix(start)
    return text


def statement(fact: str, prefixes: dict[str, str]) -> Statement:
    """Return the statement of `subject property object`: names with the first prefix, or a text in quotes."""
    subject, name, value = fact.split(" ", 2)
    base = next(iter(prefixes.values()))
    names = {"a": RDF_TYPE, "label": RDFS + "label"}
    term = Term.literal(value.strip('"')) if value.startswith('"') else Term.uri(base + value)
    return Statement(base + subject, names.get(name, base + name), term)


# --- the paper ---

ART = [
    "v1 a ArtWork", "v2 a ArtWork", "v3 a ArtWork", "v1 creator BillViola", "v3 creator BillViola", "v2 creator Other",
]  # fmt: skip


def paper(key: str, facts: Iterable[str] = ART, **options: object) -> Run:
    return Run(PAPER[key], facts, prefixes=EX, **options)  # type: ignore[arg-type]


def test_example_1_streams_a_binding_for_each_statement() -> None:
    run = paper("1")
    assert run.solutions == ["class=ArtWork sub=v1", "class=ArtWork sub=v2", "class=ArtWork sub=v3"]
    assert isinstance(run.event, ProgramEnded) and not run.changes


def test_example_1b_streams_the_empty_binding() -> None:
    assert paper("1b", ["nantes-triptych a Artwork"]).solutions == [""]
    assert paper("1b").solutions == []


def test_example_2_takes_what_it_reads() -> None:
    run = paper("2", ["n a Artwork", "m a Artwork", "o a Other"])
    assert run.solutions == ["sub=m", "sub=n"]
    assert run.changes == {"- m type Artwork", "- n type Artwork"}


def test_example_3_infers_with_the_schema() -> None:
    schema = read_schema(
        [
            *(Statement(f"urn:ex:{n}", RDF_TYPE, Term.uri(RDFS + "Class")) for n in ("Artwork", "VideoArt")),
            Statement("urn:ex:VideoArt", RDFS + "subClassOf", Term.uri("urn:ex:Artwork")),
        ],
        {},
    )
    run = paper("3", ["v a VideoArt", "w a Artwork", "x a Other"], schema=schema)
    assert run.solutions == ["sub=v", "sub=w"]
    both = Run("engine:schema!rdfs:subClassOf(?a, ?b)", prefixes=EX, schema=schema)
    assert "a=VideoArt b=Artwork" in both.solutions and "a=Artwork b=Artwork" not in both.solutions
    assert isinstance(Run("ex:none!rdf:type(?x, ?y)", prefixes=EX).event, ProgramFailed)


def test_example_4_writes_once() -> None:
    assert paper("4").changes == {"+ nantes-Triptych type Artwork"}
    again = paper("4", ["nantes-Triptych a Artwork"])
    assert (again.solutions, again.changes) == ([], set())


def test_example_5_joins() -> None:
    assert paper("5").solutions == ["sub=v1", "sub=v3"]


def test_example_6_leaves_its_label_when_it_fails() -> None:
    run = paper("6", ["v2 a ArtWork"])
    assert run.solutions == []
    assert run.changes == {"+ #0-1 label Bill Viola"}


@pytest.mark.parametrize("key", ["6b", "6c"])
def test_examples_6b_and_6c_change_nothing_when_they_fail(key: str) -> None:
    run = paper(key, ["v2 a ArtWork"])
    assert (run.solutions, run.changes) == ([], set())


def test_example_6_renames_every_creator() -> None:
    run = paper("6")
    assert run.solutions == ["iri=#0-1 sub=v1", "iri=#0-1 sub=v3"]
    moved = {f"{sign} {v} creator {who}" for v in ("v1", "v3") for sign, who in (("-", "BillViola"), ("+", "#0-1"))}
    assert run.changes == moved | {"+ #0-1 label Bill Viola"}


def test_example_6b_makes_a_creator_for_each_work() -> None:
    run = paper("6b")
    assert run.solutions == ["iri=#0-1 sub=v1", "iri=#0-2 sub=v3"]
    assert {"+ v1 creator #0-1", "+ v3 creator #0-2"} <= run.changes


def test_example_6c_commits_at_each_solution() -> None:
    run = paper("6c", most=1)
    assert len(run.solutions) == 1
    assert run.changes == {"+ #0-1 label Bill Viola", "- v1 creator BillViola", "+ v1 creator #0-1"}
    run.go_on()
    assert len(run.changes) == 5 and len(run.solutions) == 2


def test_no_fails_if_there_is_a_class() -> None:
    assert paper("no").solutions == [""]
    classes = memory_store({("urn:t:d", Statement("urn:ex:C", RDF_TYPE, Term.uri(RDFS + "Class")))})
    assert Run(PAPER["no"], store=classes).solutions == []


BOOKS = ["b1 a Book", "b2 a Book", "b3 a Book"]


@pytest.mark.parametrize(
    ("count", "solutions", "labels"),
    [("0", [""], 0), ("1", [""], 1), ("3", [""], 3), ("4", [], 3), ("", [""], 3), ("?n", ["n=3"], 3)],
)
def test_repeat_counts_solutions(count: str, solutions: list[str], labels: int) -> None:
    text = f'REPEAT {count} (rdf:type(?x, ex:Book) AND +rdfs:label(?x, "scanned"))'
    run = Run(text, BOOKS, prefixes=EX)
    assert run.solutions == solutions
    assert len(run.changes) == labels


@pytest.mark.parametrize("count", ["-1", "1.5", "true", "ex:a"])
def test_repeat_needs_a_whole_number(count: str) -> None:
    run = Run("ex:p(ex:a, ?n) AND REPEAT ?n TRUE", prefixes=EX, store=memory_store(set()))
    assert run.solutions == []
    text = "ex:p(ex:a, ?n) AND REPEAT ?n TRUE"
    value = read_program(f"ex:p(ex:a, {count})", EX).body.triple.object.term  # type: ignore[union-attr]
    store = memory_store({("urn:t:d", Statement("urn:ex:a", "urn:ex:p", value))})
    assert isinstance(Run(text, prefixes=EX, store=store).event, ProgramFailed)


def test_figure_1_accepted_and_refused() -> None:
    facts = {("urn:t:d", Statement("urn:ex:svc", RDF_TYPE, Term.uri(LRM + "CertificationService")))}
    names = ("rsc", "kind", "agent")
    for answer, solutions in (("certificate", 1), ("error", 0)):
        run = Run(FIGURE_1, store=memory_store(facts), binding={name: iri(name) for name in names})
        assert isinstance(run.event, ServiceCalled)
        run.commit()
        request = run.event.request
        run.store.commit([StatementChange(INTO, Statement(request, LRM + answer, iri("c1")), True)])
        run.machine = through_json(run.machine, run.store)
        run.go_on()
        assert len(run.solutions) == solutions
        assert isinstance(run.event, ProgramEnded)
    assert ("urn:mdv:real:anonymous", Statement(request, LRM + "byAgent", iri("agent"))) in run.store.content()


# --- laws ---


def outcome(text: str, seed: int) -> object:
    content = random_content(Random(seed))
    machine = run_machine(text, content)
    assert machine == run_reference(read_program(text, PREFIXES), content)
    return machine


@pytest.mark.parametrize(("left", "right"), LAWS)
@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 999))
def test_laws_on_machine_and_reference(left: str, right: str, random: Random, seed: int) -> None:
    a, b, c = random_expressions(random, 3)
    try:
        assert outcome(left.format(a=a, b=b, c=c), seed) == outcome(right.format(a=a, b=b, c=c), seed)
    except TooLong:
        return


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 999))
def test_a_sandbox_and_a_failing_transaction_leave_the_store_as_it_was(random: Random, seed: int) -> None:
    (a,) = random_expressions(random, 1)
    content = random_content(Random(seed))
    assert run_machine(f"{{{a}}}", content)[1] == content
    assert run_machine(f"[{a} AND FALSE]", content)[1] == content


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 999))
def test_no_no_fails_if_and_only_if_there_is_no_solution(random: Random, seed: int) -> None:
    (a,) = random_expressions(random, 1)
    content = random_content(Random(seed))
    solutions, _, is_error = run_machine(f"FIRST {a}", content)
    doubled, _, _ = run_machine(f"NO NO {a}", content)
    assert is_error or bool(solutions) == bool(doubled)


def test_streams_are_pulled_lazily() -> None:
    run = Run(":p(?x, ?y) AND +:q(?x, ?y)", ["a p b", "b p c"], most=1)
    assert run.changes == {"+ a q b"}
    assert Run("FIRST (TRUE UNION +:q(:a, :b))").changes == set()
    assert Run("TRUE UNION +:q(:a, :b)").changes == {"+ a q b"}


# --- matching ---


def test_numbers_match_equal_values_and_texts_do_not() -> None:
    schema = read_schema([Statement("urn:t:n", RDFS + "range", Term.uri(XSD + "integer"))], {})
    store = memory_store(
        {
            ("urn:t:d", Statement("urn:t:plain", "urn:t:n", Term.literal("03"))),
            ("urn:t:d", Statement("urn:t:typed", "urn:t:m", Term.literal("3.0", datatype=XSD + "decimal"))),
            ("urn:t:d", Statement("urn:t:text", "urn:t:m", Term.literal("3"))),
        }
    )
    store.schema = schema
    assert Run(":n(?x, 3) UNION :m(?x, 3)", store=store).solutions == ["x=plain", "x=typed"]
    assert Run(":m(?x, '3')", store=store).solutions == ["x=text"]
    assert Run("+:m(:typed, 3)", store=store).solutions == [""]
    assert Run(":m(?x, ?y) AND :m(?z, ?y)", store=store).solutions == ["x=text y=3 z=text", "x=typed y=3.0 z=typed"]


def test_annotations_select_and_bind_languages_and_datatypes() -> None:
    store = memory_store(
        {
            ("urn:t:d", Statement("urn:t:a", "urn:t:l", Term.literal("house", "en"))),
            ("urn:t:d", Statement("urn:t:a", "urn:t:l", Term.literal("Haus", "de"))),
            ("urn:t:d", Statement("urn:t:a", "urn:t:l", number_term("7"))),
        }
    )
    assert Run(":l(:a, ?t | de)", store=store).solutions == ["t=Haus"]
    assert Run(":l(:a, ?t | ?k)", store=store).solutions == [
        f"k={XSD}integer t=7", "k=de t=Haus", "k=en t=house",
    ]  # fmt: skip
    assert Run(":l(:a, 'house'@EN)", store=store).solutions == [""]
    assert Run("+:l(:b, 'x' | en) AND :l(:b, ?t | en)", store=store).solutions == ["t=x"]
    assert Run(":l(:a, ?t | en) AND +:l(:b, ?t | fr) AND :l(:b, 'house'@fr)", store=store).solutions == ["t=house"]
    assert isinstance(Run("+:l(:b, ?t | en)", store=store, binding={"t": iri("x")}).event, ProgramFailed)


def test_lists_are_added_matched_and_taken() -> None:
    run = Run("+:l(:a, [1 :b [:c]])")
    assert len(run.changes) == 9
    run.commit()
    assert Run(":l(:a, [?x ?y ?z])", store=run.store).solutions != []
    assert Run(":l(:a, [1 ?y [?z]])", store=run.store).solutions == ["y=b z=c"]
    assert Run(":l(:a, {1 | ?rest}) AND rdf:first(?rest, ?y)", store=run.store).solutions[0].endswith("y=b")
    assert Run(":l(:a, [1 ?y])", store=run.store).solutions == []
    assert Run("NO +:l(:a, [1 :b [:c]])", store=run.store).changes == set()
    taking = Run("-:l(:a, [1 :b [?x]])", store=run.store)
    assert taking.solutions == ["x=c"] and len(taking.changes) == 9
    assert isinstance(Run("+:l(:a, [1 ?y])").event, ProgramFailed)
    assert Run("+:l(:a, []) AND :l(:a, ?x)").solutions == ["x=nil"]


def test_a_list_has_the_names_of_a_registration() -> None:
    run = Run("+:l(:a, [:b :c])")
    document = name_blank_nodes(parse(gate(b"<urn:t:a> <urn:t:l> (<urn:t:b> <urn:t:c>) .", TURTLE), INTO))
    assert {one for _, one, _ in run.machine.root.all_changes()} == set(document.statements)


# --- contexts ---


def test_on_writes_to_the_top_and_reads_the_stack() -> None:
    store = memory_store({("urn:t:g", statement("a p b", PREFIXES)), ("urn:t:h", statement("c p d", PREFIXES))})
    run = Run("ON :g {+:p(:c, :d) AND :p(?x, ?y)}", store=store)
    assert run.solutions == ["x=a y=b", "x=c y=d"]
    assert list(run.machine.root.all_changes()) == [("urn:t:g", statement("c p d", PREFIXES), True)]
    assert Run("IN :g {:p(?x, ?y)}", store=store).solutions == ["x=a y=b"]
    assert Run("IN :g {ON :h {:p(?x, ?y)}}", store=store).solutions == ["x=a y=b", "x=c y=d"]
    assert Run("IN :none {TRUE}", store=store).solutions == []
    assert Run("+:p(:c, :d)", store=store).solutions == []
    assert isinstance(Run("ON ?g {TRUE}", store=store, binding={"g": Term.literal("x")}).event, ProgramFailed)


def test_an_unbound_context_is_a_fresh_document() -> None:
    run = Run("ON ?g {+:p(:a, :b)} AND IN ?g {:p(?x, ?y)}")
    assert run.solutions == ["g=/0-1 x=a y=b"]
    assert {(document, short(one.property)) for document, one, _ in run.machine.root.all_changes()} == {
        (INTO, "type"), (f"{INTO}/0-1", "p"),
    }  # fmt: skip


def test_a_take_removes_a_statement_from_every_document_that_says_it() -> None:
    store = memory_store({(name, statement("a p b", PREFIXES)) for name in ("urn:t:g", "urn:t:h")})
    assert len(list(Run("-:p(:a, :b)", store=store).machine.root.all_changes())) == 2
    assert len(list(Run("ON :g {-:p(:a, :b)}", store=store).machine.root.all_changes())) == 1
    assert Run("[-:p(:a, :b) AND :p(?x, ?y)]", store=store).solutions == []
    assert Run("[ON :g {-:p(:a, :b)} AND :p(?x, ?y)]", store=store).solutions == ["x=a y=b"]


def test_the_schema_is_a_context_for_reading() -> None:
    store = memory_store(set())
    store.schema_facts = (statement("C p D", PREFIXES),)
    assert Run(f"IN <{SCHEMA_CONTEXT}> {{:p(?x, ?y)}}", store=store).solutions == ["x=C y=D"]
    assert Run(":p(?x, ?y)", store=store).solutions == []
    run = Run(f"IN <{SCHEMA_CONTEXT}> {{+:p(:a, :b) UNION -:p(:C, :D)}}", store=store)
    assert (run.solutions, run.changes, len(run.machine.warnings)) == ([], set(), 2)


def test_a_refused_change_is_a_failure_with_a_warning() -> None:
    store = memory_store({("urn:t:d", statement("a p b", PREFIXES))})
    store.check = lambda change, facts: WriteRefusal("this document is locked")
    run = Run("+:p(:a, :c) UNION -:p(:a, :b) UNION ++:p(:a, :d)", store=store)
    assert (run.solutions, run.changes) == ([""], set())
    assert [text for text, _ in run.machine.warnings] == ["this document is locked"] * 3


def test_a_program_that_only_reads_may_write_in_a_sandbox() -> None:
    reads = MachineSettings(is_read_only=True)
    assert Run("{+:p(:a, :b) AND :p(?x, ?y)}", settings=reads).solutions == ["x=a y=b"]
    for text in ("+:p(:a, :b)", "-:p(?x, ?y)", "SPAWN :f()", "ON ?g {TRUE}", "[++:p(:a, :b)]"):
        assert isinstance(Run(text, settings=reads).event, ProgramFailed)


# --- actions ---

ACTIONS = {
    "grand": (("x",), ("z",), ":p(?x, ?y) AND :p(?y, ?z)"),
    "count": (("n",), (), "CALL primitive:less(?n, 300) AND CALL primitive:inc(?n >> ?m) AND CALL :count(?m)"),
    "deep": (("n",), (), "CALL primitive:inc(?n >> ?m) AND CALL :deep(?m) AND TRUE"),
    "last": (("n",), ("r",), "CALL primitive:less(?n, 50) AND CALL primitive:inc(?n >> ?m) AND CALL :last(?m >> ?r) "
             "OR CALL primitive:concat('end', 'ed' >> ?r)"),
    "swap": (("x", "y"), (), "+:swapped(?y, ?x) AND :p(?x, ?z)"),
    "bad": ((), (), "foo("),
}  # fmt: skip


def test_a_call_has_variables_of_its_own_and_renames_outputs() -> None:
    facts = ["a p b", "b p c", "b p d"]
    assert Run("CALL :grand(:a >> ?y)", facts, actions=ACTIONS).solutions == ["y=c", "y=d"]
    assert Run("CALL :grand(:a >> :d)", facts, actions=ACTIONS).solutions == [""]
    assert Run(":p(?z, :b) AND CALL :grand(?z >> ?)", facts, actions=ACTIONS).solutions == ["z=a", "z=a"]


def test_expand_shares_the_variables_of_the_caller() -> None:
    run = Run("EXPAND :swap(:a, ?w)", ["a p b"], actions=ACTIONS, binding={"w": iri("w")})
    assert run.solutions == ["w=w z=b"]
    assert run.changes == {"+ w swapped a"}


@pytest.mark.parametrize(
    "text",
    ["CALL :none()", "CALL :grand(:a)", "CALL :grand(:a, :b >> ?x)", "CALL :grand(?x >> ?y)", "CALL :bad()",
     "CALL ?f()", "CALL primitive:none()", "CALL primitive:add(1, 'x' >> ?y)", "EXPAND :swap(:a)", "SPAWN :grand()",
     "$x AND $x",
     "{CALL primitive:service(:a)}", "[CALL primitive:sleep(1)]", "STOP ?p"],
)  # fmt: skip
def test_errors_end_a_program_with_their_span(text: str) -> None:
    run = Run(text, actions=ACTIONS)
    assert isinstance(run.event, ProgramFailed)
    assert run.event.span is not None and run.event.text == text
    assert isinstance(run.machine.run(run.store.view(), 10), ProgramFailed)


def test_effects_before_an_error_stay_outside_a_transaction() -> None:
    assert Run("+:p(:a, :b) AND [+:p(:c, :d) AND CALL :none()]").changes == {"+ a p b"}


def test_tail_calls_use_no_stack() -> None:
    run = Run("CALL :count(0) OR TRUE", actions=ACTIONS)
    assert run.solutions == [""]
    assert Run("CALL :last(0 >> ?e)", actions=ACTIONS).solutions == ["e=ended"]
    assert Run("CALL :last(0 >> 'ended') AND +:p(:a, :b)", actions=ACTIONS).changes == {"+ a p b"}
    assert Run("CALL :last(0 >> 'other')", actions=ACTIONS).solutions == []


def test_deep_recursion_ends_at_its_limit() -> None:
    run = Run("CALL :deep(0)", actions=ACTIONS)
    assert isinstance(run.event, ProgramFailed) and run.event.limit == "depth"


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("CALL :fresh()", "steps"),
        ("CALL :fill(0)", "effects"),
        ("CALL :many()", "solutions"),
        ("CALL :choices()", "choices"),
    ],
)
def test_quotas_end_hostile_programs(text: str, limit: str) -> None:
    actions = {
        "fresh": ((), (), "$x AND CALL :fresh()"),
        "fill": (("n",), (), "CALL primitive:inc(?n >> ?m) AND +:p(:a, ?m) AND CALL :fill(?m)"),
        "many": ((), (), "TRUE UNION CALL :many()"),
        "choices": ((), (), "(TRUE UNION TRUE) AND CALL :choices()"),
    }
    limits = ProgramLimits(steps=20_000, effects=500, solutions=300, choices=400)
    run = Run(text, actions=actions, settings=MachineSettings(limits=limits), most=1000)
    assert isinstance(run.event, ProgramFailed)
    assert run.event.limit == limit
    assert f"{getattr(limits, limit):,}" in run.event.message


def test_a_body_uses_the_prefixes_of_its_document() -> None:
    store = memory_store(
        {("urn:t:d", statement("a p b", PREFIXES))}, action_content({"f": ((), ("x",), "own:p(?x, ?)")})
    )
    store.document_prefixes["urn:t:actions"] = {"own": "urn:t:"}
    assert Run("CALL :f(>> ?x)", store=store).solutions == ["x=a"]


def test_the_view_finds_actions_that_the_program_added_itself() -> None:
    code = "+lrm:body(:f, :b) AND +real:code(:b, '+<urn:t:p>(<urn:t:a>, <urn:t:b>)') AND CALL :f()"
    assert "+ a p b" in Run(code).changes


# --- primitives ---


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("add(1, 2 >> ?x)", number_term("3")),
        ("add(1, 2.50 >> ?x)", Term.literal("3.50", datatype=XSD + "decimal")),
        ("add(1, 2e0 >> ?x)", Term.literal("3E+0", datatype=XSD + "double")),
        ("add('1', '2' >> ?x)", number_term("3")),
        ("inc(-1 >> ?x)", number_term("0")),
        ("concat('a', 'b'@en >> ?x)", Term.literal("ab")),
        ("concat('a', 1 >> ?x)", Term.literal("a1")),
        ("self(>> ?x)", Term.uri("urn:mdv:real:process/0")),
        ("now(>> ?x)", Term.literal("1970-01-01T00:00:00.000Z", datatype=XSD + "dateTime")),
    ],
)
def test_primitives_bind_their_output(call: str, value: Term) -> None:
    run = Run(f"CALL primitive:{call}", most=1)
    assert isinstance(run.event, SolutionFound)
    assert run.event.binding == {"x": value}


@pytest.mark.parametrize(
    ("call", "holds"),
    [
        ("equal(1, 1.0)", True), ("equal(1, '1')", True), ("equal('a', 'a'@en)", False), ("equal('1', '1.0')", False),
        ("equal(:a, :a)", True), ("less(2, 10)", True), ("less('b', 'a')", False), ("less(2, 2)", False),
        ("less('2024-01-01'^^xsd:date, '2024-01-02'^^xsd:date)", True), ("add(1, 1 >> 2)", True),
        ("add(1, 1 >> 3)", False),
    ],
)  # fmt: skip
def test_primitives_that_test(call: str, holds: bool) -> None:
    assert bool(Run(f"CALL primitive:{call}").solutions) == holds


def test_log_is_kept_for_the_host() -> None:
    assert [term.value for term in Run("CALL primitive:log('a') AND CALL primitive:log(1)").machine.log] == ["a", "1"]


def test_growing_values_are_limited() -> None:
    double = {"double": (("t",), (), "CALL primitive:concat(?t, ?t >> ?u) AND CALL :double(?u)")}
    run = Run("CALL :double('0123456789')", actions=double)
    assert isinstance(run.event, ProgramFailed) and "1,000,000 characters" in run.event.message
    sums = {"sum": (("n",), (), "CALL primitive:add(?n, ?n >> ?m) AND CALL :sum(?m)")}
    run = Run("CALL :sum(9)", actions=sums)
    assert isinstance(run.event, ProgramFailed) and "1,000 digits" in run.event.message


# --- waiting and checkpoints ---


def test_wait_names_what_it_waits_for() -> None:
    run = Run("WAIT -:task(?t, :open)")
    assert isinstance(run.event, WaitingFor) and run.event.takes
    assert [read.pattern[:3] for read in run.event.reads] == [(None, "urn:t:task", iri("open"))]
    run.store.commit([StatementChange("urn:t:d", statement("t1 task open", PREFIXES), True)])
    run.go_on()
    assert run.solutions == ["t=t1"]


def test_wait_in_a_transaction_takes_the_segment_back() -> None:
    run = Run("[:k(?x, ?y) AND +:b(?x, ?y) AND WAIT :c(?x, ?z)]", ["1 k 2"])
    assert isinstance(run.event, WaitingFor) and run.event.is_retry
    assert {read.pattern.property for read in run.event.reads} == {"urn:t:k", "urn:t:b", "urn:t:c"}
    assert not run.changes and not run.machine.overlays.keys() - {0}
    run.commit()
    facts = [StatementChange("urn:t:d", statement(fact, PREFIXES), True) for fact in ("1 c 3", "0 k 9", "0 c 8")]
    run.store.commit(facts)
    run.go_on()
    assert run.solutions == ["x=0 y=9 z=8", "x=1 y=2 z=3"]


SERVER = "FIRST WAIT -:task(?t, :open) AND [+:done(?t, :yes) AND -:busy(?, ?) OR TRUE] AND CALL :serve()"


def test_an_endless_server_keeps_its_size() -> None:
    store = memory_store(set(), action_content({"serve": ((), (), SERVER)}))
    run = Run("CALL :serve()", store=store)
    sizes = []
    for number in range(40):
        assert isinstance(run.event, WaitingFor)
        run.commit()
        sizes.append(len(json.dumps(write_checkpoint(run.machine))) - len(str(write_checkpoint(run.machine)["count"])))
        store.commit([StatementChange("urn:t:d", statement(f"t{number} task open", PREFIXES), True)])
        run.machine = through_json(run.machine, store)
        run.go_on()
    assert len(set(sizes[1:])) == 1
    assert len([one for one in store.content() if one[1].property == "urn:t:done"]) >= 38


def test_a_cursor_goes_on_as_of_its_position() -> None:
    run = Run(":p(?x, ?y)", [f"s{number:03} p o" for number in range(250)], most=120)
    run.commit()
    late = [StatementChange("urn:t:d", statement("s999 p o", PREFIXES), True)]
    gone = [StatementChange("urn:t:d", statement("s200 p o", PREFIXES), False)]
    run.store.commit(late + gone)
    run.machine = through_json(run.machine, run.store)
    run.go_on(500)
    assert run.solutions == [f"x=s{number:03} y=o" for number in range(250)]


def test_a_checkpoint_of_another_version_is_refused() -> None:
    machine = Run("TRUE").machine
    with pytest.raises(ValueError, match="version 0"):
        read_checkpoint(write_checkpoint(machine) | {"v": 0}, machine.code)


def test_settings_survive_json() -> None:
    given_settings = MachineSettings("urn:p", "urn:d", "x", True, ProgramLimits(steps=5))
    assert read_settings(json.loads(json.dumps(write_settings(given_settings)))) == given_settings


def test_inner_reads_are_announced_for_a_block_of_outer_solutions() -> None:
    store = memory_store({("urn:t:d", statement(f"s{n} p o{n}", PREFIXES)) for n in range(30)})
    machine = Machine(compile_program(read_program(":p(?x, ?y) AND :q(?y, ?z)", PREFIXES)))
    view = MemoryView(store, store.position)
    machine.run(view, 10)
    assert [one.subject for one in view.prefetched] == sorted(f"urn:t:o{n}" for n in range(30))
