"""`mdv eca`: event-condition-action rules, their runs, and the log of their changes."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import click

from mdv.cli.command import ExampleGroup, connect, data_option, json_option, syntax_option
from mdv.cli.eca_analysis import analysis, check, graph
from mdv.cli.eca_tree import change_text, print_tree, print_warnings
from mdv.cli.output import Columns, Item, Listing, list_options, print_line, write_json, write_table
from mdv.cli.rule import read_rule, read_text, rule_options
from mdv.cli.source_files import SourceFile

RULE: Columns = {
    "id": lambda item: item["id"],
    "name": lambda item: item["name"],
    "set": lambda item: item["set"],
    "state": lambda item: item["state"],
    "fired": lambda item: item["fired"],
    "failed": lambda item: item["failed"],
    "text": lambda item: " ".join(item["text"].split()),
}
RUN: Columns = {
    "run": lambda item: item["id"],
    "at": lambda item: item["at"][:19].replace("T", " "),
    "position": lambda item: item["position"],
    "outcome": lambda item: item["outcome"],
    "fired": lambda item: item["fired"],
    "about": lambda item: item["subject"],
}
CHANGE: Columns = {
    "run": lambda item: item["run"],
    "change": lambda item: "+" if item["added"] else "-",
    "subject": lambda item: item["statement"][0],
    "property": lambda item: item["statement"][1],
    "value": lambda item: item["statement"][2]["value"],
    "by": lambda item: item["text"].partition(" by ")[2],
}
STATES = ("active", "shadow", "disabled", "quarantined")
EXAMPLE_RULE = (
    "RULE note ON UPDATE (_, serverPort, _ -> _) IF TRUE DO INSERT (\\$delta, rdfs:comment, 'the port was changed')"
)


@click.group(cls=ExampleGroup, example="mdv eca list")
def eca() -> None:
    """Manage event-condition-action rules, and see what they do.

    A rule is: ON event IF condition DO actions. It runs in the transaction of every change that triggers it. A rule R
    is given by its name or ID.
    """


@eca.command("add", example=f'mdv eca add my.rules\nmdv eca add --text "{EXAMPLE_RULE}"')
@rule_options
@click.option("--set", "rule_set", metavar="SET", help="Rule set  [default: main]")
@click.option(
    "--state", type=click.Choice(STATES[:3]), help="`shadow` evaluates the rules without their actions."
    "  [default: active]",
)  # fmt: skip
@json_option
@data_option
def add(file: Path | None, text: str | None, rule_set: str | None, state: str | None, as_json: bool) -> None:
    """Add the rules of a text, all or none. Rules in one text are separated by ;; . FILE - is standard input."""
    body = {"text": read_rule(file, text), "set": rule_set, "state": state}
    answer = connect().change(
        "POST", "/eca/rules", {name: value for name, value in body.items() if value is not None}
    )  # fmt: skip
    if as_json:
        write_json(answer)
        return
    for rule in answer.get("items", [answer]):
        print_warnings(rule["warnings"])
        print_line(f"Rule {_label(rule)} is added.")


@eca.command("list", example="mdv eca list --state quarantined")
@click.option("--set", "rule_set", metavar="SET", help="Only rules of this set.")
@click.option("--state", type=click.Choice(STATES), help="Only rules in this state.")
@list_options
@data_option
def list_(rule_set: str | None, state: str | None, limit: int | None, everything: bool, as_json: bool) -> None:
    """List rules with their states, and how often they fired and failed."""
    listing = Listing(limit, everything, as_json)
    items = connect().items("/eca/rules", listing.page, set=rule_set, state=state)
    listing.show(items, RULE, "There are no rules: `mdv eca add` adds one.")


@eca.command("show", example="mdv eca show note")
@click.argument("rule", metavar="R")
@json_option
@data_option
def show(rule: str, as_json: bool) -> None:
    """Show the rule R: its text, its normal form and its counts."""
    found = connect().get(_path(rule))
    if as_json:
        write_json(found)
        return
    facts = {name: value for name, value in found.items() if name not in ("text", "normal") and value is not None}
    write_table(("", ""), facts.items())
    for heading in ("text", "normal"):
        print_line(f"{heading}:")
        for line in found[heading].split("\n"):
            print_line(f"  {line}")


@eca.command(
    "dry-run",
    example="mdv eca dry-run doc.rdf --uri http://mdv.example/doc.rdf --rules my.rules\n"
    'mdv eca dry-run --update "DELETE resource(http://mdv.example/doc.rdf#host)"',
)
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--uri", metavar="URI", help="The URI to register FILE under.")
@syntax_option("Syntax of FILE  [default: by its suffix]")
@click.option("--update", "text", metavar="TEXT", help="An update, instead of FILE.")
@click.option("--rules", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Draft rules.")
@json_option
@data_option
def dry_run(
    file: Path | None, uri: str | None, syntax: str | None, text: str | None, rules: Path | None, as_json: bool
) -> None:
    """Show the run that the registration of FILE, or an update, would cause. Nothing is changed."""
    if (file is None) == (text is None) or (file is None) != (uri is None):
        raise click.UsageError("Give FILE with --uri, or --update TEXT.")
    body: Item = {"rules": [{"text": read_text(rules, None, "rules", "--rules")}]} if rules is not None else {}
    if file is not None:
        source = SourceFile(file, file.name)
        body |= {"document": read_text(file, None, "document", ""), "uri": uri,
                 "media_type": source.syntax(syntax).media_type}  # fmt: skip
    else:
        body["update"] = text
    mdp = connect()
    answer = mdp.post("/eca/dry-run", body)
    if "job" in answer:
        answer = mdp.wait_for_job(answer["job"])
    if as_json:
        write_json(answer)
        return
    print_line(f"Dry run, nothing was changed. Rules would fire: {answer['fired']:,}.")
    if answer.get("run"):
        print_tree(answer["run"])


@eca.command("trace", example="mdv eca trace\nmdv eca trace 7")
@click.argument("run", required=False, type=int)
@click.option("--rule", metavar="R", help="Only runs in which this rule fired or failed.")
@list_options
@data_option
def trace(run: int | None, rule: str | None, limit: int | None, everything: bool, as_json: bool) -> None:
    """Show the run RUN as a tree, or list the runs, newest first.

    A run is a change in which rules fired, or an update. The tree has the updates, the rules that they triggered with
    the comparisons of their conditions, and the updates of the actions of these. Runs are kept for some days.
    """
    mdp = connect()
    if run is None:
        listing = Listing(limit, everything, as_json)
        listing.show(mdp.items("/eca/runs", listing.page, rule=rule), RUN, "There are no runs.")
        return
    found = mdp.get(f"/eca/runs/{run}")
    if as_json:
        write_json(found)
        return
    where = f", at position {found['position']}" if found["position"] is not None else ""
    print_line(f"Run {run}: {found['cause']} of {found['subject']}{where}, {found['outcome']}.")
    if found.get("reason"):
        print_line(found["reason"])
    print_tree(found["tree"])


@eca.command("log", example="mdv eca log --resource http://mdv.example/doc.rdf#host")
@click.option("--resource", metavar="URI", help="Only statements about this resource.")
@click.option("--rule", metavar="R", help="Only changes of this rule.")
@click.option("--document", metavar="URI", help="Only changes of this document.")
@click.option("--run", type=int, metavar="RUN", help="Only changes of this run.")
@list_options
@data_option
def log(
    resource: str | None,
    rule: str | None,
    document: str | None,
    run: int | None,
    limit: int | None,
    everything: bool,
    as_json: bool,
) -> None:
    """List the statements that rules and updates inserted (+) and deleted (-), newest first, with the reasons."""
    listing = Listing(limit, everything, as_json)
    items = connect().items("/eca/log", listing.page, resource=resource, rule=rule, document=document, run=run)
    listing.show(items, CHANGE, "There are no changes.")


@eca.command("enable", example="mdv eca enable note")
@click.argument("rules", metavar="R...", nargs=-1, required=True)
@data_option
def enable(rules: tuple[str, ...]) -> None:
    """Make rules active, also quarantined ones."""
    _change_states(rules, "enable", "active")


@eca.command("disable", example="mdv eca disable note")
@click.argument("rules", metavar="R...", nargs=-1, required=True)
@data_option
def disable(rules: tuple[str, ...]) -> None:
    """Disable rules. They stay stored."""
    _change_states(rules, "disable", "disabled")


@eca.command("shadow", example="mdv eca shadow note")
@click.argument("rules", metavar="R...", nargs=-1, required=True)
@data_option
def shadow(rules: tuple[str, ...]) -> None:
    """Evaluate rules and record their runs, without executing their actions."""
    _change_states(rules, "shadow", "a shadow rule")


def _change_states(rules: tuple[str, ...], verb: str, state: str) -> None:
    mdp = connect()
    for rule in rules:
        mdp.change("POST", f"{_path(rule)}/{verb}")
        print_line(f"Rule {rule} is {state}.")


@eca.command("remove", example="mdv eca remove note")
@click.argument("rules", metavar="R...", nargs=-1, required=True)
@data_option
def remove(rules: tuple[str, ...]) -> None:
    """Remove rules. Their changes of documents stay.

    To remove what the rules of a set inserted, delete the document urn:mdv:eca:SET.
    """
    mdp = connect()
    for rule in rules:
        done = mdp.change("DELETE", _path(rule))
        print_warnings(done["warnings"])
        print_line(f"Rule {rule} is removed.")


@eca.command("compensate", example="mdv eca compensate 7")
@click.argument("run", type=int)
@json_option
@data_option
def compensate(run: int, as_json: bool) -> None:
    """Undo what the run RUN did, in a new transaction.

    A change is undone only if its result is still there unchanged; the others are reported. No rules are triggered.
    """
    done = connect().change("POST", f"/eca/runs/{run}/compensate")
    if as_json:
        write_json(done)
        return
    print_line(f"Changes: {done['undone']:,} undone, {done['skipped']:,} skipped.")
    for change in done["not_undone"]:
        print_line(f"  skipped: {change_text(change)}")


def _path(rule: str) -> str:
    return f"/eca/rules/{quote(rule, safe='')}"


def _label(rule: Item) -> str:
    number = rule["id"] if rule["id"] is not None else "numbered by its superpeer"
    return f"{rule['name']} ({number})" if rule["name"] else str(number)


for command in (check, graph, analysis):
    eca.add_command(command)
