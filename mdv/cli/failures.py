"""How a command ends: an error as a sentence on standard error, and the exit code that goes with it."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress

import click

from mdv.cli.output import clean
from mdv.errors import BadCommand, MdvError, NotWellFormed, Unauthenticated

FAILED, INTERRUPTED = 1, 130
MOST_FLAWS = 50


def exit_code_of(run: Callable[[], object]) -> int:
    """Run a command: 0 when it did what was asked, 1 when not, 2 for a line that cannot be meant, 130 after Ctrl-C."""
    try:
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.Abort:
        return INTERRUPTED
    except (KeyboardInterrupt, EOFError):
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        # Whoever read the output has had enough of it.
        _silence_stdout()
        return FAILED
    except SystemExit as end:
        return _say_exit(end)
    except Exception as error:
        if os.environ.get("MDV_DEBUG") == "1":
            traceback.print_exc()
        else:
            with suppress(OSError):
                click.echo("\n".join(sentences(as_mdv_error(error))), err=True)
        return FAILED


def sentences(error: MdvError, who: str = "mdv") -> Iterator[str]:
    """`mdv: TITLE: detail`, then a line for each flaw. The title is not said twice.

    >>> from mdv.errors import Flaw, InvalidDocument
    >>> print("\\n".join(sentences(InvalidDocument("1 error.", [Flaw("no such class", line=3)]))))
    mdv: Document refused: 1 error.
      line 3: no such class
    """
    detail = words(error)
    says_so = isinstance(error, NotWellFormed) and "is not well-formed" in detail
    title = "" if says_so else f"{error.title}: "
    yield f"{who}: {title}" + "\n".join(clean(line) for line in detail.splitlines())
    if len(error.flaws) == 1 and str(error.flaws[0]) in error.detail:
        return
    for flaw in error.flaws[:MOST_FLAWS]:
        where = f"{flaw.subject}: " if flaw.line is None and flaw.subject else ""
        yield "  " + clean(where + str(flaw))
    if len(error.flaws) > MOST_FLAWS:
        yield f"  … and {len(error.flaws) - MOST_FLAWS:,} more"


def words(error: MdvError) -> str:
    """What an error says in detail; to one who calls without a token, how a command is given one."""
    unsaid = isinstance(error, Unauthenticated) and error.detail == Unauthenticated().detail
    return "This needs a token: set MDV_TOKEN." if unsaid else error.detail


def as_mdv_error(error: Exception) -> MdvError:
    """What else can go wrong, in our words."""
    if isinstance(error, MdvError):
        return error
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return BadCommand(f"{where}{error.strerror or error}.")
    return MdvError(f"{type(error).__name__}: {error} (MDV_DEBUG=1 shows where).")


def _say_exit(end: SystemExit) -> int:
    """`SystemExit` with a sentence is how settings say that they cannot be read."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    click.echo(f"mdv: {end.code}", err=True)
    return FAILED


def _silence_stdout() -> None:
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
