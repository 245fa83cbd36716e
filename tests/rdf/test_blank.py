"""Names of blank nodes: equal for equal documents, different for different ones, isomorphic when read back."""

from __future__ import annotations

import random
import tarfile
from collections.abc import Iterable
from itertools import combinations, permutations, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import BlankNode, CanonicalizationAlgorithm, Dataset, Literal, NamedNode, Quad, RdfFormat, Triple, parse

from mdv.errors import InvalidDocument
from mdv.model import RDF, XSD, XSD_STRING, ParsedDocument, Statement, Term, is_blank
from mdv.rdf.blank import name_blank_nodes
from tests.support.limits import hang_guard

D = "http://a/d"
A, B, P, Q = "http://a/a", "http://a/b", "http://a/p", "http://a/q"
GUTENBERG = Path(__file__).parents[2] / "../shared/data/gutenberg/gutenberg-2014.tar.xz"

Edge = tuple[str, str, str]
"""Subject, property, object: `_:id`, a URI, or text in quotes."""


def document(*edges: Edge) -> ParsedDocument:
    return ParsedDocument(D, tuple(Statement(s, p, term(o)) for s, p, o in edges))


def term(text: str) -> Term:
    if text.startswith("_:"):
        return Term("blank", text)
    return Term.literal(text[1:-1]) if text.startswith('"') else Term.uri(text)


def both_ways(pairs: Iterable[tuple[object, object]]) -> list[Edge]:
    return [edge for a, b in pairs for edge in ((f"_:{a}", P, f"_:{b}"), (f"_:{b}", P, f"_:{a}"))]


def cycle(length: int, mark: str = "n") -> list[Edge]:
    return [(f"_:{mark}{i}", P, f"_:{mark}{(i + 1) % length}") for i in range(length)]


def ids(statements: Iterable[Statement]) -> list[str]:
    """Return the blank nodes, named or not, each once."""
    ends = (end for s, _, o in statements for end in (s, o.value if o.type != "literal" else ""))
    return list(dict.fromkeys(end for end in ends if end.startswith("_:") or is_blank(end)))


