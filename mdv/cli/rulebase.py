"""`mdv rule add`, `list`, `end`: rules of the provider's own. They belong to no local repository; the filter evaluates
them as it does all others."""

from __future__ import annotations

from pathlib import Path

import click

from mdv.cli.database import database
from mdv.cli.frame import data_option, json_option
from mdv.cli.output import on_terminal, say, write_json, write_table
from mdv.cli.rule import rule, rule_options, text_of

__all__ = ["rule"]


@rule.command("add", example="mdv rule add my.rule --name fast")
@rule_options
@click.option("--name", metavar="NAME", help="By which other rules can search it.")
@json_option
@data_option
def add(file: Path | None, text: str | None, name: str | None, as_json: bool) -> None:
    """Add a rule of the provider's own to the filter, and tell what it matches. FILE - is standard input."""
    from mdv.db.vocabulary import Vocabulary
    from mdv.mdp.rules import OWN, RuleDraft, Rules, add_rules, results_of
    from mdv.mdp.schemas import Schemas

    draft = RuleDraft(OWN, name, text_of(file, text))
    with database() as connection:
        schemas, vocabulary, rules = Schemas(), Vocabulary(connection.engine), Rules()
        (added,) = add_rules(connection, [draft], schemas, vocabulary, rules)
        matches = len(results_of(connection, added.id, rules, schemas, vocabulary))
    if as_json:
        write_json({"id": added.id, "name": name, "position": added.position, "matches": matches})
    else:
        say(f"Rule {added.id} is added; {matches:,} resource{' matches' if matches == 1 else 's match'} it.")


@rule.command("list", example="mdv rule list")
@json_option
@data_option
def list_(as_json: bool) -> None:
    """List the rules of the provider's own."""
    from mdv.db.graph import Graph
    from mdv.mdp.rules import OWN

    with database() as connection:
        found = Graph(connection).rules_of(OWN)
    items = [{"id": stored.id, "name": stored.name, "text": stored.text} for stored in found]
    if as_json:
        write_json({"items": items, "more": False})
    elif items or not on_terminal():
        write_table(("id", "name", "text"), ([i["id"], i["name"], " ".join(str(i["text"]).split())] for i in items))
    else:
        say("There is no rule yet: `mdv rule add` adds one.")


@rule.command("end", example="mdv rule end 3")
@click.argument("number", metavar="ID", type=int)
@data_option
def end(number: int) -> None:
    """End the rule ID; what only it needed leaves the graph."""
    from mdv.db.graph import Graph
    from mdv.db.vocabulary import Vocabulary
    from mdv.errors import NotFound
    from mdv.mdp.rules import OWN, Rules, remove_rules
    from mdv.mdp.schemas import Schemas

    with database() as connection:
        if number not in {stored.id for stored in Graph(connection).rules_of(OWN)}:
            raise NotFound(f"There is no rule {number} of the provider's own: `mdv rule list` shows them.")
        remove_rules(connection, [number], Schemas(), Vocabulary(connection.engine), Rules())
    say(f"Rule {number} is ended.")
