"""The programs that make up a system: web server, worker and LMR, as they are started everywhere.

All put the folder that they are started in before all others when they look for `web` and `workers`, so they are
started in one that holds neither.
"""

from __future__ import annotations

import sys


def web_program(host: str, port: int, workers: int = 1) -> list[str]:
    """The web server: one thread of gevent a process, so that waiting callers cost next to nothing.

    >>> web_program("::1", 8080)[-3:]
    ['--graceful-timeout', '10', 'web.wsgi:app']
    """
    return [
        *(sys.executable, "-m", "gunicorn", "--no-control-socket", "--logger-class", "web.log.JsonLogger"),
        *("--worker-class", "web.worker.WebWorker", "--workers", str(workers), "--worker-connections", "2000"),
        *("--bind", f"[{host}]:{port}" if ":" in host else f"{host}:{port}"),
        # A document's name of 2,048 bytes, each of them percent-encoded, still fits.
        *("--limit-request-line", "8190", "--keep-alive", "30", "--graceful-timeout", "10", "web.wsgi:app"),
    ]


def lmr_program(host: str, port: int) -> list[str]:
    """The web server of an LMR: one process, whose threads share the cache."""
    return [
        *(sys.executable, "-m", "gunicorn", "--no-control-socket", "--logger-class", "web.log.JsonLogger"),
        *("--worker-class", "web.lmr.worker.LmrWorker", "--workers", "1", "--threads", "32"),
        *("--bind", f"[{host}]:{port}" if ":" in host else f"{host}:{port}"),
        *("--limit-request-line", "8190", "--keep-alive", "30", "--graceful-timeout", "2", "web.lmr.wsgi:app"),
    ]


def worker_program(concurrency: int) -> list[str]:
    """The worker that carries out the jobs."""
    return [
        *(sys.executable, "-m", "celery", "--quiet", "-A", "workers.app", "worker", "--concurrency", str(concurrency)),
        *("--loglevel", "warning", "--without-gossip", "--without-mingle", "--without-heartbeat"),
    ]