def disguised(parsed: ParsedDocument, chance: random.Random) -> ParsedDocument:
    """Return the same document with other ids, in another order, with some repeated statements."""
    old = ids(parsed.statements)
    new = dict(zip(old, chance.sample(range(10 * len(old)), len(old)), strict=True))

    def renamed(id: str) -> str:
        return f"_:x{new[id]}" if id in new else id

    said = [
        Statement(renamed(s), p, Term("blank", renamed(o.value)) if o.type == "blank" else o)
        for s, p, o in parsed.statements
    ]
    said += chance.sample(said, len(said) // 3)
    chance.shuffle(said)
    return ParsedDocument(parsed.uri, tuple(said))


def named(*edges: Edge) -> tuple[Statement, ...]:
    """Return the named statements after checking the invariants of every document."""
    parsed = document(*edges)
    statements = name_blank_nodes(parsed).statements
    assert len(statements) == len(set(edges))
    assert len(ids(statements)) == len(ids(parsed.statements))
    assert all(name.startswith(f"{D}#_:") for name in ids(statements))
    for seed in range(3):
        assert name_blank_nodes(disguised(parsed, random.Random(seed))).statements == statements
    return statements


def short(statements: Iterable[Statement]) -> set[str]:
    return {name.removeprefix(f"{D}#_:") for name in ids(statements)}


def isomorphic(one: Iterable[Statement], other: Iterable[Statement]) -> bool:
    """A second implementation: RDF Dataset Canonicalization by another author.

    (rdflib.compare is not suitable: it takes two twin nodes with two children each, renamed, for different graphs.)
    """
    return canonical(one) == canonical(other)


def canonical(statements: Iterable[Statement]) -> Dataset:
    said = list(statements)
    numbers = {id: f"b{number}" for number, id in enumerate(ids(said))}

    def node(value: str) -> NamedNode | BlankNode:
        return BlankNode(numbers[value]) if value in numbers else NamedNode(value)

    dataset = Dataset(
        Quad(node(s), NamedNode(p), Literal(o.value) if o.type == "literal" else node(o.value)) for s, p, o in said
    )
    dataset.canonicalize(CanonicalizationAlgorithm.RDFC_1_0)
    return dataset


# --- examples


def test_without_blank_nodes_statements_are_distinct_and_sorted() -> None:
    texts = [Term.literal("x"), Term.literal("x", lang="en"), Term.literal("x", datatype=XSD + "token"), Term.uri(B)]
    said = tuple(Statement(s, P, o) for s in (B, A) for o in reversed(texts))
    parsed = ParsedDocument(D, said * 2, {"a": "http://a/"})
    result = name_blank_nodes(parsed)
    assert result.uri == D
    assert result.prefixes == {"a": "http://a/"}
    assert set(result.statements) == set(said)
    assert len(result.statements) == 8
    assert [s.subject for s in result.statements] == [A] * 4 + [B] * 4
    assert result == name_blank_nodes(ParsedDocument(D, said[::-1], {"a": "http://a/"}))


def test_names_are_stable() -> None:
    """Names are stored: an algorithm that changes them would rewrite every document with blank nodes."""
    result = named((A, P, "_:x"), ("_:x", Q, "_:y"), ("_:y", P, '"1"'), (A, P, "_:z"), (A, P, "_:twin"))
    assert short(result) == {
        "2f75cd76311989687abf",
        "2f75cd76311989687abf-2",
        "42b742ea7626267d1a07",
        "620deb8bd4deece35411",
    }


def test_blank_subjects_become_names_and_blank_objects_become_uris() -> None:
    ((subject, _, value),) = named(("_:x", P, '"text"'))
    assert is_blank(subject)
    assert value == Term.literal("text")
    ((subject, _, value),) = named((A, P, "_:x"))
    assert subject == A
    assert value.is_uri
    assert is_blank(value.value)


def test_kind_language_and_datatype_are_content() -> None:
    texts = [Term.literal(A), Term.literal(A, lang="en"), Term.literal(A, datatype="en"), Term.uri(A)]
    parsed = ParsedDocument(D, tuple(Statement(f"_:{i}", P, o) for i, o in enumerate(texts)))
    names = short(name_blank_nodes(parsed).statements)
    assert len(names) == 4
    assert not any("-" in name for name in names)


def test_nodes_are_distinguished_by_their_incoming_edges() -> None:
    names = short(named((A, P, "_:x"), (B, P, "_:y"), (A, Q, "_:z"), ("_:u", P, A)))
    assert len(names) == 4
    assert not any("-" in name for name in names)


def test_twins_are_numbered() -> None:
    names = sorted(short(named(*((f"_:{i}", P, '"same"') for i in range(3)))))
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]


def test_a_thousand_twins_get_distinct_names() -> None:
    assert len(short(named(*((A, P, f"_:{i}") for i in range(1000))))) == 1000
    assert len(short(named(*(("_:hub", P, f"_:{i}") for i in range(1000))))) == 1001


def test_nested_nodes_get_distinct_names() -> None:
    names = short(named((A, P, "_:x"), ("_:x", P, "_:y"), ("_:y", P, "_:z"), ("_:z", P, '"deep"')))
    assert not any("-" in name for name in names)


def test_a_shared_node_differs_from_two_twins() -> None:
    shared = named(("_:x", P, "_:s"), ("_:y", P, "_:s"))
    apart = named(("_:x", P, "_:s"), ("_:y", P, "_:t"))
    assert len(ids(shared)) == 3
    assert len(ids(apart)) == 4


def test_nested_twins_keep_their_children() -> None:
    edges = [("_:root", P, f"_:{a}") for a in "xyz"]
    edges += [(f"_:{a}", P, f"_:{a}{b}") for a in "xyz" for b in "xyz"]
    edges += [(f"_:{a}{b}", Q, f"_:{a}{b}{c}") for a in "xyz" for b in "xyz" for c in "xy"]
    statements = named(*edges)
    assert isomorphic(statements, document(*edges).statements)


def test_twin_components_are_not_mixed() -> None:
    edges = [edge for twin in "xy" for edge in ((f"_:{twin}1", P, f"_:{twin}2"), (f"_:{twin}1", P, f"_:{twin}3"))]
    statements = named(*edges)
    assert isomorphic(statements, document(*edges).statements)


