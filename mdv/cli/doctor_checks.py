"""Checks of `mdv doctor` for everything except the database: settings, folder, Redis, web server, LMR."""

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

import mdv
from mdv.config import COMMAND_SETTINGS, SETTINGS, Config
from mdv.inspect.sql.doctor import MAX_CLOCK_DIFFERENCE_SECONDS, Finding, clock_difference, fail, ok, warn
from mdv.static_files import missing_static_files, static_files

if TYPE_CHECKING:
    import httpx2
    import redis

    from mdv.system import System

SLOW_REDIS_SECONDS = 0.1
MAX_SILENCE_SECONDS = 60.0
MAX_LOG_BYTES = 1024**3
"""A larger log of a backbone is reported."""
"""How long a member of the backbone may be silent."""
LOW_DISK_BYTES, VERY_LOW_DISK_BYTES = 2 * 1024**3, 256 * 1024**2
"""Free disk space below which there is a warning, and a failure."""


# Settings and the folder


def settings() -> Finding:
    try:
        Config.from_environment()
    except SystemExit as error:
        return fail(str(error), "Correct the setting; `mdv settings` describes it.")
    known = {setting.variable for setting in (*SETTINGS.values(), *COMMAND_SETTINGS)}
    unknown = sorted(name for name in os.environ if name.startswith("MDV_") and name.removesuffix("_FILE") not in known)
    if unknown:
        return warn(f"Unknown settings: {', '.join(unknown)}.", "`mdv settings` lists all settings.")
    return ok("The settings are valid.")


def pages() -> Finding:
    """Whether this installation has every script and style of the pages."""
    folder = Path(mdv.__file__).parents[1] / "web"
    if not (files := static_files(folder)):
        return fail(f"This installation has no web pages: {folder} is missing.", "Install MDV again.")
    if missing := missing_static_files(folder):
        return fail(
            f"The pages lack {', '.join(missing)} in {folder / 'static'}.",
            "In a checkout, run `make install`; elsewhere, install MDV again.",
        )
    return ok(f"All {len(files)} scripts and styles of the pages are installed.")


def private_files(folder: Path) -> Finding:
    """Check that only the owner can read the files with secrets, which give full access."""
    secret = [*folder.glob("*.token"), folder / "system.json", *folder.glob("*/password"), *folder.glob("*/*.conf")]
    facts = [(path, stat.S_IMODE(path.stat().st_mode)) for path in secret if path.is_file()]
    loose = [path for path, mode in facts if mode & 0o077]
    if loose:
        return fail(
            f"Other users can read {', '.join(path.name for path in loose)} in {folder}.",
            f"Run: chmod 600 {' '.join(str(path) for path in loose)}; if others had access, create new tokens.",
        )
    return ok(f"Only the owner can read the secrets in {folder}.")


def disk(folder: Path) -> Finding:
    usage = shutil.disk_usage(folder)
    says = f"{usage.free / 1e9:,.1f} GB are free on the disk of {folder}"
    advice = "Free space, or move the folder to a larger disk: a full disk blocks all changes."
    if usage.free < VERY_LOW_DISK_BYTES:
        return fail(f"{says}.", advice)
    return warn(f"{says}.", advice) if usage.free < LOW_DISK_BYTES else ok(f"{says}.")


# Redis


def redis_answers(client: redis.Redis) -> Finding:
    from redis import RedisError

    started = time.monotonic()
    try:
        client.ping()
    except RedisError as error:
        return fail(
            f"Redis does not answer: {_short(error)}.",
            "Start Valkey or Redis, or correct MDV_REDIS_URL. Until then jobs are delayed, but nothing is lost.",
        )
    took = time.monotonic() - started
    if took > SLOW_REDIS_SECONDS:
        return warn(f"Redis took {1000 * took:.0f} ms to answer.", "Check its load, and run it close to the servers.")
    return ok(f"Redis answers within {max(1.0, 1000 * took):.0f} ms.")


