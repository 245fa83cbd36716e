"""What can go wrong, as a tree. A class's docstring is its default message.

MdvError
 ├── NotAllowed                 the caller may not
 │    ├── Unauthenticated       401  no token, or one that opens nothing
 │    └── Forbidden             403  a good token for something else
 ├── NotFound                   404  no such document, resource, job, version
 ├── BadRequest                 400  a parameter, header or address that cannot be meant
 │    ├── NotAcceptable         406  none of the asked representations is on offer
 │    ├── UnsupportedMediaType  415  a body in a syntax that is not read
 │    ├── TooLarge              413  a body over the limit
 │    └── TooSlow               408  a body that does not arrive
 ├── Refused                         the input was read, and is not accepted
 │    ├── NotWellFormed         400  not whole and well-formed: nothing was parsed
 │    ├── InvalidDocument       422  parsed, and at odds with the schema or the laws of documents
 │    ├── InvalidSchema         422  a schema that contradicts itself
 │    ├── InvalidRule           422  a rule or query that cannot be read, or that the schema gives no meaning
 │    ├── TooCostly             422  a query that takes too long
 │    └── BreakingSchema        409  a schema that rules or stored documents could not live with
 ├── Conflict                   409  something else stands in the way: a rule that another searches, a name taken
 ├── TooMany                    429  more at once than one caller may have
 ├── MustRefetch                410  a cursor from which the feed cannot go on: take a snapshot
 ├── PreconditionFailed         412  If-Match, If-None-Match
 ├── KeyReused                  422  an Idempotency-Key that stood for another request
 ├── BadCommand                      a command that cannot be carried out as it was given
 ├── NotStarted                      a folder, a port or a user that a system cannot be started with
 ├── Unavailable                503  a part of the system is away; nothing was changed
 └── SystemNotFound                  the command line found no running MDV

Each carries what RFC 9457 asks for, so that HTTP, the command line and a failed job say the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing wrong in an input: where (so many characters from a column on), what, and what to try."""

    message: str
    line: int | None = None
    column: int | None = None
    subject: str | None = None
    property: str | None = None
    value: str | None = None
    hint: str | None = None
    length: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The flaw as JSON, without what is not known.

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


def storable(text: str) -> str:
    """`text` without what neither Postgres nor JSON can hold: an error may quote the very thing that it refuses.

    >>> storable("a\\0b")
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
        """The error as an RFC 9457 problem.

        >>> NotFound("There is no job 7.").problem()["type"]
        'urn:mdv:problem:not-found'
        """
        body: dict[str, Any] = {
            "type": f"urn:mdv:problem:{self.slug}",
            "title": self.title,
            "status": self.status,
            "detail": storable(self.detail),
        }
        if self.flaws:
            body["errors"] = [
                {name: storable(value) if isinstance(value, str) else value for name, value in flaw.as_dict().items()}
                for flaw in self.flaws
            ]
        return body | self.extra

    @classmethod
    def from_problem(cls, problem: dict[str, Any]) -> MdvError:
        """The error that `problem` was made from: a failed job's words, said again.

        >>> MdvError.from_problem(NotFound("There is no job 7.").problem())
        NotFound('There is no job 7.')
        """
        known = {"type", "title", "status", "detail", "errors"}
        kind = _BY_SLUG.get(str(problem.get("type", "")).removeprefix("urn:mdv:problem:"), cls)
        flaws = [Flaw(**flaw) for flaw in problem.get("errors", [])]
        return kind(problem.get("detail"), flaws, **{k: v for k, v in problem.items() if k not in known})


class NotAllowed(MdvError):
    """This caller may not do that."""

    status, slug, title = 403, "not-allowed", "Not allowed"


class Unauthenticated(NotAllowed):
    """This call needs a token: send the header `Authorization: Bearer TOKEN`."""

    status, slug, title = 401, "unauthenticated", "Not signed in"


class Forbidden(NotAllowed):
    """This token does not open that."""

    status, slug, title = 403, "forbidden", "Not with this token"


class NotFound(MdvError):
    """There is no such thing here."""

    status, slug, title = 404, "not-found", "Not found"


class BadRequest(MdvError):
    """The request cannot be understood."""

    status, slug, title = 400, "bad-request", "Bad request"


class NotAcceptable(BadRequest):
    """None of the representations asked for is on offer."""

    status, slug, title = 406, "not-acceptable", "Not on offer"


class UnsupportedMediaType(BadRequest):
    """The body is in a syntax that MDV does not read."""

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
    """The text is not whole and well-formed; nothing was changed."""

    status, slug, title = 400, "not-well-formed", "Not well-formed"


class InvalidDocument(Refused):
    """The document is at odds with the schema; nothing was changed."""

    status, slug, title = 422, "invalid-document", "Document refused"


class InvalidSchema(Refused):
    """The schema contradicts itself; nothing was changed."""

    status, slug, title = 422, "invalid-schema", "Schema refused"


class InvalidRule(Refused):
    """The rule cannot be read, or the schema gives it no meaning; nothing was changed."""

    status, slug, title = 422, "invalid-rule", "Rule refused"


class TooCostly(Refused):
    """The query takes too long, and was given up."""

    status, slug, title = 422, "too-costly", "Too costly"


class BreakingSchema(Refused):
    """The schema would break what is stored; nothing was changed."""

    status, slug, title = 409, "breaking-schema", "Schema would break what is stored"


class Conflict(MdvError):
    """Something else stands in the way."""

    status, slug, title = 409, "conflict", "Conflict"


class TooMany(MdvError):
    """This is more at once than one caller may have."""

    status, slug, title = 429, "too-many", "Too many at once"


class MustRefetch(MdvError):
    """The feed cannot go on from this cursor: take a snapshot, by asking without `after`."""

    status, slug, title = 410, "must-refetch", "Take a snapshot"


class PreconditionFailed(MdvError):
    """The stored version is not the one that the request was made for."""

    status, slug, title = 412, "precondition-failed", "Precondition failed"


class KeyReused(MdvError):
    """This Idempotency-Key has already been used for another request; take a new one."""

    status, slug, title = 422, "idempotency-key-reused", "Idempotency-Key used twice"


class BadCommand(MdvError):
    """The command cannot be carried out as it was given."""

    slug, title = "bad-command", "Cannot do that"


class NotStarted(MdvError):
    """MDV cannot be started here."""

    slug, title = "not-started", "Cannot start"


class Unavailable(MdvError):
    """A part of the system is away; nothing was changed, try again shortly."""

    status, slug, title = 503, "unavailable", "Not available now"


class SystemNotFound(MdvError):
    """No running MDV was found: start one with `make up`, or say which with --data DIR or MDV_URL."""

    slug, title = "system-not-found", "No running MDV"


def _descendants(kind: type[MdvError]) -> list[type[MdvError]]:
    return [kind, *(d for child in kind.__subclasses__() for d in _descendants(child))]


_BY_SLUG = {kind.slug: kind for kind in _descendants(MdvError)}
