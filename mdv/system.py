"""System: where the MDV is that a command speaks to, and how its `mdv up` leaves word of it.

--data DIR   the `mdv up` on that folder, through DIR/system.json; wins over the environment
environment  MDV_URL with MDV_TOKEN (or MDV_ADMIN_TOKEN) over HTTP, MDV_DATABASE_URL for the database
otherwise    the `mdv up` on $MDV_DATA or ./.mdv

The LMR that a command asks is found the same way: MDV_LMR_URL with MDV_LMR_TOKEN, or the one that runs with the system.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mdv.config import read_variable
from mdv.errors import NotFound, SystemNotFound
from mdv.files import write_private

FILE = "system.json"
DEFAULT_FOLDER = Path(".mdv")


@dataclass(frozen=True, slots=True)
class System:
    """How one MDV is reached. What opens it is not shown. `known_by` is what told of it, for messages."""

    url: str = ""
    token: str = field(default="", repr=False)
    database_url: str = field(default="", repr=False)
    redis_url: str = field(default="", repr=False)
    pid: int | None = None
    known_by: str = ""
    lmr_url: str = ""
    """Of the LMR that runs with it, if one does; the same token opens it."""

    @property
    def not_running(self) -> SystemNotFound:
        """The sentence for a system that was found, and does not answer."""
        if self.known_by == "MDV_URL":
            return SystemNotFound(f"Nothing answers at {self.url}: is MDV_URL right, does it run?")
        where = f"The MDV at {self.url}" if self.url else "The MDV"
        told = f" (known by {self.known_by})" if self.known_by else ""
        return SystemNotFound(f"{where}{told} is not running; start it with `make up`.")


@dataclass(frozen=True, slots=True)
class LocalSystem(System):
    """How one LMR is reached."""

    @property
    def not_running(self) -> SystemNotFound:
        told = f" (known by {self.known_by})" if self.known_by else ""
        return SystemNotFound(f"The LMR at {self.url}{told} is not running; `mdv up` or `mdv lmr serve` starts it.")


def find_system(data: Path | None, environment: Mapping[str, str] | None = None) -> System:
    """The system to call over HTTP. `data` is the folder that the caller named, if any.

    >>> find_system(None, {"MDV_URL": "http://mdp.example:8080/", "MDV_TOKEN": "t"}).url
    'http://mdp.example:8080'
    """
    environment = os.environ if environment is None else environment
    url = read_variable("MDV_URL", environment).rstrip("/")
    if data is not None or not url:
        found = _in_folder(data, environment)
        own = read_variable("MDV_TOKEN", environment) if data is None else ""
        return System(found.url, own or found.token, found.database_url, found.redis_url, found.pid, found.known_by,
                      found.lmr_url)  # fmt: skip
    _check_address("MDV_URL", url)
    return System(url, _first(environment, "MDV_TOKEN", "MDV_ADMIN_TOKEN"), known_by="MDV_URL")


def find_lmr(data: Path | None, environment: Mapping[str, str] | None = None) -> System:
    """The LMR to call over HTTP: that of the environment, or the one that runs with the system.

    >>> find_lmr(None, {"MDV_LMR_URL": "http://lmr.example:8081/", "MDV_LMR_TOKEN": "t"}).url
    'http://lmr.example:8081'
    """
    environment = os.environ if environment is None else environment
    url = read_variable("MDV_LMR_URL", environment).rstrip("/")
    if data is None and url:
        _check_address("MDV_LMR_URL", url)
        token = _first(environment, "MDV_LMR_TOKEN", "MDV_TOKEN", "MDV_ADMIN_TOKEN")
        return LocalSystem(url, token, known_by="MDV_LMR_URL")
    which = "say which LMR with MDV_LMR_URL and MDV_LMR_TOKEN."
    if data is None and read_variable("MDV_URL", environment):
        # Not the LMR of some other MDV that happens to run in this folder.
        raise NotFound(f"MDV_URL is an MDP's: {which}")
    try:
        found = _in_folder(data, environment)
    except SystemNotFound as error:
        raise SystemNotFound(f"{error.detail} For an LMR elsewhere, set MDV_LMR_URL and MDV_LMR_TOKEN.") from None
    if not found.lmr_url:
        raise NotFound(f"No LMR runs with the MDV of {found.known_by}: {which}")
    own = _first(environment, "MDV_LMR_TOKEN", "MDV_TOKEN") if data is None else ""
    return LocalSystem(found.lmr_url, own or found.token, known_by=found.known_by)


def _check_address(variable: str, url: str) -> None:
    if not url.lower().startswith(("http://", "https://")):
        raise SystemNotFound(f"{variable} is {url!r}; it takes an address such as http://127.0.0.1:8080.")


def _first(environment: Mapping[str, str], *variables: str) -> str:
    """The first of these that is set."""
    return next((value for name in variables if (value := read_variable(name, environment))), "")


def find_database(data: Path | None, environment: Mapping[str, str] | None = None) -> System:
    """The system whose database a command opens.

    >>> find_database(None, {"MDV_URL": "http://mdp.example"})
    Traceback (most recent call last):
    mdv.errors.SystemNotFound: This command works on the database of the MDV at MDV_URL: set MDV_DATABASE_URL too.
    """
    environment = os.environ if environment is None else environment
    database_url = read_variable("MDV_DATABASE_URL", environment)
    if data is None and database_url:
        return System(database_url=database_url, known_by="MDV_DATABASE_URL")
    if data is None and read_variable("MDV_URL", environment):
        # Not the database of some other MDV that happens to run in this folder.
        raise SystemNotFound("This command works on the database of the MDV at MDV_URL: set MDV_DATABASE_URL too.")
    return _in_folder(data, environment)


def _in_folder(data: Path | None, environment: Mapping[str, str]) -> System:
    folder = data or Path(read_variable("MDV_DATA", environment) or DEFAULT_FOLDER)
    found = read_system(folder)
    if found is not None:
        return found
    if data is not None:
        raise SystemNotFound(f"No MDV runs on {folder}: start one with `mdv up --data {folder}`.")
    raise SystemNotFound(
        f"No MDV runs on {folder}, and MDV_URL is not set: start one with `make up`, "
        "or say which with --data DIR or with MDV_URL and MDV_TOKEN."
    )


def read_system(folder: Path) -> System | None:
    """What the `mdv up` on `folder` left; None where there is none."""
    path = folder / FILE
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        return System(
            url=str(known["url"]),
            token=str(known["token"]),
            database_url=str(known["database_url"]),
            redis_url=str(known["redis_url"]),
            pid=int(known["pid"]),
            known_by=str(path),
            lmr_url=str(known.get("lmr_url", "")),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise SystemNotFound(f"{path} may not be read by this user: it belongs to the one who started MDV.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemNotFound(f"{path} cannot be read ({error}): stop that MDV and start it again.") from None


def write_system(folder: Path, system: System) -> None:
    """Leave word of a running system in its folder."""
    known = {name: value for name, value in asdict(system).items() if name != "known_by"}
    write_private(folder / FILE, json.dumps(known, indent=2) + "\n")


def forget_system(folder: Path) -> None:
    """Take the word back: nothing runs there (any more)."""
    (folder / FILE).unlink(missing_ok=True)
