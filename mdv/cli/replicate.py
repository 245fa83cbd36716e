"""`mdv replicate`: pull the changes of the other members of the backbone."""

from __future__ import annotations

import click

from mdv.cli.command import ExampleCommand
from mdv.cli.serve import exec_server
from mdv.cli.server_commands import replicate_command


@click.command(cls=ExampleCommand, example="MDV_DATABASE_URL=… MDV_REDIS_URL=… mdv replicate")
def replicate() -> None:
    """Run only the replication of an MDP, for production: pull the changes of the other members of its backbone.

    One process of an MDP replicates; others wait until it ends. `mdv up --mdps` starts one for each MDP. It needs no
    restart when members join or leave.
    """
    exec_server(replicate_command(), "database_url", "redis_url")
