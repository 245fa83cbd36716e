"""Print runs of event-condition-action rules as trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from mdv.cli.output import Item, escape_controls

MAX_CHANGES_PRINTED = 10


def print_tree(tree: Item) -> None:
    """Print the tree of a run: rules with their comparisons, and updates with their changes. A job has the trace that
    the tree is made from."""
    if "steps" in tree:
        from mdv.inspect.eca_runs import build_tree, tree_json

        tree = tree_json(build_tree(tree))
    for line in tree_lines(tree):
        click.echo(escape_controls(line))


def print_warnings(warnings: Sequence[Item]) -> None:
    """Print the warnings of a text to standard error."""
    for one in warnings:
        place = f"line {one['line']}, column {one['column']}: " if one.get("line") else ""
        click.echo(f"mdv: warning: {escape_controls(place + one['message'])}", err=True)


def tree_lines(tree: Item) -> Iterator[str]:
    """Yield the lines of a tree."""
    for update in tree["updates"]:
        yield from _update_lines(update, "")
    for copy in tree["copies"]:
        yield from _copy_lines(copy, "")
    for update in tree["continued"]:
        yield f"after update {update['n']}:"
        for copy in update["copies"]:
            yield from _copy_lines(copy, "  ")
    if tree["left_out"]:
        yield f"{tree['left_out']:,} updates are left out."
    for copy in tree["later"]:
        yield from _copy_lines(copy, "")


def _update_lines(update: Item, indent: str) -> Iterator[str]:
    state = " (undone)" if update["undone"] else "" if update["change_count"] else ": no change"
    action = f", action {update['action'] + 1}" if update["action"] is not None else ""
    yield f"{indent}update {update['n']}{action}{state}"
    if "called" in update:
        yield f"{indent}  {called_text(update['called'])}"
    if update["note"]:
        yield f"{indent}  note: {update['note']}"
    for change in update["changes"][:MAX_CHANGES_PRINTED]:
        yield f"{indent}  {change_text(change)}"
    if update["change_count"] > MAX_CHANGES_PRINTED:
        yield f"{indent}  … and {update['change_count'] - MAX_CHANGES_PRINTED:,} more changes"
    if update.get("continued"):
        yield f"{indent}  … continued below"
    for copy in update.get("copies", []):
        yield from _copy_lines(copy, indent + "  ")


def called_text(called: Item) -> str:
    """Return what an action that CALL has run did, as text.

    >>> called_text({"action": "http://a/act", "calls": 1, "inputs": [[]], "solutions": 2, "first": [], "warnings": []})
    'called <http://a/act>(): 2 solutions'
    """
    inputs = f"({', '.join(map(_term_text, called['inputs'][0]))})" if called["calls"] == 1 else ""
    times = "" if called["calls"] == 1 else f" {called['calls']:,} times"
    count = f"{called['solutions'] or 'no'} solution{'' if called['solutions'] == 1 else 's'}"
    bindings = (", ".join(f"{name} = {_term_text(term)}" for name, term in one.items()) for one in called["first"])
    shown = "; ".join(one for one in bindings if one)
    return f"called <{called['action']}>{inputs}{times}: {count}{f' ({shown})' if shown else ''}" + "".join(
        f"; warning: {message}" for message in called["warnings"]
    )


def _copy_lines(copy: Item, indent: str) -> Iterator[str]:
    state = " (shadow: not executed)" if copy["state"] == "shadow" else ""
    because = f" because of {delta_text(copy['delta'])}" if copy["delta"] else ""
    yield f"{indent}rule {copy['name'] or copy['rule']}{because}{state}"
    for one in copy["comparisons"]:
        yield f"{indent}  if {one['text']}: {'true' if one['holds'] else 'false'}{_values_text(one)}"
        if "note" in one:
            yield f"{indent}    note: {one['note']}"
    for process in copy.get("processes", ()):
        yield f"{indent}  started the process {process}"
    for update in copy["updates"]:
        yield from _update_lines(update, indent + "  ")
    if copy["reason"] is not None:
        yield f"{indent}  failed: {copy['reason']}"


def _values_text(comparison: Item) -> str:
    sides = [comparison[name] for name in ("left", "right") if name in comparison]
    return " (" + "; ".join(", ".join(map(_term_text, side)) or "no value" for side in sides) + ")"


def change_text(change: Item) -> str:
    """Return an effective change as text."""
    removed, added = change["removed"], change["added"]
    where = f" in {change['document']}"
    if removed and added:
        return f"~ {_statement_text(removed)} → {_term_text(added[2])}{where}"
    return f"- {_statement_text(removed)}{where}" if removed else f"+ {_statement_text(added)}{where}"


def _statement_text(statement: Sequence[Any]) -> str:
    subject, name, term = statement
    return f"<{subject}> <{name}> {_term_text(term)}"


def delta_text(delta: Item) -> str:
    """Return an instantiation of `$delta` as text."""
    from mdv.inspect.eca_log import write_json_delta

    return write_json_delta(delta)


def _term_text(term: Item) -> str:
    return f"<{term['value']}>" if term["type"] == "uri" else repr(term["value"])