def test_two_triangles_are_not_a_hexagon() -> None:
    triangles = cycle(3, "a") + cycle(3, "b")
    hexagon = cycle(6, "c")
    both = named(*triangles, *hexagon)
    assert isomorphic(both, document(*triangles, *hexagon).statements)
    assert short(named(*triangles)).isdisjoint(short(named(*hexagon)))
    assert short(both) == short(named(*triangles)) | short(named(*hexagon))


def test_two_triangles_on_a_hub_are_not_a_hexagon_on_a_hub() -> None:
    triangles, hexagon = cycle(3, "a") + cycle(3, "b"), cycle(6, "c")
    hubs = [[("_:hub", Q, s) for s, _, _ in edges] for edges in (triangles, hexagon)]
    assert short(named(*triangles, *hubs[0])).isdisjoint(short(named(*hexagon, *hubs[1])))


def test_a_self_loop_differs_from_a_link() -> None:
    loop, no_loop = named(("_:x", P, "_:x")), named(("_:x", P, "_:y"))
    assert len(ids(loop)) == 1
    assert len(ids(no_loop)) == 2
    assert len(short(named(("_:x", P, "_:x"), ("_:y", P, "_:y"), ("_:x", P, "_:y"), ("_:y", P, "_:x")))) == 2


def test_names_depend_on_direction_and_property_of_a_link() -> None:
    marked = ("_:x", P, '"marked"')
    forms = [(("_:x", P, "_:y"),), (("_:y", P, "_:x"),), (("_:x", Q, "_:y"),), (("_:x", P, "_:y"), ("_:y", P, "_:x"))]
    names = [short(named(marked, *form)) for form in forms]
    assert len(set.union(*names)) == 8


def list_of_equal_items(length: int) -> ParsedDocument:
    edges = [(A, P, "_:0")]
    for i in range(length):
        rest = f"_:{i + 1}" if i + 1 < length else RDF + "nil"
        edges += [(f"_:{i}", RDF + "first", '"same"'), (f"_:{i}", RDF + "rest", rest)]
    return document(*edges)


@pytest.mark.full
def test_a_long_list_of_equal_items_is_named() -> None:
    assert len(ids(name_blank_nodes(list_of_equal_items(50_000)).statements)) == 50_000
    parsed = list_of_equal_items(2_000)
    assert name_blank_nodes(disguised(parsed, random.Random(1))) == name_blank_nodes(parsed)


def test_a_long_cycle_is_named() -> None:
    parsed = document(*cycle(5_000))
    statements = name_blank_nodes(parsed).statements
    assert len(ids(statements)) == 5_000
    assert name_blank_nodes(disguised(parsed, random.Random(1))).statements == statements


def test_an_unrelated_component_does_not_change_names() -> None:
    base = [(A, P, "_:x"), ("_:x", Q, "_:y"), ("_:y", P, "_:x"), (B, P, "_:z"), ("_:z", P, '"z"')]
    for other in (
        [(A, Q, "_:new")],
        [("_:new", "http://a/0", "_:newer")],
        cycle(4),
        both_ways(combinations("abcd", 2)),
    ):
        assert set(named(*base)) < set(named(*base, *other))


def test_removing_a_twin_keeps_the_first_names() -> None:
    assert set(named(*cycle(3, "a"))) < set(named(*cycle(3, "a"), *cycle(3, "b")))


# --- symmetric graphs, and the limit


def rook(size: int) -> list[Edge]:
    squares = list(product(range(size), repeat=2))
    return both_ways((f"r{a}", f"r{b}") for a, b in combinations(squares, 2) if (a[0] == b[0]) != (a[1] == b[1]))


def shrikhande() -> list[Edge]:
    """As regular as the rook's graph of side 4, and not isomorphic to it: refinement cannot distinguish them."""
    squares = list(product(range(4), repeat=2))
    steps = {(0, 1), (0, 3), (1, 0), (3, 0), (1, 1), (3, 3)}
    near = [(a, b) for a, b in combinations(squares, 2) if ((a[0] - b[0]) % 4, (a[1] - b[1]) % 4) in steps]
    return both_ways((f"s{a}", f"s{b}") for a, b in near)


def petersen() -> list[Edge]:
    pairs = list(combinations("abcde", 2))
    return both_ways(("".join(a), "".join(b)) for a, b in combinations(pairs, 2) if not {*a} & {*b})


