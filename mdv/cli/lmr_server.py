"""`mdv lmr serve`, `status`, `verify` and `gc`: run and check an LMR."""

from __future__ import annotations

from pathlib import Path

import click

from mdv.cli.command import data_option, json_option
from mdv.cli.lmr import connect_lmr, lmr
from mdv.cli.output import print_line, short_time, write_json
from mdv.cli.serve import exec_server
from mdv.cli.server_commands import lmr_command
from mdv.config import Config
from mdv.errors import BadRequest, MdvError

__all__ = ["lmr"]


@lmr.command("serve", example="MDV_URL=http://mdp.example:8080 MDV_LMR_TOKEN=… mdv lmr serve --port 8081")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8081, show_default=True)
@click.option("--store", metavar="URL", help="URL of the cache: sqlite:///path or postgresql://…"
              "  [default: $MDV_LMR_STORE, else sqlite:///mdv-lmr.db]")  # fmt: skip
def serve(host: str, port: int, store: str | None) -> None:
    """Run an LMR: keep its cache up to date, and serve it.

    MDV_URL is the URL of its MDP, MDV_LMR_TOKEN the token that `mdv lmr create` printed. Requests to the LMR use the
    same token.

    In a backbone, MDV_URL can be a list, `http://a:8080,http://b:8080`. If the MDP where the LMR is at home does not
    answer for MDV_LMR_HOME_SECONDS, another one adopts the LMR.
    """
    import os

    url = store or Config.from_environment().lmr_store or "sqlite:///mdv-lmr.db"
    if not url.startswith(("sqlite:///", "postgresql://", "postgres://")):
        raise BadRequest(f"{url!r} is not the URL of a cache: use sqlite:///path or postgresql://….")
    if url.startswith("sqlite:///"):
        # The server is started in another folder, so the path must be absolute.
        url = f"sqlite:///{Path(url.removeprefix('sqlite:///')).absolute()}"
    os.environ["MDV_LMR_STORE"] = url
    exec_server(lmr_command(host, port), "mdp_url", "lmr_token", "lmr_store")


@lmr.command("status", example="mdv lmr status")
@json_option
@data_option
def status(as_json: bool) -> None:
    """Show the position and the size of the cache of the LMR."""
    found = connect_lmr().get("/status")
    if as_json:
        write_json(found)
        return
    state = "up to date" if found["up_to_date"] else "catching up" if not found["last_error"] else "disconnected"
    print_line(f"The LMR of {found['mdp']} is {state}, at position {found['position']:,}.")
    print_line(
        f"{found['resources']:,} resources: {found['roots']:,} selected, {found['strong']:,} through strong references;"
        f" {found['local']:,} described by local metadata."
    )
    if found["adoptions"]:
        last = found["adoptions"][0]
        print_line(
            f"It changed its home {len(found['adoptions'])} times, last from {last['previous']} at"
            f" {short_time(last['at'])}: {last['buckets']} of 256 buckets, {last['size']:,} bytes, {last['seconds']} s."
        )
    if found["vector"]:
        print_line("Changes of the backbone: " + ", ".join(f"{life[:12]} {n:,}" for life, n in found["vector"].items()))
    if found["last_error"]:
        print_line(f"The last request to its MDP failed: {found['last_error']}")


@lmr.command("verify", example="mdv lmr verify")
@json_option
@data_option
def verify(as_json: bool) -> None:
    """Compare the cache with the MDP by checksum. Buckets that differ are fetched again."""
    found = connect_lmr().change("POST", "/verify")
    if as_json:
        write_json(found)
    elif found["mended"]:
        differed = f"{len(found['mended'])} of 256 buckets differed"
        print_line(f"{differed} at position {found['position']:,} and were fetched again.")
    else:
        print_line(f"The cache is equal to the data at the MDP, at position {found['position']:,}.")


@lmr.command("gc", example="mdv lmr gc --check")
@click.option(
    "--check", is_flag=True, required=True, help="Check by a full mark that the cache is exactly the closure."
)
@json_option
@data_option
def gc(check: bool, as_json: bool) -> None:
    """Check the garbage collector. Garbage itself is collected immediately, in every transaction."""
    found = connect_lmr().change("POST", "/check")["problems"]
    if as_json:
        write_json({"problems": found})
    for problem in [] if as_json else found:
        print_line(problem)
    if found:
        raise MdvError(f"The cache has {len(found):,} differences to a full mark: `mdv lmr verify` repairs them.")
    if not as_json:
        print_line("The cache is exactly the closure: selected resources and the targets of their strong references.")
