"""Find the MDV that a command uses. A running `mdv up` writes its addresses to DIR/system.json.

--data DIR   the `mdv up` on that folder, through DIR/system.json; overrides the environment
environment  MDV_URL with MDV_TOKEN (or MDV_ADMIN_TOKEN) over HTTP, MDV_DATABASE_URL for the database
otherwise    the `mdv up` on $MDV_DATA or ./.mdv

The LMR is found in the same way: MDV_LMR_URL with MDV_LMR_TOKEN, or the LMR that runs with the system.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mdv.config import read_variable
from mdv.errors import NotFound, SystemNotFound
from mdv.mdp_places import data_of_mdp
from mdv.private_file import write_private_file

SYSTEM_FILE = "system.json"
DEFAULT_FOLDER = Path(".mdv")


@dataclass(frozen=True, slots=True)
class System:
    """The addresses and secrets of one MDV. `source` is the file or variable that named it, for messages."""

    url: str = ""
    token: str = field(default="", repr=False)
    database_url: str = field(default="", repr=False)
    redis_url: str = field(default="", repr=False)
    pid: int | None = None
    source: str = ""
    lmr_url: str = ""
    """URL of the LMR that runs with the system, if any. It accepts the same token."""

    @property
    def not_running_error(self) -> SystemNotFound:
        """Return the error for a system that is configured but does not answer."""
        if self.source == "MDV_URL":
            return SystemNotFound(f"No server answers at {self.url}: check MDV_URL, and that the server is running.")
        where = f"The MDV at {self.url}" if self.url else "The MDV"
        found_in = f" (from {self.source})" if self.source else ""
        return SystemNotFound(f"{where}{found_in} is not running; start it with `make up`.")


@dataclass(frozen=True, slots=True)
class LmrSystem(System):
    """The address and token of one LMR."""

    @property
    def not_running_error(self) -> SystemNotFound:
        found_in = f" (from {self.source})" if self.source else ""
        return SystemNotFound(
            f"The LMR at {self.url}{found_in} is not running; start it with `mdv up` or `mdv lmr serve`."
        )


def find_system(data: Path | None, environment: Mapping[str, str] | None = None) -> System:
    """Return the system to call over HTTP. `data` is the folder given with --data, if any.

    >>> find_system(None, {"MDV_URL": "http://mdp.example:8080/", "MDV_TOKEN": "t"}).url
    'http://mdp.example:8080'
    """
    environment = os.environ if environment is None else environment
    url = read_variable("MDV_URL", environment).partition(",")[0].strip().rstrip("/")  # an LMR may have several
    if data is not None or not url:
        found = _in_folder(data, environment)
        own = read_variable("MDV_TOKEN", environment) if data is None else ""
        return System(found.url, own or found.token, found.database_url, found.redis_url, found.pid, found.source,
                      found.lmr_url)  # fmt: skip
    _check_address("MDV_URL", url)
    return System(url, _first(environment, "MDV_TOKEN", "MDV_ADMIN_TOKEN"), source="MDV_URL")


def find_lmr(data: Path | None, environment: Mapping[str, str] | None = None) -> System:
    """Return the LMR to call over HTTP: the one in the environment, or the one that runs with the system.

    >>> find_lmr(None, {"MDV_LMR_URL": "http://lmr.example:8081/", "MDV_LMR_TOKEN": "t"}).url
    'http://lmr.example:8081'
    """
    environment = os.environ if environment is None else environment
    url = read_variable("MDV_LMR_URL", environment).rstrip("/")
    if data is None and url:
        _check_address("MDV_LMR_URL", url)
        token = _first(environment, "MDV_LMR_TOKEN", "MDV_TOKEN", "MDV_ADMIN_TOKEN")
        return LmrSystem(url, token, source="MDV_LMR_URL")
    advice = "set MDV_LMR_URL and MDV_LMR_TOKEN."
    if data is None and read_variable("MDV_URL", environment):
        # Not the LMR of some other MDV that happens to run in this folder.
        raise NotFound(f"MDV_URL names an MDP, and no LMR is named: {advice}")
    try:
        found = _in_folder(data, environment)
    except SystemNotFound as error:
        raise SystemNotFound(f"{error.detail} For an LMR elsewhere, set MDV_LMR_URL and MDV_LMR_TOKEN.") from None
    if not found.lmr_url:
        raise NotFound(f"The MDV in {found.source} has no LMR: {advice}")
    own = _first(environment, "MDV_LMR_TOKEN", "MDV_TOKEN") if data is None else ""
    return LmrSystem(found.lmr_url, own or found.token, source=found.source)


def _check_address(variable: str, url: str) -> None:
    if not url.lower().startswith(("http://", "https://")):
        raise SystemNotFound(f"{variable} is {url!r}; it must be a URL such as http://127.0.0.1:8080.")


def _first(environment: Mapping[str, str], *variables: str) -> str:
    """Return the value of the first variable that is set, or an empty string."""
    return next((value for name in variables if (value := read_variable(name, environment))), "")


def find_database(data: Path | None, environment: Mapping[str, str] | None = None) -> System:
    """Return the system whose database a command opens.

    >>> find_database(None, {"MDV_URL": "http://mdp.example"})
    Traceback (most recent call last):
    mdv.errors.SystemNotFound: This command works on the database of the MDV at MDV_URL: set MDV_DATABASE_URL too.
    """
    environment = os.environ if environment is None else environment
    database_url = read_variable("MDV_DATABASE_URL", environment)
    if data is None and database_url:
        return System(database_url=database_url, source="MDV_DATABASE_URL")
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
        whole = data_of_mdp(folder)
        raise SystemNotFound(f"No MDV is running in {whole}: start one with `mdv up --data {whole}`.")
    raise SystemNotFound(
        f"No MDV is running in {folder}, and MDV_URL is not set: start one with `make up`, "
        "or name one with --data DIR or with MDV_URL and MDV_TOKEN."
    )


def read_system(folder: Path) -> System | None:
    """Return the system that runs in `folder`, from its system.json; None if there is none."""
    path = folder / SYSTEM_FILE
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        return System(
            url=str(known["url"]),
            token=str(known["token"]),
            database_url=str(known["database_url"]),
            redis_url=str(known["redis_url"]),
            pid=int(known["pid"]),
            source=str(path),
            lmr_url=str(known.get("lmr_url", "")),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise SystemNotFound(
            f"{path} is not readable by this user: run the command as the user who started MDV."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemNotFound(f"{path} cannot be read ({error}): stop that MDV and start it again.") from None


def write_system(folder: Path, system: System) -> None:
    """Write system.json of a running system into its folder."""
    known = {name: value for name, value in asdict(system).items() if name != "source"}
    write_private_file(folder / SYSTEM_FILE, json.dumps(known, indent=2) + "\n")


def remove_system(folder: Path) -> None:
    """Remove system.json: no system runs in the folder."""
    (folder / SYSTEM_FILE).unlink(missing_ok=True)
