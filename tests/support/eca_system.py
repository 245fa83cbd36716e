"""A provider with event-condition-action rules, and a worker that runs its jobs, in one process."""

from __future__ import annotations

from typing import Any, NamedTuple

from mdv.db.eca.rules import StoredEcaRule, list_eca_rules
from mdv.db.jobs import add_job
from mdv.mdp.eca.change_rules import EcaDraft, add_rules
from mdv.mdp.eca.compensate import CompensationOutcome, CompensationRequest, compensate_run
from mdv.mdp.worker import Worker
from tests.support.mdp import Mdp

RULES = "urn:mdv:eca:main"
UPDATES = "urn:mdv:updates"
SCHEMA = """
:Lo a rdfs:Class . :Course rdfs:subClassOf :Lo . :User a rdfs:Class . :Note a rdfs:Class .
:subject rdfs:range xsd:string ; mdv:setValued true .
:level rdfs:range xsd:integer .
:owner rdfs:range :User . :editor rdfs:subPropertyOf :owner ; mdv:setValued true .
:seen rdfs:range :Lo ; mdv:setValued true .
:tag rdfs:range xsd:string ; mdv:setValued true .
"""


class EndedJob(NamedTuple):
    """How a job ended: its result or its problem."""

    kind: str
    state: str
    answer: Any


def add(mdp: Mdp, *texts: str) -> None:
    """Add rules, each in a transaction of its own."""
    for text in texts:
        with mdp.engine.begin() as connection:
            add_rules(connection, EcaDraft(text), mdp.provider)


def rule_named(mdp: Mdp, name: str) -> StoredEcaRule:
    with mdp.engine.connect() as connection:
        (found,) = (rule for rule in list_eca_rules(connection) if rule.name == name)
    return found


def submit(mdp: Mdp, kind: str, uri: str, text: str = "", **options: Any) -> None:
    """Queue a job."""
    body = (mdp.PREFIXES + text if kind == "register" else text).encode()
    with mdp.engine.begin() as connection:
        add_job(connection, kind, uri, "test", body, "text/turtle", options)


def work(mdp: Mdp) -> list[EndedJob]:
    """Run all jobs. Return how all jobs until now ended, in order."""
    Worker(mdp.engine, 10**6, provider=mdp.provider, back_off=lambda attempts: 0.0).work()
    rows = mdp.rows("select kind, state, result, problem from jobs order by ended_at, number")
    return [EndedJob(kind, state, result or problem) for kind, state, result, problem in rows]


def put(mdp: Mdp, uri: str, turtle: str) -> list[EndedJob]:
    """Register a document, and run all jobs."""
    submit(mdp, "register", uri, turtle)
    return work(mdp)


def update(mdp: Mdp, text: str) -> list[EndedJob]:
    """Execute an update, and run all jobs."""
    submit(mdp, "update", UPDATES, text)
    return work(mdp)


def compensate(mdp: Mdp, run: int, *copies: int) -> CompensationOutcome:
    with mdp.engine.begin() as connection:
        return compensate_run(connection, CompensationRequest(run, copies or None), mdp.provider)


def statements(mdp: Mdp, document: str) -> set[tuple[str, str, str]]:
    """Return the statements of a document: subject, local name of the property, and text of the object."""
    rows = mdp.rows(
        "select r.uri, v.uri, coalesce(f.value, t.uri) from filter_data f join documents d on d.id = f.document_id"
        " join resources r on r.id = f.resource_id join vocabulary v on v.id = f.property_id"
        " left join resources t on t.id = f.target_id where d.uri = :uri",
        uri=document,
    )
    return {(s, p.removeprefix("http://v/"), o) for s, p, o in rows}


def causes(mdp: Mdp, uri: str) -> list[tuple[str, str | None]]:
    """Return the causes of the versions of a document, with their agents."""
    return [
        (cause, agent)
        for cause, agent in mdp.rows(
            "select v.cause, v.agent from document_versions v join documents d on d.id = v.document_id"
            " where d.uri = :uri order by v.version",
            uri=uri,
        )
    ]
