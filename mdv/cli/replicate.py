"""`mdv replicate`: pull the changes of the other members of the backbone."""

from __future__ import annotations

import signal
import threading
from types import FrameType

import click

from mdv.cli.command import ExampleCommand
from mdv.cli.serve import require_settings
from mdv.config import Config


@click.command(cls=ExampleCommand, example="MDV_DATABASE_URL=… MDV_REDIS_URL=… mdv replicate")
def replicate() -> None:
    """Run only the replication of an MDP, for production: pull the changes of the other members of its backbone.

    One process of an MDP replicates; others wait until it ends. `mdv up --mdps` starts one for each MDP. It needs no
    restart when members join or leave.
    """
    require_settings("database_url", "redis_url")
    run_replication(Config.from_environment())


def run_replication(config: Config) -> None:
    """Replicate until a signal stops this process."""
    from mdv.db.engine import make_engine
    from mdv.logs import configure_logs
    from mdv.mdp.provider import Provider
    from mdv.mdp.replicate import Replicator
    from mdv.replication.link_status import LINKS_KEY, LINKS_SECONDS, ReplicationStatus
    from workers.messages import PUBLISHED_CHANNEL
    from workers.redis_client import RedisClient

    configure_logs(config.log_level)
    engine = make_engine(config.database_url, config.job_limit_seconds, pool_size=4, hide_parameters=True)
    client = RedisClient.of(config)

    def published() -> None:
        client.use(lambda redis: redis.publish(PUBLISHED_CHANNEL, b"1"))

    def report(status: ReplicationStatus) -> None:
        client.use(lambda redis: redis.set(LINKS_KEY, status.to_json(), ex=LINKS_SECONDS))

    replicator = Replicator(
        Provider.configured(engine, config), published, report, config.backbone_relay_seconds, config.backbone_plain
    )

    def stop(number: int, frame: FrameType | None) -> None:
        replicator.stop()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
    replicator.run()
    engine.dispose()
