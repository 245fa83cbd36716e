"""`mdv rule add`, `list`, `resume`, `end`: rules of the provider. They belong to no LMR; the filter evaluates them like
all other rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from mdv.cli.command import data_option, json_option
from mdv.cli.database import database
from mdv.cli.output import on_terminal, print_line, warn_suspended, write_json, write_table
from mdv.cli.rule import read_rule, rule, rule_options

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from mdv.db.rule_graph import StoredRule
    from mdv.mdp.rules.operations import RuleOperation

Result = TypeVar("Result")

__all__ = ["rule"]

MAX_RULES_LISTED = 100_000
COMMAND_LINE = "command line"
"""The caller of changes that commands make in the database, without a token."""


@rule.command("add", example="mdv rule add my.rule --name fast")
@rule_options
@click.option("--name", metavar="NAME", help="Name of the rule, which other rules can search.")
@json_option
@data_option
def add(file: Path | None, text: str | None, name: str | None, as_json: bool) -> None:
    """Add a rule of the provider, and print how many resources match it. FILE - is standard input."""
    from mdv.mdp.provider import Provider
    from mdv.mdp.rules.operations import AddRules
    from mdv.mdp.rules.planning import PROVIDER_OWNER, RuleDraft
    from mdv.mdp.rules.results import results_of

    draft = RuleDraft(PROVIDER_OWNER, name, read_rule(file, text), COMMAND_LINE)
    with database() as connection:
        (added,) = _carry_out(connection, AddRules([draft]))
        matches = len(results_of(connection, added.id, Provider(connection.engine)))
    if as_json:
        write_json({"id": added.id, "name": name, "position": added.position, "matches": matches})
    else:
        print_line(f"Rule {added.id} is added; {matches:,} resource{' matches' if matches == 1 else 's match'} it.")


@rule.command("list", example="mdv rule list")
@json_option
@data_option
def list_(as_json: bool) -> None:
    """List the rules of the provider."""
    from mdv.db.lmrs import list_lmr_rules
    from mdv.mdp.rules.planning import PROVIDER_OWNER
    from mdv.mdp.subscribe import with_suspensions

    with database() as connection:
        found = with_suspensions(connection, list_lmr_rules(connection, PROVIDER_OWNER, 0, MAX_RULES_LISTED))
    items = [rule.as_dict() for rule in found]
    for item in items:
        item["text"] = item.pop("rule")
        del item["position"]
    if as_json:
        write_json({"items": items, "more": False})
    elif items or not on_terminal():
        rows = ([i["id"], i["name"], " ".join(str(i["text"]).split()), i["state"]] for i in items)
        write_table(("id", "name", "text", "state"), rows)
        for item in items:
            if "suspended" in item:
                warn_suspended(f"Rule {item['id']}", item["suspended"], f"mdv rule resume {item['id']}")
    else:
        print_line("There are no rules yet: `mdv rule add` adds one.")


@rule.command("resume", example="mdv rule resume 3")
@click.argument("number", metavar="ID", type=int)
@data_option
def resume(number: int) -> None:
    """Resume the suspended rule ID of the provider.

    For subscriptions of LMRs, use `mdv subscriptions resume`.
    """
    from mdv.db.suspensions import Suspensions
    from mdv.mdp.rules.operations import ChangeRule

    with database() as connection:
        text = _own_rule(connection, number).text
        if Suspensions(connection).read([number]):
            _carry_out(connection, ChangeRule(number, text))
    print_line(f"Rule {number} is active.")


def _carry_out(connection: Connection, change: RuleOperation[Result]) -> Result:
    from mdv.errors import Unavailable
    from mdv.mdp.provider import Provider
    from mdv.mdp.rules.operations import PrecomputeBusy, carry_out

    try:
        return carry_out(connection, change, Provider(connection.engine))
    except PrecomputeBusy:
        raise Unavailable(
            "Another rule is being evaluated on the stored documents. Try again when it is done."
        ) from None


def _own_rule(connection: Connection, number: int) -> StoredRule:
    from mdv.db.rule_graph import RuleGraph
    from mdv.errors import NotFound
    from mdv.mdp.rules.planning import PROVIDER_OWNER

    for stored in RuleGraph(connection).rules([number]):
        if stored.owner == PROVIDER_OWNER:
            return stored
    raise NotFound(f"The provider has no rule {number}: `mdv rule list` shows its rules.")


@rule.command("end", example="mdv rule end 3")
@click.argument("number", metavar="ID", type=int)
@data_option
def end(number: int) -> None:
    """Remove the rule ID of the provider, with the atomic rules that no other rule uses."""
    from mdv.mdp.rules.operations import RemoveRules

    with database() as connection:
        _own_rule(connection, number)
        _carry_out(connection, RemoveRules([number]))
    print_line(f"Rule {number} is removed.")
