"""Where the MDPs of one `mdv up` are: folders and ports.

The first MDP, `m1`, uses the data folder itself, like the only MDP of a plain `mdv up`. `m2`, `m3`, … have folders in
it. The file mdps.json keeps their number, so that the next start finds all of them.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mdv.errors import BadCommand
from mdv.private_file import write_private_file

MDPS_FILE = "mdps.json"
MAX_MDPS = 9
PORT_DISTANCE = 10
CRDTS = ("orset", "cset")


@dataclass(frozen=True, slots=True)
class MdpPlace:
    """One MDP of an `mdv up`, with its LMR. `name` is empty if it is the only one."""

    number: int
    name: str
    folder: Path
    port: int
    lmr_port: int

    def label(self, part: str) -> str:
        """Return the name of a server in messages.

        >>> MdpPlace(2, "m2", Path(), 8090, 8091).label("web")
        'web m2'
        """
        return f"{part} {self.name}".strip()


@dataclass(frozen=True, slots=True)
class Mdps:
    """The number of MDPs of an `mdv up`, and the replicated set of their backbone. One MDP is in no backbone."""

    count: int = 1
    crdt: str = ""


def mdp_folder(data: Path, number: int) -> Path:
    """Return the folder of an MDP of the `mdv up` on `data`.

    >>> mdp_folder(Path(".mdv"), 1), mdp_folder(Path(".mdv"), 3)
    (PosixPath('.mdv'), PosixPath('.mdv/m3'))
    """
    return data if number == 1 else data / f"m{number}"


def data_of_mdp(folder: Path) -> Path:
    """Return the data folder that `folder` belongs to: itself, unless it is that of a further MDP."""
    return folder.parent if folder.name[:1] == "m" and (folder.parent / MDPS_FILE).exists() else folder


def list_places(data: Path, port: int, lmr_port: int, count: int) -> list[MdpPlace]:
    """Return the places of all MDPs.

    >>> [place.port for place in list_places(Path(".mdv"), 8080, 8081, 3)]
    [8080, 8090, 8100]
    """
    return [
        MdpPlace(
            number, f"m{number}" if count > 1 else "", mdp_folder(data, number),
            port + PORT_DISTANCE * (number - 1), lmr_port + PORT_DISTANCE * (number - 1),
        )
        for number in range(1, count + 1)
    ]  # fmt: skip


def read_mdps(data: Path) -> Mdps:
    """Return what mdps.json says; one MDP if there is no such file."""
    with suppress(FileNotFoundError, NotADirectoryError):
        known = json.loads((data / MDPS_FILE).read_text(encoding="utf-8"))
        return Mdps(int(known["mdps"]), str(known["crdt"]))
    return Mdps()


def choose_mdps(data: Path, count: int | None, crdt: str | None) -> Mdps:
    """Return how many MDPs to start: as many as last time if nothing is given. Their number can only grow."""
    stored = read_mdps(data)
    if count is None:
        count = stored.count
    if count < stored.count:
        raise BadCommand(
            f"The data in {data} is that of {stored.count} MDPs: start all, or choose another folder with --data."
        )
    if count == 1:
        if crdt is not None:
            raise BadCommand("--crdt is for several MDPs: add --mdps 3, for example.")
        return Mdps()
    if stored.crdt and crdt not in (None, stored.crdt):
        raise BadCommand(f"The backbone in {data} was founded with --crdt {stored.crdt}, which cannot be changed.")
    return Mdps(count, stored.crdt or crdt or CRDTS[0])


def write_mdps(data: Path, mdps: Mdps) -> None:
    """Keep the number of MDPs for the next start, unless there is only one."""
    if mdps.count > 1:
        text = json.dumps({"mdps": mdps.count, "crdt": mdps.crdt}) + "\n"
        write_private_file(data / MDPS_FILE, text)


def find_mdp(data: Path, number: int) -> Path:
    """Return the folder of an MDP that a command names. Raise `BadCommand` if there is no such MDP."""
    count = read_mdps(data).count
    if number > count:
        have = f"the MDPs 1 to {count}" if count > 1 else "one MDP; `mdv up --mdps 3` starts three"
        raise BadCommand(f"There is no MDP {number}: the MDV in {data} has {have}.")
    return mdp_folder(data, number)
