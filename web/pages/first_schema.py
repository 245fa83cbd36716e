"""The first schema of a system, inferred from the document of the registration form."""

from __future__ import annotations

from dataclasses import dataclass

from mdv.accounts.callers import Caller
from mdv.errors import BadRequest, Conflict, MdvError, PreconditionFailed, Unavailable
from mdv.rdf.infer import infer_schema, read_sample
from mdv.rdf.parse import check_registration_uri
from mdv.rdf.syntax import TURTLE, syntax_of_media_type
from web.document_form import FormText, pasted_text
from web.job_queue import PendingJob
from web.negotiate import run_in_thread
from web.pages.base import require_unlimited_editor
from web.services import services
from web.use_cases.schema import change_schema

FIRST_VERSION = "0"
"""The version of a system without a schema."""


@dataclass(frozen=True, slots=True)
class FirstSchema:
    """A system without a schema. `may_change`: the user may load one. `text`: a draft, or empty."""

    may_change: bool
    text: str = ""


def is_schema_missing() -> bool:
    """True if the system has no schema yet."""
    with services().engine.connect() as connection:
        known = services().schemas.now(connection)
    return not known.schema.open and known.schema.is_empty


def first_schema(caller: Caller, text: str = "") -> FirstSchema | None:
    """Return the state of the first schema with a draft of it, or None if the system has a schema."""
    return FirstSchema(not caller.is_limited, text) if is_schema_missing() else None


def infer_first_schema(uri: str, content: FormText) -> str:
    """Return a schema in Turtle under which the document is valid."""
    name = check_registration_uri(uri)
    if not content.body.strip():
        raise BadRequest("The document is empty. Choose a file or paste its text, then infer a schema from it.")
    syntax, charset = syntax_of_media_type(content.media_type)
    return run_in_thread(lambda: infer_schema([read_sample(content.body, syntax, name, charset)]))


def try_to_infer(uri: str, content: FormText) -> str:
    """Return a schema for a document that was refused, or an empty text if the document cannot be read."""
    try:
        return infer_first_schema(uri, content)
    except MdvError:
        return ""


def activate_first_schema(text: str) -> None:
    """Load the first schema. Raises `Conflict` if another one was loaded meanwhile."""
    caller = require_unlimited_editor()
    body = pasted_text(text, TURTLE.name).body
    try:
        done = change_schema(caller, body, TURTLE.media_type, [FIRST_VERSION], dry_run=False)
    except PreconditionFailed:
        raise Conflict("A schema was loaded since you opened this page. Preview your document again.") from None
    if isinstance(done, PendingJob):
        raise Unavailable(f"The schema is queued but not active yet. See the job {done.job}.", job=str(done.job))
