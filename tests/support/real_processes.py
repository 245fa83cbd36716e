"""Processes on Postgres: programs in the mode run, whose slices this process runs one after another."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, text

from mdv.db.real.processes import ProcessNews, read_news
from mdv.db.state import read_state
from mdv.mdp.real.program_worker import ProgramWorker
from mdv.mdp.real.quotas import ProcessQuotas
from mdv.mdp.real.slice_commit import SliceOutcome
from mdv.mdp.real.start import ProgramStart, request_stop, start_program
from mdv.model import Term
from tests.support.mdp import Mdp

NAMESPACE = "http://v/"
DOCUMENT = "http://d/program"

OPEN = "<> mdv:world mdv:open ."


def action(name: str, code: str, inputs: str = "", outputs: str = "") -> str:
    """Return the Turtle of an action."""
    lines = [f":{name} a lrm:Action ; lrm:body <#{name}-body> .", f"<#{name}-body> real:code '''{code}''' ."]
    if inputs:
        lines.append(f":{name} lrm:input-signature '{inputs}' .")
    if outputs:
        lines.append(f":{name} lrm:output-signature '{outputs}' .")
    return "@prefix lrm: <http://xrce.xerox.com/LRM#> . @prefix real: <http://xrce.xerox.com/ReAL#> .\n" + "\n".join(
        lines
    )


class Programs:
    """Starts programs on an MDP, and runs their slices."""

    def __init__(self, mdp: Mdp, quotas: ProcessQuotas | None = None) -> None:
        self.mdp, self.quotas = mdp, quotas or ProcessQuotas()
        self.worker = self.new_worker(mdp.engine)

    def new_worker(self, engine: Engine) -> ProgramWorker:
        return ProgramWorker(engine, self.mdp.provider, self.quotas)

    def start(self, code: str, binding: dict[str, Term] | None = None, into: str = DOCUMENT, **options: Any) -> str:
        """Start a program. Return the IRI of its process."""
        options = {"caller": "token test"} | options
        with self.mdp.engine.begin() as connection:
            schema, position = self.mdp.schemas.now(connection), read_state(connection).position
            begun = ProgramStart(code, into=into, binding=binding or {}, prefixes={"": NAMESPACE}, **options)
            return start_program(connection, begun, schema, position, self.quotas).iri

    def run(self, most: int = 10_000) -> int:
        """Run slices until no process is ready. Return their number."""
        for number in range(most):
            if self.worker.run_slice() is None:
                return number
        raise AssertionError(f"processes still run after {most} slices")

    def slice(self, iri: str) -> SliceOutcome | None:
        return self.worker.run_slice(iri)

    def stop(self, iri: str) -> None:
        with self.mdp.engine.begin() as connection:
            request_stop(connection, iri)

    def news(self, iri: str) -> ProcessNews:
        with self.mdp.engine.begin() as connection:
            found = read_news(connection, iri, 0, 0, 1000, 1000)
        assert found is not None
        return found

    def state(self, iri: str) -> str:
        return self.news(iri).state

    def states(self) -> list[str]:
        return [state for (state,) in self.mdp.rows("select state from real_processes order by id")]

    def run_one(self, code: str, **options: Any) -> ProcessNews:
        """Run a program to its end, or until it waits."""
        iri = self.start(code, **options)
        self.run()
        return self.news(iri)

    def bindings(self, news: ProcessNews) -> list[dict[str, str]]:
        return [{name: short(term["value"]) for name, term in binding.items()} for _, binding in news.bindings]

    def shown(self, name: str) -> set[str]:
        """Return the subjects and objects of a property."""
        query = text(
            "select r.uri, coalesce(t.uri, f.value) from filter_data f join resources r on r.id = f.resource_id"
            " join vocabulary v on v.id = f.property_id left join resources t on t.id = f.target_id"
            " where v.uri = :name"
        )
        with self.mdp.engine.begin() as connection:
            rows = connection.execute(query, {"name": name if ":" in name else NAMESPACE + name}).fetchall()
        return {f"{short(subject)} {short(value)}" for subject, value in rows}


def short(text: str) -> str:
    return text.removeprefix(NAMESPACE)
