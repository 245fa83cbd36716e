"""`mdv real explain` and `mdv real actions`: what a program would do, and the actions that it can call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mdv.cli.command import ExampleCommand, connect, data_option, json_option
from mdv.cli.output import Columns, Listing, list_options, print_line, write_json, write_table
from mdv.cli.real_programs import print_program_warning, program_options, read_code, read_pairs, term_text

Item = dict[str, Any]

ACTION: Columns = {
    "action": lambda item: item["uri"],
    "signature": lambda item: signature_text(item),
    "document": lambda item: ", ".join(item["documents"][:3]),
    "problem": lambda item: item["problem"] or "",
}


@click.command("explain", cls=ExampleCommand, example="mdv real explain program.real --into http://mdv.example/doc.rdf")
@program_options
@click.option("--input", "inputs", multiple=True, metavar="NAME", help="A variable that is bound before it runs.")
@click.option("--into", metavar="URI", help="Document that additions in the default context go to.")
@json_option
@data_option
def explain(
    file: Path | None,
    code: str | None,
    prefixes: tuple[str, ...],
    inputs: tuple[str, ...],
    into: str | None,
    as_json: bool,
) -> None:
    """Show the plan of the program in FILE (- is standard input), or EXPR, without running it.

    The plan says how each read finds its statements and how many match its constants, and what the program may read
    and change.
    """
    body: Item = {"code": read_code(file, code), "prefixes": read_pairs(prefixes, "--prefix")}
    body["inputs"] = [name.removeprefix("?") for name in inputs]
    answer = connect().post("/real/explain", body if into is None else body | {"into": into})
    if as_json:
        write_json(answer)
    else:
        print_plan(answer)


@click.command("actions", cls=ExampleCommand, example="mdv real actions")
@click.option("--holding", metavar="TEXT", help="Only actions whose URI contains this text.")
@list_options
@data_option
def actions(holding: str | None, limit: int | None, everything: bool, as_json: bool) -> None:
    """List the stored actions with their inputs and outputs."""
    listing = Listing(limit, everything, as_json)
    items = connect().items("/real/actions", listing.page, holding=holding)
    listing.show(items, ACTION, "There are no actions: register a document with an lrm:Action.")


def signature_text(action: Item) -> str:
    """Return the inputs and outputs of an action as a call writes them.

    >>> signature_text({"inputs": ["x", "y"], "outputs": ["z"]}), signature_text({"problem": "none"})
    ('(?x, ?y >> ?z)', '')
    """
    if "inputs" not in action:
        return ""
    inputs, outputs = (", ".join(f"?{name}" for name in action[kind]) for kind in ("inputs", "outputs"))
    return f"({inputs}{' >> ' if outputs else ''}{outputs})".replace("( >>", "(>>")


def print_plan(answer: Item) -> None:
    """Print the plan of a program."""
    for warning in answer["warnings"]:
        print_program_warning(warning)
    write_table(("step", "reads", "matches", "text"), map(_step_row, answer["steps"]))
    for heading, found in (("May read", answer["may_read"]), ("May change", answer["may_write"])):
        print_line(f"{heading}:{'' if found else ' nothing'}")
        for one in found:
            sign = {"added": "+ ", "removed": "- "}.get(one.get("change"), "")
            print_line(f"  {sign}{pattern_text(one)}  {_place(one)}")
    for heading, names in (("Calls", answer["calls"]), ("Starts", answer["starts"])):
        if names:
            print_line(f"{heading}: {', '.join(names)}")
    for gap in answer["gaps"]:
        print_line(f"It may do more: {gap}.")


def _step_row(step: Item) -> tuple[str, str, str, str]:
    each = ", for each solution" if step.get("repeats") else ""
    count = step.get("count", "")
    matches = "" if count == "" else "not counted" if count is None else f"{count:,}{'+' if step['more'] else ''}"
    access = step.get("access")
    inner = f" (in {step['action']})" if "action" in step else ""
    return "  " * step["level"] + step["operation"] + inner, f"{access}{each}" if access else "", matches, step["text"]


def pattern_text(pattern: Item) -> str:
    """Return a pattern as a program writes it.

    >>> pattern_text({"subject": None, "property": "urn:p", "object": {"type": "literal", "value": "a"}})
    '<urn:p>(?, "a")'
    """
    subject, name = (f"<{pattern[part]}>" if pattern[part] else "?" for part in ("subject", "property"))
    return f"{name}({subject}, {term_text(pattern['object']) if pattern['object'] else '?'})"


def _place(one: Item) -> str:
    if "change" in one:
        if one["document"]:
            return f"in {one['document']}"
        return "in any document" if one["change"] == "added" else "in every document that says it"
    return "in all documents" if one["documents"] is None else "in " + ", ".join(one["documents"])
