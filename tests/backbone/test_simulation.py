"""Simulated schedules of a backbone in memory, and faults that they must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mdv.backbone import document_state, member, memory_store, stability
from mdv.backbone.cset import CSet
from mdv.backbone.member import BackboneMember
from mdv.backbone.membership import MemberTable
from mdv.backbone.memory_store import MemoryReplicaStore
from mdv.backbone.operation import SCHEMA
from mdv.backbone.orset import AddWinsSet
from mdv.backbone.sums import sums_of
from tests.support.backbone_simulation import SimulationFailed, run_schedules

QUICK, FULL, STEP = 150, 10_000, 2_500
KINDS_OF_STEPS = {"join", "write", "delivered", "repeated", "dropped", "settle", "partition", "restart", "restore",
                  "restore noticed", "close", "lead", "schema", "rules"}  # fmt: skip


@pytest.mark.parametrize("mode", ["orset", "cset"])
def test_members_converge_and_lose_nothing(mode: str) -> None:
    counts = run_schedules(mode, range(QUICK))
    assert counts.keys() >= KINDS_OF_STEPS


@pytest.mark.full
@pytest.mark.parametrize("mode", ["orset", "cset"])
@pytest.mark.parametrize("first", range(0, FULL // 2, STEP))
def test_members_converge_in_ten_thousand_schedules(mode: str, first: int) -> None:
    """Both modes together run 10,000 schedules, in parts of 2,500."""
    counts = run_schedules(mode, range(first, first + STEP))
    assert counts.keys() >= KINDS_OF_STEPS


Patch = Callable[[pytest.MonkeyPatch], None]


def deletions_remove_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AddWinsSet, "remote_delete", lambda self, state, number, deps: frozenset())


def insertions_send_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CSet, "insert", lambda self, state, dot: (max(state, 0) + 1, 1))


def repeated_operations_are_applied_again(patch: pytest.MonkeyPatch) -> None:
    """The vector is not looked at: an operation that comes again is merged again."""
    original = BackboneMember._hold

    def hold(self: BackboneMember, rows: Any, sender: str) -> None:
        work = member._Work(self.store, self.kind)
        for row in rows:
            if self._is_applied(row) and row.life != self.store.facts.life:
                work.merge(member.decode_operation(row.body))
        work.write()
        original(self, rows, sender)

    patch.setattr(BackboneMember, "_hold", hold)


def dependencies_are_not_awaited(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BackboneMember, "_is_ready", lambda self, operation: True)


def own_operations_are_stable(patch: pytest.MonkeyPatch) -> None:
    """The log is truncated before the others have it."""
    patch.setattr(stability.VectorReports, "stable", lambda self, table, life, ours, before: dict(ours))


def transfers_compare_content_alone(patch: pytest.MonkeyPatch) -> None:
    def sums(documents: Any) -> dict[int, int]:
        return sums_of([(uri, document._replace(version=0)) for uri, document in documents])

    patch.setattr(memory_store, "sums_of", sums)


def the_last_prefixes_to_arrive_win(patch: pytest.MonkeyPatch) -> None:
    original = document_state.advance

    def advance(document: Any, change: Any, operation: Any, more: int, content: int) -> Any:
        return original(document._replace(prefixes_by=(0, "")), change, operation, more, content)

    patch.setattr(document_state, "advance", advance)


def versions_count_visible_changes_only(patch: pytest.MonkeyPatch) -> None:
    original = document_state.merge_change

    def merge(kind: Any, document: Any, states: Any, change: Any, operation: Any) -> Any:
        applied = original(kind, document, states, change, operation)
        if applied.gained or applied.lost:
            return applied
        return applied._replace(document=applied.document._replace(version=document.version))

    patch.setattr(member, "merge_change", merge)


def digests_are_taken_as_given(patch: pytest.MonkeyPatch) -> None:
    original = document_state.advance

    def advance(document: Any, change: Any, operation: Any, more: int, content: int) -> Any:
        return original(document, change, operation, more, change.content)

    patch.setattr(document_state, "advance", advance)


def restored_members_go_on_in_their_old_life(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BackboneMember, "return_in_new_life", lambda self, now, is_behind=False: None)
    patch.setattr(BackboneMember, "start", lambda self: None)


def lives_are_closed_without_promises(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BackboneMember, "_limit", lambda self, life, unlimited: unlimited)


def marks_are_dropped_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AddWinsSet, "is_settled", lambda self, state, row, stable: True)
    patch.setattr(CSet, "is_settled", lambda self, state, row, stable: True)


def transfers_leave_out_marks(patch: pytest.MonkeyPatch) -> None:
    original = MemoryReplicaStore.all_states
    patch.setattr(MemoryReplicaStore, "all_states", lambda self, uri: {
        one: state for one, state in original(self, uri).items() if one in self.statements(uri)
    })  # fmt: skip


def change_schema_if(patch: pytest.MonkeyPatch, replaces: Callable[[tuple[Any, ...], tuple[Any, ...]], bool]) -> None:
    original = MemberTable.apply

    def apply(self: MemberTable, operation: Any) -> None:
        if operation.kind != SCHEMA:
            return original(self, operation)
        found = (operation.data["term"], operation.data["number"], operation.life)
        if replaces(found, (*self.schema, self.schema_by)):
            self.schema, self.schema_by, self.schema_text = found[:2], found[2], operation.data["schema"]
        return None

    patch.setattr(MemberTable, "apply", apply)


def the_last_schema_to_arrive_is_in_force(patch: pytest.MonkeyPatch) -> None:
    change_schema_if(patch, lambda found, stored: True)


def schemas_of_two_leads_are_not_ordered(patch: pytest.MonkeyPatch) -> None:
    """Two members have taken the lead at the same time, and have used the same number."""
    change_schema_if(patch, lambda found, stored: found[:2] > stored[:2])


def terms_are_not_raised(patch: pytest.MonkeyPatch) -> None:
    """A new lead goes on in the term of the old one, which is still there."""

    def set_lead(self: BackboneMember, name: str, now: int) -> None:
        term, number, _ = self.store.facts.table.lead
        self._announce(member.MEMBERS, {"term": term, "number": number + 1, "lead": name}, now)

    patch.setattr(BackboneMember, "set_lead", set_lead)


def the_last_rules_to_arrive_win(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(member, "later_registers", lambda given, stored: dict(given))


def rules_are_not_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BackboneMember, "_redo_rules", lambda self, drafts: None)


def operations_under_an_older_schema_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(member, "is_under_another_schema", lambda operation, store: False)


def rules_are_not_transferred(patch: pytest.MonkeyPatch) -> None:
    original = BackboneMember._take_state
    patch.setattr(BackboneMember, "_take_state", lambda self, message: original(self, message._replace(registers={})))


@pytest.mark.parametrize(
    ("fault", "mode", "first"),
    [
        (deletions_remove_everything, "orset", 0),
        (insertions_send_one, "cset", 90),
        (repeated_operations_are_applied_again, "cset", 0),
        (dependencies_are_not_awaited, "orset", 20),
        (own_operations_are_stable, "orset", 0),
        (transfers_compare_content_alone, "orset", 310),
        (the_last_prefixes_to_arrive_win, "orset", 0),
        (versions_count_visible_changes_only, "cset", 0),
        (digests_are_taken_as_given, "orset", 0),
        (restored_members_go_on_in_their_old_life, "orset", 0),
        (lives_are_closed_without_promises, "orset", 15),
        (marks_are_dropped_at_once, "orset", 360),
        (marks_are_dropped_at_once, "cset", 0),
        (transfers_leave_out_marks, "cset", 0),
        (the_last_schema_to_arrive_is_in_force, "orset", 200),
        (schemas_of_two_leads_are_not_ordered, "orset", 1_130),
        (terms_are_not_raised, "orset", 160),
        (the_last_rules_to_arrive_win, "orset", 0),
        (rules_are_not_repeated, "orset", 30),
        (rules_are_not_transferred, "orset", 0),
        (operations_under_an_older_schema_are_not_checked, "orset", 0),
    ],
)
def test_a_planted_fault_is_found(fault: Patch, mode: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`first`: shortly before a schedule that finds the fault, which saves time."""
    fault(monkeypatch)
    with pytest.raises(SimulationFailed, match=f"Replay with: .* --mode {mode} --seed [0-9]+"):
        run_schedules(mode, range(first, first + 2_000))
