"""The paper's Figure 1, registered, gives the paper's Figure 4."""

from __future__ import annotations

from pathlib import Path

from mdv.inspect.sql.documents import list_atoms, read_document
from mdv.mdp.register import prepare
from mdv.model import RDFS_RESOURCE
from tests.support.mdp import Mdp

GOLDEN = Path(__file__).parents[1] / "golden"
NAMESPACE, BASE = "http://mdv.example/schema#", "http://mdv.example/"

FIGURE_1 = f"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="{NAMESPACE}">
  <CycleProvider rdf:ID="host">
    <serverHost>pirates.uni-passau.de</serverHost>
    <serverPort>5874</serverPort>
    <serverInformation>
      <ServerInformation rdf:ID="info" memory="92"
                         cpu="600" />
    </serverInformation>
  </CycleProvider>
</rdf:RDF>""".encode()

SCHEMA = f"""@prefix m: <{NAMESPACE}> .
m:CycleProvider a rdfs:Class . m:ServerInformation a rdfs:Class .
m:serverHost rdfs:range xsd:string . m:serverPort rdfs:range xsd:integer .
m:serverInformation rdfs:range m:ServerInformation ; mdv:reference mdv:strong .
m:memory rdfs:range xsd:integer . m:cpu rdfs:range xsd:integer .
"""


def register_figure_1(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    with mdp.engine.connect() as connection:
        schema = mdp.schemas.now(connection)
    mdp.register_batch([prepare(BASE + "doc.rdf", FIGURE_1, "application/rdf+xml", schema)])


def short(text: str) -> str:
    return text.removeprefix(NAMESPACE).removeprefix(BASE)


def test_figure_1_gives_the_rows_of_figure_4(mdp: Mdp) -> None:
    register_figure_1(mdp)
    head, *expected = [line.split("\t") for line in (GOLDEN / "figure4.txt").read_text("utf-8").splitlines()]
    rows = mdp.rows(f"select {', '.join(head)} from filter_data_view")
    assert sorted([short(part) for part in row] for row in rows) == sorted(expected)


def test_atoms_of_a_document_are_paged(mdp: Mdp) -> None:
    register_figure_1(mdp)
    with mdp.engine.connect() as connection:
        document = read_document(connection, BASE + "doc.rdf")
        assert document is not None
        whole = [tuple(row.values()) for row in list_atoms(connection, document, ("", "", "", ""), 100)]
        paged, after = [], ("", "", "", "")
        while page := list_atoms(connection, document, after, 2):
            paged += [tuple(row.values()) for row in page]
            after = paged[-1]
    assert len(whole) == 7
    assert paged == whole
    assert [row[2] for row in whole].index("rdf#subject") == 0, "as in the figure, the resource itself comes first"


def atoms(mdp: Mdp, resource: str) -> list[tuple[str, str, str]]:
    query = "select class, property, value from filter_data_view where uri_reference = :r"
    return sorted(tuple(map(short_v, row)) for row in mdp.rows(query, r=resource))


def short_v(text: str) -> str:
    return text.removeprefix("http://v/").removeprefix("http://d/1")


def test_a_resource_with_several_types_has_atoms_for_each(mdp: Mdp) -> None:
    mdp.put_schema("<> mdv:world mdv:open .")
    mdp.put_one("http://d/1", "<#a> a :A, :B ; :p 'x' .")
    assert atoms(mdp, "http://d/1#a") == [
        ("A", "p", "x"), ("A", "rdf#subject", "#a"), ("B", "p", "x"), ("B", "rdf#subject", "#a"),
    ]  # fmt: skip


def test_a_resource_without_a_type_is_an_rdfs_resource(mdp: Mdp) -> None:
    mdp.put_schema("<> mdv:world mdv:open .")
    mdp.put_one("http://d/1", "<#a> :p <#b> .")
    assert atoms(mdp, "http://d/1#a") == [(RDFS_RESOURCE, "p", "#b"), (RDFS_RESOURCE, "rdf#subject", "#a")]
    assert atoms(mdp, "http://d/1#b") == []


def test_a_type_given_by_another_document_counts(mdp: Mdp) -> None:
    mdp.put_schema("<> mdv:world mdv:open .")
    mdp.put({"http://d/1": "<#a> :p 'x' .", "http://d/2": "<http://d/1#a> a :A ."})
    assert [(c, p) for c, p, _ in atoms(mdp, "http://d/1#a")] == [
        ("A", "p"),
        ("A", "rdf#subject"),
        ("A", "rdf#subject"),
    ]
    mdp.put_one("http://d/2", None)
    assert [(c, p) for c, p, _ in atoms(mdp, "http://d/1#a")] == [(RDFS_RESOURCE, "p"), (RDFS_RESOURCE, "rdf#subject")]


def test_pages_of_atoms_are_complete_if_two_statements_have_the_same_value(mdp: Mdp) -> None:
    mdp.put_schema("<> mdv:world mdv:open .")
    mdp.put_one("http://d/1", "<#a> :p 'x'@en, 'x'@de, 'y' .")
    with mdp.engine.connect() as connection:
        document = read_document(connection, "http://d/1")
        assert document is not None
        page = [row["value"] for row in list_atoms(connection, document, ("", "", "", ""), 10)]
    assert page == ["http://d/1#a", "x", "y"]
