"""The tree of errors. The docstring of a class is its default message.

MdvError
 ├── NotAllowed                 the caller has no permission
 │    ├── Unauthenticated       401  no token, or an invalid one
 │    └── Forbidden             403  a valid token without this permission
 ├── NotFound                   404  no such document, resource, job, version
 ├── BadRequest                 400  an invalid parameter, header or address
 │    ├── NotAcceptable         406  none of the requested representations is available
 │    ├── UnsupportedMediaType  415  a body in an unsupported syntax
 │    ├── TooLarge              413  a body over the limit
 │    └── TooSlow               408  a body that did not arrive in time
 ├── Refused                         the input was read, but is not accepted
 │    ├── NotWellFormed         400  incomplete or not well-formed input: nothing was parsed
 │    ├── InvalidDocument       422  a document that violates the schema or the rules for documents
 │    ├── InvalidSchema         422  a schema that contradicts itself
 │    ├── InvalidRule           422  a rule or query with a syntax error, or one that the schema gives no meaning
 │    ├── TooCostly             422  a query that takes too long
 │    ├── UpdateFailed          422  an update whose action cannot be carried out
 │    ├── RuleFailed            422  a change that an ECA rule refuses, because its action failed
 │    ├── RulesDoNotEnd         422  a change whose ECA rules trigger each other beyond a limit
 │    └── BreakingSchema        409  a schema that would make rules or stored documents invalid
 ├── Conflict                   409  a conflict with existing data: a rule that another searches, a name in use
 │    ├── NotLead               409  a change that only the lead of a backbone may make
 │    ├── NotHome               409  a request about an LMR that is at home at another member of the backbone
 │    ├── NotReplicated         409  a member leaves before the others have its changes
 │    ├── Forked                409  operations of a life that two databases have continued
 │    └── LinkHasGap            409  messages of a federation that begin after the expected one
 ├── TooMany                    429  too many concurrent requests or jobs of one caller
 ├── MustRefetch                410  a cursor from which the feed cannot continue: take a snapshot
 ├── StateIsNeeded              410  operations of a backbone that are no longer kept
 ├── SiteWasRestored            410  a link of a federation that starts again
 ├── PreconditionFailed         412  If-Match, If-None-Match
 ├── KeyReused                  422  an Idempotency-Key that was used for another request
 ├── BadCommand                      a command that cannot be executed as given
 ├── NotStarted                      a folder, port or user that a system cannot be started with
 ├── Unavailable                503  a part of the system is unreachable; nothing was changed
 │    └── Behind                503  a member of a backbone that lacks changes which an LMR has
 └── SystemNotFound                  the command line found no running MDV

Each has the fields of an RFC 9457 problem, so that HTTP, the command line and a failed job report the same text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Flaw:
    """One error in an input: where it is (`length` characters from `column` on), what is wrong, and what to try."""

    message: str
    line: int | None = None
    column: int | None = None
    subject: str | None = None
    property: str | None = None
    value: str | None = None
    hint: str | None = None
    length: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the flaw as JSON, without fields that are None.

        >>> Flaw("no such class", line=3).as_dict()
        {'message': 'no such class', 'line': 3}
        """
        known = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in known.items() if value is not None}

    def __str__(self) -> str:
        place = ""
        if self.line is not None:
            place = f"line {self.line}" + (f", column {self.column}" if self.column is not None else "") + ": "
        return place + self.message + (f" ({self.hint})" if self.hint else "")


def replace_unstorable(text: str) -> str:
    """Return `text` with NUL and lone surrogates replaced, which Postgres cannot store.

    An error may quote the input that it refuses.

    >>> replace_unstorable("a\\0b")
    'a␀b'
    """
    return text.replace("\0", "␀").encode("utf-8", "replace").decode()


class MdvError(Exception):
    """Something went wrong inside MDV."""

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"

    def __init__(self, detail: str | None = None, flaws: tuple[Flaw, ...] | list[Flaw] = (), **extra: Any) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip().splitlines()[0]
        self.flaws = tuple(flaws)
        self.extra = extra
        super().__init__(self.detail)

    def problem(self) -> dict[str, Any]:
        """Return the error as an RFC 9457 problem.

        >>> NotFound("There is no job 7.").problem()["type"]
        'urn:mdv:problem:not-found'
        """
        body: dict[str, Any] = {
            "type": f"urn:mdv:problem:{self.slug}",
            "title": self.title,
            "status": self.status,
            "detail": replace_unstorable(self.detail),
        }
        if self.flaws:
            body["errors"] = [
                {
                    name: replace_unstorable(value) if isinstance(value, str) else value
                    for name, value in flaw.as_dict().items()
                }
                for flaw in self.flaws
            ]
        return body | self.extra

    @classmethod
    def from_problem(cls, problem: dict[str, Any]) -> MdvError:
        """Return the error that `problem` was made from, for example the error of a failed job.

        >>> MdvError.from_problem(NotFound("There is no job 7.").problem())
        NotFound('There is no job 7.')
        """
        known = {"type", "title", "status", "detail", "errors"}
        kind = _BY_SLUG.get(str(problem.get("type", "")).removeprefix("urn:mdv:problem:"), cls)
        flaws = [Flaw(**flaw) for flaw in problem.get("errors", [])]
        return kind(problem.get("detail"), flaws, **{k: v for k, v in problem.items() if k not in known})


class NotAllowed(MdvError):
    """You do not have permission for this."""

    status, slug, title = 403, "not-allowed", "Not allowed"


class Unauthenticated(NotAllowed):
    """This request needs a token: send the header `Authorization: Bearer TOKEN`."""

    status, slug, title = 401, "unauthenticated", "Not signed in"


