"""What the commands of `mdv real` share: their options, and programs and terms as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from mdv.cli.output import escape_controls
from mdv.cli.source_files import SourceFile
from mdv.errors import BadRequest

Item = dict[str, Any]


def program_options(function: Any) -> Any:
    for option in (
        click.argument("file", required=False, type=click.Path(path_type=Path, allow_dash=True)),
        click.option("-e", "code", metavar="EXPR", help="Text of the program, instead of a file."),
        click.option("--prefix", "prefixes", multiple=True, metavar="NAME=URI", help="A prefix that the program uses."),
    ):
        function = option(function)
    return function


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


def read_pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    found = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign:
            raise click.UsageError(f"{option} needs NAME=VALUE, not {one!r}.")
        found[name.removeprefix("?").removesuffix(":")] = value
    return found


def read_code(file: Path | None, code: str | None) -> str:
    if (file is None) == (code is None):
        raise click.UsageError("Give either a FILE or -e EXPR.")
    if code is not None:
        return code
    assert file is not None
    try:
        return SourceFile(file, str(file)).read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file}: byte {error.start + 1} is not UTF-8.") from None


def print_program_warning(warning: Item) -> None:
    span = warning.get("span")
    place = f"line {span['line']}, column {span['column']}: " if span else ""
    hint = f" ({warning['hint']})" if "hint" in warning else ""
    click.echo(f"mdv: {escape_controls(place + warning['message'] + hint)}", err=True)


def term_text(term: Item) -> str:
    """Return a term as a program can contain it.

    >>> print(term_text({"type": "literal", "value": "a", "lang": "en"}), term_text({"type": "uri", "value": "urn:a"}))
    "a"@en <urn:a>
    """
    if term["type"] == "uri":
        return f"<{term['value']}>"
    mark = f"@{term['lang']}" if "lang" in term else f"^^<{term['datatype']}>" if "datatype" in term else ""
    return json.dumps(term["value"], ensure_ascii=False) + mark


def print_difference(difference: list[Item]) -> None:
    """Print what a program would change, by document."""
    for change in difference:
        click.echo(escape_controls(f"Would change {change['document']}:"))
        for sign, statements in (("+", change["added"]), ("-", change["removed"])):
            for subject, name, term in statements:
                click.echo(escape_controls(f"  {sign} <{subject}> <{name}> {term_text(term)}"))