def redis_memory(client: redis.Redis) -> Finding:
    facts: dict[str, Any] = client.info("memory")
    policy, used, most = facts.get("maxmemory_policy", "noeviction"), facts["used_memory"], facts.get("maxmemory", 0)
    if policy != "noeviction":
        return warn(
            f"Redis evicts keys when it is full ({policy}), possibly wake-ups.",
            "Set maxmemory-policy noeviction.",
        )
    if most and used > 0.9 * most:
        return warn(f"Redis has used {used / most:.0%} of its memory.", "Raise maxmemory.")
    return ok("Redis evicts no keys and has free memory.")


def workers(client: redis.Redis) -> Finding:
    from mdv.mdp.worker_heartbeats import list_live_workers

    live = list_live_workers(client)
    if live is None:
        return warn("Unknown: Redis does not answer.", "Fix Redis first.")
    if not live:
        return fail("No worker is alive: no jobs are executed.", "Start one with `mdv worker`, or see its log.")
    named = ", ".join(f"{worker.name}{_ago(worker.heard_seconds_ago)}" for worker in live)
    return ok(f"Workers are alive: {named}.")


def _ago(seconds: float | None) -> str:
    return "" if seconds is None else f" (last heartbeat {seconds:.0f} s ago)"


# The web server and the LMR


def web_ready(answer: httpx2.Response) -> Finding:
    if answer.status_code == 200:
        return ok(f"The web server is ready at {_origin(answer)}.")
    return fail(
        f"The web server at {_origin(answer)} is not ready: {_message(answer)}",
        "See its log, and the checks above of the parts that it needs.",
    )


def token(url: str, secret: str, get: Callable[..., httpx2.Response]) -> Finding:
    """Check that the token is valid. Its permissions are not checked."""
    if not (secret.isascii() and secret.isprintable()):
        return fail("MDV_TOKEN contains invalid characters.", "Correct it; `mdv token create` creates a token.")
    answer = get(f"{url}/api/v1/status", headers={"Authorization": f"Bearer {secret}"} if secret else {})
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        if not secret:
            return warn("No token is set, and this MDV requires one.", "Set MDV_TOKEN.")
        return fail(
            f"The token is refused: {_message(answer)}", "Correct MDV_TOKEN; `mdv token create` creates a new one."
        )
    if answer.status_code in (
        HTTPStatus.OK,
        HTTPStatus.FORBIDDEN,
    ):  # the token of an LMR is valid but may not read this
        return ok("The token is valid." if secret else "No token is set, and none is required for reading.")
    return warn(
        f"The token cannot be checked now: {_message(answer)}", "First fix the parts that the web server needs."
    )


def backbone(url: str, secret: str, get: Callable[..., httpx2.Response]) -> Finding | None:
    """Check the connections to the other members of the backbone, if there is one."""
    answer = get(f"{url}/api/v1/backbone", headers={"Authorization": f"Bearer {secret}"} if secret else {})
    if answer.status_code != HTTPStatus.OK:
        return None  # this MDP is in no backbone, or the checks above tell why it does not answer
    return judge_backbone(answer.json(), time.time())


