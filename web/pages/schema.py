"""Schema pages: diagram and list of classes and properties, versions, and changes with a preview."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import Any

from flask import Response, request, url_for

from mdv.accounts.callers import Caller
from mdv.errors import BadRequest, BreakingSchema, MdvError, PreconditionFailed
from mdv.inspect.schema_version import find_schema_version
from mdv.inspect.sql.browse import count_instances
from mdv.inspect.sql.schema_versions import list_schema_versions
from mdv.mdp.schemas import SchemaInForce
from mdv.rdf.compare import compare_schemas
from mdv.rdf.syntax import SYNTAXES, TURTLE, syntax_of_name
from web.document_form import FormText, file_text, pasted_text
from web.job_queue import PendingJob
from web.negotiate import run_in_thread
from web.number_params import read_after
from web.oversized_forms import FormTooLarge, keep_form
from web.pages.base import pages, redirect_to, render_page, require_unlimited_editor, require_viewer, session
from web.pages.changes import MAX_DIFF_STATEMENTS, diff_statements
from web.pages.schema_view import MAX_CLASSES_DRAWN, make_schema_view, prefixes, schema_diagram
from web.services import services
from web.use_cases.jobs import find_job
from web.use_cases.schema import change_schema, schema_response, schema_text

PAGE_SIZE = 50
MAX_PROPERTIES_SHOWN = 200
"""Maximum number of properties shown per class."""
MAX_VERSIONS_SHOWN = 5
MAX_VERSION = 2**31 - 1


@pages.get("/schema")
def schema() -> Response:
    caller = require_viewer()
    skipped, properties_skipped = (read_after(request.args.get(name)) for name in ("after", "properties"))
    with services().engine.connect() as connection:
        known = services().schemas.now(connection)
        versions = list_schema_versions(connection, MAX_VERSION, MAX_VERSIONS_SHOWN)
        shown = run_in_thread(make_schema_view, known.schema)
        branches = shown.classes[skipped : skipped + PAGE_SIZE]
        counts = count_instances(connection, [known.schema.classes[branch.iri].subclasses for branch in branches])
    others = shown.other[properties_skipped : properties_skipped + PAGE_SIZE]

    def link(iri: str) -> str:
        """Return the URL of a class in the list."""
        place = shown.places[iri]
        return url_for("pages.schema", after=place - place % PAGE_SIZE or None, _anchor=f"class-{place}")

    more = url_for("pages.schema", after=skipped + PAGE_SIZE) if len(shown.classes) > skipped + PAGE_SIZE else None
    more_properties = None
    if len(shown.other) > properties_skipped + PAGE_SIZE:
        more_properties = url_for("pages.schema", properties=properties_skipped + PAGE_SIZE, _anchor="properties")
    return render_page(
        "schema.html",
        known=known,
        shown=shown,
        rows=list(zip(branches, counts, strict=True)),
        others=others,
        drawing=schema_diagram(shown, link) if shown.classes and not skipped else None,
        most_drawn=MAX_CLASSES_DRAWN,
        link=link,
        skipped=skipped,
        more=more,
        more_properties=more_properties,
        prefixes=prefixes(known.schema),
        most_properties=MAX_PROPERTIES_SHOWN,
        versions=versions,
        syntaxes=SYNTAXES,
        may_change=_may_change(caller),
    )


@pages.get("/schema/text")
def schema_as_text() -> Response:
    """Download a version in a syntax."""
    require_viewer()
    syntax = syntax_of_name(request.args.get("as", TURTLE.name))
    found = _version(request.args.get("version"))
    response = schema_response(found, syntax)
    response.content_type = f"{syntax.media_type}; charset=utf-8"
    response.headers["Content-Disposition"] = f'attachment; filename="schema-{found.version}{syntax.suffixes[0]}"'
    return response


@pages.get("/schema/versions")
def schema_versions() -> Response:
    caller = require_viewer()
    before = read_after(request.args.get("after")) or MAX_VERSION
    with services().engine.connect() as connection:
        found = list_schema_versions(connection, min(before, MAX_VERSION), PAGE_SIZE + 1)
    more = url_for("pages.schema_versions", after=found[PAGE_SIZE - 1].version) if len(found) > PAGE_SIZE else None
    return render_page(
        "schema_versions.html",
        versions=found[:PAGE_SIZE],
        more=more,
        is_first=before == MAX_VERSION,
        may_change=_may_change(caller),
    )


@pages.get("/schema/difference")
def schema_difference() -> Response:
    """Show the difference between two versions; without `from`, to the previous version."""
    require_viewer()
    new = _version(request.args.get("to"))
    old = _version(request.args.get("from") or str(max(new.version - 1, 0)))
    found = run_in_thread(compare_schemas, old.schema, new.schema)
    lines = None
    if max(len(old.statements), len(new.statements)) <= MAX_DIFF_STATEMENTS:
        lines = run_in_thread(diff_statements, old.statements, new.statements)
    return render_page("schema_difference.html", old=old, new=new, found=found, lines=lines)


# Schema changes


@dataclass(frozen=True, slots=True)
class SchemaDraft:
    """The content of the form: the text, the version it was made from, and the digest of the previewed text."""

    content: FormText
    version: str | None = None
    looked_at: str | None = None

    @property
    def digest(self) -> str:
        """Digest of the text that does not depend on line ends."""
        text = re.sub(r"\r\n?", "\n", self.content.body.decode("utf-8", "replace")).strip()
        return hashlib.sha256(f"{self.content.media_type} {text}".encode()).hexdigest()


@pages.get("/schema/change")
def schema_change_form() -> Response:
    """Show the form with the active schema or an earlier version."""
    require_unlimited_editor()
    with services().engine.connect() as connection:
        known = services().schemas.now(connection)
    found = _version(request.args["version"]) if "version" in request.args else known
    is_small = len(found.statements) <= MAX_DIFF_STATEMENTS
    text = schema_text(found, TURTLE) if found.statements and is_small else b""
    draft = SchemaDraft(FormText(text), str(known.version))
    return render_page(
        "schema_change.html", draft=draft, syntaxes=SYNTAXES, known=known, earlier=found, is_small=is_small
    )


@pages.post("/schema/change")
def schema_change() -> Response:
    """Preview a schema or activate it. Only a text that was previewed against the current version is activated."""
    caller = require_unlimited_editor()
    draft = _form_draft()
    try:
        was_previewed = draft.version is not None and draft.looked_at == draft.digest
        return _activate(draft, caller) if _is_confirmed() and was_previewed else _preview(draft, caller)
    except MdvError as error:
        problem = error.problem()
        if isinstance(error, PreconditionFailed):
            detail = "The schema was changed since you opened it. Preview your text again."
            problem |= {"title": "Edit conflict", "conflict": True, "detail": detail}
            draft = replace(draft, version=None)
        errors = json.dumps(problem.get("errors", [])[:200])
        return render_page(
            "schema_change.html",
            problem["status"],
            draft=draft,
            syntaxes=SYNTAXES,
            problem=problem,
            errors=errors,
            named=_errors_with_documents(problem),
            breaking=_is_breaking(problem),
        )


@keep_form("schema_change")
def _too_large(error: FormTooLarge) -> Response:
    require_unlimited_editor()
    draft = SchemaDraft(FormText(b"", error.fields.get("syntax", "")), error.fields.get("version") or None)
    return render_page("schema_change.html", error.status, draft=draft, syntaxes=SYNTAXES, problem=error.problem())


def _preview(draft: SchemaDraft, caller: Caller) -> Response:
    """Render a preview: the changes and their effect on LMRs."""
    preview = change_schema(caller, draft.content.body, draft.content.media_type, None, dry_run=True)
    if isinstance(preview, PendingJob):
        with services().engine.connect() as connection:
            version = str(services().schemas.now(connection).version)
        draft = replace(draft, version=version, looked_at=draft.digest)
        return render_page("schema_change.html", 202, draft=draft, syntaxes=SYNTAXES, waiting=preview.job)
    result = preview.result
    version = str(result["version"] - 1 if result["changed"] else result["version"])
    warning = None
    if draft.version is not None and draft.version != version:
        warning = (
            f"The schema was changed meanwhile: it is now at version {version}. Activating your text "
            "overwrites that change."
        )
    elif _is_confirmed() and result["changed"]:
        warning = "This text differs from the previewed one. Nothing was changed. Check the new preview."
    draft = replace(draft, version=version, looked_at=draft.digest)
    return render_page("schema_change.html", draft=draft, syntaxes=SYNTAXES, result=result, warning=warning)


def _activate(draft: SchemaDraft, caller: Caller) -> Response:
    assert draft.version is not None
    changed = change_schema(caller, draft.content.body, draft.content.media_type, [draft.version], dry_run=False)
    return redirect_to("job" if isinstance(changed, PendingJob) else "schema_changed", job=changed.job)


@pages.get("/schema/changed/<job>")
def schema_changed(job: str) -> Response:
    """Show the result of a schema change."""
    require_viewer()
    found = find_job(job)
    if found.kind != "schema" or not found.result or found.result.get("dry_run"):
        return redirect_to("job", job=job)
    return render_page("schema_changed.html", result={"left": 0} | found.result)


def _is_confirmed() -> bool:
    """True if the form asks to activate the schema, not only to preview it."""
    return request.form.get("act") == "put"


def _form_draft() -> SchemaDraft:
    file = request.files.get("file")
    version, looked_at = (request.form.get(name) or None for name in ("version", "looked_at"))
    if version is not None and not (version.isascii() and version.isdecimal()):
        raise BadRequest(f"{version[:20]!r} is not a version number.")
    syntax = request.form.get("syntax", "")
    if file is not None and file.filename:
        return SchemaDraft(file_text(file.read(), syntax, file.filename), version, looked_at)
    return SchemaDraft(pasted_text(request.form.get("text", ""), syntax), version, looked_at)


def _errors_with_documents(problem: dict[str, Any]) -> list[tuple[str | None, dict[str, Any]]]:
    """Return the errors of a problem, each with the document that it names, if any. URIs contain no spaces."""
    errors = problem.get("errors", [])
    if not _is_breaking(problem):
        return [(None, error) for error in errors]
    return [(uri if " " not in (uri := error["message"].partition(": ")[0]) else None, error) for error in errors]


def _is_breaking(problem: dict[str, Any]) -> bool:
    return str(problem.get("type")).endswith(f":{BreakingSchema.slug}")


def _may_change(caller: Caller) -> bool:
    return session() is not None and caller.role == "admin" and not caller.is_limited


def _version(text: str | None) -> SchemaInForce:
    """Return a version of the schema; the active one by default."""
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise BadRequest(f"{text[:20]!r} is not a version number.")
    s = services()
    return find_schema_version(s.engine, s.schemas, int(text) if text else None, run_in_thread)
