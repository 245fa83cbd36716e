"""`mdv real` on a terminal: reads programs and runs them one after the other.

    sandbox> ex:serverPort(?x, ?port)
    1  ?x = <http://mdv.example/doc.rdf#host>  ?port = "5874"
    1 solution. Nothing would change.

A program that is not finished goes on in the next line. Solutions are printed as they arrive; Ctrl-C ends the program.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mdv.cli.errors import format_error
from mdv.cli.output import escape_controls, print_line
from mdv.cli.real_plans import print_plan, signature_text
from mdv.cli.real_programs import print_difference, print_program_warning, read_term_argument, term_text
from mdv.errors import BadRequest, MdvError
from mdv.real.parse import KEYWORDS, is_unfinished

if TYPE_CHECKING:
    from mdv.client import Client

Item = dict[str, Any]

MODES = ("sandbox", "read", "run")
MAX_HISTORY = 1000
SHOWN_ACTIONS = 50
HELP = """A program runs when its text is complete. A line that ends in \\ or is not complete goes on in the next one.

  :mode sandbox|read|run    what happens to changes: reported and dropped, refused, or made  (now: {mode})
  :into URI                 document that additions go to, until `:into` alone
  :prefix NAME=URI          a prefix for all programs, until `:prefix NAME=`
  :bind NAME=TERM           bind a variable before each program, until `:bind NAME=`
  :limit N                  end each program after N solutions, until `:limit` alone
  :check PROGRAM            warnings about a program, without running it
  :explain PROGRAM          its plan, and what it may read and change
  :actions [TEXT]           the actions that programs can call
  :quit                     leave (also Ctrl-D). Ctrl-C ends the program that runs"""


class _Settings:
    """The settings of the prompt: they apply to all programs until they are changed."""

    def __init__(self) -> None:
        self.mode = MODES[0]
        self.into: str | None = None
        self.limit: int | None = None
        self.prefixes: dict[str, str] = {}
        self.binding: dict[str, Item] = {}

    def body(self, code: str) -> Item:
        body: Item = {"code": code, "mode": self.mode, "prefixes": self.prefixes, "binding": self.binding}
        more = (("into", self.into), ("limit", self.limit))
        return body | {name: value for name, value in more if value is not None}


class _Leave(Exception):
    """The user leaves."""


def prompt_for_programs(client: Client) -> None:
    """Read programs and commands from the terminal until the user leaves."""
    settings = _Settings()
    print_line("ReAL. Write a program, such as rdf:type(?x, ?class). `:help` lists the commands, Ctrl-D leaves.")
    with suppress(_Leave), _History() as history:
        while True:
            try:
                text = _read(settings.mode)
            except EOFError:
                click.echo()
                return
            except KeyboardInterrupt:  # forget what was typed
                click.echo()
                continue
            if not text.strip():
                continue
            history.add(text)
            try:
                _execute(client, settings, text)
            except KeyboardInterrupt:
                click.echo("\nEnded.")
            except MdvError as error:
                _print_error(error, text)


def _read(mode: str) -> str:
    """Return the text of a program or command, which can have several lines."""
    lines = [input(f"{mode}> ")]
    indent = " " * len(mode) + "| "
    while True:
        if lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
        elif not _goes_on("\n".join(lines)):
            return "\n".join(lines)
        try:
            lines.append(input(indent))
        except EOFError:
            return "\n".join(lines)
        if not lines[-1].strip():  # an empty line ends every program
            return "\n".join(lines)


def _goes_on(text: str) -> bool:
    command, _, rest = text.strip().partition(" ")
    if command.startswith(":"):
        return command in (":check", ":explain") and bool(rest.strip()) and is_unfinished(rest)
    return bool(text.strip()) and is_unfinished(text)


# --- commands ---


def _execute(client: Client, settings: _Settings, text: str) -> None:
    if not text.lstrip().startswith(":"):
        _run(client, settings, text)
        return
    command, _, rest = text.strip().partition(" ")
    run = COMMANDS.get(command)
    if run is None:
        raise BadRequest(f"There is no command {command}. `:help` lists the commands.")
    run(client, settings, rest.strip())


def _change_mode(_: Client, settings: _Settings, text: str) -> None:
    if text not in MODES:
        raise BadRequest(f"{text!r} is not a mode. The modes are {', '.join(MODES)}.")
    settings.mode = text


def _change_into(_: Client, settings: _Settings, text: str) -> None:
    settings.into = text.removeprefix("<").removesuffix(">") or None


def _change_limit(_: Client, settings: _Settings, text: str) -> None:
    if text and not (text.isascii() and text.isdecimal() and int(text)):
        raise BadRequest(f"{text!r} is not a number of solutions.")
    settings.limit = int(text) if text else None


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise BadRequest(f"Write NAME=VALUE, not {text!r}.")
    return name.strip().removeprefix("?").removesuffix(":"), value.strip()


def _change_prefix(_: Client, settings: _Settings, text: str) -> None:
    name, value = _pair(text)
    settings.prefixes.pop(name, None)
    if value:
        settings.prefixes[name] = value.removeprefix("<").removesuffix(">")


def _change_binding(_: Client, settings: _Settings, text: str) -> None:
    name, value = _pair(text)
    settings.binding.pop(name, None)
    if value:
        try:
            settings.binding[name] = read_term_argument(value)
        except click.UsageError as error:
            raise BadRequest(error.message) from None


def _show_help(_: Client, settings: _Settings, __: str) -> None:
    click.echo(HELP.format(mode=settings.mode))


def _check(client: Client, settings: _Settings, text: str) -> None:
    answer = client.post(
        "/real/check", {"code": text, "prefixes": settings.prefixes, "inputs": list(settings.binding)}
    )  # fmt: skip
    for warning in answer["warnings"]:
        print_program_warning(warning)
        print_place(text, warning["span"])
    if not answer["warnings"]:
        print_line("The program is valid.")


def _explain(client: Client, settings: _Settings, text: str) -> None:
    body: Item = {"code": text, "prefixes": settings.prefixes, "inputs": list(settings.binding)}
    print_plan(client.post("/real/explain", body | ({"into": settings.into} if settings.into else {})))


def _show_actions(client: Client, _: _Settings, text: str) -> None:
    page = client.get("/real/actions", limit=SHOWN_ACTIONS, holding=text or None)
    for action in page["items"]:
        print_line(f"{action['uri']}{signature_text(action)}" + (f"  {action['problem']}" if action["problem"] else ""))
    if page["next"] is not None:
        print_line("There are more: `mdv real actions --all` lists them.")
    elif not page["items"]:
        print_line("There are no actions.")


def _leave(_: Client, __: _Settings, ___: str) -> None:
    raise _Leave


COMMANDS: dict[str, Callable[[Client, _Settings, str], None]] = {
    ":mode": _change_mode,
    ":into": _change_into,
    ":limit": _change_limit,
    ":prefix": _change_prefix,
    ":bind": _change_binding,
    ":check": _check,
    ":explain": _explain,
    ":actions": _show_actions,
    ":help": _show_help,
    ":quit": _leave,
}


# --- programs ---


def _run(client: Client, settings: _Settings, code: str) -> None:
    began = time.monotonic()
    with closing(client.events("/real", settings.body(code))) as events:  # type: ignore[type-var]
        for event in events:
            match event["type"]:
                case "solution":
                    values = (f"?{name} = {_shown(term, settings)}" for name, term in event["binding"].items())
                    print_line(f"{event['n']}  " + ("  ".join(values) or "yes"))
                case "warning":
                    print_program_warning(event)
                    if "span" in event:
                        print_place(code, event["span"])
                case "commit":
                    print_line(f"Committed at position {event['position']}.")
                case "end":
                    _print_end(event, time.monotonic() - began)
                case "error":
                    raise MdvError.from_problem(event["problem"])


def _print_end(end: Item, seconds: float) -> None:
    effects, count = end["effects"], end["solutions"]
    changes = [f"{effects[name]:,} {name}" for name in ("added", "removed") if effects[name]]
    if "difference" in end:
        print_difference(end["difference"])
        what = " Nothing would change." if not changes else f" Would change: {', '.join(changes)}."
    else:
        what = f" Changed: {', '.join(changes)}." if changes else ""
    print_line(f"{count:,} solution{'' if count == 1 else 's'} in {seconds:.2f} s.{what}")


def _shown(term: Item, settings: _Settings) -> str:
    """Return a term, with the prefixes of the settings where it is safe."""
    if term["type"] == "uri":
        for name, iri in settings.prefixes.items():
            local = term["value"].removeprefix(iri)
            if local != term["value"] and local.isidentifier():
                return f"{name}:{local}"
    return term_text(term)


def _print_error(error: MdvError, text: str) -> None:
    click.echo("\n".join(format_error(error, "error")), err=True)
    span = error.extra.get("span")
    if span and not error.flaws:  # the detail of an error in the text shows the place itself
        print_place(str(error.extra.get("text", text)), span)


def print_place(text: str, span: Item) -> None:
    """Print the line that a span is in, with carets below it."""
    lines = text.split("\n")
    if not 1 <= span["line"] <= len(lines):
        return
    line = lines[span["line"] - 1]
    marked = max(1, min(span["end"] - span["start"], len(line) - span["column"] + 1))
    click.echo(f"    {escape_controls(line)}\n    {' ' * (span['column'] - 1)}{'^' * marked}", err=True)


# --- history and completion ---


class _History:
    """The line editor with the programs of earlier sessions, one per line as JSON. Without readline it does nothing."""

    def __init__(self) -> None:
        state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        self.path = Path(state).expanduser() / "mdv" / "real_history"
        self.readline: Any = None

    def __enter__(self) -> _History:
        with suppress(ImportError):
            import readline

            self.readline = readline
            readline.set_auto_history(False)
            readline.clear_history()
            readline.set_completer_delims(" \t\n()[]{},")
            readline.set_completer(_complete)
            readline.parse_and_bind("tab: complete")
            for text in self._stored():
                readline.add_history(text)
        return self

    def _stored(self) -> Iterator[str]:
        with suppress(OSError, ValueError):
            for line in self.path.read_text("utf-8").splitlines()[-MAX_HISTORY:]:
                yield str(json.loads(line))

    def add(self, text: str) -> None:
        if self.readline is None:
            return
        self.readline.add_history(text)
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(text, ensure_ascii=False) + "\n")

    def __exit__(self, *_: object) -> None:
        if self.readline is not None:
            self.readline.set_completer(None)
            with suppress(OSError):
                lines = self.path.read_text("utf-8").splitlines()
                if len(lines) > 2 * MAX_HISTORY:
                    self.path.write_text("\n".join(lines[-MAX_HISTORY:]) + "\n", "utf-8")


def _complete(start: str, number: int) -> str | None:
    """Return the keyword or command with this number that begins with `start`.

    >>> _complete("UN", 0), _complete(":ac", 0), _complete("UN", 1)
    ('UNION ', ':actions ', None)
    """
    found = [word + " " for word in (*KEYWORDS, *COMMANDS) if start and word.startswith(start)]
    return found[number] if number < len(found) else None
