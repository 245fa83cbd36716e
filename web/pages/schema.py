"""Schema: classes and properties drawn and listed, versions, and another schema, tried out before it is in force."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import Any

from flask import Response, request, url_for

from mdv.db.browse import count_instances
from mdv.db.schemas import list_schema_versions, read_schema_version
from mdv.db.state import read_state
from mdv.errors import BadRequest, BreakingSchema, MdvError, NotFound, PreconditionFailed
from mdv.mdp.schemas import SchemaInForce, in_force
from mdv.rdf.compare import compare
from mdv.rdf.syntax import SYNTAXES, TURTLE, syntax_of_name
from web.api.jobs import find_job
from web.api.schema import Waiting, change_schema, schema_text
from web.auth import Caller
from web.drafts import chosen_syntax, shown, written
from web.negotiate import in_thread
from web.numbers import after_number
from web.pages.changes import MOST_COMPARED, difference
from web.pages.frame import go, page, pages, session, visitor, whole_editor
from web.pages.schema_view import MOST_DRAWN, drawing, prefixes, view
from web.services import services

ON_A_PAGE = 50
MOST_PROPERTIES = 200
"""Properties of one class that the page shows."""
FEW_VERSIONS = 5
NEWEST = 2**31 - 1


@pages.get("/schema")
def schema() -> Response:
    caller = visitor()
    skipped, properties_skipped = (after_number(request.args.get(name)) for name in ("after", "properties"))
    with services().engine.connect() as connection:
        known = services().schemas.now(connection)
        versions = list_schema_versions(connection, NEWEST, FEW_VERSIONS)
        shown = in_thread(view, known.schema)
        branches = shown.classes[skipped : skipped + ON_A_PAGE]
        counts = count_instances(connection, [known.schema.classes[branch.iri].subclasses for branch in branches])
    others = shown.other[properties_skipped : properties_skipped + ON_A_PAGE]

    def link(iri: str) -> str:
        """Where on these pages a class stands."""
        place = shown.places[iri]
        return url_for("pages.schema", after=place - place % ON_A_PAGE or None, _anchor=f"class-{place}")

    more = url_for("pages.schema", after=skipped + ON_A_PAGE) if len(shown.classes) > skipped + ON_A_PAGE else None
    more_properties = None
    if len(shown.other) > properties_skipped + ON_A_PAGE:
        more_properties = url_for("pages.schema", properties=properties_skipped + ON_A_PAGE, _anchor="properties")
    return page(
        "schema.html", known=known, shown=shown, rows=list(zip(branches, counts, strict=True)), others=others,
        drawing=drawing(shown, link) if shown.classes and not skipped else None, most_drawn=MOST_DRAWN, link=link,
        skipped=skipped, more=more, more_properties=more_properties, prefixes=prefixes(known.schema),
        most_properties=MOST_PROPERTIES, versions=versions, syntaxes=SYNTAXES, may_change=_may_change(caller),
    )  # fmt: skip


@pages.get("/schema/text")
def schema_as_text() -> Response:
    """A version in some syntax, to be kept as a file."""
    visitor()
    syntax = syntax_of_name(request.args.get("as", TURTLE.name))
    found = _version(request.args.get("version"))
    response = Response(schema_text(found, syntax), content_type=f"{syntax.media_type}; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="schema-{found.version}{syntax.suffixes[0]}"'
    return response


@pages.get("/schema/versions")
def schema_versions() -> Response:
    caller = visitor()
    before = after_number(request.args.get("after")) or NEWEST
    with services().engine.connect() as connection:
        found = list_schema_versions(connection, min(before, NEWEST), ON_A_PAGE + 1)
    more = url_for("pages.schema_versions", after=found[ON_A_PAGE - 1].version) if len(found) > ON_A_PAGE else None
    return page("schema_versions.html", versions=found[:ON_A_PAGE], more=more, is_first=before == NEWEST,
                may_change=_may_change(caller))  # fmt: skip


@pages.get("/schema/difference")
def schema_difference() -> Response:
    """What changed from a version to another: without `from`, from the one before."""
    visitor()
    new = _version(request.args.get("to"))
    old = _version(request.args.get("from") or str(max(new.version - 1, 0)))
    found = in_thread(compare, old.schema, new.schema)
    lines = None
    if max(len(old.statements), len(new.statements)) <= MOST_COMPARED:
        lines = in_thread(difference, old.statements, new.statements)
    return page("schema_difference.html", old=old, new=new, found=found, lines=lines)


# Another schema


@dataclass(frozen=True, slots=True)
class Draft:
    """A schema that was sent: its text, the version that it was made from, and what was looked at of it."""

    text: bytes
    syntax: str
    version: str | None = None
    looked_at: str | None = None

    @property
    def shown(self) -> str:
        return shown(self.text)

    @property
    def media_type(self) -> str:
        return chosen_syntax(self.syntax, None, self.text).media_type

    @property
    def digest(self) -> str:
        """Tells this text from others, however a browser ends its lines."""
        text = re.sub(r"\r\n?", "\n", self.text.decode("utf-8", "replace")).strip()
        return hashlib.sha256(f"{self.media_type} {text}".encode()).hexdigest()


@pages.get("/schema/change")
def schema_change_form() -> Response:
    """The schema in force to be edited, or an earlier version of it."""
    whole_editor()
    with services().engine.connect() as connection:
        known = services().schemas.now(connection)
    found = _version(request.args["version"]) if "version" in request.args else known
    is_small = len(found.statements) <= MOST_COMPARED
    text = schema_text(found, TURTLE) if found.statements and is_small else b""
    draft = Draft(text, "", str(known.version))
    return page("schema_change.html", draft=draft, syntaxes=SYNTAXES, known=known, earlier=found, is_small=is_small)


@pages.post("/schema/change")
def schema_change() -> Response:
    """Show what a schema would change, or put it in force: only what was looked at, at the version it was held
    against."""
    caller = whole_editor()
    draft = _draft()
    try:
        is_known = draft.version is not None and draft.looked_at == draft.digest
        return _put(draft, caller) if _is_meant() and is_known else _tried(draft, caller)
    except MdvError as error:
        problem = error.problem()
        if isinstance(error, PreconditionFailed):
            detail = "The schema was changed since you looked. See again what your text changes now."
            problem |= {"title": "Somebody was faster", "faster": True, "detail": detail}
            draft = replace(draft, version=None)
        flaws = json.dumps(problem.get("errors", [])[:200])
        return page("schema_change.html", problem["status"], draft=draft, syntaxes=SYNTAXES, problem=problem,
                    flaws=flaws, named=_named(problem), breaking=_is_breaking(problem))  # fmt: skip


def _tried(draft: Draft, caller: Caller) -> Response:
    """What a schema would change, and whom it would concern."""
    tried = change_schema(caller, draft.text, draft.media_type, None, dry_run=True)
    if isinstance(tried, Waiting):
        with services().engine.connect() as connection:
            version = str(read_state(connection).schema_version)
        draft = replace(draft, version=version, looked_at=draft.digest)
        return page("schema_change.html", 202, draft=draft, syntaxes=SYNTAXES, waiting=tried.job)
    result = tried.result
    version = str(result["version"] - 1 if result["changed"] else result["version"])
    warning = None
    if draft.version is not None and draft.version != version:
        warning = f"Somebody changed the schema meanwhile: it is at version {version} now. Putting yours in force " \
                  "replaces what they did."  # fmt: skip
    elif _is_meant() and result["changed"]:
        warning = "This text is not the one that you looked at. Nothing was changed: see what this one would do."
    draft = replace(draft, version=version, looked_at=draft.digest)
    return page("schema_change.html", draft=draft, syntaxes=SYNTAXES, result=result, warning=warning)


def _put(draft: Draft, caller: Caller) -> Response:
    assert draft.version is not None
    changed = change_schema(caller, draft.text, draft.media_type, [draft.version], dry_run=False)
    return go("job" if isinstance(changed, Waiting) else "schema_changed", job=changed.job)


@pages.get("/schema/changed/<job>")
def schema_changed(job: str) -> Response:
    """What came of a schema that was put in force."""
    visitor()
    found = find_job(job)
    if found.kind != "schema" or not found.result or found.result.get("dry_run"):
        return go("job", job=job)
    return page("schema_changed.html", result={"left": 0} | found.result)


def _is_meant() -> bool:
    """Whether it is to be put in force, and not only looked at."""
    return request.form.get("act") == "put"


def _draft() -> Draft:
    file = request.files.get("file")
    version, looked_at = (request.form.get(name) or None for name in ("version", "looked_at"))
    if version is not None and not (version.isascii() and version.isdecimal()):
        raise BadRequest(f"{version[:20]!r} is not the number of a version.")
    syntax = request.form.get("syntax", "")
    if file is not None and file.filename:
        draft = Draft(file.read(), syntax, version, looked_at)
        return replace(draft, syntax=chosen_syntax(draft.syntax, file.filename, draft.text).name)
    text = written(request.form.get("text", ""))
    return Draft(text, syntax, version, looked_at)


def _named(problem: dict[str, Any]) -> list[tuple[str | None, dict[str, Any]]]:
    """The errors of a problem, each with the document that it names, if any: no URI has a space."""
    errors = problem.get("errors", [])
    if not _is_breaking(problem):
        return [(None, error) for error in errors]
    return [(uri if " " not in (uri := error["message"].partition(": ")[0]) else None, error) for error in errors]


def _is_breaking(problem: dict[str, Any]) -> bool:
    return str(problem.get("type")).endswith(f":{BreakingSchema.slug}")


def _may_change(caller: Caller) -> bool:
    return session() is not None and caller.role == "admin" and not caller.is_limited


def _version(text: str | None) -> SchemaInForce:
    """A version of the schema, the one in force where none is asked for."""
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise BadRequest(f"{text[:20]!r} is not the number of a version.")
    with services().engine.connect() as connection:
        newest = read_state(connection).schema_version
        if not text or int(text) == newest:
            return services().schemas.at(connection, newest)
        if int(text) > newest:
            raise NotFound(f"The schema has no version {text}: the newest is {newest}.")
        statements, names = read_schema_version(connection, int(text))
    return in_thread(in_force, int(text), statements, names)
