"""`mdv real`: run and check programs in ReAL."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from mdv.cli.command import ExampleGroup, connect, data_option, json_option
from mdv.cli.output import on_terminal, print_line, write_json, write_table
from mdv.cli.processes import add_process_commands, start_detached
from mdv.cli.real_locks import lock
from mdv.cli.real_plans import actions, explain
from mdv.cli.real_programs import (
    print_difference,
    print_program_warning,
    program_options,
    read_code,
    read_pairs,
    read_term_argument,
)
from mdv.cli.real_prompt import prompt_for_programs

Item = dict[str, Any]

ANSWER_SECONDS = 600.0
"""A program may wait as long as the server allows, and then runs on."""


@click.group(cls=ExampleGroup, invoke_without_command=True, example="mdv real run -e 'rdf:type(?x, ?class)' --read")
@data_option
@click.pass_context
def real(context: click.Context) -> None:
    """Run and check programs in ReAL, the resource action language, and look at their processes.

    On a terminal, `mdv real` alone reads programs and runs them one after the other.
    """
    if context.invoked_subcommand is not None:
        return
    if not (sys.stdin.isatty() and on_terminal()):
        click.echo(context.get_help())
        return
    prompt_for_programs(connect())


add_process_commands(real)


real.add_command(lock)


@real.command("run", example="mdv real run program.real --bind x=http://mdv.example/doc.rdf#host")
@program_options
@click.option("--read", "is_read", is_flag=True, help="Refuse changes outside { }.")
@click.option("--sandbox", "is_sandbox", is_flag=True, help="Keep changes in memory, report them and drop them.")
@click.option("--detach", "is_detached", is_flag=True, help="Start a process, print its name and do not wait.")
@click.option("--bind", "bindings", multiple=True, metavar="NAME=TERM",
              help="Bind a variable to a URI, a text in quotation marks, or a term as JSON.")  # fmt: skip
@click.option("--into", metavar="URI", help="Document that additions in the default context go to.")
@click.option("--limit", type=click.IntRange(1, 100_000), metavar="N", help="End the program after N solutions.")
@json_option
@data_option
def run(
    file: Path | None,
    code: str | None,
    prefixes: tuple[str, ...],
    is_read: bool,
    is_sandbox: bool,
    is_detached: bool,
    bindings: tuple[str, ...],
    into: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Run the program in FILE (- is standard input), or EXPR, and print its solutions.

    Its changes are committed, unless --read or --sandbox is given. If the command is interrupted, the program is
    stopped; what it has committed stays.
    """
    if is_read + is_sandbox + is_detached > 1:
        raise click.UsageError("--read, --sandbox and --detach cannot be combined.")
    mode = "read" if is_read else "sandbox" if is_sandbox else "run"
    body: Item = {"code": read_code(file, code), "mode": mode}
    body |= {"prefixes": read_pairs(prefixes, "--prefix")}
    body["binding"] = {name: read_term_argument(text) for name, text in read_pairs(bindings, "--bind").items()}
    body |= {name: value for name, value in (("into", into), ("limit", limit)) if value is not None}
    if is_detached:
        start_detached(connect(), body, as_json)
        return
    headers = {"Content-Type": "application/json"}
    sent = connect().request(
        "POST", "/real", content=json.dumps(body).encode(), headers=headers, seconds=ANSWER_SECONDS, once=mode == "run"
    )
    answer: Item = sent.json()
    if as_json:
        write_json(answer)
        return
    for warning in answer["warnings"]:
        print_program_warning(warning)
    solutions = answer["solutions"]
    names = list(dict.fromkeys(name for solution in solutions for name in solution))
    if names:
        terms = ([solution.get(name) for name in names] for solution in solutions)
        write_table(names, ([term and term["value"] for term in row] for row in terms))
    if on_terminal() or not names:
        print_line(f"{len(solutions):,} solution{'' if len(solutions) == 1 else 's'}.")
    if mode == "run" and any(answer["effects"].values()):
        added, removed = answer["effects"]["added"], answer["effects"]["removed"]
        print_line(f"Added {added:,} and removed {removed:,} statements, up to position {answer['position']}.")
    print_difference(answer.get("difference", []))


@real.command("check", example="mdv real check program.real")
@program_options
@json_option
@data_option
def check(file: Path | None, code: str | None, prefixes: tuple[str, ...], as_json: bool) -> None:
    """Check the program in FILE (- is standard input), or EXPR, without running it."""
    body = {"code": read_code(file, code), "prefixes": read_pairs(prefixes, "--prefix")}
    answer = connect().post("/real/check", body)
    if as_json:
        write_json(answer)
        return
    for warning in answer["warnings"]:
        print_program_warning(warning)
    if on_terminal() and not answer["warnings"]:
        print_line("The program is valid.")


for command in (explain, actions):
    real.add_command(command)