class Forbidden(NotAllowed):
    """This token does not have permission for this."""

    status, slug, title = 403, "forbidden", "Forbidden"


class NotFound(MdvError):
    """This does not exist."""

    status, slug, title = 404, "not-found", "Not found"


class BadRequest(MdvError):
    """The request cannot be understood."""

    status, slug, title = 400, "bad-request", "Bad request"


class NotAcceptable(BadRequest):
    """None of the requested representations is available."""

    status, slug, title = 406, "not-acceptable", "Not acceptable"


class UnsupportedMediaType(BadRequest):
    """The syntax of the body is not supported."""

    status, slug, title = 415, "unsupported-media-type", "Syntax not supported"


class TooLarge(BadRequest):
    """The body is larger than the limit."""

    status, slug, title = 413, "too-large", "Too large"


class TooSlow(BadRequest):
    """The body did not arrive in time; nothing was changed."""

    status, slug, title = 408, "too-slow", "Too slow"


class Refused(MdvError):
    """The input is not accepted; nothing was changed."""

    status, slug, title = 422, "refused", "Refused"


class NotWellFormed(Refused):
    """The text is incomplete or not well-formed; nothing was changed."""

    status, slug, title = 400, "not-well-formed", "Not well-formed"


class InvalidDocument(Refused):
    """The document violates the schema; nothing was changed."""

    status, slug, title = 422, "invalid-document", "Document refused"


class InvalidSchema(Refused):
    """The schema contradicts itself; nothing was changed."""

    status, slug, title = 422, "invalid-schema", "Schema refused"


class InvalidRule(Refused):
    """The rule has an error; nothing was changed."""

    status, slug, title = 422, "invalid-rule", "Rule refused"


class InvalidProgram(Refused):
    """The program has an error; it was not run."""

    status, slug, title = 422, "invalid-program", "Program refused"


class ProgramStopped(Refused):
    """An error or a limit ended the program."""

    status, slug, title = 422, "program-stopped", "Program stopped"


class TooCostly(Refused):
    """The query timed out."""

    status, slug, title = 422, "too-costly", "Too costly"


class UpdateFailed(Refused):
    """An action of the update cannot be carried out; nothing was changed."""

    status, slug, title = 422, "update-failed", "The update failed"


class RuleFailed(Refused):
    """An event-condition-action rule failed, so the change was refused."""

    record: Any = None
    """What the rules did until then, to be stored."""
    status, slug, title = 422, "rule-failed", "A rule failed"


class RulesDoNotEnd(Refused):
    """Event-condition-action rules trigger each other without an end, so the change was refused."""

    record: Any = None
    """What the rules did until then, to be stored."""
    status, slug, title = 422, "rules-do-not-end", "Rules do not end"


class BreakingSchema(Refused):
    """The schema would make stored data invalid; nothing was changed."""

    status, slug, title = 409, "breaking-schema", "Schema would make stored data invalid"


class Conflict(MdvError):
    """The request conflicts with existing data."""

    status, slug, title = 409, "conflict", "Conflict"


class NotLead(Conflict):
    """Only the lead of the backbone can do this."""

    status, slug, title = 409, "not-lead", "Not the lead"


class NotReplicated(Conflict):
    """The other members do not have all changes of this one yet."""

    status, slug, title = 409, "not-replicated", "Not replicated"


class NotHome(Conflict):
    """This LMR is at home at another member of the backbone."""

    status, slug, title = 409, "not-home", "Not the home"


class Forked(Conflict):
    """Two databases have continued this life, so its operations are not applied."""

    status, slug, title = 409, "forked", "Forked life"


class LinkHasGap(Conflict):
    """The messages of a federation begin after the expected one: send them from `expected` on."""

    status, slug, title = 409, "gap", "Messages are missing"


class TooMany(MdvError):
    """Too many concurrent requests."""

    status, slug, title = 429, "too-many", "Too many requests"


class MustRefetch(MdvError):
    """The feed cannot continue from this cursor: take a snapshot with a request without `after`."""

    status, slug, title = 410, "must-refetch", "Snapshot required"


class StateIsNeeded(MdvError):
    """These operations are no longer kept: the state must be transferred."""

    status, slug, title = 410, "state-needed", "State needed"


class SiteWasRestored(MdvError):
    """A side of this link of a federation was restored from a backup: the link starts again."""

    status, slug, title = 410, "site-restored", "The link starts again"


class PreconditionFailed(MdvError):
    """The stored version is not the one that the request names."""

    status, slug, title = 412, "precondition-failed", "Precondition failed"


class KeyReused(MdvError):
    """This Idempotency-Key was already used for another request: use a new one."""

    status, slug, title = 422, "idempotency-key-reused", "Idempotency-Key reused"


class BadCommand(MdvError):
    """The command cannot be executed as given."""

    slug, title = "bad-command", "Invalid command"


class NotStarted(MdvError):
    """MDV cannot be started here."""

    slug, title = "not-started", "Cannot start"


class Unavailable(MdvError):
    """A part of the system is unreachable; nothing was changed. Try again shortly."""

    status, slug, title = 503, "unavailable", "Unavailable"


class Behind(Unavailable):
    """This member of the backbone does not have all changes that the LMR has. Try again shortly."""

    status, slug, title = 503, "behind", "Behind"


class SystemNotFound(MdvError):
    """No running MDV was found: start one with `make up`, or name one with --data DIR or MDV_URL."""

    slug, title = "system-not-found", "No running MDV"


def _descendants(kind: type[MdvError]) -> list[type[MdvError]]:
    return [kind, *(d for child in kind.__subclasses__() for d in _descendants(child))]


_BY_SLUG = {kind.slug: kind for kind in _descendants(MdvError)}
