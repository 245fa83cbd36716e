"""The base of all commands: help with an example, and shared options."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mdv.config import read_variable
from mdv.mdp_places import find_mdp
from mdv.rdf.syntax import SYNTAXES
from mdv.system import DEFAULT_FOLDER

if TYPE_CHECKING:
    from mdv.client import Client

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_DATA = "mdv.data"
_MDP = "mdv.mdp"


class ExampleCommand(click.Command):
    """A command whose help ends with an example."""

    def __init__(self, *arguments: Any, example: str, **options: Any) -> None:
        options["context_settings"] = CONTEXT
        super().__init__(*arguments, **options)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_example(self.example, formatter)


class ExampleGroup(click.Group):
    """A group of commands. Its help lists every command below it with its example."""

    command_class = ExampleCommand

    def __init__(self, *arguments: Any, example: str, **options: Any) -> None:
        options["context_settings"] = CONTEXT
        super().__init__(*arguments, **options)
        self.example = example

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of typical use, not alphabetical

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, verb.get_short_help_str(80), verb.example) for name, verb in walk_commands(self)]
        width = max(len(name) for name, _, _ in rows) + 2
        with formatter.section("Commands"):
            for name, help_, example in rows:
                formatter.write(f"  {name:<{width}}{help_}\n  {'':<{width}}$ {example.splitlines()[0]}\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_example(self.example, formatter)


def walk_commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, ExampleCommand | ExampleGroup]]:
    """Yield every command below `group` that can be run, with its full name."""
    for name, command in group.commands.items():
        if isinstance(command, ExampleCommand) or (
            isinstance(command, ExampleGroup) and command.invoke_without_command
        ):
            yield prefix + name, command
        if isinstance(command, click.Group):
            yield from walk_commands(command, f"{prefix}{name} ")


def write_example(example: str, formatter: click.HelpFormatter) -> None:
    with formatter.section("Example"):
        for line in example.splitlines():
            formatter.write(f"  $ {line}\n")


# Options


def data_option(function: AnyFunction) -> AnyFunction:
    """Add the options --data and --mdp, which name the system. They can be given at any level; the last is used."""

    def remember(context: click.Context, _: click.Parameter, number: int | None) -> None:
        if number is not None:
            context.meta[_MDP] = number

    return folder_option(
        click.option(
            "--mdp",
            metavar="N",
            type=click.IntRange(1),
            expose_value=False,
            callback=remember,
            help="Number of the MDP, if `mdv up` runs several  [default: 1]",
        )(function)
    )


def folder_option(function: AnyFunction) -> AnyFunction:
    """Add the option --data."""

    def remember(context: click.Context, _: click.Parameter, folder: Path | None) -> None:
        if folder is not None:
            context.meta[_DATA] = folder

    return click.option(
        "--data",
        metavar="DIR",
        type=click.Path(file_okay=False, path_type=Path),
        expose_value=False,
        callback=remember,
        help="Data folder of a running `mdv up`  [default: $MDV_DATA, else ./.mdv]",
    )(function)


def data_folder() -> Path | None:
    """Return the folder of the MDP that --data and --mdp name; None if neither is given."""
    folder, number = named_folder(), click.get_current_context().meta.get(_MDP)
    if number is None:
        return folder
    return find_mdp(folder or Path(read_variable("MDV_DATA", os.environ) or DEFAULT_FOLDER), number)


def named_folder() -> Path | None:
    """Return the folder given with --data, if any."""
    folder: Path | None = click.get_current_context().meta.get(_DATA)
    return folder


def connect() -> Client:
    """Return a client of the system that the options or the environment name."""
    from mdv.client import Client
    from mdv.system import find_system

    return click.get_current_context().with_resource(Client(find_system(data_folder())))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def syntax_option(help_: str, default: str | None = None) -> Callable[[AnyFunction], AnyFunction]:
    """Add the option --syntax: one of the syntaxes that MDV reads and writes."""
    names = click.Choice([syntax.name for syntax in SYNTAXES])
    return click.option("--syntax", type=names, default=default, show_default=default is not None, help=help_)
