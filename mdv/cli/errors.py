"""Error messages and exit codes of commands."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress

import click

from mdv.cli.output import escape_controls
from mdv.errors import BadCommand, MdvError, NotWellFormed, Unauthenticated

EXIT_FAILED, EXIT_INTERRUPTED = 1, 130
MAX_ERRORS_SHOWN = 50


def run_for_exit_code(run: Callable[[], object]) -> int:
    """Run a command and return its exit code: 0 for success, 1 for failure, 2 for wrong usage, 130 after Ctrl-C."""
    try:
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.Abort:
        return EXIT_INTERRUPTED
    except (KeyboardInterrupt, EOFError):
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        # The reader of the output has closed the pipe.
        _silence_stdout()
        return EXIT_FAILED
    except SystemExit as end:
        return _print_exit(end)
    except Exception as error:
        if os.environ.get("MDV_DEBUG") == "1":
            traceback.print_exc()
        else:
            with suppress(OSError):
                click.echo("\n".join(format_error(as_mdv_error(error))), err=True)
        return EXIT_FAILED


def format_error(error: MdvError, who: str = "mdv") -> Iterator[str]:
    """Yield `mdv: TITLE: detail`, then a line for each flaw. The title is omitted if the detail contains it.

    >>> from mdv.errors import Flaw, InvalidDocument
    >>> print("\\n".join(format_error(InvalidDocument("1 error.", [Flaw("no such class", line=3)]))))
    mdv: Document refused: 1 error.
      line 3: no such class
    >>> flaws = [Flaw("no such class", line=3), Flaw("no such property", line=4)]
    >>> text = "2 errors.\\n\\nLine 3: no such class\\n\\nLine 4: no such property"
    >>> len("\\n".join(format_error(InvalidDocument(text, flaws))).splitlines())
    5
    """
    detail = error_detail(error)
    is_repeated = isinstance(error, NotWellFormed) and "is not well-formed" in detail
    title = "" if is_repeated else f"{error.title}: "
    yield f"{who}: {title}" + "\n".join(escape_controls(line) for line in detail.splitlines())
    # The detail of an error of a text begins each flaw with a capital letter.
    if error.flaws and all(str(flaw)[1:] in error.detail for flaw in error.flaws):
        return
    for flaw in error.flaws[:MAX_ERRORS_SHOWN]:
        where = f"{flaw.subject}: " if flaw.line is None and flaw.subject else ""
        yield "  " + escape_controls(where + str(flaw))
    if len(error.flaws) > MAX_ERRORS_SHOWN:
        yield f"  … and {len(error.flaws) - MAX_ERRORS_SHOWN:,} more"


def error_detail(error: MdvError) -> str:
    """Return the detail of an error. For a missing token it says how to give a command one."""
    has_no_token = isinstance(error, Unauthenticated) and error.detail == Unauthenticated().detail
    return "This needs a token: set MDV_TOKEN." if has_no_token else error.detail


def as_mdv_error(error: Exception) -> MdvError:
    """Return any other exception as an `MdvError`."""
    if isinstance(error, MdvError):
        return error
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return BadCommand(f"{where}{error.strerror or error}.")
    return MdvError(f"{type(error).__name__}: {error} (MDV_DEBUG=1 shows the traceback).")


def _print_exit(end: SystemExit) -> int:
    """Print the message of a `SystemExit`, which reports an invalid setting. Return its exit code."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    click.echo(f"mdv: {end.code}", err=True)
    return EXIT_FAILED


def _silence_stdout() -> None:
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
