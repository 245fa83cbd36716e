"""Checks of what is not the database: settings, the folder, Redis, the web server, the LMR."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdv.config import COMMAND_SETTINGS, SETTINGS, Config
from mdv.db.doctor import CLOCKS_APART, Finding, clocks_apart, fail, warn, well

if TYPE_CHECKING:
    import httpx
    import redis

    from mdv.system import System

SLOW_REDIS = 0.1
LITTLE, VERY_LITTLE = 2 * 1024**3, 256 * 1024**2
"""Bytes of room on a disk."""


# Settings and the folder


def settings() -> Finding:
    try:
        Config.from_environment()
    except SystemExit as error:
        return fail(str(error), "Correct it; `mdv settings` says what it takes.")
    known = {setting.variable for setting in (*SETTINGS.values(), *COMMAND_SETTINGS)}
    strange = sorted(name for name in os.environ if name.startswith("MDV_") and name.removesuffix("_FILE") not in known)
    if strange:
        return warn(f"{', '.join(strange)}: set, and not known to MDV.", "`mdv settings` lists those that are.")
    return well("The settings can be read.")


def private_files(folder: Path) -> Finding:
    """Whoever can read these files can do everything."""
    secret = [*folder.glob("*.token"), folder / "system.json", *folder.glob("*/password"), *folder.glob("*/*.conf")]
    facts = [(path, stat.S_IMODE(path.stat().st_mode)) for path in secret if path.is_file()]
    loose = [path for path, mode in facts if mode & 0o077]
    if loose:
        return fail(
            f"Others than their owner may read {', '.join(path.name for path in loose)} in {folder}.",
            f"Run: chmod 600 {' '.join(str(path) for path in loose)}; if others were here, make new tokens.",
        )
    return well(f"The secrets in {folder} are their owner's alone.")


def disk(folder: Path) -> Finding:
    usage = shutil.disk_usage(folder)
    says = f"{usage.free / 1e9:,.1f} GB are free where {folder} lies"
    advice = "Make room, or move the folder to a larger disk: a full one stops every change."
    if usage.free < VERY_LITTLE:
        return fail(f"{says}.", advice)
    return warn(f"{says}.", advice) if usage.free < LITTLE else well(f"{says}.")


# Redis


def redis_answers(client: redis.Redis) -> Finding:
    from redis import RedisError

    began = time.monotonic()
    try:
        client.ping()
    except RedisError as error:
        return fail(
            f"Redis does not answer: {_short(error)}.",
            "Start Valkey or Redis, or correct MDV_REDIS_URL; until then jobs are found late, and nothing is lost.",
        )
    took = time.monotonic() - began
    if took > SLOW_REDIS:
        return warn(f"Redis took {1000 * took:.0f} ms to answer.", "See what else it does; it should be near.")
    return well(f"Redis answers within {max(1.0, 1000 * took):.0f} ms.")


def redis_memory(client: redis.Redis) -> Finding:
    facts: dict[str, Any] = client.info("memory")
    policy, used, most = facts.get("maxmemory_policy", "noeviction"), facts["used_memory"], facts.get("maxmemory", 0)
    if policy != "noeviction":
        return warn(
            f"Redis drops keys when it is full ({policy}): wake-ups could be among them.",
            "Set maxmemory-policy noeviction.",
        )
    if most and used > 0.9 * most:
        return warn(f"Redis has used {used / most:.0%} of its memory.", "Raise maxmemory.")
    return well("Redis keeps what it is given.")


def workers(client: redis.Redis) -> Finding:
    from mdv.mdp.status import workers_heard

    heard = workers_heard(client)
    if heard is None:
        return warn("Not known: Redis does not answer.", "Mend Redis first.")
    if not heard:
        return fail("No worker is heard of: nothing is carried out.", "Start one with `mdv worker`, or see its log.")
    named = ", ".join(f"{worker.name}{_ago(worker.heard_seconds_ago)}" for worker in heard)
    return well(f"Workers are heard of: {named}.")


def _ago(seconds: float | None) -> str:
    return "" if seconds is None else f" (last heard {seconds:.0f} s ago)"


# The web server and the LMR


def web_ready(answer: httpx.Response) -> Finding:
    if answer.status_code == 200:
        return well(f"The web server is ready at {_origin(answer)}.")
    return fail(
        f"The web server at {_origin(answer)} is not ready: {_words(answer)}",
        "See its log; the lines above tell what it leans on.",
    )


def token(url: str, secret: str, get: Callable[..., httpx.Response]) -> Finding:
    """Whether commands are let in; what the token opens beyond that, they tell themselves."""
    if not (secret.isascii() and secret.isprintable()):
        return fail("MDV_TOKEN holds characters that no token has.", "Set it again; `mdv token create` makes one.")
    answer = get(f"{url}/api/v1/status", headers={"Authorization": f"Bearer {secret}"} if secret else {})
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        if not secret:
            return warn("No token is given, and this MDV asks for one.", "Set MDV_TOKEN.")
        return fail(f"The token is refused: {_words(answer)}", "Correct MDV_TOKEN; `mdv token create` makes a new one.")
    if answer.status_code in (HTTPStatus.OK, HTTPStatus.FORBIDDEN):  # an LMR's is known, and opens less
        return well("The token is known." if secret else "No token is given, and none is needed for reading.")
    return warn(f"The token cannot be tried now: {_words(answer)}", "Mend first what the web server leans on.")


def web_clock(answer: httpx.Response, now: datetime) -> Finding | None:
    """`now` is what the database took for now when the answer came. A web server tells its time to the second."""
    try:
        there = parsedate_to_datetime(answer.headers["Date"])
    except (KeyError, ValueError):
        return None
    apart = clocks_apart(there, now, there + timedelta(seconds=1) + answer.elapsed)
    if apart > CLOCKS_APART:
        return warn(
            f"The web server's clock and the database's are {apart:.0f} s apart.",
            "Let both follow the same time server.",
        )
    return well("The clocks of the web server and of the database agree.")


def lmr(system: System, get: Callable[..., httpx.Response]) -> Finding:
    answer = get(f"{system.url}/api/v1/status", headers={"Authorization": f"Bearer {system.token}"})
    if answer.status_code != 200:
        return fail(f"The LMR at {system.url} says: {_words(answer)}", "See its log, and MDV_LMR_TOKEN.")
    found = answer.json()
    if found["last_error"]:
        return warn(
            f"The LMR at {system.url} goes on alone, at position {found['position']:,}: {found['last_error']}",
            "It catches up by itself once its MDP answers; see MDV_URL and MDV_LMR_TOKEN where it runs.",
        )
    if not found["up_to_date"]:
        return warn(f"The LMR at {system.url} is catching up, at position {found['position']:,}.", "Give it time.")
    if found["last_verified"] is None:
        return well(f"The LMR at {system.url} is up to date; `mdv lmr verify` would prove it.")
    return well(f"The LMR at {system.url} is up to date, and was verified at {found['last_verified']}.")


def _words(answer: httpx.Response) -> str:
    try:
        said = answer.json()
        words = str(said.get("detail") or ", ".join(f"{name} {value}" for name, value in said.items()))
        return words.rstrip(".") + "."
    except ValueError:
        return f"status {answer.status_code}."


def _origin(answer: httpx.Response) -> str:
    return f"{answer.url.scheme}://{answer.url.netloc.decode()}"


def _short(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
