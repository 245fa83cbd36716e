"""Logs: each event is one line."""

from __future__ import annotations

import json
import subprocess
import sys

TELLS = r"""
import logging, warnings
import structlog
from mdv.logs import configure_logs

configure_logs("info")
said = "a\nb\u2028c\u0085d\u009be\u00fc"
structlog.get_logger().info(said, uri=said)
try:
    raise ValueError(said)
except ValueError:
    logging.getLogger("somebody.else").exception("it was %s", said)
logging.getLogger("somebody.else").info("not worth telling")
warnings.warn(said)
"""
SAID = "a\nb\u2028c\u0085d\u009be\u00fc"


def test_every_log_event_is_one_line_of_json() -> None:
    ran = subprocess.run([sys.executable, "-c", TELLS], capture_output=True, check=True)
    assert ran.stdout == b"" and ran.stderr.isascii()
    own, error, warning = (json.loads(line) for line in ran.stderr.decode().splitlines())
    assert (own["event"], own["uri"], own["level"]) == (SAID, SAID, "info")
    assert (error["event"], error["level"], error["logger"]) == (f"it was {SAID}", "error", "somebody.else")
    assert error["exception"].startswith("Traceback") and error["exception"].endswith(f"ValueError: {SAID}")
    assert SAID in warning["event"] and (warning["level"], warning["logger"]) == ("warning", "py.warnings")
    assert len({len(line["timestamp"]) for line in (own, error, warning)}) == 1
