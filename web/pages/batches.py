"""The page of a run of `mdv batch`: its counts, and the documents that it registered."""

from __future__ import annotations

from uuid import UUID

from flask import Response, request, url_for

from mdv.errors import NotFound
from mdv.inspect.sql.batch_runs import find_run, list_refused_examples, list_run_documents
from web.number_params import read_after
from web.pages.base import pages, render_page, require_viewer
from web.services import services

PAGE_SIZE = 50
MAX_EXAMPLES_SHOWN = 20
"""Maximum number of refused documents that are shown."""


@pages.get("/batches/<run>")
def batch(run: str) -> Response:
    require_viewer()
    after = read_after(request.args.get("after"))
    try:
        number = UUID(run)
    except ValueError:
        raise NotFound(f"{run!r} is not the id of a batch.") from None
    with services().engine.connect() as connection:
        found = find_run(connection, number)
        if found is None:
            raise NotFound(f"The batch {number} does not exist. The outcome of a batch is kept for 30 days.")
        documents = list_run_documents(connection, number, after, PAGE_SIZE + 1)
        examples = list_refused_examples(connection, number, MAX_EXAMPLES_SHOWN)
    more = None
    if len(documents) > PAGE_SIZE:
        more = url_for("pages.batch", run=number, after=documents[PAGE_SIZE - 1].id)
    return render_page("batch.html", run=found, documents=documents[:PAGE_SIZE], examples=examples, more=more)
