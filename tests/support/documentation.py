"""The examples of the documentation: fenced blocks of Markdown, run in a shell on a terminal."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ShellExample:
    """A block of shell commands, and the output that the page shows below it."""

    script: str
    output: str | None
    line: int


def blocks(page: Path, language: str) -> Iterator[str]:
    """Return the blocks of a page in one language."""
    return (found[2] for found in FENCE.finditer(page.read_text("utf-8")) if found[1] == language)


def shell_examples(page: Path) -> list[ShellExample]:
    """Return the `sh` blocks of a page. A `text` block below one of them, before any other, is its output."""
    text, examples, after_shell = page.read_text("utf-8"), [], False
    for found in FENCE.finditer(text):
        language, content = found.groups()
        if language == "text" and after_shell:
            examples[-1] = ShellExample(examples[-1].script, content, examples[-1].line)
        if language == "sh":
            examples.append(ShellExample(content, None, text.count("\n", 0, found.start()) + 1))
        after_shell = language == "sh"
    return examples


def run_on_terminal(script: str, folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a script with a terminal of 80 columns as its output; return the exit code and the output.

    The programs that it has left running when it ends, as after a failed command, are stopped.
    """
    near, far = pty.openpty()
    termios.tcsetwinsize(far, (50, 80))
    shell = ["bash", "-euo", "pipefail", "-c", script]
    process = subprocess.Popen(
        shell, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=far, stderr=far, start_new_session=True
    )
    os.close(far)
    stopper = threading.Thread(target=_stop_group_at_end, args=(process,))
    stopper.start()
    output = bytearray()
    try:
        while part := os.read(near, 65536):
            output += part
    except OSError:  # every process has closed the terminal
        pass
    finally:
        os.close(near)
        stopper.join()
    return process.returncode, output.decode().replace("\r\n", "\n")


def _stop_group_at_end(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
