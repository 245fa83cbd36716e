"""`mdv real`: run and check programs in ReAL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from mdv.cli.command import ExampleGroup, connect, data_option, json_option
from mdv.cli.output import escape_controls, on_terminal, print_line, write_json, write_table
from mdv.cli.processes import add_process_commands, start_detached
from mdv.cli.real_locks import lock
from mdv.cli.source_files import SourceFile
from mdv.errors import BadRequest

Item = dict[str, Any]

ANSWER_SECONDS = 600.0
"""A program may wait as long as the server allows, and then runs on."""


@click.group(cls=ExampleGroup, example="mdv real run -e 'rdf:type(?x, ?class)' --read")
def real() -> None:
    """Run and check programs in ReAL, the resource action language, and look at their processes."""


add_process_commands(real)


real.add_command(lock)


def _program_options(function: Any) -> Any:
    for option in (
        click.argument("file", required=False, type=click.Path(path_type=Path, allow_dash=True)),
        click.option("-e", "code", metavar="EXPR", help="Text of the program, instead of a file."),
        click.option("--prefix", "prefixes", multiple=True, metavar="NAME=URI", help="A prefix that the program uses."),
    ):
        function = option(function)
    return function


@real.command("run", example="mdv real run program.real --bind x=http://mdv.example/doc.rdf#host")
@_program_options
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
    body: Item = {"code": _read_code(file, code), "mode": mode}
    body |= {"prefixes": _pairs(prefixes, "--prefix")}
    body["binding"] = {name: read_term_argument(text) for name, text in _pairs(bindings, "--bind").items()}
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
        _print_warning(warning)
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
    for change in answer.get("difference", ()):
        print_line(f"Would change {change['document']}:")
        for sign, statements in (("+", change["added"]), ("-", change["removed"])):
            for subject, name, term in statements:
                print_line(f"  {sign} <{subject}> <{name}> {_shown(term)}")


@real.command("check", example="mdv real check program.real")
@_program_options
@json_option
@data_option
def check(file: Path | None, code: str | None, prefixes: tuple[str, ...], as_json: bool) -> None:
    """Check the program in FILE (- is standard input), or EXPR, without running it."""
    body = {"code": _read_code(file, code), "prefixes": _pairs(prefixes, "--prefix")}
    answer = connect().post("/real/check", body)
    if as_json:
        write_json(answer)
        return
    for warning in answer["warnings"]:
        _print_warning(warning)
    if on_terminal() and not answer["warnings"]:
        print_line("The program is valid.")


def read_term_argument(text: str) -> Item:
    """Return a term as JSON, from a text in quotation marks, a URI, or the JSON itself.

    >>> read_term_argument('"a b"'), read_term_argument("urn:a")
    ({'type': 'literal', 'value': 'a b'}, {'type': 'uri', 'value': 'urn:a'})
    """
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return {"type": "literal", "value": text[1:-1]}
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise click.UsageError(f"--bind: {text[:80]!r} is not a term as JSON: {error}.") from None
        if isinstance(found, dict):
            return found
    return {"type": "uri", "value": text.removeprefix("<").removesuffix(">")}


def _pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    found = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign:
            raise click.UsageError(f"{option} needs NAME=VALUE, not {one!r}.")
        found[name.removeprefix("?").removesuffix(":")] = value
    return found


def _read_code(file: Path | None, code: str | None) -> str:
    if (file is None) == (code is None):
        raise click.UsageError("Give either a FILE or -e EXPR.")
    if code is not None:
        return code
    assert file is not None
    try:
        return SourceFile(file, str(file)).read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file}: byte {error.start + 1} is not UTF-8.") from None


def _print_warning(warning: Item) -> None:
    span = warning.get("span")
    place = f"line {span['line']}, column {span['column']}: " if span else ""
    hint = f" ({warning['hint']})" if "hint" in warning else ""
    click.echo(f"mdv: {escape_controls(place + warning['message'] + hint)}", err=True)


def _shown(term: Item) -> str:
    if term["type"] == "uri":
        return f"<{term['value']}>"
    mark = f"@{term['lang']}" if "lang" in term else f"^^<{term['datatype']}>" if "datatype" in term else ""
    return json.dumps(term["value"], ensure_ascii=False) + mark
