"""The process behind `mdv federation serve`: it handles the messages of a federation, and calls its neighbours."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

import redis

from mdv.config import Config
from mdv.db.engine import make_engine
from mdv.logs import configure_logs
from mdv.mdp.federation.runner import FederationRunner
from mdv.mdp.provider import Provider
from workers.messages import PUBLISHED_CHANNEL
from workers.redis_client import RedisClient

POLL_SECONDS = 1.0


def run_federation(config: Config) -> None:
    """Work until a signal stops this process."""
    configure_logs(config.log_level)
    engine = make_engine(
        config.database_url, config.job_limit_seconds, exits_if_restored=True, pool_size=8, hide_parameters=True
    )  # fmt: skip
    client = RedisClient.of(config)

    def published() -> None:
        client.use(lambda redis: redis.publish(PUBLISHED_CHANNEL, b"1"))

    runner = FederationRunner(Provider.configured(engine, config), published, config.backbone_plain)

    def stop(number: int, frame: FrameType | None) -> None:
        runner.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    threading.Thread(target=watch_commits, args=(config.redis_url, runner), daemon=True).start()
    runner.run()
    engine.dispose()


def watch_commits(redis_url: str, runner: FederationRunner) -> None:
    """Wake the runner after each commit of the MDP. Without Redis, it looks every second."""
    while not runner.stopping.is_set():
        try:
            with (
                redis.Redis.from_url(redis_url, socket_connect_timeout=2) as client,
                client.pubsub(ignore_subscribe_messages=True) as subscription,  # type: ignore[no-untyped-call]
            ):
                subscription.subscribe(PUBLISHED_CHANNEL)
                while not runner.stopping.is_set():
                    if subscription.get_message(timeout=POLL_SECONDS) is not None:
                        runner.wake()
        except redis.RedisError:
            time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    run_federation(Config.from_environment())
