"""The frame of every command: help with an example, and the options that many share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mdv.rdf.syntax import SYNTAXES

if TYPE_CHECKING:
    from mdv.client import Client

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_DATA = "mdv.data"


class Verb(click.Command):
    """A command whose help ends with an example."""

    def __init__(self, *arguments: Any, example: str, **options: Any) -> None:
        options["context_settings"] = CONTEXT
        super().__init__(*arguments, **options)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_example(self.example, formatter)


class Noun(click.Group):
    """A group of commands. Its help shows every verb below it with its example."""

    command_class = Verb

    def __init__(self, *arguments: Any, example: str, **options: Any) -> None:
        options["context_settings"] = CONTEXT
        super().__init__(*arguments, **options)
        self.example = example

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of a day's work, not of the alphabet

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, verb.get_short_help_str(80), verb.example) for name, verb in verbs(self)]
        width = max(len(name) for name, _, _ in rows) + 2
        with formatter.section("Commands"):
            for name, help_, example in rows:
                formatter.write(f"  {name:<{width}}{help_}\n  {'':<{width}}$ {example.splitlines()[0]}\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_example(self.example, formatter)


def verbs(group: click.Group, prefix: str = "") -> Iterator[tuple[str, Verb | Noun]]:
    """Everything below `group` that can be run, by its full name."""
    for name, command in group.commands.items():
        if isinstance(command, Verb) or (isinstance(command, Noun) and command.invoke_without_command):
            yield prefix + name, command
        if isinstance(command, click.Group):
            yield from verbs(command, f"{prefix}{name} ")


def write_example(example: str, formatter: click.HelpFormatter) -> None:
    with formatter.section("Example"):
        for line in example.splitlines():
            formatter.write(f"  $ {line}\n")


# Options


def data_option(function: AnyFunction) -> AnyFunction:
    """--data, wherever it stands on the line: the last one counts."""

    def remember(context: click.Context, _: click.Parameter, folder: Path | None) -> None:
        if folder is not None:
            context.meta[_DATA] = folder

    return click.option(
        "--data",
        metavar="DIR",
        type=click.Path(file_okay=False, path_type=Path),
        expose_value=False,
        callback=remember,
        help="The folder of a running `mdv up`  [default: $MDV_DATA, else ./.mdv]",
    )(function)


def data_folder() -> Path | None:
    """The folder that the caller named, if any."""
    folder: Path | None = click.get_current_context().meta.get(_DATA)
    return folder


def connect() -> Client:
    """A client of the system that the caller means."""
    from mdv.client import Client
    from mdv.system import find_system

    return click.get_current_context().with_resource(Client(find_system(data_folder())))


json_option = click.option("--json", "as_json", is_flag=True, help="Answer as JSON, for machines.")


def syntax_option(help_: str, default: str | None = None) -> Callable[[AnyFunction], AnyFunction]:
    """--syntax, one of those that MDV reads and writes."""
    names = click.Choice([syntax.name for syntax in SYNTAXES])
    return click.option("--syntax", type=names, default=default, show_default=default is not None, help=help_)
