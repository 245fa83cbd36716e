"""Command lines of the servers: web server, worker and LMR.

Each server puts its working folder first on the module search path. So it must be started in a folder that contains no
`web` and no `workers`.
"""

from __future__ import annotations

import sys

KEEP_ALIVE_SECONDS = 75
"""How long a web server keeps an idle connection: longer than clients and proxies do. MDV's own clients keep theirs for
5 s (`mdv.http_client.IDLE_SECONDS`), proxies for 60 s by default."""


def web_command(host: str, port: int, workers: int = 1) -> list[str]:
    """Return the command line of the web server. It uses gevent, so that waiting requests cost almost nothing.

    >>> web_command("::1", 8080)[-3:]
    ['--graceful-timeout', '10', 'web.wsgi:app']
    """
    return _gunicorn("web.worker.WebWorker", host, port, workers, graceful_seconds=10, application="web.wsgi:app")


def lmr_command(host: str, port: int) -> list[str]:
    """Return the command line of the web server of an LMR: one process, whose threads share the cache."""
    return _gunicorn("web.lmr.worker.LmrWorker", host, port, 1, graceful_seconds=2, application="web.lmr.wsgi:app")


def _gunicorn(
    worker_class: str, host: str, port: int, workers: int, graceful_seconds: int, application: str
) -> list[str]:
    return [
        *(sys.executable, "-m", "gunicorn", "--no-control-socket", "--logger-class", "web.log.JsonLogger"),
        *("--worker-class", worker_class, "--workers", str(workers), "--worker-connections", "2000"),
        *("--bind", f"[{host}]:{port}" if ":" in host else f"{host}:{port}"),
        # Room for a document URI of 2,048 bytes, all of them percent-encoded.
        *("--limit-request-line", "8190", "--keep-alive", str(KEEP_ALIVE_SECONDS)),
        # Only web/client_address.py reads the headers of proxies; gunicorn trusts no address and no such header.
        *("--forwarded-allow-ips", "", "--forwarder-headers", ""),
        *("--graceful-timeout", str(graceful_seconds), application),
    ]


def worker_command(concurrency: int) -> list[str]:
    """Return the command line of a worker."""
    return [
        *(sys.executable, "-m", "celery", "--quiet", "-A", "workers.app", "worker", "--concurrency", str(concurrency)),
        *("--loglevel", "warning", "--without-gossip", "--without-mingle", "--without-heartbeat"),
    ]


def replicate_command() -> list[str]:
    """Return the command line of the replication of an MDP."""
    return [sys.executable, "-m", "workers.replicate"]


def federate_command() -> list[str]:
    """Return the command line of the process of an MDP in a federation."""
    return [sys.executable, "-m", "workers.federate"]
