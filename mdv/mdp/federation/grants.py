"""The privileges of other superpeers, as they are stored and edited."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mdv.errors import BadRequest
from mdv.federation.privileges import Grant, GrantKind, Privilege


def read_grants(stored: Iterable[Sequence[str]]) -> tuple[Grant, ...]:
    """Return grants from JSON: kind, name and privilege of each. Raise `BadRequest`.

    >>> read_grants([["class", "http://v/Book", "read-only"]])[0].privilege.value
    'read-only'
    """
    found = []
    for kind, name, privilege in stored:
        try:
            found.append(Grant(GrantKind(kind), name, Privilege(privilege)))
        except ValueError:
            raise BadRequest(
                f"{kind!r} {name!r} {privilege!r} is no privilege. The kind is one of"
                f" {', '.join(one.value for one in GrantKind)}; the privilege one of"
                f" {', '.join(one.value for one in Privilege)}."
            ) from None
    return tuple(found)


def write_grants(grants: Iterable[Grant]) -> list[list[str]]:
    """Return grants as JSON."""
    return [[one.kind.value, one.name, one.privilege.value] for one in grants]
