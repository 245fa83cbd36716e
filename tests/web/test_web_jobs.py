"""Jobs over HTTP: the progress and the result of a change."""

from __future__ import annotations

from tests.support.server import FIGURE_1, XML, Api, provider


def test_a_failed_job_has_its_problem(api: Api, doc: str) -> None:
    job = api.put(doc, FIGURE_1.replace("92", "many"), XML, wait=None).json()["job"]
    ended = api.job(job)
    assert ended["state"] == "failed" and ended["result"] is None
    assert ended["problem"]["status"] == 422 and ended["problem"]["errors"][0]["line"] == 9


def test_jobs_of_one_document_are_executed_in_order_of_arrival(api: Api, doc: str) -> None:
    jobs = [api.put(doc, provider(port), wait=None).json()["job"] for port in range(10)]
    assert [api.job(job)["result"]["version"] for job in jobs] == list(range(1, 11))
