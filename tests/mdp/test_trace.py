"""The paper's filter, replayed on a document."""

from __future__ import annotations

from pathlib import Path

import pytest

import mdv
from mdv.cli.filter import tables
from mdv.errors import NotFound
from mdv.inspect import filter_replay as tracing
from mdv.inspect.filter_replay import FilterReplay, replay_filter
from mdv.mdp.register import prepare
from tests.support.mdp import Mdp

GOLDEN = Path(__file__).parents[1] / "golden"
DEMO = Path(mdv.__file__).parent / "demo"
DOC = "http://mdv.example/doc.rdf"


def run(mdp: Mdp, document: str) -> FilterReplay:
    with mdp.engine.connect() as connection:
        return replay_filter(connection, document, mdp.schemas)


def shown(mdp: Mdp, document: str) -> list[list[tuple[str, int]]]:
    return [[(row.resource, row.rule) for row in rows] for rows in run(mdp, document).iterations]


@pytest.fixture
def paper(mdp: Mdp) -> Mdp:
    mdp.PREFIXES = ""
    mdp.put_schema((DEMO / "schema.ttl").read_text("utf-8"))
    return mdp


def put(mdp: Mdp, uri: str, body: bytes, media_type: str = "application/rdf+xml") -> None:
    with mdp.engine.connect() as connection:
        schema = mdp.schemas.now(connection)
    (outcome,) = mdp.register_batch([prepare(uri, body, media_type, schema)])
    assert not isinstance(outcome, Exception), outcome


def turtle(text: str) -> bytes:
    return f"@prefix : <http://mdv.example/schema#> .\n{text}".encode()


def test_the_trace_of_figure_1_is_figure_9(paper: Mdp) -> None:
    paper.add_rules([(GOLDEN / "rules" / "demo" / "section_3_3_1.rule").read_text("utf-8")])
    put(paper, DOC, (GOLDEN / "figure1.rdf").read_bytes())
    text = "\n\n".join(
        "\n".join([heading, *("\t".join(map(str, row)) for row in rows)])
        for heading, rows in tables(run(paper, DOC).as_dict(), short=True)
    )
    assert text + "\n" == (GOLDEN / "figure9.txt").read_text("utf-8")


def test_statements_of_other_documents_are_the_other_input_of_a_join(paper: Mdp) -> None:
    paper.add_rules(["search CycleProvider c register c where c.serverInformation.memory > 64 and c.serverPort = 1"])
    put(paper, "http://d/info", turtle("<http://r/info> a :ServerInformation ; :memory 92 ."), "text/turtle")
    put(paper, "http://d/host", turtle("<http://r/host> a :CycleProvider ; :serverPort 1 ;"
                                       " :serverInformation <http://r/info> ."), "text/turtle")  # fmt: skip
    assert shown(paper, "http://d/host") == [[("http://r/host", 2)], [("http://r/host", 3)]]
    assert shown(paper, "http://d/info") == [[("http://r/info", 1)], [("http://r/host", 3)]]
    assert run(paper, "http://d/info").results[0].resource == "http://r/host"


def test_a_document_that_triggers_no_rule_has_no_iterations(paper: Mdp) -> None:
    put(paper, DOC, (GOLDEN / "figure1.rdf").read_bytes())
    assert run(paper, DOC) == FilterReplay(DOC, [], [], False)


def test_only_registered_documents_can_be_traced(paper: Mdp) -> None:
    put(paper, DOC, (GOLDEN / "figure1.rdf").read_bytes())
    paper.put({DOC: None})
    for uri in (DOC, "http://d/never"):
        with pytest.raises(NotFound):
            run(paper, uri)


def test_of_very_many_rules_only_possible_matches_are_traced(paper: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_ROWS", 20)
    join = ("search CycleProvider c register c where c.serverHost contains 'uni-passau.de'"
            " and c.serverInformation.cpu = 600 and c.serverInformation.memory = {}")  # fmt: skip
    paper.add_rules([join.format(memory) for memory in range(300)])
    put(paper, "http://d/other", turtle("<http://r/o> a :CycleProvider ; :serverHost 'a.uni-passau.de' ;"
        " :serverInformation <http://r/i> . <http://r/i> a :ServerInformation ; :memory 91 ; :cpu 600 ."),
        "text/turtle")  # fmt: skip
    put(paper, DOC, (GOLDEN / "figure1.rdf").read_bytes())
    found = run(paper, DOC)
    assert not found.truncated
    assert [len(rows) for rows in found.iterations] == [3, 1, 1]
    assert [row.resource for row in found.results] == [DOC + "#host"]


def test_a_large_trace_is_truncated_and_flagged(paper: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_ROWS", 5)
    paper.add_rules([f"search CycleProvider c register c where c.serverPort > {port}" for port in range(10)])
    put(paper, DOC, (GOLDEN / "figure1.rdf").read_bytes())
    found = run(paper, DOC)
    assert found.truncated and [len(rows) for rows in found.iterations] == [5]
