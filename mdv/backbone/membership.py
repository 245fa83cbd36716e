"""The members of a backbone: their lives, and which lives have ended.

The table is changed by operations only, and the result does not depend on their order: lives are added and ended, never
taken back. The lead adds members and closes lives; a member begins lives of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mdv.backbone.operation import LIFE, MEMBERS, SCHEMA, Operation
from mdv.backbone.vector import Life, joined


@dataclass(slots=True)
class MemberLives:
    """The lives of a member. It is active if it has one that has not ended. `url`: where others reach it. `key`: its
    public key."""

    begun: set[Life] = field(default_factory=set)
    ended: set[Life] = field(default_factory=set)
    is_removed: bool = False
    url: str = ""
    key: str = ""

    @property
    def current(self) -> set[Life]:
        return set() if self.is_removed else self.begun - self.ended


@dataclass(slots=True)
class MemberTable:
    """All members by name.

    `closed`: lives that were closed while their member was away, with their last valid operations. `closings`: the
    operations that closed them. `lead` and `schema` are in force with the highest term and number. Two members that
    take the lead at the same time use the same ones: then the greater name, or life (`schema_by`), decides.
    `schema_text`: the schema, as its operation has it. `backbone_id`: the life that founded the backbone.
    """

    members: dict[str, MemberLives] = field(default_factory=dict)
    closed: dict[Life, int] = field(default_factory=dict)
    closings: dict[Life, int] = field(default_factory=dict)
    lead: tuple[int, int, str] = (0, 0, "")
    schema: tuple[int, int] = (0, 0)
    schema_text: str | None = None
    backbone_id: str = ""
    schema_by: Life = ""

    def copy(self) -> MemberTable:
        members = {name: replace(one, begun=set(one.begun), ended=set(one.ended))
                   for name, one in self.members.items()}  # fmt: skip
        return replace(self, members=members, closed=dict(self.closed), closings=dict(self.closings))

    def apply(self, operation: Operation) -> None:
        """Apply an operation of the kind `life`, `members` or `schema`."""
        data: Mapping[str, Any] = operation.data or {}
        if operation.kind == LIFE:
            member = self._member(data["member"])
            member.begun.add(data["life"])
            member.ended.update(data["after"])
        elif operation.kind == MEMBERS:
            self.lead = max(self.lead, (data["term"], data["number"], data["lead"]))
            self.backbone_id = data.get("id", self.backbone_id)
            for name, life in data.get("add", {}).items():
                self._member(name).begun.add(life)
            for name, contact in data.get("contacts", {}).items():
                member = self._member(name)
                member.url, member.key = contact["url"], contact["key"]
            for life, seq in data.get("close", {}).items():
                self.closed[life] = max(seq, self.closed.get(life, 0))
            if "close" in data:
                self.closings = joined(self.closings, {operation.life: operation.seq})
            for name, lives in data.get("end", {}).items():
                self._member(name).ended.update(lives)
            for name in data.get("remove", ()):
                self._member(name).is_removed = True
        elif operation.kind == SCHEMA:
            number = data["term"], data["number"]
            if (*number, operation.life) > (*self.schema, self.schema_by):
                self.schema, self.schema_by, self.schema_text = number, operation.life, data["schema"]

    def _member(self, name: str) -> MemberLives:
        return self.members.setdefault(name, MemberLives())

    def active(self) -> list[str]:
        """Return the names of the members that have a current life."""
        return [name for name, member in self.members.items() if member.current]

    def current_lives(self) -> Iterator[Life]:
        for member in self.members.values():
            yield from member.current

    def lives_of(self, name: str) -> set[Life]:
        """Return all lives of a member, also those that have ended."""
        return self.members[name].begun if name in self.members else set()

    def is_ended(self, life: Life) -> bool:
        return any(life in member.ended for member in self.members.values())

    def owner_of(self, life: Life) -> str | None:
        return next((name for name, member in self.members.items() if life in member.begun), None)

    def is_member(self, name: str) -> bool:
        return name in self.members and not self.members[name].is_removed

    def is_quorum(self, name: str, seen_by: Collection[str]) -> bool:
        """True if a new life of a member may act. Half of the members must know it: then one of them takes part in
        every closing. It is enough if all others that are active know it."""
        remaining = [other for other, member in self.members.items() if not member.is_removed]
        others = {other for other in self.active() if other != name}
        return 2 * len(set(seen_by) & set(remaining) - {name}) >= len(remaining) or others <= set(seen_by)

    def is_majority(self, names: Iterable[str]) -> bool:
        """True if these members are more than half of those that were not removed."""
        remaining = [name for name, member in self.members.items() if not member.is_removed]
        return 2 * len(set(names) & set(remaining)) > len(remaining)
