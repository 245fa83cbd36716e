"""Jobs at the pages: refusals with their reasons, and retries of dead letters."""

from __future__ import annotations

import sqlalchemy

from mdv.db.engine import make_engine
from mdv.db.jobs import add_job
from tests.support.eventually import eventually
from tests.support.page_visitor import Visitor
from tests.support.server import Api, provider

DIE = """update jobs set state = 'dead', attempts = 5, ended_at = now(),
         problem = '{"title": "Internal error", "detail": "It <b>failed</b> inside MDV."}' where id = :id"""


def dead_letter(database: str, doc: str) -> str:
    """A registration whose attempts all failed."""
    engine = make_engine(database)
    conditions = {"if_match": None, "if_none_match": None, "resource_prefixes": None}
    with engine.begin() as connection:
        options = {"dry_run": False, "conditions": conditions}
        job = add_job(connection, "register", doc, "admin", provider(1).encode(), "text/turtle", options)
        connection.execute(sqlalchemy.text(DIE), {"id": job})
    engine.dispose()
    return str(job)


def test_a_dead_letter_is_retried(visitor: Visitor, viewer: Visitor, api: Api, system_database: str, doc: str) -> None:
    job = dead_letter(system_database, doc)
    listed = visitor.get("/jobs", state="dead")
    assert f"/jobs/{job}" in listed.links() and doc in listed.words and "It <b>failed</b> inside MDV." in listed.words
    assert "dead letters" in visitor.get("/").words, "the overview mentions it"
    page = visitor.get(f"/jobs/{job}")
    assert page.forms() == [f"/jobs/{job}/retry"] and "dead letter" in page.title
    assert viewer.get(f"/jobs/{job}").forms() == []
    assert viewer.post(f"/jobs/{job}/retry").status == 403
    again = visitor.post(f"/jobs/{job}/retry")
    assert again.status == 200 and again.path == f"/jobs/{job}"
    eventually(lambda: "done" in visitor.get(f"/jobs/{job}").title)
    assert api.get("/documents", uri=doc).status_code == 200
    assert visitor.post(f"/jobs/{job}/retry").status == 409


def test_a_refused_change_shows_every_flaw_with_its_line(visitor: Visitor, api: Api, doc: str) -> None:
    text = provider(1).replace("ex:serverPort 1", "ex:serverPort 'many'\n; ex:unheard 'x'")
    refused = api.put(doc, text)
    assert refused.status_code == 422
    listed = visitor.get("/jobs", state="failed")
    (row,) = [row for row in listed.rows() if doc in row]
    assert row[0] == "refused" and "2 errors" in row[3]
    (link,) = [link for link in listed.links() if link.startswith("/jobs/") and _about(visitor, link, doc)][:1]
    page = visitor.get(link)
    assert {"many", "unheard"} <= {word for row in page.rows() for word in ("many", "unheard") if word in row[2]}
    assert all(row[0].isdigit() for row in page.rows())


def _about(visitor: Visitor, link: str, doc: str) -> bool:
    return doc in visitor.get(link).words
