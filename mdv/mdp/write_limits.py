"""Write limits: the URI prefixes of documents and resources that a caller may change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mdv.db.delta import EffectiveEdits
from mdv.errors import Forbidden
from mdv.model import is_blank
from mdv.uris import has_dot_segments


class WriteLimits(NamedTuple):
    """The prefixes of the documents that a caller may write, and of the resources that it may describe. None: any."""

    documents: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None

    def check(self, edits: EffectiveEdits) -> None:
        """Raise `Forbidden` if an edit is outside of the limits."""
        if self == UNLIMITED:
            return
        for action, changes in (("describe", edits.added), ("remove statements about", edits.removed)):
            for document, statement in changes:
                refuse_foreign_document(document, self.documents)
                refuse_foreign_subjects([statement.subject], document, self.resources, action)

    def contain(self, other: WriteLimits) -> bool:
        """True if a caller with these limits may write all that one with the others may.

        >>> WriteLimits(resources=("http://a/",)).contain(WriteLimits(resources=("http://a/b/",)))
        True
        >>> WriteLimits(resources=("http://a/",)).contain(UNLIMITED)
        False
        """
        return all(
            own is None or (others is not None and all(is_below_prefix(prefix, own) for prefix in others))
            for own, others in zip(self, other, strict=True)
        )

    def as_json(self) -> dict[str, list[str] | None]:
        """Return the limits as JSON.

        >>> WriteLimits.from_json(WriteLimits(("http://a/",)).as_json())
        WriteLimits(documents=('http://a/',), resources=None)
        """
        return {name: None if prefixes is None else list(prefixes) for name, prefixes in self._asdict().items()}

    @classmethod
    def from_json(cls, given: Mapping[str, list[str] | None]) -> WriteLimits:
        """Return the limits that `as_json` wrote."""
        return cls(**{name: None if prefixes is None else tuple(prefixes) for name, prefixes in given.items()})


UNLIMITED = WriteLimits()


def refuse_foreign_document(document: str, prefixes: tuple[str, ...] | None) -> None:
    """Raise `Forbidden` if a document is outside of the prefixes."""
    if prefixes is not None and not is_below_prefix(document, prefixes):
        raise Forbidden(
            f"This token may not write {document}: it is limited to {', '.join(prefixes) or 'no prefix'}."
            " Nothing was changed. Use a token whose `--documents` prefixes cover it, or one without that limit."
        )


def refuse_foreign_subjects(
    subjects: Iterable[str], document: str, prefixes: tuple[str, ...] | None, action: str
) -> None:
    """Raise `Forbidden` if one of the subjects is outside of the prefixes. `action`: what the caller may not do."""
    if prefixes is None:
        return
    foreign = sorted(subject for subject in subjects if not _may_describe(subject, document, prefixes))
    if not foreign:
        return
    others = f" and {len(foreign) - 1} other resources" if len(foreign) > 1 else ""
    reason = f"it is limited to resources below {', '.join(prefixes) or 'no prefix'}"
    if has_dot_segments(foreign[0]):
        reason = "a limited token accepts no URI with a '.' or '..' segment, plain or percent-encoded"
    raise Forbidden(
        f"This token may not {action} {foreign[0]}{others}: {reason}. Nothing was changed in {document}."
        " Use a token whose `--resources` prefixes cover them all, or one without that limit."
    )


def _may_describe(subject: str, document: str, prefixes: tuple[str, ...]) -> bool:
    return is_below_prefix(subject, prefixes) or (is_blank(subject) and subject.startswith(document))


def is_below_prefix(uri: str, prefixes: Iterable[str]) -> bool:
    """True if `uri` is one of `prefixes` or below one. A prefix matches only up to the end of a part of the URI. A URI
    with dot segments is below no prefix, since resolving them may give another URI.

    >>> is_below_prefix("http://a.org/x", ["http://a.org"]), is_below_prefix("http://a.org.evil/x", ["http://a.org"])
    (True, False)
    >>> is_below_prefix("http://a.org/x/%2E%2e/y", ["http://a.org/x/"])
    False
    """
    return not has_dot_segments(uri) and any(
        uri.startswith(prefix)
        and (prefix[-1:] in "/#?:=&" or uri[len(prefix) : len(prefix) + 1] in ("", "/", "#", "?"))
        for prefix in prefixes
    )