def cube(dimensions: int) -> list[Edge]:
    return both_ways((i, i ^ 1 << bit) for i in range(2**dimensions) for bit in range(dimensions) if not i >> bit & 1)


def companions(base: list[tuple[int, int]], twisted: bool) -> list[Edge]:
    """The graphs of Cai, Fürer and Immerman over a base graph, with as few labels as possible."""
    around: dict[int, list[tuple[int, int]]] = {}
    for edge in base:
        for end in edge:
            around.setdefault(end, []).append(edge)
    pairs = []
    for end, edges in around.items():
        for even in (subset for size in range(0, len(edges) + 1, 2) for subset in combinations(edges, size)):
            pairs += [(f"{end}{even}", f"{end}{edge}{edge in even}") for edge in edges]
    for edge in base:
        crossed = twisted and edge == base[0]
        pairs += [(f"{edge[0]}{edge}{side}", f"{edge[1]}{edge}{side != crossed}") for side in (True, False)]
    return both_ways(pairs)


def ring_with_chords(size: int) -> list[tuple[int, int]]:
    return [(i, (i + 1) % size) for i in range(size)] + [(i, i + size // 2) for i in range(size // 2)]


@pytest.mark.parametrize(
    "edges",
    [
        both_ways(combinations("abcde", 2)),
        petersen(),
        cube(3),
        cube(5),
        rook(4),
        shrikhande(),
        both_ways((i, j) for i, j in combinations(range(12), 2) if i // 2 != j // 2),
        both_ways(product("abc", "xyz")),
        both_ways((i, (i + 1) % 9) for i in range(9)),
        companions(ring_with_chords(6), twisted=True),
    ],
    ids=["K5", "petersen", "cube", "tesseract+", "rook", "shrikhande", "cocktail", "K33", "ring", "companions"],
)
def test_symmetric_graphs_are_named(edges: list[Edge]) -> None:
    named(*edges)


def test_graphs_that_refinement_cannot_distinguish_get_different_names() -> None:
    assert short(named(*rook(4))).isdisjoint(short(named(*shrikhande())))
    plain, twisted = (companions([*combinations(range(4), 2)], twisted) for twisted in (False, True))
    assert short(named(*plain)).isdisjoint(short(named(*twisted)))
    assert short(named(*rook(4), *shrikhande())) == short(named(*rook(4))) | short(named(*shrikhande()))


@pytest.mark.parametrize(
    "edges", [companions(ring_with_chords(60), twisted=False), rook(20)], ids=["companions", "rook"]
)
def test_a_document_designed_to_exhaust_the_naming_is_refused(edges: list[Edge]) -> None:
    with hang_guard(), pytest.raises(InvalidDocument, match="give these nodes URIs") as refused:
        name_blank_nodes(document(*edges))
    assert refused.value.flaws[0].property == P


def test_work_limit_can_be_set() -> None:
    with pytest.raises(InvalidDocument, match="3 linked blank nodes"):
        name_blank_nodes(document(*cycle(3)), work_limit=10)
    name_blank_nodes(document(*cycle(3)), work_limit=1000)


def test_nodes_without_links_need_no_work() -> None:
    name_blank_nodes(document(*((A, P, f"_:{i}") for i in range(100))), work_limit=0)


# --- invariants

NODES = [f"_:{i}" for i in range(6)]


def edges_of(nodes: list[str], others: list[str], properties: list[str]) -> st.SearchStrategy[list[Edge]]:
    edge = st.tuples(
        st.sampled_from([*nodes, *others]),
        st.sampled_from(properties),
        st.sampled_from([*nodes, *others, *('"x"' for _ in others)]),
    )
    return st.lists(edge, max_size=12)


GRAPHS = edges_of(NODES, [A], [P, Q]) | edges_of(NODES, [], [P]) | edges_of(NODES[:4], [], [P])
SYMMETRIC = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14).map(both_ways)
PERMUTATIONS = st.permutations(range(8)).map(lambda to: [(f"_:{i}", P, f"_:{j}") for i, j in enumerate(to)])


@settings(max_examples=300, deadline=None)
@given(GRAPHS | SYMMETRIC | PERMUTATIONS, st.randoms(use_true_random=False))
def test_names_depend_on_neither_ids_nor_order(edges: list[Edge], chance: random.Random) -> None:
    parsed = document(*edges)
    assert name_blank_nodes(disguised(parsed, chance)) == name_blank_nodes(parsed)


@settings(max_examples=200, deadline=None)
@given(GRAPHS | SYMMETRIC | PERMUTATIONS)
def test_named_document_reads_back_isomorphic(edges: list[Edge]) -> None:
    parsed = document(*edges)
    statements = name_blank_nodes(parsed).statements
    assert len(ids(statements)) == len(ids(parsed.statements))
    assert isomorphic(statements, parsed.statements)


@settings(max_examples=300, deadline=None)
@given(st.lists(edges_of(NODES[:4], [], [P]) | edges_of(NODES[:4], [A], [P]), min_size=2, max_size=6))
def test_exactly_isomorphic_documents_have_equal_names(graphs: list[list[Edge]]) -> None:
    by_names: dict[tuple[Statement, ...], set[frozenset[Edge]]] = {}
    for edges in graphs:
        by_names.setdefault(name_blank_nodes(document(*edges)).statements, set()).add(least(edges))
    assert all(len(forms) == 1 for forms in by_names.values())
    assert len(by_names) == len(set.union(*by_names.values()))


def least(edges: list[Edge]) -> frozenset[Edge]:
    """Return the form of a small graph by trying every naming of its nodes: the oracle."""
    nodes = sorted({end for s, _, o in edges for end in (s, o) if end.startswith("_:")})
    forms = []
    for order in permutations(NODES[: len(nodes)]):
        to = dict(zip(nodes, order, strict=True))
        forms.append(sorted({(to.get(s, s), p, to.get(o, o)) for s, p, o in edges}))
    return frozenset(min(forms))


def test_every_graph_of_three_nodes_and_one_property_has_distinct_names() -> None:
    places = [(f"_:{i}", P, f"_:{j}") for i in range(3) for j in range(3)]
    forms: dict[frozenset[Edge], tuple[Statement, ...]] = {}
    for chosen in product((False, True), repeat=len(places)):
        edges = [edge for edge, taken in zip(places, chosen, strict=True) if taken]
        statements = name_blank_nodes(document(*edges)).statements
        assert forms.setdefault(least(edges), statements) == statements
    assert len(set(forms.values())) == len(forms)


@settings(max_examples=100, deadline=None)
@given(GRAPHS, st.sampled_from([cycle(2, "new"), cycle(3, "new"), [("_:new", "http://a/0", B)]]))
def test_adding_a_component_changes_no_other_name(edges: list[Edge], other: list[Edge]) -> None:
    assert set(name_blank_nodes(document(*edges)).statements) <= set(
        name_blank_nodes(document(*edges, *other)).statements
    )


# --- real documents


def read(triple: Triple) -> Statement:
    def end(node: object) -> str:
        assert isinstance(node, NamedNode | BlankNode)
        return node.value if isinstance(node, NamedNode) else f"_:{node.value}"

    value = triple.object
    if isinstance(value, Literal):
        datatype = None if value.language or value.datatype.value == XSD_STRING else value.datatype.value
        return Statement(
            end(triple.subject), triple.predicate.value, Term.literal(value.value, value.language, datatype)
        )
    kind = "blank" if isinstance(value, BlankNode) else "uri"
    return Statement(end(triple.subject), triple.predicate.value, Term(kind, end(value)))


@pytest.mark.full
@pytest.mark.skipif(not GUTENBERG.exists(), reason=f"no Gutenberg catalogue at {GUTENBERG}")
def test_gutenberg_documents_have_reproducible_names() -> None:
    chance = random.Random(2014)
    named_nodes = 0
    with tarfile.open(GUTENBERG) as archive:
        for member in archive:
            text = archive.extractfile(member)
            if text is None:
                continue
            number = Path(member.name).stem.removeprefix("pg")
            uri = f"http://www.gutenberg.org/cache/epub/{number}/pg{number}.rdf"
            triples = parse(text.read(), format=RdfFormat.RDF_XML, base_iri=uri)
            parsed = ParsedDocument(uri, tuple(map(read, triples)))
            document = name_blank_nodes(parsed)
            assert name_blank_nodes(disguised(parsed, chance)) == document
            assert len(ids(document.statements)) == len(ids(parsed.statements))
            named_nodes += len(ids(document.statements))
    assert named_nodes > 10_000