def judge_backbone(found: dict[str, Any], now: float) -> Finding:
    """Return the worst of what `GET /backbone` shows.

    >>> found = {"forked": [], "replicating": True, "members": [], "state": "active", "lag": 0, "lag_seconds": 0,
    ...          "log_bytes": 0, "version": "1", "lead": "m1", "name": "m1"}
    >>> judge_backbone(found | {"replicating": False}, 0).verdict, judge_backbone(found, 0).verdict
    ('failure', 'ok')
    """
    if found["forked"]:
        return fail(
            f"Two databases have continued the same life: {', '.join(found['forked'])}.",
            "Stop one of them, and let it join again with an empty database.",
        )
    if different := found.get("diverged", []):
        return fail(
            f"{len(different):,} documents differ from those of other members, undecided: {different[0]}.",
            "See `mdv peer verify`, and take those of a member with `mdv peer repair NAME`.",
        )
    if not found["replicating"]:
        return fail("`mdv replicate` is not running: no changes of other members arrive.", "Start it, or see its log.")
    others = [one for one in found["members"] if "last_contact" in one and not one["paused"]]
    silent = [one["name"] for one in others if one["error"] or now - (one["last_contact"] or 0) > MAX_SILENCE_SECONDS]
    if silent:
        reasons = "; ".join(sorted({one["error"] for one in others if one["error"]}))
        if found["lead"] in silent:
            reasons += " Without the lead, no member can be invited or removed, and the schema cannot be changed."
        return warn(f"No answer of {', '.join(silent)}. {reasons}", "Check these members, and their URLs and TLS.")
    lapsed = [one["name"] for one in others if one["state"] == "lapsed"]
    if lapsed:
        return warn(f"The lives of {', '.join(lapsed)} were closed.", "They take over the state when they return.")
    skewed = [one["name"] for one in others if abs(one["clock_skew"] or 0) > MAX_CLOCK_DIFFERENCE_SECONDS]
    if skewed:
        return warn(
            f"The clocks of {', '.join(skewed)} differ from ours by seconds.", "Synchronise them with a time server."
        )
    if found["state"] != "active" or found["lag_seconds"] > MAX_SILENCE_SECONDS:
        return warn(f"This member is {found['state']}, and {found['lag']:,} operations are missing.", "Wait.")
    if found["log_bytes"] > MAX_LOG_BYTES:
        return warn(
            f"The log of the backbone has {found['log_bytes'] / 2**30:,.1f} GiB: a member is away or paused.",
            "Reconnect it, or remove it.",
        )
    others_at = {one["name"]: one["version"] for one in others if one["version"]}
    if set(others_at.values()) - {found["version"]}:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(others_at.items()))
        return warn(
            f"The members have different versions of MDV: {found['name']} {found['version']}, {versions}.",
            "Update the others, too.",
        )
    paused = [one["name"] for one in found["members"] if one["paused"]]
    more = f" Paused: {', '.join(paused)}." if paused else ""
    return ok(f"All {len(found['members'])} members of the backbone are connected.{more}")


def web_clock(answer: httpx2.Response, now: datetime) -> Finding | None:
    """Compare the clocks. `now` is the time of the database at the response. The `Date` header has whole seconds."""
    try:
        there = parsedate_to_datetime(answer.headers["Date"])
    except (KeyError, ValueError):
        return None
    apart = clock_difference(there, now, there + timedelta(seconds=1) + answer.elapsed)
    if apart > MAX_CLOCK_DIFFERENCE_SECONDS:
        return warn(
            f"The clocks of the web server and of the database differ by {apart:.0f} s.",
            "Synchronise both with the same time server.",
        )
    return ok("The clocks of the web server and of the database agree.")


def lmr(system: System, get: Callable[..., httpx2.Response]) -> Finding:
    answer = get(f"{system.url}/api/v1/status", headers={"Authorization": f"Bearer {system.token}"})
    if answer.status_code != 200:
        return fail(f"The LMR at {system.url} answers: {_message(answer)}", "See its log, and check MDV_LMR_TOKEN.")
    found = answer.json()
    if found["last_error"]:
        others = len(found["mdps"]) - 1
        return warn(
            f"The LMR at {system.url} is disconnected, at position {found['position']:,}: {found['last_error']}",
            "It catches up by itself when its MDP answers; check MDV_URL and MDV_LMR_TOKEN of the LMR."
            + (f" If not, one of {others} other MDPs adopts it after MDV_LMR_HOME_SECONDS." if others else ""),
        )
    problems = [problem for one in found["adoptions"][:1] for problem in one["problems"]]
    if problems:
        return warn(
            f"The home of the LMR at {system.url}, {found['mdp']}, has no meaning for {len(problems)} of its rules:"
            f" {problems[0]}",
            "Change or remove these subscriptions.",
        )
    if not found["up_to_date"]:
        return warn(
            f"The LMR at {system.url} is catching up, at position {found['position']:,}.", "Wait, and check again."
        )
    if found["last_verified"] is None:
        return ok(f"The LMR at {system.url} is up to date; `mdv lmr verify` compares it with the MDP.")
    return ok(f"The LMR at {system.url} is up to date, and was verified at {found['last_verified']}.")


def _message(answer: httpx2.Response) -> str:
    try:
        body = answer.json()
        text = str(body.get("detail") or ", ".join(f"{name} {value}" for name, value in body.items()))
        return text.rstrip(".") + "."
    except ValueError:
        return f"status {answer.status_code}."


def _origin(answer: httpx2.Response) -> str:
    return f"{answer.url.scheme}://{answer.url.netloc.decode()}"


def _short(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
