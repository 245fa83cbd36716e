"""Changes of event-condition-action rules, updates, and dry runs. They run as jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mdv.accounts.callers import Caller, check_may_write
from mdv.errors import Forbidden, MdvError
from mdv.inspect.eca_runs import build_tree, tree_json
from mdv.mdp.eca.rule_jobs import RULES_URI, run_uri
from mdv.mdp.eca.run import RULES_DOCUMENT
from mdv.mdp.write_limits import WriteLimits
from web.job_queue import FinishedJob, PendingJob, enqueue_job, has_ended, run_job
from web.json_bodies import JSON
from web.models import PostedEcaRule
from web.negotiate import run_in_thread
from web.use_cases.eca_analysis import add_analysis_warnings
from workers.messages import JobMessage

RDFTL = "text/x-rdftl"
DRY_RUN_WAIT_SECONDS = 30


def limits_of(caller: Caller) -> WriteLimits:
    """Return what a caller may write. A rule that it adds acts within these limits."""
    return WriteLimits(caller.document_prefixes, caller.resource_prefixes)


def change_eca_rules(change: str, caller: Caller, **request: Any) -> FinishedJob | PendingJob:
    """Run a change of the rules as a job. `change`: one of the changes of `mdv.mdp.eca.rule_jobs`."""
    given = {"change": change, "limits": limits_of(caller).as_json(), **request}
    body = run_in_thread(lambda: json.dumps(given).encode())
    return run_job("eca", RULES_URI, caller, {}, body, JSON)


def add_eca_rules(caller: Caller, rules: Sequence[PostedEcaRule]) -> FinishedJob | PendingJob:
    """Add rules, all or none."""
    for rule_set in {rule.set for rule in rules}:
        check_may_write(caller, RULES_DOCUMENT + rule_set)
    done = change_eca_rules("add", caller, drafts=drafts_json(rules))
    if isinstance(done, FinishedJob):
        add_analysis_warnings(done.result["items"])
    return done


def replace_eca_rule(
    caller: Caller, rule: str, text: str, if_match: list[str] | None = None
) -> FinishedJob | PendingJob:
    """Replace the text of a rule."""
    done = change_eca_rules("replace", caller, rule=rule, text=text, if_match=if_match)
    if isinstance(done, FinishedJob):
        add_analysis_warnings([done.result])
    return done


def drafts_json(rules: Sequence[PostedEcaRule]) -> list[list[str]]:
    """Return drafts as the jobs read them."""
    return [[rule.text, rule.set, rule.state] for rule in rules]


def run_update(
    caller: Caller,
    text: bytes,
    graph: str,
    wait: float,
    dry_run: bool,
    rules: Sequence[PostedEcaRule] = (),
    eca: str = "on",
) -> PendingJob | FinishedJob:
    """Run an update as a job. `rules`: drafts that take part in a dry run. Raise the problem of a job that failed."""
    check_may_write(caller, graph)
    options = {"dry_run": dry_run, "limits": limits_of(caller).as_json(), "rules": drafts_json(rules)}
    options |= reactions_option(caller, eca)
    return finish(graph, *enqueue_job("update", graph, caller, options, wait, text, RDFTL, keyed=not dry_run))


def reactions_option(caller: Caller, eca: str) -> dict[str, str]:
    """Return the option of a job that runs no event-condition-action rules; none if it runs them."""
    if eca == "on":
        return {}
    if caller.is_limited:
        raise Forbidden(f"The token {caller.name!r} is limited to URI prefixes. `eca=off` requires an unlimited token.")
    return {"eca": eca}


def compensate(caller: Caller, run: int) -> FinishedJob | PendingJob:
    """Compensate a run as a job."""
    return run_job("compensate", run_uri(run), caller, {"run": run}, None, None)


def try_registration(
    caller: Caller, uri: str, body: bytes, media_type: str, rules: Sequence[PostedEcaRule]
) -> PendingJob | FinishedJob:
    """Run the dry run of a registration as a job."""
    check_may_write(caller, uri)
    options = {
        "dry_run": True,
        "conditions": {"resource_prefixes": caller.resource_prefixes},
        "limits": limits_of(caller).as_json(),
        "rules": drafts_json(rules),
    }
    wait = DRY_RUN_WAIT_SECONDS
    return finish(uri, *enqueue_job("register", uri, caller, options, wait, body, media_type, keyed=False))


def finish(uri: str, job: Any, status: JobMessage | None) -> PendingJob | FinishedJob:
    """Return the result of a job if it has ended. Raise its problem."""
    if status is None or not has_ended(status):
        return PendingJob(job, uri, status)
    if status.problem is not None:
        raise MdvError.from_problem(with_tree(status.problem))
    return FinishedJob(job, with_tree(dict(status.result or {})))


def with_tree(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the result or the problem of a dry run with the trace of its run as a tree."""
    run = answer.get("run")
    return answer | {"run": tree_json(build_tree(run))} if isinstance(run, dict) and "steps" in run else answer
