"""Run a transaction with event-condition-action rules on a real store and on the naive oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.errors import MdvError, RuleFailed, RulesDoNotEnd, UpdateFailed
from mdv.mdp.eca.change_rules import EcaDraft, add_rules
from mdv.mdp.eca.run import RuleRun, Scheduler
from mdv.mdp.eca.update import UpdateRequest, execute_update
from mdv.mdp.provider import Provider
from mdv.mdp.register import Prepared, RegistrationOutcome, prepared, register
from mdv.model import Document, Statement, Term
from mdv.rdftl.compile import compile_rules, compile_update
from mdv.rdftl.model import Action, EcaRule
from mdv.rdftl.write import write_rule, write_update
from tests.support import rdftl_oracle as oracle

Documents = dict[str, frozenset[Statement]]


class RunResult(NamedTuple):
    """What a transaction did. `refused`: the class of the error; then the documents are as before."""

    documents: Documents
    fired: list[tuple[int, Any]]
    trace: list[tuple[Any, ...]]
    refused: str | None = None


def read_documents(connection: Connection) -> Documents:
    """Return all documents with their statements."""
    rows = connection.exec_driver_sql(
        "select d.uri, r.uri, v.uri, t.uri, f.value, f.lang, k.uri from filter_data f"
        " join documents d on d.id = f.document_id join resources r on r.id = f.resource_id"
        " join vocabulary v on v.id = f.property_id left join resources t on t.id = f.target_id"
        " left join vocabulary k on k.id = f.datatype_id"
    )
    found: dict[str, set[Statement]] = {}
    for document, subject, name, target, value, lang, datatype in rows:
        term = Term.uri(target) if target is not None else Term.literal(value, lang, datatype)
        found.setdefault(document, set()).add(Statement(subject, name, term))
    return {uri: frozenset(said) for uri, said in found.items()}


def normal(rules: Mapping[int, EcaRule], schema: Any) -> dict[int, tuple[EcaRule, str]]:
    """Return the rules as the language writes and reads them."""
    texts = {number: write_rule(rule, schema) for number, rule in rules.items()}
    return {number: (compile_rules(text, schema)[0].rule, text) for number, text in texts.items()}


def run_on_store(
    connection: Connection, provider: Provider, cause: oracle.Registration | Sequence[Action], schema: Any
) -> RunResult:
    """Run a transaction on the store, inside the database transaction of `connection`."""
    before = read_documents(connection)
    runs: list[RuleRun] = []
    savepoint = connection.begin_nested()
    start = Scheduler.__init__

    def begin(scheduler: Scheduler, *arguments: Any) -> None:
        start(scheduler, *arguments)
        runs.append(scheduler.run)

    try:
        Scheduler.__init__ = begin  # type: ignore[method-assign]
        if isinstance(cause, oracle.Registration):
            item = _prepared(cause, provider, connection)
            (result,) = register(connection, [item], provider)
            if isinstance(result, MdvError):
                raise result
        else:
            execute_update(connection, UpdateRequest(write_update(tuple(cause), schema)), provider)
        savepoint.commit()
    except (RuleFailed, RulesDoNotEnd, UpdateFailed) as error:
        savepoint.rollback()
        return RunResult(before, [], [], type(error).__name__)
    finally:
        Scheduler.__init__ = start  # type: ignore[method-assign]
    run = runs[-1] if runs else RuleRun()
    fired = [(copy.rule.id, copy.delta) for copy in run.fired if copy.rule is not None]
    trace = [
        (step.owner.rule.id if step.owner.rule else None, step.owner.delta, step.action,
         tuple(map(tuple, step.changes)), step.is_undone)
        for step in run.steps
    ]  # fmt: skip
    return RunResult(read_documents(connection), fired, trace)


def register_all(
    connection: Connection, provider: Provider, documents: Mapping[str, frozenset[Statement]]
) -> list[RegistrationOutcome | MdvError]:
    """Register documents as one batch, inside the database transaction of `connection`. An error that refuses all is
    the result of the only document."""
    items = [_prepared(oracle.Registration(uri, said), provider, connection) for uri, said in documents.items()]
    savepoint = connection.begin_nested()
    try:
        done = register(connection, items, provider)
    except (RuleFailed, RulesDoNotEnd) as error:
        savepoint.rollback()
        assert len(items) == 1
        return [error]
    savepoint.commit()
    return done


def _prepared(cause: oracle.Registration, provider: Provider, connection: Connection) -> Prepared:
    schema = provider.schemas.now(connection)
    if cause.statements is None:
        return Prepared(cause.document, None, schema.version)
    return prepared(Document(cause.document, tuple(sorted(cause.statements))), schema)


def run_on_oracle(
    cause: oracle.Registration | Sequence[Action], rules: Mapping[int, EcaRule], state: oracle.State
) -> RunResult:
    """Run a transaction on the oracle."""
    before = dict(state.documents)
    try:
        done = oracle.exec_sched(cause, rules, state, oracle.Limits(60, 40))
    except oracle.RuleFailed:
        return RunResult(before, [], [], "RuleFailed")
    except oracle.RulesDoNotEnd:
        return RunResult(before, [], [], "RulesDoNotEnd")
    except oracle.ActionFailed:
        return RunResult(before, [], [], "UpdateFailed")
    trace = [(step.rule, step.delta, step.action, tuple(map(tuple, step.changes)), step.undone) for step in done.trace]
    if isinstance(cause, oracle.Registration):
        trace = trace[1:]  # the registration itself
    return RunResult(dict(done.documents), [tuple(one) for one in done.fired], trace)


def add_all(connection: Connection, provider: Provider, texts: Sequence[str]) -> None:
    """Add rules one by one, so that their IDs are 1, 2, …; later ones may be named by earlier ones."""
    add_rules(connection, EcaDraft("\n;;\n".join(texts)), provider)


def reread_update(actions: Sequence[Action], schema: Any) -> tuple[Action, ...]:
    return compile_update(write_update(tuple(actions), schema), schema).actions
