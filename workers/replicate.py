"""The process behind `mdv replicate`: it pulls the changes of the other members of the backbone."""

from __future__ import annotations

import signal
from types import FrameType

from mdv.config import Config
from mdv.db.engine import make_engine
from mdv.logs import configure_logs
from mdv.mdp.provider import Provider
from mdv.mdp.replicate import Replicator
from mdv.replication.link_status import LINKS_KEY, LINKS_SECONDS, ReplicationStatus
from workers.messages import PUBLISHED_CHANNEL
from workers.redis_client import RedisClient


def run_replication(config: Config) -> None:
    """Replicate until a signal stops this process."""
    configure_logs(config.log_level)
    engine = make_engine(
        config.database_url, config.job_limit_seconds, exits_if_restored=True, pool_size=4, hide_parameters=True
    )  # fmt: skip
    client = RedisClient.of(config)

    def published() -> None:
        client.use(lambda redis: redis.publish(PUBLISHED_CHANNEL, b"1"))

    def report(status: ReplicationStatus) -> None:
        client.use(lambda redis: redis.set(LINKS_KEY, status.to_json(), ex=LINKS_SECONDS))

    replicator = Replicator(
        Provider.configured(engine, config), published, report, config.backbone_relay_seconds, config.backbone_plain,
        read_databases(config), config.backbone_check_seconds,
    )  # fmt: skip

    def stop(number: int, frame: FrameType | None) -> None:
        replicator.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    replicator.run()
    engine.dispose()


def read_databases(config: Config) -> dict[str, str]:
    """Return the URLs of the databases of other members by name, if their logs are replicated by Postgres."""
    if config.backbone_transport != "postgres":
        return {}
    pairs = [part.partition("=") for part in config.backbone_databases.split()]
    if any(not name or not url.startswith(("postgresql://", "postgres://")) for name, _, url in pairs):
        raise SystemExit("MDV_BACKBONE_DATABASES must be NAME=postgresql://…, separated by spaces.")
    return {name: url for name, _, url in pairs}


if __name__ == "__main__":
    run_replication(Config.from_environment())
