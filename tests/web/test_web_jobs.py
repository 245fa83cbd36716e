"""Jobs over HTTP: how far a change is, and how it ended."""

from __future__ import annotations

import time
from uuid import UUID

from running import FIGURE_1, XML, Api, eventually, provider

from mdv.config import Config
from mdv.db.engine import make_engine
from mdv.db.jobs import add_job, read_job
from mdv.embedded import Valkey
from workers.app import make_celery


def test_a_failed_job_tells_its_problem(api: Api, doc: str) -> None:
    job = api.put(doc, FIGURE_1.replace("92", "many"), XML, wait=None).json()["job"]
    ended = api.job(job)
    assert ended["state"] == "failed" and ended["result"] is None
    assert ended["problem"]["status"] == 422 and ended["problem"]["errors"][0]["line"] == 9


def test_jobs_for_one_document_are_carried_out_in_the_order_in_which_they_came(api: Api, doc: str) -> None:
    jobs = [api.put(doc, provider(port), wait=None).json()["job"] for port in range(10)]
    assert [api.job(job)["result"]["version"] for job in jobs] == list(range(1, 11))


def test_a_job_that_somebody_looks_at_while_the_worker_comes_is_not_left_to_the_sweep(
    api: Api, doc: str, system_database: str, valkey: Valkey
) -> None:
    engine = make_engine(system_database)
    celery = make_celery(Config.from_environment({"MDV_REDIS_URL": valkey.url}))
    with engine.begin() as connection:
        job: UUID = add_job(connection, "register", doc, "test", provider().encode(), "text/turtle", {})
    with engine.connect() as looker, looker.begin():
        status = read_job(looker, job)
        assert status is not None and status.state == "queued"
        celery.send_task("mdv.work", retry=False, ignore_result=True)
        started = time.monotonic()
        eventually(lambda: api.get("/documents", uri=doc).status_code == 200)
        assert time.monotonic() - started < 2
    engine.dispose()
    celery.close()
