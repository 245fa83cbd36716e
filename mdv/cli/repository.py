"""`mdv lmr serve`, `status`, `verify` and `gc`: an LMR itself."""

from __future__ import annotations

from pathlib import Path

import click

from mdv.cli.frame import data_option, json_option
from mdv.cli.lmr import connect_lmr, lmr
from mdv.cli.output import say, write_json
from mdv.cli.programs import lmr_program
from mdv.cli.serve import become
from mdv.config import Config
from mdv.errors import BadRequest, MdvError

__all__ = ["lmr"]


@lmr.command("serve", example="MDV_URL=http://mdp.example:8080 MDV_LMR_TOKEN=… mdv lmr serve --port 8081")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8081, show_default=True)
@click.option("--store", metavar="URL", help="The cache, as sqlite:///path or postgresql://…"
              "  [default: $MDV_LMR_STORE, else sqlite in ./mdv-lmr.db]")  # fmt: skip
def serve(host: str, port: int, store: str | None) -> None:
    """Run an LMR: keep its cache current, and answer from it.

    MDV_URL is its MDP, MDV_LMR_TOKEN the token that `mdv lmr create` made. The same token opens the LMR.
    """
    import os

    kept = store or Config.from_environment().lmr_store or "sqlite:///mdv-lmr.db"
    if not kept.startswith(("sqlite:///", "postgresql://", "postgres://")):
        raise BadRequest(f"{kept!r} is no address of a cache: sqlite:///path or postgresql://… is.")
    if kept.startswith("sqlite:///"):
        # The program is started elsewhere, so the path must not depend on where.
        kept = f"sqlite:///{Path(kept.removeprefix('sqlite:///')).absolute()}"
    os.environ["MDV_LMR_STORE"] = kept
    become(lmr_program(host, port), "mdp_url", "lmr_token", "lmr_store")


@lmr.command("status", example="mdv lmr status")
@json_option
@data_option
def status(as_json: bool) -> None:
    """How far the LMR's cache is, and what is in it."""
    found = connect_lmr().get("/status")
    if as_json:
        write_json(found)
        return
    when = "is up to date" if found["up_to_date"] else "is catching up" if not found["last_error"] else "goes on alone"
    say(f"The LMR of {found['mdp']} {when}, at position {found['position']:,}.")
    say(
        f"{found['resources']:,} resources: {found['roots']:,} selected, {found['strong']:,} through strong references;"
        f" {found['local']:,} described by local metadata."
    )
    if found["last_error"]:
        say(f"The last contact with its MDP failed: {found['last_error']}")


@lmr.command("verify", example="mdv lmr verify")
@json_option
@data_option
def verify(as_json: bool) -> None:
    """Compare the cache with the MDP by checksum; what differs is fetched again."""
    found = connect_lmr().change("POST", "/verify")
    if as_json:
        write_json(found)
    elif found["mended"]:
        differed = f"{len(found['mended'])} of 256 buckets differed"
        say(f"{differed} at position {found['position']:,}, and were fetched again.")
    else:
        say(f"The cache equals what the MDP says, at position {found['position']:,}.")


@lmr.command("gc", example="mdv lmr gc --check")
@click.option("--check", is_flag=True, required=True, help="Prove that exactly the closure is here, by a full mark.")
@json_option
@data_option
def gc(check: bool, as_json: bool) -> None:
    """Garbage is collected on the spot; this proves it."""
    found = connect_lmr().change("POST", "/check")["problems"]
    if as_json:
        write_json({"problems": found})
    for problem in [] if as_json else found:
        say(problem)
    if found:
        raise MdvError(f"{len(found):,} differences to what a full mark keeps: `mdv lmr verify` mends them.")
    if not as_json:
        say("Exactly what is selected, and what that strongly references, is here.")
